"""Methods as text, with the names of kvpress where the idea is the same."""

from __future__ import annotations

from typing import Any

from . import _palimpsest

SESSION_OPTIONS = ("cache_type", "cache_type_v", "chunk", "page_size", "layerwise", "attention", "record_memory")


def split_options(options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The session's options, and the method's."""
    own = {key: options[key] for key in SESSION_OPTIONS if key in options}
    return own, {key: value for key, value in options.items() if key not in own}


def methods() -> list[dict[str, str]]:
    """All methods: name, summary, paper, policy, and the method with every key, as `palimpsest methods` lists them."""
    return [dict(row) for row in _palimpsest.methods()]


def method_text(
    method: str = "streaming",
    *,
    budget: int | None = None,
    compression_ratio: float | None = None,
    tokens: int | None = None,
    **options: Any,
) -> str:
    """A method with every key spelled out, which all functions of this package and the command accept.

    Args:
        method: a preset, or a preset with keys: ``"h2o"``, ``"h2o:budget=512,sinks=4"``.
        budget: tokens that stay in the cache, per head.
        compression_ratio: kvpress's name for the share of a prompt that is removed, from 0 to below 1. The budget is
            ``int(tokens * (1 - compression_ratio))``. Not together with `budget`.
        tokens: the tokens of the prompt, for `compression_ratio`.
        options: other keys of a method (docs/methods.md), with `_` for `-`: ``sinks=4, schedule="prompt"``.

    Raises:
        Error: an unknown method, key or value, or an illegal combination.
    """
    if compression_ratio is not None:
        if budget is not None:
            raise _palimpsest.Error("budget and compression_ratio are two names of one thing: give one of them")
        if not 0 <= compression_ratio < 1:
            raise _palimpsest.Error(f"compression_ratio {compression_ratio}: give a share from 0 to below 1")
        if tokens is None:
            raise _palimpsest.Error("compression_ratio is a share of a prompt, and there is none here: give a budget")
        budget = int(tokens * (1 - compression_ratio))
    keys = [(key.replace("_", "-"), str(value)) for key, value in options.items()]
    if budget is not None:
        keys.insert(0, ("budget", str(budget)))
    return _palimpsest.spell_method(method, keys)
