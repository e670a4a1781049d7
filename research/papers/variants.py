#!/usr/bin/env python3
"""Options of policies and of merging on the default model: what the papers ablate, and where implementations differ.

  research/papers/variants.py                          measures missing cells -> research/results/ems.md, parts options, stream and length
  research/papers/variants.py options --budgets 256,128 --questions 60
  research/papers/variants.py stream                   perplexity of all variants in one run, differences to the preset with intervals
  research/papers/variants.py length                   only a stream of ten times the trained length (the paper's figure 6 in kind)

As `make quality` (research/quality/quality.py): recall of held-out questions whose facts are `distance` tokens before the question,
perplexity of a held-out story, equal protection. `prompt`: compressed once, after the prompt. Samples: out/variants.json.
"""
import math
import os
import pathlib
import random
import sys
import tempfile

REPO = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(REPO / "bench"), str(REPO / "research" / "quality")]
import parts as script  # noqa: E402
import quality  # noqa: E402

PAGE = script.ResearchPage("ems", "EMS: reproduction, and the cost of merging", "", ["ems3", "merged", "score", "upkeep", "options", "stream", "length"])
BASE = "ems"
VARIANTS = [  # changed options of `ems`
    "", "score=global", "score=local", "pooling=max", "pooling=none", "kernel=3", "kernel=15", "window=16", "window=64", "similarity=key", "similarity=value",
    "similarity=clipped", "merged-key=unit", "zero-class=off", "similarity=clipped,merged-key=unit,zero-class=off", "tau=0", "tau=0.3", "tau=0.8",
    "tau=1", "gamma=1", "gamma=2", "gamma=8", "gamma=4096", "merge-position=own", "positions=cache"]


def method(variant, budget, protection, whole_prompt):
    words = [f"budget={budget}", protection, *([variant] if variant else []), *([] if whole_prompt else ["schedule=step"])]
    return f"{BASE}:{','.join(words)}"


def stream(o):
    """Paired differences over one held-out story: far smaller errors than of recall."""
    methods = [method(v, o.budgets[0], o.protection, False) for v in VARIANTS]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "story.txt")
        pathlib.Path(path).write_text(quality.saga(random.Random("held-out quality"), o.tokens * 6))
        words = [o.program, "eval", "perplexity", "-f", path, "--tokens", o.tokens, "--prefill-chunk", 1, "-t", 1, "--json"]
        runs = quality.run_json([*words, *(word for m in methods for word in ("--method", m))])["runs"]
    lines = ["| `ems` with | perplexity | difference to the preset, nats per token (95%) |", "|---|---|---|"]
    for v, run in zip(VARIANTS, runs, strict=True):
        d = run["difference"]
        difference = "" if not v else "-" if d["low"] is None else f"{d['nll']:+.4f} ({d['low']:+.4f} to {d['high']:+.4f})"
        lines.append(f"| {f'`{v}`' if v else 'its preset'} | {run['perplexity']:.3f} | {difference} |")
    PAGE.put("stream", "Options: perplexity of a stream", [
        f"The default model, {o.tokens:,} tokens of a held-out story, token by token, budget {o.budgets[0]}, {o.protection.replace(',', ', ')}. Intervals: bootstrap over "
        "paired blocks of the text.", "", *lines, ""], "research/papers/variants.py stream")


def length(o):
    """A held-out story of ten times the trained length, token by token, in a cache of 256 tokens."""
    trained, text = 2048, quality.saga(random.Random("held-out length"), 10 * 2048 * 6)
    methods = ["streaming:budget=256", *(f"{m}:budget=256,schedule=step,positions={p}" for m in ("global-local", "ems") for p in ("cache", "original"))]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "story.txt")
        pathlib.Path(path).write_text(text)
        words = [o.program, "eval", "perplexity", "-f", path, "--tokens", 10 * trained, "--prefill-chunk", 1, "--bin", trained, "-t", 1, "--json"]
        runs = quality.run_json([*words, *(word for m in methods for word in ("--method", m))])["runs"]
    ends = [0, 1, 4, 9]
    lines = ["| method | " + " | ".join(f"tokens {n * trained:,} to {(n + 1) * trained:,}" for n in ends) + " |", "|---" * (len(ends) + 1) + "|"]
    lines += [f"| `{m}` | " + " | ".join(f"{run['curve'][n]['perplexity']:.3f}" for n in ends) + " |" for m, run in zip(methods, runs, strict=True)]
    PAGE.put("length", "Ten times the trained length (figure 6 in kind)", [
        f"The default model, trained on {trained:,} tokens; one held-out story of {10 * trained:,} tokens, token by token, budget 256. Perplexity of parts of the "
        "story. Keys of a cluster are rotated to the rank of its representative (`positions=cache`), or to its position in the text.", "", *lines, ""],
        "research/papers/variants.py length")


def main():
    parse = script.parser(__doc__, ["options", "stream", "length"])
    script.add(parse, "--program", "--folder")
    parse.add_argument("--budgets", type=lambda t: [int(n) for n in t.split(",")], default=[256, 128])
    parse.add_argument("--protection", default="sinks=4,recent=32")
    parse.add_argument("--questions", type=int, default=60)
    parse.add_argument("--distance", type=int, default=900)
    parse.add_argument("--chunk", type=int, default=64)
    parse.add_argument("--tokens", type=int, default=1500)
    parse.add_argument("--most-seconds", type=float, default=60)
    parse.add_argument("--workers", type=int, default=os.cpu_count())
    o = script.parsed(parse, ["options", "stream", "length"])
    if "options" in o.parts:
        options(o)
    if "stream" in o.parts:
        stream(o)
    if "length" in o.parts:
        length(o)
    print(PAGE.path)


def options(o):
    of = lambda variant, budget, whole: method(variant, budget, o.protection, whole)
    jobs = [("recall", of(v, b, whole)) for v in VARIANTS for b in o.budgets for whole in (True, False)]
    jobs += [("perplexity", of(v, b, False)) for v in VARIANTS for b in o.budgets]
    samples = quality.Samples(pathlib.Path(o.folder) / "variants.json", f"{o.questions} {o.distance} {o.chunk} {o.tokens}")
    rows = quality.asking.questions(quality.Tokenizer.load(REPO / "research" / "train" / "tokenizer.json"), o.distance, o.questions)
    with tempfile.TemporaryDirectory() as folder:
        text = os.path.join(folder, "story.txt")
        pathlib.Path(text).write_text(quality.saga(random.Random("held-out quality"), o.tokens * 6))
        quality.measure(o, samples, jobs, text, rows)

    def cell(what, name, key, form):
        value = samples.get(what, name) or {}
        return form(value[key]) if key in value else "-"

    percent, power = lambda x: f"{100 * x:.0f}%", lambda x: f"{math.exp(x):.3f}"
    head = [f"recall at {b}, {w}" for w in ("prompt", "step") for b in o.budgets] + [f"perplexity at {b}" for b in o.budgets]
    lines = ["| `ems` with | " + " | ".join(head) + " |", "|---" * (len(head) + 1) + "|"]
    for v in VARIANTS:
        cells = [cell("recall", of(v, b, whole), "recall", percent) for whole in (True, False) for b in o.budgets]
        cells += [cell("perplexity", of(v, b, False), "nll", power) for b in o.budgets]
        lines.append(f"| {f'`{v}`' if v else 'its preset'} | " + " | ".join(cells) + " |")
    PAGE.put("options", "Options (tables 4 and 6 to 8 in kind)", [
        f"The default model; {o.questions} held-out questions (standard error at most {100 * math.sqrt(0.25 / o.questions):.0f} points), the fact {o.distance} tokens "
        f"before the question; {o.protection.replace(',', ', ')}. *prompt*: compressed after the whole prompt, as in the paper; *step*: the budget holds after "
        f"each chunk of {o.chunk} tokens. Perplexity: {o.tokens:,} tokens of a held-out story, token by token.", "", *lines, ""], "research/papers/variants.py")


if __name__ == "__main__":
    main()
