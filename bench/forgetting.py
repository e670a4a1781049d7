#!/usr/bin/env python3
"""What a method forgets, by the kind of work: the tasks of `palimpsest bench methods` at equal bytes on SmolLM2.

  python3 bench/forgetting.py                 measures what is missing (resumable), writes the page; pulls the model
  python3 bench/forgetting.py --page-only     writes the page from what was measured
  python3 bench/forgetting.py --model gemma3-270m --out out/forgetting-gemma     another model, in a section of its own
  python3 bench/forgetting.py --length 4096 --shares 8 --samples 5 --out out/forgetting-4096                       longer texts, likewise
  python3 bench/forgetting.py --cost --out out/forgetting-cost     time and memory of each method: long answers only; nothing else may run
  python3 bench/forgetting.py --all           all tasks and methods of the list, shares 1/2 to 1/16, 25 contexts: a day

Facts are hidden in a novel (../shared/text/books), whose perplexity is measured, too; bAbI and LongBench are read from ../shared/tasks. The page's figures pool the
questions of a group's tasks that the full cache solves; intervals are Wilson's, or of contexts for shares (repetition). Writes docs/results/forgetting.md, the plot's data
and forgetting.jsonl: a line for each task, method and share. The table of recorded agents' sessions is copied from research/results/agents.md.
"""
import json
import math
import pathlib
import random
import re
import statistics

import parts as script
from common import REPO, RESEARCH, RESULTS, SHARED, machine, model_file, run, say, today
from plot import Bars, Panel, plot
from real_models import wilson

USUAL_LENGTH, COST_TASK = 1024, "repetition"
BOOK = "shelley-frankenstein.txt"
TASKS = ["facts", "turns", "corrected", "users", "password", "constants", "babi qa1", "facts, known", "multi-key, known", "format, far", "secret, near", "secret, far", "tool call",
         "tool call, JSON", "tool call, grammar", "code", "repetition", "written", "text"]
METHODS = ["auto", "keydiff, shares", "h2o, shares", "keydiff", "h2o", "snapkv", "critical", "streaming", "random", "tova", "lagkv", "kvzip", "expected-attention", "auto, q8_0", "auto, q8_0/q4", "auto, q4", "h2o, shares, q4", "streaming, q4", "keydiff, q4"]
MODELS = {"smollm2": "SmolLM2 135M Instruct (Q4_1)", "gemma3-270m": "Gemma 3 270M (Q4_K_M)"}
AT_A_GLANCE = ["auto, q8_0/q4", "auto, q8_0", "auto", "keydiff, shares", "h2o, shares", "peak", "tova", "h2o", "keydiff", "critical", "snapkv", "streaming", "random"]
GROUPS = {"unknown": "asked after", "known": "known", "instructions": "instructions", "work": "tools, code", "written": "distinct triples", "text": "text, nats"}


def novel(o):
    """The book without the header and the footer of Project Gutenberg."""
    text = (pathlib.Path(o.books) / BOOK).read_text(encoding="utf-8-sig")
    first, last = text.find("*** START"), text.find("*** END")
    path = pathlib.Path(o.out) / "novel.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text[text.find("\n", first) + 1:last])
    return path


def measure(o):
    words = [o.program, "bench", "methods", "-m", o.model_path, "-o", o.out, "-t", o.threads, "--text", novel(o), "--data", o.data, "--length", o.length]
    words += ["--samples", o.samples, "--shares", ",".join(f"1/{share}" for share in o.shares)]
    if not o.all:
        words += ["--tasks", ";".join(o.tasks), "--methods", ";".join(o.methods)]
    say(" ".join(map(str, words)))
    print(run(words)[1])


def rows_of(o):
    """The last line of each task, method and share."""
    rows = {}
    for line in (pathlib.Path(o.out) / "results.jsonl").read_text().splitlines():
        line = json.loads(line)
        if "suite" in line and not line["suite"].get("error"):
            one = line["suite"]
            rows[one["task"], one["method"], one["share"]] = dict(one, version=line["version"])
    return rows


class Cell:
    """A group's figure of a method at a share: over the tasks that the full cache solves and that were measured."""

    def __init__(self, rows, tasks, group, method, share):
        full = [rows[task, "full", 1] for task in tasks if rows[task, "full", 1]["group"] == group]
        solved = [one for one in full if group == "text" or one["score"] >= one["solved"]]
        self.got = [rows[one["task"], method, share] for one in solved if (one["task"], method, share) in rows]
        self.whole = bool(solved) and len(self.got) == len(solved)
        self.low = self.high = None
        if not self.got:
            self.mean = None
        elif group == "text":
            self.mean = sum(math.log(one["score"] / rows[one["task"], "full", 1]["score"]) for one in self.got) / len(self.got)
        elif group == "written":
            self.mean = 100 * sum(one["score"] for one in self.got) / len(self.got)
            if len(self.got) == 1 and self.got[0]["low"] is not None:
                self.low, self.high = 100 * self.got[0]["low"], 100 * self.got[0]["high"]
        else:
            asked = sum(one["questions"] for one in self.got)
            right = sum(one["score"] * one["questions"] for one in self.got)
            self.mean, (self.low, self.high) = 100 * right / asked, wilson(right, asked)
        self.asked = sum(one["questions"] for one in self.got)

    def text(self, group):
        if self.mean is None:
            return "-"
        if group == "text":
            return f"{self.mean:+.2f}"
        return f"{self.mean:.0f}%" + ("" if self.low is None else f" [{self.low:.0f}, {self.high:.0f}]") + ("" if self.whole else " *")


def table(rows, tasks, groups, shares):
    """One table: methods by share, best worst-case first."""
    lines = ["| share | method | " + " | ".join(GROUPS[group] for group in groups) + " | tokens | MiB | file, KiB |", "|---|---" + "|---" * (len(groups) + 3) + "|"]
    for share in shares:
        methods = [m for _, m, s in dict.fromkeys((0, m, s) for _, m, s in rows) if s == share]
        cells = {m: {g: Cell(rows, tasks, g, m, share) for g in groups} for m in methods}

        def worst(m):
            return min((c.mean for g, c in cells[m].items() if g not in ("text", "written") and c.mean is not None), default=-1)

        for m in sorted(methods, key=worst, reverse=True):
            one = [rows[key] for key in rows if key[1] == m and key[2] == share]
            saw = " †" if any(r.get("saw") for r in one) else ""
            size = max(r["cache_bytes"] for r in one) / 2**20
            budget = one[0]["budget"] or "all"
            file = max(r.get("file_bytes", 0) for r in one)
            lines.append(f"| {'full' if share == 1 else f'1/{1 / share:.0f}'} | {m}{saw} | " + " | ".join(cells[m][g].text(g) for g in groups) +
                         f" | {budget} | {size:.1f} | {f'{file / 1024:.1f}' if file else ''} |")
    return lines


def spearman(a, b):
    """Rank correlation; ties have their mean rank. None if all are equal."""
    def ranks(values):
        order = sorted(values)
        return [order.index(v) + (order.count(v) - 1) / 2 for v in values]
    a, b = ranks(a), ranks(b)
    return statistics.correlation(a, b) if len(set(a)) > 1 and len(set(b)) > 1 else None


def order_of_methods(rows, tasks, groups, shares):
    """Whether the order of methods by questions in sight, the papers' case, is that of the other groups. Intervals: each figure drawn again from its questions."""
    lines = ["| share | methods | " + " | ".join(GROUPS[g] for g in groups if g != "known") + " |", "|---" * (len(groups) + 1) + "|"]
    draw, known = random.Random(1), {}

    def again(cell, group):
        if group in ("text", "written"):
            return cell.mean
        p = (cell.mean / 100 * cell.asked + 0.5) / (cell.asked + 1)  # a figure of 0% or 100% is not certain, either
        return sum(draw.random() < p for _ in range(cell.asked)) / cell.asked

    for share, which in ((s, w) for s in shares if s < 1 for w in ("all", "as in papers")):
        methods = [m for m in dict.fromkeys(m for _, m, s in rows if s == share) if Cell(rows, tasks, "known", m, share).mean is not None]
        if which != "all":  # one share for all heads, f16
            methods = [m for m in methods if not m.startswith("auto") and "shares" not in m and "split=" not in m and ", q" not in m]
        if len(methods) < 5:
            continue
        shown = []
        for group in (g for g in groups if g != "known"):
            both = [m for m in methods if Cell(rows, tasks, group, m, share).mean is not None]
            first, second = ([Cell(rows, tasks, g, m, share) for m in both] for g in ("known", group))
            sign = -1 if group == "text" else 1  # of losses, less is better
            rho = spearman([c.mean for c in first], [sign * c.mean for c in second]) if len(both) >= 5 else None
            if rho is None:
                shown.append("–")
                continue
            drawn = [spearman([again(c, "known") for c in first], [sign * again(c, group) for c in second]) for _ in range(500)]
            drawn = sorted(r for r in drawn if r is not None)
            shown.append(f"{rho:.2f} [{drawn[len(drawn) // 40]:.2f}, {drawn[-1 - len(drawn) // 40]:.2f}] of {len(both)}")
            if which != "all":
                known.setdefault(group, []).append(rho)
        lines.append(f"| 1/{1 / share:.0f} | {which} | " + " | ".join(shown) + " |")
    if not known:
        return []
    says = lambda rho: "is nearly" if rho >= 0.8 else "is largely" if rho >= 0.6 else "is only partly" if rho >= 0.3 else "is not"
    words = "; ".join(f"{says(statistics.mean(rhos))} that by *{GROUPS[group]}* ({statistics.mean(rhos):.2f})" for group, rhos in known.items())
    return ["### Does the papers' case decide?", "", "*As in papers*: one share of the budget for all heads, f16. Rank correlation (Spearman) of the methods' order by questions that end the prompt (*known*) with their order by the other groups, of so many methods; brackets: 95%, each figure "
            "drawn again from its questions.", "", *lines, "", f"The papers' methods by known questions: that order {words}; means over shares.", ""]


def plotted(o, rows, tasks, shares, methods):
    """Lines by the bytes of the cache, of methods that were measured at all shares; of one share, bars. Returns Markdown."""
    groups = [group for group in ("unknown", "known", "instructions", "work") if Cell(rows, tasks, group, "full", 1).got]
    less = [share for share in shares if share < 1]
    if len(less) > 1:  # the same tasks at all shares
        everywhere = [m for m in methods if all(Cell(rows, tasks, group, m, share).mean is not None for group in groups[:3] for share in less)]
        tasks = [task for task in tasks if all((task, m, share) in rows for m in everywhere for share in less)]
        of = {group: [task for task in tasks if rows[task, "full", 1]["group"] == group] for group in groups}
        panels = [Panel(f"{GROUPS[group]}: {'; '.join(of[group])}", "bytes of the cache: 1 / x", "% right",
                        {m: [(1 / share, Cell(rows, of[group], group, m, share).mean) for share in less] for m in everywhere}, log_x=True, from_zero=True)
                  for group in groups if of[group]]
    else:
        methods = sorted(methods, key=lambda m: Cell(rows, tasks, groups[0], m, less[0]).mean or 0, reverse=True)
        panels = [Bars(f"1/{1 / less[0]:.0f} of the bytes", "% right",
                       {m: {GROUPS[g]: Cell(rows, tasks, g, m, less[0]).mean or 0 for g in groups} for m in methods})]
    title = f"What is still right, by the kind of work: {title_of(o)}"
    return [f"![{title}]({plot(RESULTS / f'{file_of(o)}.svg', title, panels)})", ""]


def part_of(o):
    return o.model if o.length == USUAL_LENGTH else f"{o.model}-{o.length}"


def file_of(o):
    return "forgetting" if part_of(o) == "smollm2" else f"forgetting-{part_of(o)}"


def title_of(o):
    return MODELS.get(o.model, o.model) + ("" if o.length == USUAL_LENGTH else f", texts of {o.length:,} tokens")


def write_cost(o, page):
    """Time of a written token and the peak of the process's memory, of one task."""
    rows = {(method, share): row for (task, method, share), row in rows_of(o).items() if task == COST_TASK}
    full = rows["full", 1]
    saved = lambda row: (full["process_bytes"] - row["process_bytes"]) / 2**20
    lines = ["| method | time of a written token, of the full cache's | MiB of the process, peak | less than with the full cache |", "|---|---|---|---|"]
    for (method, _), row in sorted(rows.items(), key=lambda item: item[1]["ms_per_token"]):
        lines.append(f"| {method} | {row['ms_per_token'] / full['ms_per_token']:.2f} | {row['process_bytes'] / 2**20:.0f} | {saved(row):.0f} |")
    (RESULTS / "forgetting-cost.jsonl").write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows.values()))
    page.put("cost", f"Time and memory, at 1/{o.shares[0]} of the bytes", [
        f"Long answers to texts of {o.length:,} tokens, {o.samples} contexts, nothing else running. A token with the full cache takes {full['ms_per_token']:.1f} ms, most of it for the weights, which no method saves; the process's memory is mostly the weights, too. Memory is that of the process: "
        "a method that reads the whole prompt before it evicts (schedule=prompt+step) has all of it then. One run: differences of a few percent are none. What a method costs within a step: [evict-cost.md](evict-cost.md).", "", *lines, ""],
        foot=f"*`make forgetting FORGETTING_ARGS=\"--cost --samples {o.samples} --methods '...'\"` with the methods of the table, one thread; {today()}, {machine()}, palimpsest {full['version']}. Raw results: [forgetting-cost.jsonl](forgetting-cost.jsonl).*")


def at_a_glance(page):
    """A few methods in all sections, at a quarter and an eighth of the bytes: right answers to later questions, and to known ones."""
    columns = {}
    for name, file in (("SmolLM2", "forgetting"), ("Gemma", "forgetting-gemma3-270m"), ("SmolLM2, 4,096 tokens", "forgetting-smollm2-4096")):
        path = RESULTS / f"{file}.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        rows = {(one["task"], one["method"], one["share"]): one for one in map(json.loads, lines)}
        for share in (1 / 4, 1 / 8):
            measured = {m: {t for t, method, s in rows if (method, s) == (m, share)} for m in AT_A_GLANCE}
            measured = {m: tasks for m, tasks in measured.items() if tasks}
            if not measured:
                continue
            same = set.intersection(*measured.values())  # the tasks of all these methods
            both = {m: [Cell(rows, sorted(same & {t for t, method, _ in rows if method == "full" and rows[t, "full", 1]["group"] == group}), group, m, 1 if m == "full" else share)
                        for group in ("unknown", "known")] for m in ["full", *measured]}
            columns[f"{name}, 1/{1 / share:.0f}"] = {m: " / ".join("-" if c.mean is None else f"{c.mean:.0f}%" for c in cells) for m, cells in both.items()}
    lines = ["| method | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    lines += [f"| {m} | " + " | ".join(column.get(m, "-") for column in columns.values()) + " |" for m in ["full", *AT_A_GLANCE] if any(m in column for column in columns.values())]
    page.put("glance", "At a glance", [
        "Right answers at 1/4 and 1/8 of the bytes: to questions that come *after* the text was read / to questions that are *known* while it is read, the papers' case. The methods of a column have the same questions (20 to 120: a difference below 10 to 15 points is none). "
        "*shares*: each head has its own share of the budget; *q8_0*, *q8_0/q4*: 8-bit keys, 8-bit or 4-bit values. Intervals, and all other methods, tasks and shares, are below.", "", *lines, ""], foot="*From the raw results below, by bench/forgetting.py.*")


def agents_sessions(page):
    """Recorded agents' sessions: the table of research/results/agents.md, with its own footer; another command measures it."""
    source = RESEARCH / "agents.md"
    found = source.exists() and re.search(r"<!-- part palimpsest -->\n## [^\n]*\n\n(.*?)\n\n(\*.*?\*)\n<!-- end palimpsest -->", source.read_text(), re.S)
    if not found:
        say(f"{source} has no part palimpsest: no section of agents' sessions (tools/env python3 research/speed/agents.py measures it)")
        return
    methods = sorted(set(re.findall(r"^\| ([a-z0-9-]+)[:,a-z0-9=.+-]* \| [0-9.]+ \|", found[1], re.M)))
    page.put("agents", "Recorded agents' sessions: tokens read again", [
        "Not a row of `bench methods`: sessions are served several at a time, and what is counted is tokens read again, not right answers. The recordings have lengths and hashes, no texts, so that "
        f"this says nothing of what a method forgets. Methods measured: {', '.join(methods)}. *MiB*: the pool, which a server may not exceed.", "", found[1], ""],
        foot=found[2][:-1] + " Copied from [agents.md](../../research/results/agents.md) by bench/forgetting.py.*")


def page_of():
    return script.Page("forgetting", "What methods forget, by the kind of work", "Generated by `make forgetting` (bench/forgetting.py).", ["glance", *MODELS, "smollm2-4096", "cost", "agents", "kvpress"])


def write_page(o):
    rows = rows_of(o)
    measured = [task for (task, method, _), row in rows.items() if method == "full" and (row["score"] < row["solved"] or any(t == task and m != "full" for t, m, _ in rows))]
    rows = {key: row for key, row in rows.items() if key[0] in measured}
    shares = sorted({share for _, _, share in rows}, reverse=True)
    methods = list(dict.fromkeys(method for _, method, share in rows if share < 1))
    groups = [group for group in GROUPS if Cell(rows, measured, group, "full", 1).got]
    raw = f"{file_of(o)}.jsonl"
    (RESULTS / raw).write_text("".join(json.dumps(rows[key], ensure_ascii=False) + "\n" for key in sorted(rows, key=str)))
    unsolved = [task for task in measured if rows[task, "full", 1]["group"] not in ("text", "shown") and rows[task, "full", 1]["score"] < rows[task, "full", 1]["solved"]]
    about = [f"{GROUPS[g]}: " + ", ".join(f"{t} {100 * rows[t, 'full', 1]['score']:.0f}%" for t in measured if rows[t, 'full', 1]['group'] == g and t not in unsolved)
             for g in groups if g != "text"]
    asked = {g: Cell(rows, measured, g, "full", 1).asked for g in groups if g != "text"}
    lines = ["Tasks that the full cache solves, with its score: " + "; ".join(about) + ". Left out, since the full cache answers less than half: " +
             (", ".join(f"{t} ({100 * rows[t, 'full', 1]['score']:.0f}%)" for t in unsolved) or "none") + ".", "",
             "Questions a figure: " + ", ".join(f"{GROUPS[g]} {n}" for g, n in asked.items()) + "; brackets: 95% intervals. \\*: not all of the group's tasks were measured. "
             "†: the method was chosen by a task's generator (facts, turns). *file*: read beside the model, not counted in the bytes.", "",
             *table(rows, measured, groups, shares), "", *(order_of_methods(rows, measured, groups, shares) if "known" in groups else []), *plotted(o, rows, measured, shares, methods)]
    versions = sorted({row["version"] for row in rows.values()})
    page = page_of()
    given = " ".join(f"--{name} {value}" for name, value, usual in (("model", o.model, "smollm2"), ("length", o.length, USUAL_LENGTH)) if value != usual)
    page.put(part_of(o), title_of(o), lines,
             foot=f"*`make forgetting`{f' with `{given}`' if given else ''}, {o.length} tokens, {o.samples} contexts a task, one thread; {today()}, {machine()}, palimpsest {', '.join(versions)}. Raw results: "
             f"[{raw}]({raw}).*")
    at_a_glance(page)
    agents_sessions(page)
    print(page.path)


def main():
    parse = script.parser(__doc__)
    script.add(parse, "--program")
    parse.add_argument("--model", default="smollm2", help="a name of `palimpsest list`; pulled unless it is there")
    parse.add_argument("--out", default=str(REPO / "out" / "forgetting"), help="folder of the results: one for each model and length")
    parse.add_argument("--books", default=str(SHARED / "text/books"))
    parse.add_argument("--data", default=str(SHARED))
    parse.add_argument("--tasks", type=lambda t: t.split(";"), default=TASKS, help="separated by semicolons")
    parse.add_argument("--methods", type=lambda t: t.split(";"), default=METHODS, help="likewise")
    parse.add_argument("--shares", type=lambda t: [int(x) for x in t.split(",")], default=[2, 4, 8, 16])
    parse.add_argument("--samples", type=int, default=25)
    parse.add_argument("--length", type=int, default=USUAL_LENGTH)
    parse.add_argument("--threads", type=int, default=1)
    parse.add_argument("--all", action="store_true")
    parse.add_argument("--cost", action="store_true")
    parse.add_argument("--page-only", action="store_true")
    o = parse.parse_args()
    if o.cost:
        o.tasks, o.shares, o.samples = [COST_TASK], [4], min(o.samples, 3)
    if not o.page_only:
        o.model_path = model_file(o.program, o.model)
        measure(o)
    write_cost(o, page_of()) if o.cost else write_page(o)


if __name__ == "__main__":
    main()
