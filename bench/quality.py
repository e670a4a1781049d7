#!/usr/bin/env python3
"""What each method of `palimpsest methods` costs in quality, at equal budgets and equal protection, on the default model.

  make quality                                        what is not measured yet; then the page and its plot
  make quality QUALITY_ARGS='--questions 50'          other sample sizes: measured anew
  make quality QUALITY_ARGS='--methods h2o,learned'   only these; the page has all that was ever measured so

Recall: held-out questions about a fact told `distance` tokens ago (tools/train/questions.py), read in chunks of
`chunk` tokens, so that the fact has to survive evictions by those who do not know the question yet. Perplexity: a held-out
story, token by token. Writes docs/results/policies.md and policies.svg; samples are kept in out/quality.json.
"""
import concurrent.futures
import json
import math
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error

import parts as script
from common import REPO, RESULTS, Failed, run_json, say
from plot import Panel, plot

sys.path.insert(0, str(REPO / "tools" / "train"))
import recall as asking  # noqa: E402
from bpe import Tokenizer  # noqa: E402
from documents import saga  # noqa: E402

PAGE = script.Page("policies", "Every method at equal budgets", "Made by `make quality` (bench/quality.py).", ["table"])
PAGE_SIZE = 16  # so that a method of whole pages has some to choose from at the smallest budget


class Method:
    """A row of `palimpsest methods`, at a budget and with the protection that all have."""

    def __init__(self, row, protection):
        self.row, self.name = row, row["name"]
        choices = dict(pair.split("=", 1) for pair in row["method"].split(":", 1)[1].split(","))
        self.evicts = choices["budget"] != "0"
        self.bunches = int(choices["every"]) > 1
        self.once = self.evicts and choices["schedule"].startswith("prompt")
        self.changes = f",{protection}" if self.evicts else ""

    def at(self, budget, whole_prompt=False):
        if not self.evicts:
            return self.name
        schedule = ",schedule=step" if self.once and not whole_prompt else ""
        every = budget // 8  # at once; together never more than the others hold
        bunch = f",every={every}" if self.bunches else ""
        return f"{self.name}:budget={budget - every + 1 if self.bunches else budget}{self.changes}{bunch}{schedule}"

    def group(self):
        needs = self.row["needs"]
        return "positions" if needs in ("nothing", "positions") else "attention" if "attention" in needs else "keys and values"


class Samples:
    """Results by measure and method, kept in a file: whoever is interrupted goes on where they were."""

    def __init__(self, path, setting):
        self.path, self.setting, self.lock = pathlib.Path(path), setting, threading.Lock()
        self.all = json.loads(self.path.read_text()) if self.path.exists() else {}
        self.values = self.all.setdefault(setting, {})

    def put(self, measure, method, value):
        with self.lock:
            self.values[f"{measure} {method}"] = value
            self.path.parent.mkdir(parents=True, exist_ok=True)
            beside = self.path.with_suffix(".new")
            beside.write_text(json.dumps(self.all, indent=1))
            beside.replace(self.path)

    def get(self, measure, method):
        return self.values.get(f"{measure} {method}")


def measure(o, samples, jobs, text, rows):
    """Each worker has a server of its own, of one thread."""
    jobs = [job for job in jobs if samples.get(*job) is None]
    say(f"{len(jobs)} runs to do")
    turn, begun = iter(jobs), time.monotonic()

    def work(_):
        with asking.Server(o.program, ["-t", "1", "--chunk", str(o.chunk), "--page-size", str(PAGE_SIZE)]) as server:
            while True:
                with samples.lock:
                    job = next(turn, None)
                if job is None:
                    return
                samples.put(*job, one(o, job, server.url, text, rows))
                done = jobs.index(job) + 1
                say(f"{done} of {len(jobs)}, {(time.monotonic() - begun) / done * (len(jobs) - done):.0f} s left: {' '.join(job)}")

    with concurrent.futures.ThreadPoolExecutor(o.workers) as pool:
        list(pool.map(work, range(o.workers)))


def one(o, job, url, text, rows):
    what, method = job
    start = time.monotonic()
    try:
        if what == "recall":
            whole, value = asking.recall(url, rows, method)
            out = dict(recall=whole / len(rows), value=value / len(rows))
        else:
            run = run_json([o.program, "eval", "perplexity", "-f", text, "--tokens", o.tokens, "--chunk", 1, "--page-size", PAGE_SIZE,
                            "-t", 1, "--json", "--method", method], timeout=o.most_seconds)["runs"][0]
            out = dict(nll=run["nll"], error=run["nll_error"], bytes=run["cache_bytes"], evicted=run["evicted"])
    except urllib.error.HTTPError as error:  # a method that cannot be had so is said in the page, the others go on
        out = dict(failed=json.load(error)["error"]["message"])
    except Failed as error:
        out = dict(failed=str(error).split("palimpsest: error: ")[-1])
    except subprocess.TimeoutExpired:
        out = dict(failed=f"took more than {o.most_seconds:g} s")
    return dict(out, seconds=round(time.monotonic() - start, 2))


def table(o, samples, methods):
    budgets = o.budgets
    head = "| method | " + " | ".join([f"recall at {b}" for b in budgets] + [f"perplexity at {b}" for b in budgets] + ["KiB at " + str(budgets[-1])]) + " |"
    lines = [head, "|---" * (2 * len(budgets) + 2) + "|"]

    def cell(value, key, form):
        return "?" if value is None else "-" if key not in value else form(value[key])

    def refused(method):
        return all("failed" in (samples.get(what, method.at(b)) or {}) for b in budgets for what in ("recall", "perplexity"))

    def row(name, at, streams=True):
        recalls = [cell(samples.get("recall", at(b)), "recall", lambda x: f"{100 * x:.0f}%") for b in budgets]
        perplexities = [cell(samples.get("perplexity", at(b)), "nll", lambda x: f"{math.exp(x):.3f}") for b in budgets]
        size = cell(samples.get("perplexity", at(budgets[-1])), "bytes", lambda x: f"{x / 1024:.0f}")
        if not streams:  # once the prompt was read it grows
            perplexities, size = [""] * len(budgets), ""
        return f"| {name} | " + " | ".join(recalls + perplexities + [size]) + " |"

    def best(method):  # by recall at the budget in the middle of all
        got = samples.get("recall", method.at(budgets[len(budgets) // 2])) or {}
        return -got.get("recall", -1)

    for method in sorted(methods, key=best):
        if not refused(method):
            lines.append(row(f"`{method.name}`", method.at))
        if method.once:
            lines.append(row(f"`{method.name}`, the prompt read whole", lambda b, m=method: m.at(b, True), streams=False))
    return lines


def missing(samples):
    reasons = {}
    for key, value in samples.values.items():
        if "failed" in value:
            reasons.setdefault(value["failed"], []).append(key.split(" ", 1)[1])
    return [f"- {', '.join(f'`{method}`' for method in dict.fromkeys(methods))}: {why}" for why, methods in reasons.items()]


def page(o, samples, methods):
    groups = {}
    for method in methods:
        groups.setdefault(method.group(), []).append(method)
    always = [m for m in methods if m.name in ("full", "random")]
    panels = []
    for what, key, form in (("recall", "recall", lambda x: 100 * x), ("perplexity", "nll", math.exp)):
        for group, members in groups.items():
            series = {}
            for method in always + [m for m in members if m not in always]:
                points = [(b, samples.get(what, method.at(b)) or {}) for b in sorted(o.budgets)]
                points = [(b, form(p[key])) for b, p in points if key in p]
                if points:
                    series[("(" if method in always else "") + method.name] = points
            panels.append(Panel(f"{what}: {group}", "budget, tokens", "% right" if what == "recall" else "perplexity", series, log_x=True))
    name = plot(RESULTS / "policies.svg", "Every method at equal budgets", panels, columns=len(groups))
    failed = missing(samples)
    error = 100 * math.sqrt(0.25 / o.questions)
    return [f"The default model. Recall: {o.questions} held-out questions (a standard error of at most {error:.0f} points), the fact "
            f"{o.distance:,} tokens back, read in chunks of {o.chunk}: after each the cache is at its budget again, so the fact has "
            "to survive those who do not know the question. Perplexity: "
            f"{o.tokens:,} tokens of a held-out story, token by token. All: f16, pages of {PAGE_SIZE}, {o.protection.replace(',', ', ')}, at most as many "
            "tokens as the column says: those that evict in bunches (`lazy`, `r-kv`, `expected-attention`) do so an eighth of it at a time; "
            "*the prompt read whole*: as its paper has it, nothing leaves before the prompt's end, and its memory is the prompt's "
            "until then. KiB: keys, values and tables. Sorted by recall.", "",
            *table(o, samples, methods), "", *(["Not to be had so:", "", *failed, ""] if failed else []), f"![policies]({name})", ""]


def main():
    parse = script.parser(__doc__)
    script.add(parse, "--program", "--folder")
    parse.add_argument("--methods", help="names, by commas; default: every one")
    parse.add_argument("--budgets", type=lambda t: [int(n) for n in t.split(",")], default=[512, 256, 128, 64])
    parse.add_argument("--protection", default="sinks=4,recent=16", help="of every method")
    parse.add_argument("--questions", type=int, default=60)
    parse.add_argument("--distance", type=int, default=900)
    parse.add_argument("--chunk", type=int, default=64, help="tokens of a prompt read at once")
    parse.add_argument("--tokens", type=int, default=3000, help="of the story")
    parse.add_argument("--most-seconds", type=float, default=30, help="for one perplexity; more: left out")
    parse.add_argument("--workers", type=int, default=os.cpu_count())
    parse.add_argument("--page-only", action="store_true", help="measure nothing, write the page of the samples there are")
    o = parse.parse_args()
    o.budgets.sort(reverse=True)
    listed = [Method(row, o.protection) for row in run_json([o.program, "methods", "--json"])["methods"]]
    chosen = o.methods.split(",") if o.methods else [m.name for m in listed]
    if unknown := set(chosen) - {m.name for m in listed}:
        raise Failed(f"no method {', '.join(sorted(unknown))}")
    jobs = []
    for method in listed:
        for budget in o.budgets if method.name in chosen else []:
            jobs += [(what, method.at(budget)) for what in ("recall", "perplexity")]
            jobs += [("recall", method.at(budget, True))] if method.once else []
    setting = f"questions={o.questions} distance={o.distance} chunk={o.chunk} tokens={o.tokens} {o.protection}"
    samples = Samples(pathlib.Path(o.folder) / "quality.json", setting)
    if not o.page_only:
        tokenizer = Tokenizer.load(REPO / "tools" / "train" / "tokenizer.json")
        rows = asking.questions(tokenizer, o.distance, o.questions)
        with tempfile.TemporaryDirectory() as folder:
            text = os.path.join(folder, "story.txt")
            pathlib.Path(text).write_text(saga(random.Random("held-out quality"), o.tokens * 6))
            measure(o, samples, list(dict.fromkeys(jobs)), text, rows)
    PAGE.put("table", "Recall and perplexity", page(o, samples, listed), "make quality")
    print(PAGE.path)


if __name__ == "__main__":
    main()
