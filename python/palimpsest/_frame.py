"""The DataFrame that `evaluate.sweep` returns. Imported where pandas is there."""

from __future__ import annotations

import shutil

import numpy as np
import pandas  # type: ignore[import-untyped,unused-ignore]


class Frame(pandas.DataFrame):  # type: ignore[misc,unused-ignore]
    """A DataFrame that prints whole: every row, and every column of single values, wrapped to the terminal.

    Columns of lists and arrays (``cells``, ``losses``, ``answers``) are there and not printed.
    """

    @property
    def _constructor(self) -> type[Frame]:
        return Frame

    def _printed(self) -> pandas.DataFrame:
        single = [not any(isinstance(cell, (list, tuple, dict, np.ndarray)) for cell in self[name]) for name in self.columns]
        return pandas.DataFrame(self.loc[:, single])

    def __repr__(self) -> str:
        return str(self._printed().to_string(line_width=shutil.get_terminal_size((120, 24)).columns))

    def _repr_html_(self) -> str:
        return str(self._printed().to_html())
