#!/usr/bin/env python3
"""How time and memory grow: with the prompt, the budget, the batch, and with four million streamed tokens.

  make growth                                       all parts
  make growth GROWTH_ARGS='reading stream'          some of them; the others' sections stay as they are
  make growth GROWTH_ARGS='--add reading'           further rounds on top of the last run's: slices for a shared machine

  reading   prompts of 4k to 64k tokens at a budget of 1,024 and with the full cache: exponents of time and memory
  budget    time per token against the budget
  batch     time per token against the number of sequences
  stream    4,000,000 tokens written: flat memory, flat time

Writes docs/results/growth.md and its plots. Samples are kept in out/growth.json.
"""
import json
import math
import os
import statistics
import sys

import parts as script
from common import RESULTS, Failed, random_model, run_json, say, shown
from plot import Panel, plot

PARTS = ["reading", "budget", "batch", "stream"]
PAGE = script.Page("growth", "Growth: what more tokens, budget and sequences cost", "Made by `make growth` (bench/growth.py), part by part.",
                   PARTS)
EXPONENT, FLAT = 1.05, 1.05


def numbers(text):
    return [int(n) for n in text.split(",")]


def exponent(points):
    """Slope of a straight line through the logarithms, by least squares."""
    xs, ys = ([math.log(value) for value in column] for column in zip(*points))
    x, y = statistics.mean(xs), statistics.mean(ys)
    return sum((a - x) * (b - y) for a, b in zip(xs, ys)) / sum((a - x) ** 2 for a in xs)


def yes(good):
    return "yes" if good else "**NO**"


def name_of(method):
    return method.split(":")[0]


class Samples:
    """Values by a key of strings and numbers, kept in a file from run to run."""

    def __init__(self, path, keep):
        self.path, self.values = path, {}
        if keep and os.path.exists(path):
            with open(path) as file:
                self.values = {tuple(key): value for key, value in json.load(file)}

    def forget(self, part):
        self.values = {key: value for key, value in self.values.items() if key[0] != part}

    def add(self, key, value):
        self.values.setdefault(key, []).append(value)

    def save(self):
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        with open(self.path, "w") as file:
            json.dump(list(self.values.items()), file)

    def least(self, *key):
        return min(self.values[key])

    def median(self, *key):
        return statistics.median(self.values[key])


def resident_peak(command, prefix):
    """Runs a program; gives its standard output and the most memory that it held (the system's own count)."""
    words = prefix.split() + [str(word) for word in command]
    read, write = os.pipe()
    child = os.posix_spawn(words[0] if os.sep in words[0] else f"/usr/bin/{words[0]}", words, os.environ,
                           file_actions=[(os.POSIX_SPAWN_DUP2, write, 1), (os.POSIX_SPAWN_CLOSE, read)])
    os.close(write)
    with open(read, encoding="utf-8") as pipe:
        out = pipe.read()
    _, status, usage = os.wait4(child, 0)
    if status != 0:
        raise Failed(f"{' '.join(words)}: exit code {os.waitstatus_to_exitcode(status)}")
    return out, usage.ru_maxrss * 1024


class Parts:
    """Each method is a part: its document string is the title, it gives lines of Markdown."""

    def __init__(self, options, samples):
        self.o, self.s = options, samples

    def reading(self):
        """Reading a prompt"""
        o, s = self.o, self.s
        methods = [f"{m}:budget={o.budget}" for m in o.methods.split(",")] + ["full"]
        lengths = numbers(o.lengths)
        command = lambda method, tokens: [o.program, "bench", "prefill", "--synthetic", o.small, "--method", method, "--tokens",
                                          tokens, "--reps", 1, "-t", 1, "--json"]
        for round_ in range(o.rounds):
            for tokens in lengths:
                for method in methods:
                    if method == "full" and round_ >= o.full_rounds:
                        continue
                    say(f"reading: round {round_ + 1}: {tokens} tokens, {method}")
                    out, resident = resident_peak(command(method, tokens), o.prefix)
                    row = json.loads(out)[0]
                    s.add(("reading", "seconds", method, tokens), tokens / row["tokens_per_second"]["median"])
                    s.add(("reading", "cache", method, tokens), row["cache_bytes"])
                    s.add(("reading", "resident", method, tokens), resident)
                    s.save()
        line = lambda what, method, scale: [(n, s.least("reading", what, method, n) / scale) for n in lengths]
        time = {m: exponent(line("seconds", m, 1)) for m in methods}
        cache = {m: exponent(line("cache", m, 1)) for m in methods}
        name = plot(RESULTS / "growth-reading.svg", f"Reading a prompt, {o.small}", [
            Panel("Time", "tokens of the prompt", "s", {m: line("seconds", m, 1) for m in methods}, log_x=True, log_y=True),
            Panel("Cache when it is read", "tokens of the prompt", "MiB", {m: line("cache", m, 2**20) for m in methods},
                  log_x=True, log_y=True)])
        bounded = methods[:-1]
        rounds = min(len(s.values["reading", "seconds", m, n]) for m in bounded for n in lengths)
        lines = [f"Prompts of {lengths[0]:,} to {lengths[-1]:,} tokens, {o.small} (random weights), one thread; the least time of "
                 f"{rounds} or more rounds (full: {len(s.values['reading', 'seconds', 'full', lengths[-1]])}); exponents: least squares "
                 "through the logarithms.", "",
                 *[f"- `{m}`: time grows with exponent {time[m]:.3f} (asked: at most {EXPONENT}): {yes(round(time[m], 2) <= EXPONENT)}; from the "
                   f"length before the last to the last {exponent(line('seconds', m, 1)[-2:]):.3f}, where the cheaper first tokens weigh less; its cache with "
                   f"exponent {cache[m]:.3f}: {yes(len({s.least('reading', 'cache', m, n) for n in lengths}) == 1)}, not by a byte."
                   for m in bounded],
                 f"- the full cache: time with exponent {time['full']:.3f}, memory with {cache['full']:.3f}.", "",
                 "| tokens | " + " | ".join(f"{m}, s | cache KiB | peak resident MiB" for m in methods) + " |",
                 "|---" * (1 + 3 * len(methods)) + "|"]
        for n in lengths:
            cells = [f"{s.least('reading', 'seconds', m, n):.2f} | {s.least('reading', 'cache', m, n) / 1024:,.0f} | "
                     f"{s.least('reading', 'resident', m, n) / 2**20:.1f}" for m in methods]
            lines.append(f"| {n:,} | " + " | ".join(cells) + " |")
        return lines + ["", f"![reading]({name})", "", "```", "$ " + shown(command(methods[0], lengths[-1])), "```", ""]

    def decode(self, path, words):
        o = self.o
        return run_json([o.program, "bench", "decode", "-m", path, "-t", o.threads, "--tokens", o.tokens, "--reps", 3, "--json", *words],
                        prefix=o.prefix)

    def budget(self):
        """Time per token against the budget"""
        o, s = self.o, self.s
        budgets, methods = numbers(o.budgets), o.methods.split(",")
        path = random_model(o.program, o.folder, o.shape, o.type)
        # One process for each budget, in which the methods take turns: their ratio is what counts.
        words = lambda b: ["--depth", b, *[w for m in methods for w in ("--method", f"{m}:budget={b}")], "--method", "full"]
        for round_ in range(o.rounds):
            for b in budgets:
                say(f"budget: round {round_ + 1}: {b}")
                for row in self.decode(path, words(b)):
                    s.add(("budget", name_of(row["name"]), b), row["ms_p50"])
                s.save()
        all_ = [*methods, "full"]
        line = {m: [(b, s.median("budget", m, b)) for b in budgets] for m in all_}
        named = {(f"{m}, evicting every step" if m != "full" else "(never evicting, as many tokens"): line[m] for m in all_}
        name = plot(RESULTS / "growth-budget.svg", f"Decoding, {o.shape}, {o.type}",
                    [Panel("Time per token", "tokens attended to", "ms", named, log_x=True, from_zero=True)])
        return [f"{o.shape} in {o.type.upper()} (random weights), {o.threads} threads; the median gap of {o.tokens} tokens, the median of "
                f"{len(s.values['budget', 'full', budgets[0]])} rounds. `full` holds as many tokens and never evicts.", "",
                "| budget | " + " | ".join(f"{m}, ms | of full" if m != "full" else "full, ms" for m in all_) + " |",
                "|---" * (2 * len(all_)) + "|",
                *[f"| {b:,} | " + " | ".join(f"{s.median('budget', m, b):.2f}" + (f" | {s.median('budget', m, b) / s.median('budget', 'full', b):.3f}x"
                                             if m != "full" else "") for m in all_) + " |" for b in budgets],
                "", f"![budget]({name})", "",
                "```", "$ " + shown([o.program, "bench", "decode", "--synthetic", f"{o.shape}@type={o.type}", *words(budgets[-1])]), "```", ""]

    def batch(self):
        """Time per token against the batch"""
        o, s = self.o, self.s
        batches, methods = numbers(o.batches), [f"{m}:budget={o.budget}" for m in o.methods.split(",")]
        path = random_model(o.program, o.folder, o.shape, o.type)
        words = lambda batch: ["--batch", batch, "--depth", o.budget, *[w for m in methods for w in ("--method", m)]]
        for round_ in range(o.rounds):
            for batch in batches:
                say(f"batch: round {round_ + 1}: {batch}")
                for row in self.decode(path, words(batch)):
                    s.add(("batch", row["name"], batch), row["ms_p50"])
                s.save()
        line = {m: [(b, s.median("batch", m, b)) for b in batches] for m in methods}
        rate = {m: [(b, 1000 * b / ms) for b, ms in line[m]] for m in methods}
        name = plot(RESULTS / "growth-batch.svg", f"Decoding in lockstep, {o.shape}, {o.type}, {o.budget:,} tokens kept", [
            Panel("Time per step", "sequences", "ms", line, log_x=True, from_zero=True),
            Panel("Throughput", "sequences", "tokens/s", rate, log_x=True, from_zero=True)])
        return [f"{o.shape} in {o.type.upper()} (random weights), {o.threads} threads, {o.budget:,} tokens kept in each sequence; the median "
                f"gap of {o.tokens} steps, the median of {len(s.values['batch', methods[0], batches[0]])} rounds.", "",
                "| batch | " + " | ".join(f"{m}, ms a step | tokens/s" for m in methods) + " |",
                "|---" * (1 + 2 * len(methods)) + "|",
                *[f"| {b} | " + " | ".join(f"{s.median('batch', m, b):.2f} | {1000 * b / s.median('batch', m, b):.1f}" for m in methods) + " |"
                  for b in batches],
                "", f"![batch]({name})", "", "```",
                "$ " + shown([o.program, "bench", "decode", "--synthetic", f"{o.shape}@type={o.type}", *words(batches[-1])]), "```", ""]

    def stream(self):
        """Four million tokens"""
        o = self.o
        kept = os.path.join(o.folder, "growth-stream.json")
        command = [o.program, "eval", "stream", "--synthetic", o.stream_shape, "--tokens", o.stream_tokens, "--windows", 200, "--no-judge",
                   "--temp", 0, "--method", f"streaming:budget={o.stream_budget}", "-t", 1, "--json"]
        if o.rounds > 0:
            say(f"stream: {o.stream_tokens} tokens")
            with open(kept, "w") as file:
                json.dump(run_json(command, prefix=o.prefix), file)
        with open(kept) as file:
            result = json.load(file)
        windows = result["windows"]
        quarter = len(windows) // 4
        part = lambda key, at: statistics.median(w[key] for w in windows[at * quarter:(at + 1) * quarter])
        ratios = {key: part(key, 3) / part(key, 0) for key in ("ms_median", "ms_mean")}
        cache = {w["cache_bytes"] for w in windows}
        growth = result["growth_bytes"]
        line = lambda key, scale: {key: [(w["to"], w[key] / scale) for w in windows]}
        name = plot(RESULTS / "growth-stream.svg", f"{result['tokens']:,} tokens, {result['model']}", [
            Panel("Memory", "token of the stream", "MiB", {"resident": line("resident_bytes", 2**20)["resident_bytes"],
                                                           "cache": line("cache_bytes", 2**20)["cache_bytes"]}, from_zero=True, lines_only=True),
            Panel("Time per token", "token of the stream", "ms, median of a window",
                  line("ms_median", 1), from_zero=True, lines_only=True)])
        return [f"{result['tokens']:,} tokens of {result['model']} (random weights, one thread), `{result['method']}`; {result['evicted']:,} were evicted.", "",
                f"- the cache holds {', '.join(f'{b:,}' for b in sorted(cache))} bytes at the end of every one of {len(windows)} windows: "
                f"{yes(len(cache) == 1)}",
                f"- resident memory after the first {windows[0]['to']:,} tokens: {windows[0]['resident_bytes'] // 1024:,} KiB; at the end "
                f"{windows[-1]['resident_bytes'] // 1024:,} KiB; the most after token 2,000, looked at every 100 tokens, is {growth // 1024:,} KiB more than there "
                "(8 bytes a token of it are the measurement's own, taken before the first)",
                f"- time per token, last quarter over first: {ratios['ms_median']:.3f} (medians of windows; flat: {yes(ratios['ms_median'] <= FLAT)}), "
                f"{ratios['ms_mean']:.3f} (their means, which other programs on the machine move)", "",
                "| tokens | median ms | mean ms | resident KiB | cache KiB |", "|---|---|---|---|---|",
                *[f"| {w['to']:,} | {w['ms_median']:.4f} | {w['ms_mean']:.4f} | {w['resident_bytes'] // 1024:,} | {w['cache_bytes'] / 1024:,.1f} |"
                  for w in windows[len(windows) // 8 - 1::len(windows) // 8]],
                "", f"![stream]({name})", "", "```", "$ " + shown(command), "```", ""]


def main():
    parse = script.parser(__doc__, PARTS)
    script.add(parse, "--program", "--threads")
    parse.add_argument("--rounds", type=int, default=3, help="0: no measuring, the tables of the samples there are")
    parse.add_argument("--full-rounds", type=int, default=1, help="of reading with the full cache")
    parse.add_argument("--methods", default="streaming,h2o")
    parse.add_argument("--budget", type=int, default=1024, help="of reading and batch")
    parse.add_argument("--small", default="tiny", help="shape whose prompts are read")
    parse.add_argument("--lengths", default="4096,8192,16384,32768,65536")
    parse.add_argument("--shape", default="llama-3.2-1b@vocab=32000", help="shape that decodes")
    parse.add_argument("--type", default="q4_0")
    parse.add_argument("--budgets", default="256,512,1024,2048,4096,8192")
    parse.add_argument("--batches", default="1,2,4,8,16,32")
    parse.add_argument("--tokens", type=int, default=16, help="decoded in a round")
    parse.add_argument("--stream-shape", default="tiny@layers=1@vocab=300@type=q8_0")
    parse.add_argument("--stream-tokens", type=int, default=4000000)
    parse.add_argument("--stream-budget", type=int, default=256)
    script.add(parse, "--folder", "--prefix")
    script.add(parse, "--add", help="add to the samples of the last run")
    options = script.parsed(parse, PARTS)
    samples = Samples(os.path.join(options.folder, "growth.json"), keep=True)
    parts = Parts(options, samples)

    def work(name):
        if not options.add and options.rounds > 0:
            samples.forget(name)
        part = getattr(parts, name)
        PAGE.put(name, part.__doc__, part())

    code = script.work_through(options.parts, work, faults=(KeyError,))
    print(PAGE.path)
    sys.exit(code)


if __name__ == "__main__":
    main()
