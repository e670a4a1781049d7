"""EMS: its table 3 (under one cap on the cache's memory, the batch that fits and its throughput), what attention over merged
tokens costs, what its global score does, and what merging costs a step."""
from engine import LLAMA_7B_ONE
from equip_kernels import bench
from report import median, ratios, span, table, times, verdict

READ, WRITTEN, BUDGET, CHUNK, PAGE = 4096, 8192, 256, 64, 16
DEPTHS = [READ, READ + WRITTEN // 2, READ + WRITTEN - 32]  # of the full cache, where steps are measured
METHODS = {"streaming": f"streaming:budget={BUDGET}", "h2o": f"h2o:budget={BUDGET},positions=cache"}
PAPER = {"tokens/s, full": 4.27, "tokens/s, EMS": 45.90, "ratio": 10.75, "batch": 16}


def seconds_of_steps(depths, step_ms):
    points = [*zip(depths, step_ms)]
    points[-1] = (READ + WRITTEN, points[-1][1])
    return sum((b - a) * (x + y) / 2 for (a, x), (b, y) in zip(points, points[1:])) / 1e3


def table_3(o):
    """Table 3: one cap on memory, the batch that fits"""
    rounds = o.effort.pick(1, 3)
    hyper_row = 32 * 2 * 128 * 2  # KV heads x (key, value) x dimensions x f16, of the one layer
    cap = (READ + WRITTEN) * hyper_row / 2**20  # one sequence with a full cache, to the last token
    common = {"page_size": PAGE, "chunk": CHUNK}
    # Who gets in: the scheduler, under the cap; the prompt is longer than what the budget and a chunk hold.
    let_in = o.engine.serve(LLAMA_7B_ONE, METHODS, 64, 384, 4, cap, **common)
    batch = {"full cache": 1, **{label: row["running_peak"] // 4 * 4 for label, row in let_in.items()}}
    steps, reading = {label: [] for label in batch}, {label: [] for label in batch}
    attention = {}
    for _ in range(rounds):  # the sides by turns
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
    return [f"Llama-2-7B's shape with 1 of 32 layers and its share of the vocabulary, random Q4_0 weights, f16 cache, 2 cores; {READ:,} + {WRITTEN:,} tokens as in "
            f"the paper. The cap: {cap:.0f} MiB of keys and values, one sequence with a full cache (the paper's two GPUs hold no second one "
            f"either); a budget of {BUDGET}. How many fit beside one another is what the scheduler let in under that cap, with prompts in chunks of {CHUNK} "
            f"(a chunk comes on top of the budget) in pages of {PAGE}, rounded down to the fours in which the matrix kernels take rows. Not every token was generated: the full cache's steps are measured at "
            f"{', '.join(f'{d:,}' for d in DEPTHS)} tokens and interpolated; with a budget all steps are alike. Prompts are measured whole, one after the other.", "",
            verdict("Streaming over the full cache, prompts included", median(ratio["streaming"]), PAPER["ratio"]),
            verdict("Streaming over the full cache, prompts excluded", median(bare["streaming"]), PAPER["ratio"]),
            verdict("H2O over the full cache, prompts excluded", median(bare["h2o"]), PAPER["ratio"]), "",
            *table(["cache", "batch under the cap", "a step, ms", "of it attention", "a token, ms", "tokens written a second, prompts included", "over full",
                    "prompts excluded"], lines),
            f"The paper: {PAPER['tokens/s, full']} tokens/s with one full cache, {PAPER['tokens/s, EMS']} with EMS and {PAPER['batch']} sequences: {PAPER['ratio']}x. "
            "Its full cache takes 111 ms a token at 128 + 4,096 and 234 ms at 4,096 + 8,192, far more than its cards need to read it: as a cache does that is "
            "copied in every step. Ours appends in place, so the side to beat is faster.", "",
            f"What bounds ours: the weights' part of a step is {one:.1f} ms for one sequence and {many:.1f} ms for {batch['streaming']}: {many / one:.1f} times as much, because two "
            f"cores are bound by arithmetic there. On a machine where the weights' part costs the same for all (read once, as on a GPU), the same attention "
            f"would give {free:.0f}x. Eviction itself gives {batch['streaming']} times the batch and 1/{attention['full cache'] / attention['streaming'] * batch['streaming']:.0f} of the "
            "attention for each token.", ""], command


def whole_of_one(steps, reading):
    return [seconds_of_steps(DEPTHS, s) + r for s, r in zip(steps["full cache"], reading["full cache"])]


def micro(o, filter, repetitions):
    """Rows of attention_bench: their arguments by name, and their counters."""
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
    lines = [[f"{k['slots']:,}", f"{4 * k['slots']:,}", k["dims"], k["group"], "all alike" if k["skew"] == 1 else "a few large", "yes" if k["weights"] else "no",
              "own" if k["own_places"] else "centre's", times([r["of_plain"] for r in runs]), times([r["expanded_of_plain"] for r in runs])]
             for k, runs in rows]
    asked = [r["of_plain"] for k, runs in rows if not k["own_places"] and k["dims"] == 128 and k["group"] == 1 for r in runs]
    return ["A decode step over B slots with 3 B tokens merged into them (gamma = 4), beside one over B plain tokens, and beside one over 4 B: what expanding "
            "costs at the least, without the copies that it makes. f16, one thread, 8 KV heads, random classes. Weights: whether each token's attention is handed out, as "
            "EMS asks for it.", "",
            *table(["slots", "tokens", "dimensions", "group", "classes", "weights", "places", "over B plain tokens", "4 B plain tokens over B"], lines),
            f"The paper's shape (128 dimensions, no groups), places of the centre: **{median(asked):.2f}x** (asked: at most 1.3x): "
            f"{'yes' if median(asked) <= 1.3 else '**no**'}.", ""], command


def global_score(o):
    """The global score of a prompt of 4,096 tokens"""
    rows, command = micro(o, "^ColumnSums", o.effort.pick(1, 3))
    lines = [[k["threads"], "global and local (last 32)" if k["late"] else "global", f"{100 * median([r['columns_cost'] for r in runs]):.0f}%",
              f"{median([r['three_step_cost'] for r in runs]):.1f}x", times([r["three_step_over_ours"] for r in runs])] for k, runs in rows]
    least = min(median([r["three_step_over_ours"] for r in runs]) for _, runs in rows)
    return ["What the sums over queries add to one layer's attention (llama-3.2-1b's shape), and the three-step form: scores as a matrix, softmax, sum of columns "
            "(ggml's product and softmax).", "",
            *table(["threads", "score", "ours, of attention", "three steps, of attention", "three steps over ours"], lines),
            verdict("Three steps over ours", least, 13), ""], command


def upkeep(o):
    """What merging costs a step"""
    shape, held = "llama-3.2-1b@layers=4@vocab=8000@type=q4_0", 1024
    methods = {"full cache, of as many tokens": "full", "streaming": f"streaming:budget={held}", "h2o": f"h2o:budget={held}",
               "global-local": f"global-local:budget={held}", "global-local, 32 at once": f"global-local:budget={held},every=32",
               "ems": f"ems:budget={held},tau=0", "ems, 32 at once": f"ems:budget={held},tau=0,every=32"}
    tokens = o.effort.pick(32, 64)
    filled = 4 * held + 64
    rows = o.engine.decode(shape, methods, [held - tokens // 2, filled], tokens=tokens, reps=o.effort.pick(2, 3), fill="prompt")
    base = rows["full cache, of as many tokens", held - tokens // 2]
    lines = []
    for label in methods:
        row = base if label.startswith("full") else rows[label, filled]
        lines.append([label, f"{held:,}" if not label.startswith("ems") else f"{held:,}, and {3 * held:,} merged", span(row.step_ms), times(ratios(row.step_ms, base.step_ms)),
                      f"{row['ms_attention']:.2f}", f"{row['ms_evict']:.2f}"])
    return [f"llama-3.2-1b's shape with 4 of 16 layers, random Q4_0 weights, f16 cache, one sequence, a prompt of {filled:,} tokens read before; a token leaves every head in every "
            "step, or 32 in every 32nd. tau = 0: each joins the one most like it, so that there are always as many merged tokens as gamma allows (4); random keys and values "
            "are the worst case, for nothing tells early which is most alike. With every=32 nearly all of it is shared by 32 steps: scores, order, places.", "",
            *table(["method", "tokens", "a step, ms", "over the full cache", "of it attention, ms", "of it evicting and merging, ms"], lines)], o.engine.command

