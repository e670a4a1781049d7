#!/usr/bin/env python3
"""Methods at equal bytes on models that others trained: SmolLM2 135M Instruct (a chat model) and Gemma 3 270M (base).

  python3 bench/real_models.py                  measures missing cells, writes the page; pulls the models
  python3 bench/real_models.py --page-only      writes the page from the samples

half        1,024 tokens of a novel with four facts of one word; the cache is reduced to 512 tokens, then each fact is asked for
after       the same, at 256 tokens
last        the same; the question ends the prompt, and is read before the cache is reduced
perplexity  1,000 tokens of a novel after a prompt of 512, one by one
code        the same of a module of Python's standard library (argparse)
chat        30 turns of a user who tells a novel, with four facts; then each is asked for (SmolLM2)

`auto` and the rows with shares need MODEL.profile beside the model (`palimpsest pull` brings it, `palimpsest fit` makes one).
But for `half` all methods may hold a quarter of the tokens (256 of 1,024; 1,024 of the chat), and no more bytes than KeyDiff does: those with larger tables or
statistics hold fewer tokens. Protected: 4 sinks and the newest 16, or what the preset protects beyond that. Methods that wait for the
prompt's end keep their budget from then on (schedule=prompt+step), also in the answer. Writes docs/results/policies.md; samples are kept in out/real-models.json, so that an interrupted run resumes.
"""
import argparse
import concurrent.futures
import json
import math
import os
import pathlib
import statistics
import subprocess
import tempfile
import threading

import parts as script
from common import REPO, SHARED, Failed, commit, machine, model_file, run, run_json, say, today

PAGE_SIZE = 16
CHAT = ("{text}<|im_end|>\n<|im_start|>assistant\nI see. Please go on.<|im_end|>\n<|im_start|>user\n", 4096)  # about 30 turns
BOOK, STREAM = "shelley-frankenstein.txt", "wells-war-of-the-worlds.txt"
TASKS = ("half", "after", "last", "perplexity", "code", "chat")
PERPLEXITY = ("perplexity", "code")  # tasks without questions
CONTEXTS = 10  # of a seed: 40 questions, in a chat half as many

# Name on the page: method with all but its budget, tokens evicted at once, share of the tokens at equal bytes, cache types. {centres}, {heads}: files.
ONCE = "schedule=prompt+step"
SHARES = "split=profile"
ROWS = {
    "full": ("full", 1, 1),
    "auto": ("auto", 16, 0.96),
    "auto, critical": ("auto:policy=critical", 16, 0.81),
    "auto, critical, cache positions": ("auto:policy=critical,positions=cache", 16, 0.81),
    "auto, one share": ("auto:split=uniform", 16, 0.81),
    "keydiff, shares": (f"keydiff:sinks=4,recent=16,{SHARES}", 1, 1),
    "critical, shares": (f"critical:sinks=4,{SHARES},{ONCE}", 1, 0.81),
    "snapkv, shares": (f"snapkv:sinks=4,{SHARES},{ONCE}", 1, 0.82),
    "h2o, shares": (f"h2o:sinks=4,{SHARES}", 1, 1),
    "random, shares": (f"random:{SHARES}", 1, 1),
    "streaming, shares": (f"streaming:{SHARES}", 1, 1),
    "keydiff": ("keydiff:sinks=4,recent=16", 1, 1),
    "critical": (f"critical:sinks=4,{ONCE}", 1, 0.81),
    "snapkv": (f"snapkv:sinks=4,{ONCE}", 1, 0.82),
    "h2o": ("h2o:sinks=4", 1, 1),
    "pyramidkv": (f"pyramidkv:sinks=4,{ONCE}", 1, 0.82),
    "adakv": (f"adakv:sinks=4,{ONCE}", 1, 0.82),
    "duo": ("duo:split={heads}", 1, 1),
    "streaming": ("streaming", 1, 1),
    "random": ("random", 1, 1),
    "ems": (f"ems:sinks=4,{ONCE}", 1, 0.61),
    "lagkv": ("lagkv:recent=16", 1, 1),
    "tova": ("tova:sinks=4,recent=16", 1, 1),
    "kvzip": (f"kvzip:sinks=4,recent=16,{ONCE}", 1, 1),
    "r-kv": ("r-kv:sinks=4,recent=16,every=32", 32, 0.9),
    "peak": ("peak", 1, 1),
    "global-local": (f"global-local:sinks=4,{ONCE}", 1, 0.95),
    "expected-attention": (f"expected-attention:sinks=4,recent=16,{ONCE}", 1, 1),
    "triattention": ("triattention:sinks=4,recent=0.0625,every=32,scorer={centres}", 32, 1),
    "knorm": ("knorm:sinks=4,recent=16", 1, 1),
    "keydiff, nothing protected": ("keydiff:sinks=0,recent=0", 1, 1),
    "knorm, nothing protected": ("knorm:sinks=0,recent=0", 1, 1),
    "keydiff, q8_0": ("keydiff:sinks=4,recent=16", 1, 16 / 8.5, "q8_0"),
    "keydiff, q8_0/q4": ("keydiff:sinks=4,recent=16", 1, 16 / 6.5, "q8_0/q4"),
    "keydiff, q4": ("keydiff:sinks=4,recent=16", 1, 16 / 4.5, "q4"),
}


def streaming_heads(o):
    """The file of SmolLM2's streaming heads, measured on another novel than those of the tasks."""
    path = pathlib.Path(o.folder) / "smollm2.duo"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(run([o.program, "heads", "-m", o.smollm2, "-f", f"{o.books}/doyle-adventures-of-sherlock-holmes.txt"])[1])
    return path


def method_of(row, budget, **files):
    method, every, share, *_ = ROWS[row]
    if method == "full":
        return method
    text = f"{method}{',' if ':' in method else ':'}budget={int(budget * share) - every + 1}"
    return text.format(**files)


class Samples:
    """Results by model, task, row and seed, in a file."""

    def __init__(self, path):
        self.path, self.lock = pathlib.Path(path), threading.Lock()
        self.all = json.loads(self.path.read_text()) if self.path.exists() else {}

    def put(self, key, value):
        with self.lock:
            self.all["|".join(key)] = value
            self.path.parent.mkdir(parents=True, exist_ok=True)
            beside = self.path.with_suffix(".new")
            beside.write_text(json.dumps(self.all, indent=1))
            beside.replace(self.path)

    def get(self, *key):
        return self.all.get("|".join(key))


def chat_kinds(folder):
    """The kind of needle `word`, in the turns of a chat."""
    kind = json.loads((REPO / "src/palimpsest/eval/data/needles.json").read_text())["word"]
    kind.update(intro="", unit=CHAT[0])
    path = pathlib.Path(folder) / "turns.json"
    path.write_text(json.dumps({"turns": kind}))
    return path


def command(o, model, task, row, seed, kinds):
    """The command of a sample."""
    file = getattr(o, model)
    budget = CHAT[1] // 4 if task == "chat" else 512 if task == "half" else 256
    method = method_of(row, budget, centres=f"{file}.centres", heads=o.heads)
    shared = ["-m", file, "--method", method, "-t", 1, "--page-size", PAGE_SIZE, "--prefill-chunk", 128, "--json"]
    if len(ROWS[row]) > 3:
        key, value = (ROWS[row][3].split("/") * 2)[:2]
        shared += ["-ctk", key, "-ctv", value]
    if task in PERPLEXITY:
        text = [argparse.__file__] if task == "code" else [f"{o.books}/{STREAM}", "--gutenberg"]
        return [o.program, "eval", "perplexity", "-f", *text, "--prompt", 512, "--tokens", 512 + o.tokens, *shared]
    contexts = CONTEXTS // (2 if task == "chat" else 1)
    how = ["--kind", "turns", "--kinds", kinds, "--lengths", CHAT[1]] if task == "chat" else ["--kind", "word", "--lengths", 1024]
    return [o.program, "eval", "needle", *how, *(["--chat"] if model == "smollm2" else []), "--haystack", f"{o.books}/{BOOK}", "--depths", 0.1, "--questions", 4,
            "--samples", contexts, "--seed", seed, "--question-seen", "before" if task == "last" else "after", *shared]


def measure(o, samples, jobs):
    jobs = [job for job in jobs if samples.get(*job) is None]
    say(f"{len(jobs)} cells to measure")
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(o.workers) as pool:
        kinds = chat_kinds(folder)

        def work(job):
            words = command(o, *job, kinds)
            try:
                run = run_json(words, timeout=o.most_seconds)["runs"][0]
                value = {key: run[key] for key in ("right", "questions", "nll", "nll_error", "perplexity", "evicted", "cache_bytes", "method") if key in run}
            except Failed as error:
                if "palimpsest: error: " not in str(error):
                    return say(f"{' '.join(job)}: {error}")
                value = {"failed": str(error).split("palimpsest: error: ")[-1]}
            except subprocess.TimeoutExpired:
                return say(f"{' '.join(job)}: more than {o.most_seconds} s")
            samples.put(job, dict(value, commit=o.commit))
            return say(f"{' '.join(job)}: {value.get('right', value.get('perplexity', value.get('failed')))}")

        list(pool.map(work, jobs))


def wilson(right, asked, z=1.959964):
    """95% interval of a share."""
    share = right / asked
    centre, half = share + z * z / (2 * asked), z * math.sqrt(share * (1 - share) / asked + z * z / (4 * asked * asked))
    return [max(0, 100 * (centre - half) / (1 + z * z / asked)), min(100, 100 * (centre + half) / (1 + z * z / asked))]


HEADS = {"half": "asked afterwards, 512 of 1,024", "after": "asked afterwards, 256 of 1,024", "last": "question last, 256 of 1,024",
         "chat": "chat, 1,024 of 4,096", "perplexity": "perplexity at 256"}
MODELS = {"smollm2": "SmolLM2 135M Instruct (Q4_1)", "gemma": "Gemma 3 270M (base, Q4_K_M)"}


def shares(samples, model, task, row):
    """Right answers and questions of all seeds."""
    found = [v for key, v in samples.all.items() if key.split("|")[:3] == [model, task, row] and "right" in v]
    return (sum(v["right"] for v in found), sum(v["questions"] for v in found)) if found else None


def loss(samples, model, task, row):
    """What a row loses against the full cache: points of questions, or percent of perplexity; None: not measured."""
    if task in PERPLEXITY:
        got, full = (samples.get(model, task, name, "1") or {} for name in (row, "full"))
        return None if "nll" not in got or "nll" not in full else 100 * (math.exp(got["nll"] - full["nll"]) - 1)
    got, full = shares(samples, model, task, row), shares(samples, model, task, "full")
    if task == "half" and not full:
        full = shares(samples, model, "after", "full")
    return None if not got or not full else 100 * (full[0] / full[1] - got[0] / got[1])


def cell(samples, model, task, row):
    if task in PERPLEXITY:
        got = samples.get(model, task, row, "1") or {}
        if "nll" not in got:
            return "-"
        lost = loss(samples, model, task, row)
        return f"{math.exp(got['nll']):.1f}" + ("" if row == "full" or lost is None else f" ({lost:+.0f}%)")
    got = shares(samples, model, task, row) or (task == "half" and row == "full" and shares(samples, model, "after", row))
    if not got:
        return "-"
    low, high = wilson(*got)
    return f"{100 * got[0] / got[1]:.0f}% [{low:.0f}, {high:.0f}]"


def table(samples, model, rows):
    tasks = [task for task in HEADS if any(key.startswith(f"{model}|{task}|") for key in samples.all)]
    rows = [row for row in rows if any(cell(samples, model, task, row) != "-" for task in tasks)]
    asked = {task: max((shares(samples, model, task, row) or (0, 0))[1] for row in rows) for task in tasks if task not in PERPLEXITY}

    def largest(row):
        """The largest loss; None: full, or too few columns."""
        lost = [x for task in tasks if (x := loss(samples, model, task, row)) is not None]
        return max(0, *lost) if row != "full" and len(lost) >= min(3, len(tasks)) else None

    order = {row: -1 if row == "full" else 999 if largest(row) is None else largest(row) for row in rows}
    lines = ["| method | " + " | ".join([*(HEADS[task] for task in tasks), "largest loss"]) + " |", "|---" * (2 + len(tasks)) + "|"]
    for row in sorted(rows, key=order.get):
        name = row if ROWS[row][0] == "full" else f"{row}: `{ROWS[row][0].replace('{centres}', 'FILE').replace('{heads}', 'FILE')}`"
        most = largest(row)
        lines.append(f"| {name} | " + " | ".join(cell(samples, model, task, row) for task in tasks) + f" | {'' if most is None else f'{most:.0f}'} |")
    return ["Questions a figure: at most " + ", ".join(f"{HEADS[task]}: {count}" for task, count in asked.items()) + "; 95% intervals (Wilson).", "", *lines, ""]


def code_table(samples):
    """Perplexities of a module of Python's standard library, with what each row loses."""
    rows = sorted((row for row in ROWS if any(loss(samples, model, "code", row) is not None for model in MODELS)),
                  key=lambda row: -1 if row == "full" else max(loss(samples, model, "code", row) or 0 for model in MODELS))
    return ["| method | " + " | ".join(MODELS.values()) + " |", "|---" * (1 + len(MODELS)) + "|",
            *(f"| {row if row == 'full' else f'{row}: `{ROWS[row][0]}`'} | ".replace("{heads}", "FILE") + " | ".join(cell(samples, model, "code", row) for model in MODELS) + " |"
              for row in rows), ""]


def write_pages(o, samples):
    page = script.Page("policies", "What each method loses on real models", "Generated by `make quality` (bench/real_models.py).", ["smollm2", "gemma", "code"])
    commits = sorted({v["commit"] for v in samples.all.values()})
    if any(key.split("|")[1] == "code" for key in samples.all):
        page.put("code", "Perplexity of code", ["1,000 tokens of `argparse.py` after a prompt of 512, one by one; each head holds a quarter of 1,024 tokens at most, in equal bytes. In percent: the "
                                                "loss against the full cache.", "", *code_table(samples)],
                 foot=f"*`python3 bench/real_models.py --seeds 1 --tasks code`; {today()}, {machine()}, palimpsest {', '.join(commits)}.*")
    foot = f"*`make quality`; {today()}, {machine()}, palimpsest {', '.join(commits)}.*"
    for model, name in MODELS.items():
        if any(key.startswith(model) and "|code|" not in key for key in samples.all):
            page.put(model, name, ["*Largest loss*: points of questions, or percent of perplexity, against the full cache; rows with three or more columns.", "",
                                   *table(samples, model, list(ROWS))], foot=foot)
    print(page.path)


def main():
    parse = script.parser(__doc__)
    script.add(parse, "--program", "--folder", "--smollm2", "--gemma")
    parse.add_argument("--books", default=str(SHARED / "text/books"))
    parse.add_argument("--tasks", type=lambda t: t.split(","), default=list(TASKS))
    parse.add_argument("--rows", type=lambda t: t.split(";"), default=list(ROWS), help="rows of the page, separated by semicolons")
    parse.add_argument("--seeds", type=int, default=3, help="40 questions of a document for each, 20 of a chat")
    parse.add_argument("--tokens", type=int, default=1000, help="predicted tokens of the novel")
    parse.add_argument("--workers", type=int, default=1)
    parse.add_argument("--most-seconds", type=float, default=1800)
    parse.add_argument("--page-only", action="store_true")
    parse.add_argument("--commit", default=commit(), help="of the program")
    o = parse.parse_args()
    os.environ["OMP_WAIT_POLICY"] = "passive"
    if not o.page_only:
        o.smollm2, o.gemma = model_file(o.program, o.smollm2), model_file(o.program, o.gemma)
        o.heads = streaming_heads(o) if o.smollm2 else None
    samples = Samples(pathlib.Path(o.folder) / "real-models.json")
    jobs = [(model, task, row, str(seed)) for seed in range(1, o.seeds + 1) for model in ("smollm2", "gemma") if getattr(o, model) for task in o.tasks
            for row in o.rows if not (task in PERPLEXITY and seed > 1)
            and not (task == "chat" and model == "gemma") and not (task in PERPLEXITY and row == "kvzip")]
    if not o.page_only:
        measure(o, samples, jobs)
    write_pages(o, samples)


if __name__ == "__main__":
    main()
