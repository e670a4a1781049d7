"""EMS: table 3 (max batch and throughput under a memory limit), cost of attention over merged tokens, cost of the global score,
and cost of merging per step."""
from engine import LLAMA_7B_ONE
from equip_kernels import bench
from report import median, ratios, span, table, times, verdict

READ, WRITTEN, BUDGET, CHUNK, PAGE = 4096, 8192, 256, 64, 16
DEPTHS = [READ, READ + WRITTEN // 2, READ + WRITTEN - 32]  # of the full cache, where steps are measured
METHODS = {"streaming": f"streaming:budget={BUDGET}", "h2o": f"h2o:budget={BUDGET},positions=cache", "ems": f"ems:budget={BUDGET}"}
PAPER = {"tokens/s, full": 4.27, "tokens/s, EMS": 45.90, "ratio": 10.75, "batch": 16}


def seconds_of_steps(depths, step_ms):
    points = [*zip(depths, step_ms)]
    points[-1] = (READ + WRITTEN, points[-1][1])
    return sum((b - a) * (x + y) / 2 for (a, x), (b, y) in zip(points, points[1:])) / 1e3


def table_3(o):
    """Table 3: throughput under a memory limit"""
    rounds = o.effort.pick(1, 3)
    hyper_row = 32 * 2 * 128 * 2  # KV heads x (key, value) x dimensions x f16, of the one layer
    cap = (READ + WRITTEN) * hyper_row / 2**20  # one sequence with a full cache, to the last token
    common = {"page_size": PAGE, "chunk": CHUNK}
    # Max batch: what the scheduler admits under the limit; the prompt is longer than budget + chunk.
    let_in = o.engine.serve(LLAMA_7B_ONE, METHODS, 64, 384, 4, cap, **common)
    batch = {"full cache": 1, **{label: row["running_peak"] // 4 * 4 for label, row in let_in.items()}}
    steps, reading = {label: [] for label in batch}, {label: [] for label in batch}
    attention = {}
    for _ in range(rounds):  # interleaved
        full = o.engine.decode(LLAMA_7B_ONE, {"full": "full"}, DEPTHS, tokens=8, reps=1, page_size=PAGE)
        command = o.engine.command
        steps["full cache"].append([full["full", d].step_ms[0] for d in DEPTHS])
        attention["full cache"] = sum(full["full", d]["ms_attention"] for d in DEPTHS) / len(DEPTHS)
        for label, method in METHODS.items():
            row = o.engine.decode(LLAMA_7B_ONE, {label: method}, [2 * BUDGET], batch=batch[label], tokens=8, reps=1, page_size=PAGE)[label, 2 * BUDGET]
            steps[label].append([row.step_ms[0]] * 2)
            attention[label] = row["ms_attention"]
        for label, row in o.engine.prefill(LLAMA_7B_ONE, {"full cache": "full", **METHODS}, READ, reps=1, page_size=PAGE).items():
            reading[label].append(READ / row["samples"][0])
    o.engine.command = command
    lines, ratio, bare = [], {}, {}
    for label, n in batch.items():
        depths = DEPTHS if label == "full cache" else [READ, READ + WRITTEN]
        write = [seconds_of_steps(depths, s) for s in steps[label]]
        whole = [w + n * r for w, r in zip(write, reading[label])]
        ratio[label] = [n * a / b for a, b in zip(whole_of_one(steps, reading), whole)]
        bare[label] = [n * a / b for a, b in zip((seconds_of_steps(DEPTHS, s) for s in steps["full cache"]), write)]
        step = 1e3 * median(write) / WRITTEN
        lines.append([label, n, f"{step:.1f}", f"{attention[label]:.1f}", f"{step / n:.2f}", span([n * WRITTEN / w for w in whole], 1), times(ratio[label]),
                      times(bare[label])])
    weights = {label: 1e3 * median([seconds_of_steps(DEPTHS if label == "full cache" else [READ, READ + WRITTEN], s) for s in steps[label]]) / WRITTEN
               - attention[label] for label in batch}
    one, many = weights["full cache"], weights["streaming"]
    free = (one + attention["full cache"]) / ((one + attention["streaming"]) / batch["streaming"])
    return [f"Shape of Llama-2-7B with 1 of 32 layers and its share of the vocabulary, random Q4_0 weights, f16 cache, 2 cores; {READ:,} prompt + {WRITTEN:,} generated tokens as in "
            f"the paper. Memory limit: {cap:.0f} MiB of keys and values, one sequence with a full cache (the paper's two GPUs also hold only one); "
            f"budget {BUDGET}. Batch: the number of sequences that the scheduler admits under this limit, with prefill chunks of {CHUNK} tokens "
            f"(in addition to the budget) and pages of {PAGE} slots, rounded down to a multiple of 4, the row tile of the matrix kernels. Steps of the full cache are measured at "
            f"{', '.join(f'{d:,}' for d in DEPTHS)} tokens and interpolated; with a budget all steps cost the same. Prompts are measured completely, one after another.", "",
            verdict("Streaming relative to the full cache, prefill included", median(ratio["streaming"]), PAPER["ratio"]),
            verdict("Streaming relative to the full cache, decode only", median(bare["streaming"]), PAPER["ratio"]),
            verdict("H2O relative to the full cache, decode only", median(bare["h2o"]), PAPER["ratio"]),
            verdict("EMS relative to the full cache, decode only", median(bare["ems"]), PAPER["ratio"]), "",
            *table(["cache", "max batch", "step, ms", "attention, ms", "ms per token", "output tok/s, prefill included", "relative to full",
                    "relative to full, decode only"], lines),
            f"The paper: {PAPER['tokens/s, full']} tokens/s with one full cache, {PAPER['tokens/s, EMS']} with EMS and {PAPER['batch']} sequences: {PAPER['ratio']}x. "
            "Its full cache takes 111 ms per token at 128 + 4,096 and 234 ms at 4,096 + 8,192 tokens, much more than the time to read it; this is consistent with a cache that is "
            "copied at every step. Our full cache appends in place, so our baseline is faster.", "",
            f"Limit of the ratio: the matrix products of a step take {one:.1f} ms for one sequence and {many:.1f} ms for {batch['streaming']}, {many / one:.1f} times as much, because two "
            f"cores are limited by arithmetic. If the matrix products took the same time for any batch (limited by reading the weights, as on a GPU), the ratio "
            f"would be {free:.0f}x. Eviction gives {batch['streaming']} times the batch and 1/{attention['full cache'] / attention['streaming'] * batch['streaming']:.0f} of the "
            "attention time per token.", ""], command


# Prompt + generated tokens: seconds by batch size with the full cache and with EMS; the ratio of the best throughputs.
PAPER_LENGTHS = {(128, 4096): ({1: 453.7, 2: 558.3}, {1: 421.7, 2: 442.2, 4: 476.6, 8: 706.7, 16: 1299.2}, 3.44),
                 (128, 6144): ({1: 657.7, 2: 1157.6}, {1: 638.7, 2: 676.9, 4: 706.0, 8: 1080.2, 16: 2010.8}, 4.61),
                 (4096, 128): ({1: 17.3, 2: 30.8}, {1: 14.1, 2: 15.5, 4: 17.5, 8: 28.5, 16: 54.9}, 4.48),
                 (4096, 4096): ({1: 751.5, 2: 1381.1}, {1: 439.1, 2: 458.9, 4: 478.9, 8: 761.7, 16: 1432.8}, 7.71),
                 (4096, 8192): ({1: 1918.6}, {1: 980.0, 2: 910.7, 4: 959.8, 8: 1518.2, 16: 2855.7}, 10.75)}


def table_3_lengths(o):
    """Table 3, at all its lengths and batch sizes"""
    rounds, batches, grid = o.effort.pick(1, 3), o.effort.pick([1, 4], [1, 2, 4, 8, 16]), [128, 4096, 8192, 12256]
    full = {b: o.engine.decode(LLAMA_7B_ONE, {"full": "full"}, grid, batch=b, tokens=4, reps=rounds, page_size=PAGE) for b in (1, 2)}
    ems = {b: o.engine.decode(LLAMA_7B_ONE, {"ems": METHODS["ems"]}, [2 * BUDGET], batch=b, tokens=32, reps=rounds, page_size=PAGE) for b in batches}
    command = o.engine.command
    reading = {n: o.engine.prefill(LLAMA_7B_ONE, {"full": "full", "ems": METHODS["ems"]}, n, reps=rounds, page_size=PAGE) for n in (128, 4096)}
    o.engine.command = command

    def of_full(b, prompt, written):
        """Seconds: the step time is linear between measured depths."""
        at = [(d, median(full[b]["full", d].step_ms)) for d in grid]

        def step(tokens):
            (x, low), (y, high) = next((p, q) for p, q in zip(at, at[1:]) if tokens <= q[0] or q is at[-1])
            return low + (high - low) * (tokens - x) / (y - x)

        cuts = [prompt, *(d for d in grid if prompt < d < prompt + written), prompt + written]
        return sum((y - x) * (step(x) + step(y)) / 2 for x, y in zip(cuts, cuts[1:])) / 1e3 + b * prompt / median(reading[prompt]["full"]["samples"])

    many = median(ems[max(batches)]["ems", 2 * BUDGET].step_ms) / median(ems[1]["ems", 2 * BUDGET].step_ms)
    lines, over = [], {}
    for (prompt, written), (paper_full, paper_ems, paper_ratio) in PAPER_LENGTHS.items():
        seconds = {"full cache": {b: of_full(b, prompt, written) for b in paper_full},
                   "EMS": {b: written * median(ems[b]["ems", 2 * BUDGET].step_ms) / 1e3 + b * prompt / median(reading[prompt]["ems"]["samples"]) for b in batches}}
        best = {label: max(b * written / s for b, s in got.items()) for label, got in seconds.items()}
        over[prompt, written] = best["EMS"] / best["full cache"]
        for label, got in seconds.items():
            paper = paper_full if label == "full cache" else paper_ems
            lines.append([f"{prompt:,} + {written:,}", label, *(f"{got[b]:.1f} ({paper[b]})" if b in got else "no memory" if label == "full cache" else "" for b in batches),
                          f"{best[label]:.1f}", *([f"**{over[prompt, written]:.2f}x**", f"{paper_ratio}x"] if label == "EMS" else ["", ""])])
    return ["Seconds from the first prompt token to the last generated one, the paper's (two RTX 4090, 32 layers) in parentheses; here 1 of 32 layers and its share of the vocabulary on 2 cores. "
            "The full cache is given the batch sizes that the paper's memory holds. Summed from measured steps: the full cache's at "
            f"{', '.join(f'{d:,}' for d in grid)} tokens, linear between them; those of EMS, budget {BUDGET}, cost the same at any length. Prompts are read one after another.", "",
            *(verdict(f"EMS relative to the full cache, {p:,} + {w:,}", over[p, w], PAPER_LENGTHS[p, w][2]) for p, w in PAPER_LENGTHS), "",
            *table(["prompt + generated", "cache", *(f"batch {b}" for b in batches), "best tokens/s", "ratio", "paper"], lines),
            f"A step of {max(batches)} sequences takes {many:.1f} times as long as one here, in the paper 2.9 times: two cores are limited by the arithmetic of the products, a GPU reads the weights "
            "once for all sequences. That bounds each ratio.", ""], o.engine.command


def whole_of_one(steps, reading):
    return [seconds_of_steps(DEPTHS, s) + r for s, r in zip(steps["full cache"], reading["full cache"])]


def micro(o, filter, repetitions):
    """Rows of attention_bench: arguments by name, and counters."""
    got, command = bench(o, "attention_bench", f"--benchmark_filter={filter}", "--benchmark_format=json",
                         f"--benchmark_min_time={o.effort.pick('0.3s', '1s')}", f"--benchmark_repetitions={repetitions}")
    rows = {}
    for row in got["benchmarks"]:
        if row["run_type"] != "iteration":
            continue
        name = dict(part.split(":") for part in row["run_name"].split("/")[1:] if ":" in part)
        rows.setdefault(tuple(sorted((k, int(v)) for k, v in name.items())), []).append(row)
    return [(dict(key), runs) for key, runs in rows.items()], command


def merged(o):
    """Attention over merged tokens"""
    rows, command = micro(o, "^Merged", o.effort.pick(1, 3))
    lines = [[f"{k['slots']:,}", f"{4 * k['slots']:,}", k["dims"], k["group"], "equal" if k["skew"] == 1 else "skewed", "yes" if k["weights"] else "no",
              "own" if k["own_positions"] else "representative's", times([r["of_plain"] for r in runs]), times([r["expanded_of_plain"] for r in runs])]
             for k, runs in rows]
    paper_shape = [r["of_plain"] for k, runs in rows if not k["own_positions"] and k["dims"] == 128 and k["group"] == 1 for r in runs]
    return ["Attention of a decode step over B slots with 3 B tokens merged into them (gamma = 4), relative to B tokens without merging; and of 4 B tokens relative to B, the min "
            "cost of an expanded cache (without its copies). f16, one thread, 8 KV heads, random clusters. Weights: whether the attention weight of each token is returned, as "
            "EMS requires.", "",
            *table(["slots", "tokens", "dimensions", "group", "cluster sizes", "weights", "positions", "relative to B tokens", "4 B tokens relative to B"], lines),
            f"The paper's shape (128 dimensions, no groups), positions of the representative: **{median(paper_shape):.2f}x** (target: at most 1.3x): "
            f"{'yes' if median(paper_shape) <= 1.3 else '**no**'}.", ""], command


def global_score(o):
    """Global score of a prompt of 4,096 tokens"""
    rows, command = micro(o, "^ColumnSums", o.effort.pick(1, 3))
    lines = [[k["threads"], "global and local (last 32)" if k["late"] else "global", f"{100 * median([r['columns_cost'] for r in runs]):.0f}%",
              f"{median([r['three_step_cost'] for r in runs]):.1f}x", times([r["three_step_over_ours"] for r in runs])] for k, runs in rows]
    smallest = min(median([r["three_step_over_ours"] for r in runs]) for _, runs in rows)
    return ["Time that the sums over queries add to one layer's attention (shape of llama-3.2-1b), fused in our kernel and in three steps: score matrix, softmax, sum of columns "
            "(ggml's matrix product and softmax).", "",
            *table(["threads", "score", "ours, relative to attention", "three steps, relative to attention", "three steps relative to ours"], lines),
            verdict("Three steps relative to ours, min", smallest, 13), ""], command


def upkeep(o):
    """Cost of merging per step"""
    shape, held = "llama-3.2-1b@layers=4@vocab=8000@type=q4_0", 1024
    methods = {"full cache, same number of tokens": "full", "streaming": f"streaming:budget={held}", "h2o": f"h2o:budget={held}",
               "global-local": f"global-local:budget={held}", "global-local, every=32": f"global-local:budget={held},every=32",
               "ems": f"ems:budget={held},tau=0", "ems, every=32": f"ems:budget={held},tau=0,every=32"}
    tokens = o.effort.pick(32, 64)
    filled = 4 * held + 64
    rows = o.engine.decode(shape, methods, [held - tokens // 2, filled], tokens=tokens, reps=o.effort.pick(2, 3), fill="prompt")
    base = rows["full cache, same number of tokens", held - tokens // 2]
    lines = []
    for label in methods:
        row = base if label.startswith("full") else rows[label, filled]
        lines.append([label, f"{held:,}" if not label.startswith("ems") else f"{held:,} + {3 * held:,} merged", span(row.step_ms), times(ratios(row.step_ms, base.step_ms)),
                      f"{row['ms_attention']:.2f}", f"{row['ms_evict']:.2f}"])
    return [f"Shape of llama-3.2-1b with 4 of 16 layers, random Q4_0 weights, f16 cache, one sequence after a prompt of {filled:,} tokens. Every head evicts one token per "
            "step, or 32 tokens every 32 steps (every=32). tau = 0: each evicted token is merged into the most similar one, so the table of merged tokens is full (gamma = 4). Random keys and "
            "values are the worst case of the similarity search. With every=32, scoring, sorting and the row layout are shared by 32 steps.", "",
            *table(["method", "tokens", "step, ms", "relative to the full cache", "attention, ms", "eviction and merging, ms"], lines)], o.engine.command

