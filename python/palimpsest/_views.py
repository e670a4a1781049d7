"""Arrays of a step, which end with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray


class StepPassed(RuntimeError):
    """An array of a step was used after the session's next step."""


class StepArray:
    """A NumPy array of one step of a session: keys, values, weights.

    It can be indexed, and passed to NumPy, until the session reads another token. Later access raises `StepPassed`. What
    must live longer is copied before: `copy()`. The memory is the array's own, and is never reused while an array or a
    slice of it exists.
    """

    __slots__ = ("_array", "_now", "_step", "_what")

    def __init__(self, array: NDArray[Any], what: str, now: Callable[[], int]) -> None:
        self._array: NDArray[Any] | None = array
        self._what, self._now, self._step = what, now, now()

    def _valid(self) -> NDArray[Any]:
        if self._array is None or self._now() != self._step:
            self._array = None  # frees the memory
            raise StepPassed(f"{self._what} of step {self._step}: the session is at step {self._now()}; copy() them before")
        return self._array

    def copy(self) -> NDArray[Any]:
        """A NumPy array that stays."""
        return self._valid().copy()

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the array."""
        return self._valid().shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """float32, or int64 for positions."""
        return self._valid().dtype

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        array = self._valid()
        if dtype is not None and dtype != array.dtype:
            if copy is False:
                raise ValueError("another dtype needs a copy")
            return array.astype(dtype)
        return array.copy() if copy else array

    def __getitem__(self, index: Any) -> Any:
        return self._valid()[index]

    def __len__(self) -> int:
        return len(self._valid())

    def __iter__(self) -> Iterator[Any]:
        return iter(self._valid())

    def __repr__(self) -> str:
        return f"<{self._what} of step {self._step}{' (passed)' if self._now() != self._step else ''}>"
