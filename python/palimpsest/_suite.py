"""The benchmark of forgetting: ``palimpsest bench methods``, and tasks of one's own at the same bytes."""

from __future__ import annotations

import json
import os
import pathlib
import random
import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from . import _palimpsest
from .model import Model

Row = dict[str, Any]
Filler = Callable[[int], str]
_SOLVED = 0.5  # as in the command: the least score of the full cache with which a task says something
_TEXT = "text"  # the quickest task, for the budgets of tasks of one's own


@dataclass(frozen=True)
class Asked:
    """A context and questions about it."""

    context: str
    questions: Sequence[str]
    check: Callable[[int, str], float]
    """(question, answer) -> 0 to 1; an answer follows its start."""
    starts: Sequence[str] = ()
    """The beginning of each answer, given to the model; or none."""
    system: str = ""
    """The system prompt."""
    max_tokens: int = 16
    stop_at_newline: bool = True


@dataclass(frozen=True)
class Task:
    """A task of one's own.

    `make` draws one context from the random numbers that it gets, and nothing else. `filler(n)` is about n tokens of the
    text in which facts are hidden.
    """

    name: str
    make: Callable[[random.Random, Filler], Asked]
    seen: str = "after"
    """Whether the question is read before or after the context is reduced to the budget."""


def _command() -> list[str]:
    return [str(pathlib.Path(__file__).parent / "bin" / "palimpsest")]


def _filler(model: Model, text: str, draw: random.Random) -> Filler:
    sentences = _palimpsest.Haystack(text).sentences
    start = draw.randrange(len(sentences))

    def filler(tokens: int) -> str:
        nonlocal start
        parts: list[str] = []
        count = 0
        while count < tokens:
            parts.append(sentences[start % len(sentences)])
            count += len(model.tokenize(parts[-1] + " ", special=False))
            start += 1
        return " ".join(parts)

    return filler


def _measure(model: Model, task: Task, row: Row, *, samples: int, seed: int, text: str, chat: bool) -> Row:
    """`row`: of the same method and share, for its method with all keys and its cache types."""
    key_type, _, value_type = row["cache_type"].partition("/")
    asker = _palimpsest.Asker(model._native, row["spelled"], key_type, value_type or key_type, 128, 16)
    marks: list[float] = []
    blocks: list[tuple[float, float]] = []
    peak = 0
    for i in range(samples):
        draw = random.Random(f"{task.name} {seed} {i}")  # one seed per context: more samples do not change the others
        asked = task.make(draw, _filler(model, text, draw))
        starts = list(asked.starts) or [""] * len(asked.questions)
        context = asked.context
        if not chat:
            starts = [f"\nAnswer: {start}" if start else "" for start in starts]
            context = f"{asked.system}\n\n{context}" if asked.system else context
        answers = asker.ask(
            context, list(asked.questions), task.seen == "before", asked.max_tokens, asked.stop_at_newline, starts, chat,
            asked.system,
        )  # fmt: skip
        got = [float(asked.check(number, answer["text"])) for number, answer in enumerate(answers)]
        if any(not 0 <= mark <= 1 for mark in got):
            raise _palimpsest.Error(f"task '{task.name}': a check returned {got}: give numbers from 0 to 1")
        marks += got
        blocks.append((sum(got), float(len(got))))
        peak = max(peak, asker.cache_bytes_peak)
    shares = any(mark not in (0, 1) for mark in marks)
    score, low, high = _palimpsest.bootstrap(blocks) if shares else _palimpsest.wilson(int(sum(marks)), len(marks))
    kept = {key: row[key] for key in ("method", "spelled", "cache_type", "share", "budget")}
    return {
        "task": task.name, "group": "own", **kept, "score": score, "low": low, "high": high, "questions": len(marks),
        "cache_bytes": peak, "solved": _SOLVED,
    }  # fmt: skip


def suite(
    model: Model | str | os.PathLike[str],
    *,
    tasks: Iterable[str] = (),
    methods: Iterable[str] = (),
    shares: Sequence[int] = (4,),
    own: Sequence[Task] = (),
    length: int = 1024,
    samples: int = 25,
    seed: int = 1,
    quick: bool = False,
    text: str | os.PathLike[str] | None = None,
    data: str | os.PathLike[str] | None = None,
    more: str | os.PathLike[str] | None = None,
    folder: str | os.PathLike[str] = "methods",
    threads: int = 1,
    chat: bool | None = None,
    frame: bool | None = None,
) -> Any:
    """Methods at equal bytes over the tasks of ``palimpsest bench methods --list``, and over tasks of one's own.

    The command runs in processes of its own, and resumes from `folder`, where its report is. Tasks of one's own run in
    this process, with the budgets that the command found, and with the full cache.

    Args:
        tasks: names; none: all, or with `own` those alone.
        methods: names of the list, or methods without a budget; none: all.
        shares: 4 is a quarter of the tokens that KeyDiff keeps; other methods have its bytes.
        own: tasks of one's own.
        length: tokens of a prompt and its answer.
        samples: contexts of a task.
        quick: few tasks, methods and contexts.
        text: file of the text in which facts are hidden; None: the included stories.
        data: folder of tasks/babi and tasks/longbench.
        more: JSON file of more tasks and methods.
        chat: own tasks in the model's chat template; None: if it has one.
        frame: return a pandas DataFrame; None: if pandas is there; False: a list of dictionaries.

    Returns:
        a row for each task, method and share (1: the full cache): score, low, high (95%), questions, budget,
        cache_bytes, method with all its keys (spelled), file and file_bytes (read beside the model), saw (tasks whose
        generator it was chosen by), error.
    """
    opened = model if isinstance(model, Model) else None
    path = opened.path if opened is not None else os.fspath(model)  # type: ignore[arg-type]
    names = list(tasks) or ([_TEXT] if own else [])
    words = [
        *_command(), "bench", "methods", "-m", path, "-o", os.fspath(folder), "--json", "-t", str(threads),
        "--shares", ",".join(f"1/{share}" for share in shares), "--length", str(length), "--samples", str(samples),
        "--seed", str(seed),
    ]  # fmt: skip
    flags = {"--tasks": ";".join(names), "--methods": ";".join(methods), "--text": text, "--data": data, "--suite": more}
    for flag, value in flags.items():
        if value:
            words += [flag, os.fspath(value)]
    done = subprocess.run([*words, *(["--quick"] if quick else [])], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise _palimpsest.Error(f"palimpsest bench methods ended with code {done.returncode}")
    rows: list[Row] = json.loads(done.stdout)["runs"]
    if own:
        rows += _own(opened or Model(path, threads=threads), own, rows, samples, seed, text, chat)
        if not tasks:
            rows = [row for row in rows if row["group"] == "own"]
    if frame is False:
        return rows
    try:
        from ._frame import Frame
    except ImportError:
        if frame:
            raise
        return rows
    return Frame(rows)


def _own(
    model: Model, own: Sequence[Task], rows: list[Row], samples: int, seed: int,
    text: str | os.PathLike[str] | None, chat: bool | None,
) -> list[Row]:  # fmt: skip
    hidden = pathlib.Path(text).read_text(encoding="utf-8") if text is not None else ""
    speaks = model._native.has_chat_template if chat is None else chat
    first: dict[tuple[str, float], Row] = {}
    for row in rows:
        if "error" not in row:
            first.setdefault((row["method"], row["share"]), row)
    return [
        _measure(model, task, row, samples=samples, seed=seed, text=hidden, chat=speaks)
        for task in own
        for row in first.values()
    ]
