#!/usr/bin/env python3
"""What methods answer beside kvpress's presses: SmolLM2 with f32 weights and caches, the same prompts, token by token, and the same number of kept tokens.

  make peers-answers                                       -> docs/results/forgetting.md, section "kvpress beside us"
  make peers-answers PEERS_ARGS='--samples 20 --tasks word --presses knorm'

`palimpsest eval needle --log-samples` gives the prompts and our answers. transformers reads each context under the press, and then each question, as our
evaluation does. *after*: a context is compressed before a question is read; *before*: the question is part of the compressed prompt. Answers are kept
in out/peers/answers.json, so that an interrupted run resumes.
"""
import json
import pathlib
import re
import sys
import tempfile

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[2] / "bench"), str(pathlib.Path(__file__).resolve().parent)]
import common  # noqa: E402
import parts  # noqa: E402
from real_models import wilson  # noqa: E402
from run import Peers, f32_model, kept_rows, model_for, spell  # noqa: E402

TASKS = {"word": ("facts", "after"), "corrected": ("facts that are corrected", "after"), "users": ("the same fact of three people", "after"), "word, known": ("facts, the question in the prompt", "before")}
PRESSES = ["streaming", "knorm", "keydiff", "expected-attention", "tova", "snapkv, pooling=avg"]
TOKENS = 32  # of an answer, at most


def right(answer, expected):
    return re.search(rf"(?<![0-9A-Za-z]){re.escape(expected)}(?![0-9A-Za-z])", answer) is not None


def ours(o, source, task, methods):
    """Of each method: a sample for each context, with our answers."""
    kind, seen = task.split(",")[0], TASKS[task][1]
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder, "samples.jsonl")
        command = [o.program, "eval", "needle", "-m", source, "--chat", "--kind", kind, "--lengths", o.length, "--depths", 0.1, "--questions", 4, "--samples", o.samples,
                   "--haystack", common.SHARED / "text/books/wells-war-of-the-worlds.txt", "--question-seen", seen, "--cache-type", "f32", "--prefill-chunk", 2048, "-t", o.threads,
                   "--log-samples", log, "--json"]
        for method in methods:
            command += ["--method", method]
        runs = common.run_json(command)["runs"]
        lines = [json.loads(line) for line in log.read_text().splitlines()]
    of = {method: [line for line in lines if line["method"] == run["name"]] for method, run in zip(methods, runs, strict=True)}
    for method, run in zip(methods, runs, strict=True):
        if count(of[method], [sample["answers"] for sample in of[method]]) != run["right"]:
            raise common.Failed(f"{method}: right answers are counted in another way than by eval needle")
    return of


def count(samples, answers):
    return sum(right(answer, expected) for sample, said in zip(samples, answers, strict=True) for answer, expected in zip(said, sample["expected"], strict=True))


def main():
    parse = parts.parser(__doc__)
    parts.add(parse, "--program", "--threads", "--smollm2")
    parse.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    parse.add_argument("--presses", nargs="+", default=PRESSES, choices=[name for name, *_ in kept_rows(0)])
    parse.add_argument("--length", type=int, default=1024)
    parse.add_argument("--budget", type=int, default=256)
    parse.add_argument("--samples", type=int, default=10, help="contexts of a task, with up to four questions each")
    o = parse.parse_args()
    peers = Peers(["transformers"], common.REPO / "out" / "peers")
    peers.folder.mkdir(parents=True, exist_ok=True)
    if peers.missing:
        raise SystemExit(f"kvpress is missing: {peers.missing['transformers']}")
    source = f32_model(peers.folder, common.model_file(o.program, o.smollm2))
    rows = [row for row in kept_rows(o.budget) if row[0] in o.presses]
    store = peers.folder / "answers.json"
    kept = json.loads(store.read_text()) if store.exists() else {}
    figures = {}
    for task in o.tasks:
        key = f"{task}|{o.length}|{o.budget}|{o.samples}"
        if any(f"{key}|{name}" not in kept for name in ["full", *(name for name, *_ in rows)]):
            mine = ours(o, source, task, ["full", *(method for _, method, _ in rows)])
            for name, method, press in [("full", "full", {}), *rows]:
                if f"{key}|{name}" in kept:
                    continue
                common.say(f"{task}: {name}")
                theirs, _ = peers.run("transformers", kind="questions", model=model_for(peers, "transformers", source), gguf=str(source), method=press, samples=mine[method],
                                      seen=TASKS[task][1], tokens=TOKENS, threads=o.threads)
                asked = sum(len(sample["expected"]) for sample in mine[method])
                kept[f"{key}|{name}"] = {"asked": asked, "ours": count(mine[method], [sample["answers"] for sample in mine[method]]), "kvpress": count(mine[method], theirs["answers"]),
                                         "version": theirs["version"]}
                store.write_text(json.dumps(kept, indent=0))
        figures[task] = {name: kept[f"{key}|{name}"] for name in ["full", *(name for name, *_ in rows)]}

    def cell(figure, side):
        low, high = wilson(figure[side], figure["asked"])
        return f"{100 * figure[side] / figure['asked']:.0f}% [{low:.0f}, {high:.0f}]"

    lines = ["| task | method | press | ours | kvpress | intervals overlap |", "|---|---|---|---|---|---|"]
    apart = 0
    for task, of in figures.items():
        for name, method, press in [("full", "full", {}), *rows]:
            figure = of[name]
            (low, high), (their_low, their_high) = (wilson(figure[side], figure["asked"]) for side in ("ours", "kvpress"))
            overlap = low <= their_high and their_low <= high
            apart += not overlap
            lines.append(f"| {TASKS[task][0]} | {spell(method)} | {press.get('press', 'none')} | {cell(figure, 'ours')} | {cell(figure, 'kvpress')} | "
                         f"{'yes' if overlap else '**no**'} |")
    one = next(iter(figures.values()))["full"]
    lines += ["", f"Contexts of {o.length:,} tokens of a novel, {o.budget} kept, chosen once, at the end of the compressed prompt; f32 weights and caches on both sides, the same tokens, greedy answers. "
              f"{'All intervals (95%, Wilson) overlap.' if apart == 0 else f'{apart} of the pairs of intervals (95%, Wilson) do not overlap.'} {one['version']}.", ""]
    page = parts.Page("forgetting", "What methods forget, by the kind of work", "Generated by `make forgetting` (bench/forgetting.py).")
    page.put("kvpress", "kvpress beside us: SmolLM2 135M Instruct", lines, "make peers-answers")
    print("\n".join(lines))


if __name__ == "__main__":
    try:
        main()
    except common.Failed as error:
        sys.exit(f"answers: {error}")
