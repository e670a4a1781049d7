"""Cost of eviction: a decode step that evicts at a budget of n, against one that holds n tokens and does not evict.

Both are interleaved in one process. The side without eviction (`full`) starts half a run below n tokens, so that it holds
n on average; the others are over their budget and evict at every step. Ratios are of the same round, so load on the
machine affects both.

    make evict-cost                      # all, about 15 minutes
    make evict-cost COST_ARGS='--budgets 256 --batches 1'
"""
import itertools
import json
import pathlib
import statistics

import common
import parts

PAGE = parts.Page("evict-cost", "Cost of eviction", "What eviction adds to a decode step: the whole step, with and without (`make evict-cost`), and the time that each method takes for its\n"
                  "decisions (`make own-time`). bench/evict_cost.py and bench/own_time.py describe the methods.", ["step", "budget-1024", "budget-4096"])
METHODS = {  # name: (method, target: max ratio)
    "streaming": ("streaming:budget={n}", 1.01),
    "sparse": ("sparse:budget={n}", None),
    "lazy, 64 at once": ("lazy:budget={n}", None),
    "h2o": ("h2o:budget={n}", 1.05),
    "h2o, cache positions": ("h2o:budget={n},positions=cache", None),
}


def measure(model, budget, batch, names, options, prefix):
    tokens = max(8, options.tokens // (1 if batch == 1 else 2))
    depth = budget - 3 - tokens // 2  # two tokens of warm-up
    methods = ["full"] + [METHODS[name][0].format(n=budget) for name in names]
    command = ["build/palimpsest", "bench", "decode", "--synthetic", model, "--batch", batch, "--tokens", tokens, "--reps",
               options.reps, "--depth", f"{depth},{budget + 64}", "-t", options.threads, "--json"]
    for method in methods:
        command += ["--method", method]
    common.say(common.shown(command))
    rows = common.run_json(command, prefix=prefix)
    full = next(r for r in rows if r["name"] == "full" and r["depth"] == depth)
    out = []
    for name, method in zip(names, methods[1:]):
        row = next(r for r in rows if r["name"] == method and r["depth"] == budget + 64)
        rounds = min(len(row["samples"]), len(full["samples"]))
        ratios = [full["samples"][i] / row["samples"][i] for i in range(rounds)]
        out.append({"name": name, "budget": budget, "batch": batch, "full_ms": full["ms_p50"], "ms": row["ms_p50"],
                    "p99": row["ms_p99"], "full_p99": full["ms_p99"], "ratios": ratios, "evicted": row["evicted"],
                    "median_ratio": row["ms_p50"] / full["ms_p50"], "target": METHODS[name][1],
                    "evict": row["ms_evict"], "attention": row["ms_attention"], "full_attention": full["ms_attention"]})
    return out, command


def table(results, options):
    lines = ["Time of a decode step (TPOT) that evicts one token in every layer and head, relative to a step of the same engine with",
             f"the same number of tokens and no eviction. {options.threads} threads; {options.model}, f16 cache.", "",
             "| method | budget | batch | no eviction, ms | eviction, ms (p99) | ratio of medians | ratio per round, median (min–max) | target | attention ms, no eviction | attention ms, eviction ms |",
             "|---|---|---|---|---|---|---|---|---|---|"]
    for r in results:
        target = "" if r["target"] is None else f"≤ {r['target']:.2f}x"
        lines.append(f"| {r['name']} | {r['budget']:,} | {r['batch']} | {r['full_ms']:.2f} | {r['ms']:.2f} ({r['p99']:.2f}) | "
                     f"**{r['median_ratio']:.3f}x** | {common.spread(r['ratios'])} | {target} | "
                     f"{r['full_attention']:.1f} | {r['attention']:.1f}, {r['evict']:.2f} |")
    ratios = [r["median_ratio"] - 1 for r in results]
    missed = [f"{r['name']}, budget {r['budget']:,}, batch {r['batch']}: {r['median_ratio']:.3f}x" for r in results
              if r["target"] and r["median_ratio"] > r["target"]]
    return [*lines, "", f"Eviction changes the median step by {min(ratios):+.1%} to {max(ratios):+.1%}. Targets missed: {'; '.join(missed) or 'none'}.", "",
            "Ratio of medians: median step over all rounds. Attention, eviction: the parts of a step (mean) that eviction can change; the rest, the matrix"
            " products, is the same for all methods, and its differences are noise. One process per budget and batch.", ""]


def main():
    parser = parts.parser(__doc__)
    parser.add_argument("--model", default="llama-3.2-1b@type=q4_0@vocab=32000")
    parser.add_argument("--budgets", type=int, nargs="+", default=[256, 1024, 4096])
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS), metavar="NAME")
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--reps", type=int, default=7)
    parts.add(parser, "--threads", default=2)
    parts.add(parser, "--prefix")
    parser.add_argument("--keep", type=pathlib.Path, metavar="FILE",
                        help="file of samples; a later run continues from it")
    parser.add_argument("--dry", action="store_true", help="print the table, do not write docs/results/evict-cost.md")
    options = parser.parse_args()
    kept = {}  # "batch x budget": [rows, command]
    if options.keep and options.keep.exists():
        kept = json.loads(options.keep.read_text())
    results, command = [], None
    for batch, budget in itertools.product(options.batches, options.budgets):
        cell = f"{batch} x {budget}"
        if cell not in kept:
            kept[cell] = measure(options.model, budget, batch, options.methods, options, options.prefix)
            if options.keep:
                options.keep.write_text(json.dumps(kept))
        rows, command = kept[cell]
        results += rows
        for r in rows:
            common.say(f"{r['name']}, {budget}, batch {batch}: {r['median_ratio']:.3f}x of {r['full_ms']:.2f} ms; rounds "
                       f"{statistics.median(r['ratios']):.3f}x")
    lines = table(results, options)
    print("\n".join(lines))
    if not options.dry:
        PAGE.put("step", "A step with eviction, relative to a step without", lines, common.shown(command))


if __name__ == "__main__":
    main()
