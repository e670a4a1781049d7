"""One sequence with its cache, step by step."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _palimpsest
from ._method import method_text
from ._views import StepArray
from .memory import MemoryMap, read_memory

Tokens = Sequence[int] | NDArray[np.integer[Any]]


class Session:
    """A sequence and its cache. Made by `Model.session`.

    One thread runs a session at a time; others wait. Sessions of one model are independent and share its weights.
    """

    def __init__(
        self,
        model: _palimpsest.Model,
        method: str = "streaming",
        *,
        budget: int | None = None,
        cache_type: str = "f16",
        cache_type_v: str | None = None,
        chunk: int = 512,
        page_size: int = 64,
        layerwise: bool = False,
        attention: bool = False,
        record_memory: bool = False,
        **options: Any,
    ) -> None:
        """See `Model.session`."""
        self._model = model
        self._native = _palimpsest.Session(
            model, method_text(method, budget=budget, **options), cache_type, cache_type_v or cache_type, chunk, page_size,
            layerwise, attention, record_memory,
        )  # fmt: skip

    def prefill(self, tokens: Tokens) -> NDArray[np.float32]:
        """Reads a prompt, or more of it, in chunks, and evicts down to the budget.

        Returns:
            float32 [vocabulary]: the logits after the last token.

        Raises:
            Error: no tokens, a token outside the vocabulary, or not enough memory.
            PolicyError: a policy written in Python failed. The session is unusable until `clear()`.
            KeyboardInterrupt: Ctrl-C, checked after each chunk.
        """
        return self._native.prefill(_ids(tokens))

    def decode(self, token: int) -> NDArray[np.float32]:
        """Reads one token. Returns the logits of the next, float32 [vocabulary]. Raises as `prefill`."""
        return self._native.decode(int(token))

    def read(self, tokens: Tokens) -> NDArray[np.float32]:
        """Reads a prompt. Returns the logits after every token, float32 [tokens, vocabulary]. Raises as `prefill`."""
        return self._native.read(_ids(tokens))

    def rewind(self, position: int) -> None:
        """Forgets the tokens from `position` on. Evicted tokens stay evicted. Raises Error beyond the text."""
        self._native.rewind(position)

    def edit(self, first: int, last: int, tokens: Tokens = (), *, mode: str = "reuse") -> NDArray[np.float32]:
        """Replaces the tokens at positions `first` to `last - 1` of the text by others; none: removes them.

        Args:
            mode: ``"reuse"``: the tokens behind keep their keys and values, moved to their new positions; ``"exact"``: reads
                again from the edit on (docs/edits.md).

        Returns:
            float32 [vocabulary]: the logits after the last token that was read: with ``"reuse"`` in the middle of a text not
            those of the text's end. Empty if nothing was read.

        Raises:
            Error: a range out of order, beyond the text, or wholly evicted; a method that allows no edit. Nothing has changed.
        """
        return self._native.edit(int(first), int(last), _ids(tokens), mode)

    def clear(self) -> None:
        """Forgets everything."""
        self._native.clear()

    def fork(self) -> Session:
        """A copy, with a copy of the cache, that continues independently. Its attention weights begin with its next step."""
        copy = Session.__new__(Session)
        copy._model, copy._native = self._model, self._native.fork()
        return copy

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the cache and the text to a file, for `restore` with the same model, method and cache types."""
        self._native.save(os.fspath(path))

    def restore(self, path: str | os.PathLike[str]) -> None:
        """Replaces this session by a saved one. Raises Error for a file of another model, method or cache type."""
        unread = self._native.restore(os.fspath(path))
        if unread >= 0:  # saved by the command with the last token not yet read
            self.decode(unread)

    def positions(self, layer: int, head: int) -> StepArray:
        """int64 [n]: positions in the text of the tokens that a KV head holds now, oldest first."""
        return self._array(self._native.positions(layer, head), "positions")

    def keys(self, layer: int, head: int) -> StepArray:
        """float32 [n, key_width]: the head's keys, in the order of `positions`.

        As stored: rotated to their position with ``positions=original``, un-rotated with ``positions=cache``, rounded to the
        cache's type.
        """
        return self._array(self._native.keys(layer, head), "keys")

    def values(self, layer: int, head: int) -> StepArray:
        """float32 [n, value_width]: the head's values, in the order of `positions`."""
        return self._array(self._native.values(layer, head), "values")

    def scores(self, layer: int, head: int) -> StepArray:
        """float32 [n]: the policy's scores, in the order of `positions`."""
        return self._array(self._native.scores(layer, head), "scores")

    def attention(self, layer: int, head: int) -> StepArray:
        """float32 [n]: weights that the last `decode` gave the head's tokens, mean over the query heads of its group.

        In the order of the positions that the step attended to, oldest first; their sum is 1. (With a policy that uses
        another reduction, such as the max, it is that.) Only of sessions opened with ``attention=True``.
        """
        return self._array(self._native.weights(layer, head), "attention weights")

    def memory_map(
        self, layer: int | None = None, head: int | None = None, *, first: int = 0, count: int = 65_536
    ) -> MemoryMap:
        """Which heads keep which token of the text.

        Args:
            layer, head: a KV head, for `MemoryMap.head`; None: no head.
            first, count: tokens of the map, at most 65,536.

        Raises:
            Error: no such head, or a method without a cache.
        """
        if (layer is None) != (head is None):
            raise _palimpsest.Error("a head has a layer and a number: give layer and head, or neither")
        return read_memory(self._native, -1 if layer is None else layer, -1 if head is None else head, first, count)

    def _pieces(self, tokens: Tokens) -> list[str]:
        return [self._model.detokenize([token], False).decode("utf-8", "replace") for token in _ids(tokens)]

    def _array(self, array: NDArray[Any], what: str) -> StepArray:
        native = self._native
        return StepArray(array, what, lambda: native.step)

    @property
    def position(self) -> int:
        """Tokens of the text so far."""
        return self._native.position

    @property
    def tokens(self) -> list[int]:
        """The text so far, evicted tokens included."""
        return list(self._native.tokens)

    @property
    def method(self) -> str:
        """The method, with every key."""
        return self._native.method

    @property
    def statistics(self) -> dict[str, Any]:
        """cache_tokens, cache_bytes, cache_bytes_peak, evicted, evictions, evict_ms."""
        return dict(self._native.statistics())


def _ids(tokens: Tokens) -> list[int]:
    return np.asarray(tokens, dtype=np.int32).ravel().tolist()
