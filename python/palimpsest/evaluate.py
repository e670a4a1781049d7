"""Quality of methods: the evaluations of ``palimpsest eval``, with the same prompts and the same numbers.

Each function takes a model and a method and returns a dictionary; `sweep` runs one of them over methods and budgets.
`suite` is the benchmark of all methods at equal bytes (``palimpsest bench methods``), with tasks of one's own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from . import _palimpsest
from ._method import method_text, split_options
from ._suite import Asked, Task, suite
from .model import Model

__all__ = ["Asked", "Result", "Task", "facts", "needle", "perplexity", "ruler", "ruler_tasks", "suite", "sweep"]

Result = dict[str, Any]
_SEED = 1_000_003  # as in the command: one seed per prompt, so that more samples do not change the others


def _asker(model: Model, text: str, options: dict[str, Any]) -> _palimpsest.Asker:
    key_type = options.pop("cache_type", "f16")
    value_type = options.pop("cache_type_v", None) or key_type
    chunk, page_size = options.pop("chunk", 512), options.pop("page_size", 64)
    if options:
        raise _palimpsest.Error(f"{', '.join(options)}: only of sessions; leave it out")
    return _palimpsest.Asker(model._native, text, key_type, value_type, chunk, page_size)


def _result(task: str, kind: str, method: str, text: str, blocks: list[tuple[float, float]], peak: int, evicted: int) -> Result:
    mean, low, high = _palimpsest.bootstrap(blocks)
    return {
        "task": task, "kind": kind, "name": method, "method": text, "score": mean, "score_low": low, "score_high": high,
        "evicted": evicted, "cache_bytes_peak": peak,
    }  # fmt: skip


def perplexity(
    model: Model, text: str, method: str = "full", *, budget: int | None = None, compression_ratio: float | None = None,
    tokens: int = -1, prompt: int = 0, **options: Any,
) -> Result:  # fmt: skip
    """Perplexity of a text, read once token by token given the current cache.

    Args:
        tokens: read at most so many; -1: all.
        prompt: tokens at the start that are read as a prompt, compressed, and not predicted: needed by methods that
            evict at a prompt's end.

    Returns:
        perplexity; nll (mean loss, nats) and nll_error; losses (float32, of every token but the first); predicted,
        evicted (tokens); cache_bytes, cache_bytes_peak; seconds; name and method.
    """
    ids = model.tokenize(text, special=False)
    ids = ids[:tokens] if tokens > 0 else ids
    session = model._open(len(ids), method, budget, compression_ratio, options)
    result = _palimpsest.perplexity(session._native, ids, prompt)
    return {"task": "perplexity", "name": method, "method": session.method, **result}


def needle(
    model: Model, method: str = "full", *, budget: int | None = None, compression_ratio: float | None = None,
    kind: str = "fact", lengths: Sequence[int] = (512, 1024, 2048), depths: Sequence[float] = (0, 0.25, 0.5, 0.75, 1),
    samples: int = 6, questions: int = 3, seed: int = 1, haystack: str = "", question_seen: str = "before", **options: Any,
) -> Result:  # fmt: skip
    """Answers to questions about a needle in a long text, over lengths and depths.

    Args:
        kind: fact, passkey, ... as ``palimpsest eval needle --kind``.
        lengths: tokens of context, question and answer; `compression_ratio` is of the longest.
        depths: share of the text before the needle.
        samples: contexts for each length and depth; `questions`: asked about each.
        haystack: the text; "": the included stories.
        question_seen: before or after the context is reduced to the budget.

    Returns:
        score, score_low, score_high: share of right answers and its 95% interval (NaN below eight contexts); questions,
        right; cells: the same for each length and depth; evicted, cache_bytes_peak; name and method.
    """
    if question_seen not in ("before", "after"):
        raise _palimpsest.Error(f"question_seen '{question_seen}': use before or after")
    own, keys = split_options(options)
    text = method_text(method, budget=budget, compression_ratio=compression_ratio, tokens=max(lengths), **keys)
    asker, hay = _asker(model, text, own), _palimpsest.Haystack(haystack)
    cells: list[Result] = []
    blocks: list[tuple[float, float]] = []
    evicted, peak = 0, 0
    for length in lengths:
        for depth in depths:
            cell: Result = {"length": length, "depth": depth, "questions": 0, "right": 0}
            for _ in range(samples):
                number = seed * _SEED + len(blocks)
                made = _palimpsest.make_needle(model._native, hay, kind, length, depth, questions, number)
                starts = [f"\nAnswer: {start}" if start else "" for start in made["starts"]]
                answers = asker.ask(
                    made["context"], made["questions"], question_seen == "before", made["tokens"], True, starts
                )
                right = [
                    _palimpsest.contains_word(answer["text"], word)
                    for answer, word in zip(answers, made["answers"], strict=False)
                ]
                cell["questions"] += len(right)
                cell["right"] += sum(right)
                blocks.append((float(sum(right)), float(len(right))))
                evicted += sum(answer["evicted"] for answer in answers)
                peak = max(peak, asker.cache_bytes_peak)
            cell["share"] = cell["right"] / cell["questions"]
            cells.append(cell)
    return {
        **_result("needle", kind, method, text, blocks, peak, evicted),
        "questions": sum(cell["questions"] for cell in cells), "right": sum(cell["right"] for cell in cells),
        "cells": cells,
    }  # fmt: skip


def facts(model: Model, method: str = "full", **arguments: Any) -> Result:
    """`needle` with the facts that the default model knows how to answer: what was hidden where, and by whom."""
    return needle(model, method, kind="fact", **arguments)


def ruler(
    model: Model, method: str = "full", *, budget: int | None = None, compression_ratio: float | None = None,
    task: str = "niah-single-2", length: int = 2048, samples: int = 20, seed: int = 1, haystack: str = "",
    question_seen: str = "before", **options: Any,
) -> Result:  # fmt: skip
    """One of RULER's generated tasks (arXiv 2404.06654).

    Args:
        task: one of `ruler_tasks()`.
        length: tokens of prompt and answer.
        samples: prompts.

    Returns:
        score (share of the expected words, mean over prompts), score_low, score_high; answers (texts); evicted,
        cache_bytes_peak; name and method.
    """
    if question_seen not in ("before", "after"):
        raise _palimpsest.Error(f"question_seen '{question_seen}': use before or after")
    own, keys = split_options(options)
    text = method_text(method, budget=budget, compression_ratio=compression_ratio, tokens=length, **keys)
    asker, hay = _asker(model, text, own), _palimpsest.Haystack(haystack)
    blocks: list[tuple[float, float]] = []
    answers: list[str] = []
    evicted, peak = 0, 0
    for i in range(samples):
        made = _palimpsest.make_ruler(model._native, hay, task, length, seed * _SEED + i)
        answer = asker.ask(made["context"], [made["question"]], question_seen == "before", made["tokens"], False)[0]
        answers.append(answer["text"])
        blocks.append((_palimpsest.ruler_score(answer["text"], made["answers"]), 1.0))
        evicted += answer["evicted"]
        peak = max(peak, asker.cache_bytes_peak)
    return {**_result("ruler", task, method, text, blocks, peak, evicted), "answers": answers}


def ruler_tasks() -> list[str]:
    """The names of RULER's tasks."""
    return list(_palimpsest.ruler_tasks())


@contextlib.contextmanager
def _progress(total: int, show: bool) -> Iterator[Callable[[str], None]]:
    try:
        from tqdm.auto import tqdm  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        show = False
    if not show:
        yield lambda _: None
        return
    with tqdm(total=total, unit="run") as bar:

        def advance(name: str) -> None:
            bar.set_postfix_str(name)
            bar.update()

        yield advance


def sweep(
    task: Callable[..., Result],
    model: Model,
    methods: Iterable[str],
    budgets: Iterable[int] = (),
    *,
    compression_ratios: Iterable[float] = (),
    progress: bool = True,
    frame: bool | None = None,
    **arguments: Any,
) -> Any:
    """Runs a task for every method and budget.

        palimpsest.evaluate.sweep(palimpsest.evaluate.facts, model, ["full", "streaming", "h2o"], [64, 128, 256])

    A method without a policy, such as ``full``, has no budget and runs once. The results are those of ``palimpsest sweep``
    with the same arguments.

    Args:
        task: `perplexity`, `needle`, `facts` or `ruler`.
        compression_ratios: in place of budgets, as `method_text`'s `compression_ratio`.
        progress: show a progress bar, if tqdm is there.
        frame: return a pandas DataFrame, which prints whole; None: if pandas is there; False: a list of dictionaries.
        arguments: of the task.
    """
    name = "compression_ratio" if (ratios := list(compression_ratios)) else "budget"
    sizes: list[float] = [*budgets, *ratios]
    if ratios and len(sizes) > len(ratios):
        raise _palimpsest.Error("budgets and compression_ratios are two names of one thing: give one of them")
    runs: list[tuple[str, float | None]] = []
    for method in methods:
        unbounded = ",policy=none," in method_text(method).replace(":", ",") + ","
        runs += [(method, None)] if unbounded else [(method, size) for size in sizes]
    rows: list[Result] = []
    with _progress(len(runs), progress) as advance:
        for method, size in runs:
            rows.append({name: size, **task(model, method=method, **{name: size}, **arguments)})
            advance(method)
    if frame is False:
        return rows
    try:
        from ._frame import Frame
    except ImportError:
        if frame:
            raise
        return rows
    return Frame(rows)
