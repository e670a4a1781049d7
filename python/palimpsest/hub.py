"""Models by name, as `palimpsest pull` fetches them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import _palimpsest


def pull(model: str, *, save_as: str = "", progress: Callable[[int, int], Any] | None = None) -> str:
    """Fetches a model, unless it is there, and returns the path of its file.

    Args:
        model: a name of `catalogue()`, ``hf:USER/REPO[:QUANT]``, or the address of a GGUF file.
        save_as: the name of a model that is pulled by its address; "": the file's.
        progress: called with the bytes so far and of all files (0: unknown).

    Raises:
        Error: no such model, no network, damaged, or no room. An interrupted download goes on at the next call.
    """
    return _palimpsest.pull(model, save_as, progress)


def pulled() -> list[dict[str, Any]]:
    """The pulled models: name, path, bytes, licence, source."""
    return list(_palimpsest.pulled_models())


def catalogue() -> list[str]:
    """The names that can be pulled without an address."""
    return list(_palimpsest.catalogue())
