"""What a session's cache holds of its text, as arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _palimpsest


@dataclass(frozen=True)
class HeadMemory:
    """The tokens that one KV head keeps, oldest first. n of them."""

    positions: NDArray[np.int64]
    """[n]: positions in the text."""
    slots: NDArray[np.int64]
    """[n]: slots in the cache; merged tokens share one."""
    scores: NDArray[np.float32]
    """[n]: the policy's last scores; 0 if it keeps none."""
    into: NDArray[np.int64]
    """[n]: position of the token that this one was merged into; -1: it has a slot of its own."""


@dataclass(frozen=True)
class MemoryMap:
    """A session's text, with the heads that keep each token. Made by `Session.memory_map`.

    The arrays are copies: they stay as they are when the session goes on.
    """

    first: int
    """Position of the arrays' first token."""
    next: int
    """Tokens of the whole text."""
    layers: int
    heads: int
    """KV heads of all layers."""
    ids: NDArray[np.int64]
    """[n]: token ids."""
    kept: NDArray[np.int64]
    """[n]: heads in which the token has a slot of its own."""
    merged: NDArray[np.int64]
    """[n]: heads in which it was merged into another token's slot."""
    evicted_at: NDArray[np.int64]
    """[n]: tokens of the text when the last head dropped it; -1: a head keeps it, or the time was not recorded."""
    sink: NDArray[np.bool_]
    """[n]: one of the first tokens, which the method protects."""
    pinned: NDArray[np.bool_]
    """[n]: in a pinned span."""
    head: HeadMemory | None
    """Of the head that was asked for."""
    cache_bytes: int
    """Keys and values, in whole pages."""
    limit_bytes: int
    """Max while text is generated; 0: the method has no bound."""
    full_bytes: int
    """What a cache that keeps all tokens of the text would take, in whole pages."""

    @property
    def share(self) -> NDArray[np.float64]:
        """[n]: share of the heads that keep each token, merged ones included: 0 to 1."""
        return (self.kept + self.merged) / self.heads


def read_memory(session: _palimpsest.Session, layer: int, head: int, first: int, count: int) -> MemoryMap:
    """For `Session.memory_map`."""
    read: dict[str, Any] = dict(_palimpsest.memory_map(session, first, count, layer, head))
    of_head = HeadMemory(**{name: read.pop(name) for name in ("positions", "slots", "scores", "into")})
    for name in ("sink", "pinned"):
        read[name] = read[name].view(np.bool_)
    return MemoryMap(**read, head=of_head if layer >= 0 else None)
