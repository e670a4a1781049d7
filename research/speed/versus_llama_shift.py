#!/usr/bin/env python3
"""Cost of eviction here and in llama.cpp's context shift: the same GGUF file, 1,024 tokens kept, one process, interleaved steps.

  make versus-shift [VERSUS_ARGS='--models q4_0 --cells 2048 --rounds 1']
  make versus-shift VERSUS_ARGS='--add'       adds a round to the samples of the last run

build/shift_bench measures one round (its first lines describe the modes). This script repeats it, pools the times of all
rounds and writes research/results/versus-llama-shift.md.
"""
import json
import os
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
from common import REPO, Failed, commit, machine, random_model, run, say, today  # noqa: E402
from parts import ResearchPage, add, machine_part, parser  # noqa: E402

MODES = {
    "never": "no eviction",
    "remove": "remove the oldest",
    "shift": "remove and shift",
    "shift-64": "shift by 64 every 64 steps",
    "streaming": "evict, cache positions",
    "original": "evict, original positions",
    "compact": "compact and shift",
    "lazy": "evict 64 every 64 steps",
}
FASTER, PAYS = 1.15, 1.01


def arguments():
    parse = parser(__doc__)
    add(parse, "--program")
    parse.add_argument("--bench", default=str(REPO / "build" / "shift_bench"))
    parse.add_argument("--shape", default="llama-3.2-1b@vocab=32000")
    parse.add_argument("--models", default="q4_0,q8_0,default", help="types of random weights in that shape; default: the model that comes with the program")
    parse.add_argument("--cells", default="2048,8192", help="n_ctx of llama.cpp's contexts")
    parse.add_argument("--kept", type=int, default=1024)
    parse.add_argument("--steps", type=int, default=192, help="steps per round; at least 64, or the batched modes evict nothing")
    parse.add_argument("--rounds", type=int, default=1)
    add(parse, "--threads", help="the default model always uses 1")
    add(parse, "--folder", "--prefix")
    add(parse, "--add", help="add to the samples of the last run")
    parse.add_argument("--from-json", action="store_true", help="measure nothing: table of the last run's samples")
    return parse.parse_args()


def p99(values):
    return sorted(values)[int(0.99 * (len(values) - 1))]


def median_and_error(values):
    """The median and half its 95% interval, by order statistics."""
    ordered, n = sorted(values), len(values)
    half = int(0.98 * n ** 0.5) + 1
    low, high = ordered[max(0, n // 2 - half)], ordered[min(n - 1, n // 2 + half)]
    return statistics.median(ordered), (high - low) / 2


class Group:
    """One model at one n_ctx: step times in ms by (engine, mode)."""

    def __init__(self, name, cells, gaps):
        self.name, self.cells, self.gaps = name, cells, gaps
        self.speed = {key: 1000 / statistics.mean(ms) for key, ms in gaps.items()}
        self.p50 = {key: statistics.median(ms) for key, ms in gaps.items()}
        peers = {key: ms for key, ms in self.p50.items() if key[0] != "palimpsest"}
        self.best = min(peers, key=peers.get)

    def cost(self, key):
        """Cost of eviction per step, against the same engine without eviction."""
        return median_and_error([a - b for a, b in zip(self.gaps[key], self.gaps[key[0], "never"])])

    def ratio(self, mode):
        return median_and_error([a / b for a, b in zip(self.gaps["palimpsest", mode], self.gaps["palimpsest", "never"])])

    def times(self, key):
        return self.p50[self.best] / self.p50[key]

    def lines(self):
        steps = len(next(iter(self.gaps.values())))
        text = [f"### {self.name}, n_ctx {self.cells:,}", "",
                f"{steps} steps of each mode. Fastest mode of llama.cpp: {self.best[0]}, {MODES[self.best[1]]}.", "",
                "| engine | mode | tokens/s | p50 ms | p99 ms | cost of eviction, ms | speed relative to llama.cpp's fastest mode |",
                "|---|---|---|---|---|---|---|"]
        for key, ms in self.gaps.items():
            cost = "" if key[1] == "never" else "{:+.2f} ± {:.2f}".format(*self.cost(key))
            times = f"**{self.times(key):.2f}x**" if key[0] == "palimpsest" else f"{self.times(key):.2f}x"
            text.append(f"| {key[0]} | {MODES[key[1]]} | {self.speed[key]:.1f} | {self.p50[key]:.2f} | {p99(ms):.2f} | {cost} | {times} |")
        return text + [""]


def write(options, kept, where, note):
    """Writes the section of this machine; other sections are unchanged."""
    groups = [Group(name, cells, {tuple(key): ms for key, ms in gaps}) for name, cells, gaps in sorted(kept, key=lambda k: (k[0], k[1]))]
    shift = [(g, g.cost((engine, "shift"))[0]) for g in groups for engine in ("llama.cpp", "llama.cpp, flash attention")]
    large = [cost for g, cost in shift if "random" in g.name]
    modes = ("streaming", "original")
    ratio_of = {(g, mode): g.ratio(mode) for g in groups for mode in modes}
    times = {(g, mode): g.times(("palimpsest", mode)) for g in groups for mode in modes}
    listed = lambda found, show: "; ".join(f"{g.name} at {g.cells:,}, {MODES[mode]}: {show(value)}" for (g, mode), value in found) or "none"
    ratios = [ratio for ratio, _ in ratio_of.values()]
    page = ResearchPage("versus-llama-shift", "Eviction against llama.cpp's context shift",
                "Generated by `make versus-shift`, one section per machine. `no eviction`: the same engine with the same number of tokens; its newest "
                "token is removed, untimed, after each step. Cost of eviction: median of the differences to `no eviction`, step by step, with a "
                "95% interval. tokens/s: from the mean. Relative speed: from the medians, which exclude llama.cpp's shifts by 64.")
    text = [f"Every step attends to {options.kept:,} tokens, the newest included; the first 4 are protected.", "",
            f"- A step of palimpsest with eviction takes {min(ratios):.3f} to {max(ratios):.3f} times a step without (target: at most "
            f"{PAYS:.2f}). Above the target, with the 95% interval: {listed([i for i in ratio_of.items() if i[1][0] > PAYS], '{0[0]:.3f} ± {0[1]:.3f}'.format)}.",
            *([f"- llama.cpp's shift costs {min(large):+.1f} to {max(large):+.1f} ms per token in the {options.shape} shape (+22 to +86 on "
               "another machine)."] if large else []),
            f"- palimpsest decodes {min(times.values()):.2f} to {max(times.values()):.2f} times as fast as llama.cpp's fastest mode with the same number of "
            f"tokens (target: {FASTER:.2f}). Below the target: {listed([i for i in times.items() if i[1] < FASTER], '{:.2f}'.format)}.",
            "- Comparison with a full cache: [versus-llama-bench.md](versus-llama-bench.md).", "",
            *[line for g in groups for line in g.lines()]]
    page.put(machine_part(where), where, text, foot=f"*{note}*")
    print("\n".join(text))


def main():
    o = arguments()
    raw = os.path.join(o.folder, "versus-shift.json")
    samples, where, note = {}, machine(), ""
    if o.from_json or (o.add and os.path.exists(raw)):
        with open(raw) as file:
            kept = json.load(file)
        where, note = kept["machine"], kept["note"]
        samples = {(name, cells): {tuple(key): ms for key, ms in gaps} for name, cells, gaps in kept["samples"]}
    listed = lambda: [(name, cells, list(gaps.items())) for (name, cells), gaps in samples.items()]
    try:
        for round_ in range(0 if o.from_json else o.rounds):
            for model in o.models.split(","):
                default = model == "default"
                path = REPO / "models/palimpsest-stories.gguf" if default else random_model(o.program, o.folder, o.shape, model)
                name = "palimpsest-stories" if default else f"random weights, {model.upper()}"
                threads = 1 if default else o.threads
                for cells in map(int, o.cells.split(",")):
                    say(f"round {round_ + 1}: {name}, n_ctx {cells}")
                    command = [o.bench, path, threads, cells, o.kept, o.steps]
                    gaps = samples.setdefault((name, cells), {})
                    for c in json.loads(run(command, prefix=o.prefix)[1])["contestants"]:
                        gaps.setdefault((c["engine"], c["mode"]), []).extend(c["ms"])
                    note = (f"{o.threads} threads (1 for palimpsest-stories); {o.shape} for the random weights; f16 cache; libllama as "
                            f"installed by tools/setup; palimpsest {commit()}; {today()}.")
                    with open(raw, "w") as file:
                        json.dump({"samples": listed(), "machine": where, "note": note}, file)
    except (Failed, FileNotFoundError) as error:
        sys.exit(f"versus-shift: {error}")
    write(o, listed(), where, note)


if __name__ == "__main__":
    main()
