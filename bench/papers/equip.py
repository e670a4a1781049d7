"""EQUIP's end-to-end figures and tables: in place beside the shift and the gather that recompute every rotation."""
import concurrent.futures
import json

from engine import GPT_J, H2O, H2O_PAPER, LLAMA_13B, LLAMA_30B, LLAMA_7B, OPT, STREAMING, STREAMING_PAPER, scaled
from report import bar_plot, geometric_mean, line_plot, median, ratios, span, table, times, verdict

from torch_report import gains

from common import run, shown

SCALED = ("Scaled: 2 layers (of 32, 40, 28), the vocabulary with them, so that each part keeps its share; Q4_0 weights, an f16 cache, "
          "2 cores instead of 60. Time of a decode step with the cache full: each step evicts.")


def both(o, shape, n, batch, depth=None, rotary=True):
    """(streaming, h2o): the papers' way over ours, round by round."""
    fix = (lambda m: m) if rotary else (lambda m: without_rotation(m))
    methods = {"ours": STREAMING, "paper": STREAMING_PAPER, "h2o": H2O, "h2o paper": H2O_PAPER}
    depth = depth or 2 * n
    rows = o.engine.decode(shape, {k: fix(m.format(n=n)) for k, m in methods.items()}, [depth], batch)
    steps = {k: rows[k, depth].step_ms for k in methods}
    return ratios(steps["paper"], steps["ours"]), ratios(steps["h2o paper"], steps["h2o"]), steps


def without_rotation(method):
    """The same without rotary positions: nothing is rotated, so there is nothing to be done about it."""
    return method.replace(",positions=cache", "").replace(",rerotate=recompute", "") + ",positions=original"


def grid(o, cells, name, title, x_label):
    """cells: [(model, x, shape, budget, batch, rotary)]"""
    rows, streaming, h2o = [], {}, {}
    for model, x, shape, n, batch, rotary in cells:
        s, h, steps = both(o, shape, n, batch, rotary=rotary)
        streaming.setdefault(model, []).append((x, median(s)))
        h2o.setdefault(model, []).append((x, median(h)))
        rows.append([model, n, batch, *(f"{median(steps[k]):.1f}" for k in ("paper", "ours")), times(s),
                     *(f"{median(steps[k]):.1f}" for k in ("h2o paper", "h2o")), times(h)])
    means = [geometric_mean([y for points in series.values() for _, y in points]) for series in (streaming, h2o)]
    lines = [verdict("Geometric mean over streaming by shift + recompute", means[0], 1.62),
             verdict("Geometric mean over h2o by gather + recompute", means[1], 4.48), "",
             *gains(),
             "The paper's geometric means: 1.62x and 4.48x (3.45x in its abstract); its baselines are PyTorch's (see PyTorch beside our "
             f"baselines). {SCALED}", "",
             *table(["model", "cache", "batch", "streaming, shift, ms", "in place, ms", "ratio", "h2o, gather, ms", "in place, ms",
                     "ratio"], rows)]
    series = {f"{model}, {what}": points for what, by_model in (("streaming", streaming), ("h2o", h2o))
              for model, points in by_model.items()}
    return lines + line_plot(name, title, x_label, "speed-up of in place", series), o.engine.command


MODELS = {"llama-2-7b": (LLAMA_7B, True), "gpt-j-6b": (GPT_J, True), "opt-6.7b": (OPT, False)}


def figure_7a(o):
    """Figure 7a: end to end over cache sizes"""
    sizes = o.effort.pick([256, 1024], [256, 512, 768, 1024])
    models = o.effort.pick({"llama-2-7b": MODELS["llama-2-7b"]}, MODELS)
    cells = [(model, n, shape, n, 8, rotary) for model, (shape, rotary) in models.items()
             for n in (sizes if model == "llama-2-7b" else sizes[1::2])]
    return grid(o, cells, "equip-fig7a", "Batch 8, over cache sizes", "cache, tokens")


def figure_7b(o):
    """Figure 7b: end to end over batches"""
    batches = o.effort.pick([1, 8], [1, 4, 16, 32])
    models = o.effort.pick({"llama-2-7b": MODELS["llama-2-7b"]}, MODELS)
    cells = [(model, b, shape, 512, b, rotary) for model, (shape, rotary) in models.items()
             for b in (batches if model == "llama-2-7b" else batches[2:3])]
    return grid(o, cells, "equip-fig7b", "A cache of 512 tokens, over batches", "sequences")


def figure_3(o):
    """Figure 3: the time of a step as the sequence grows"""
    batch, n = o.effort.pick(8, 32), 256
    depths = o.effort.pick([64, 256, 1024], [64, 256, 512, 1024, 2048])
    methods = {"full cache": "full", "streaming, shift": STREAMING_PAPER.format(n=n), "in place": STREAMING.format(n=n)}
    rows = o.engine.decode(LLAMA_7B, methods, depths, batch, tokens=4)
    first = median(rows["full cache", depths[0]].step_ms)
    normal = {m: [(d, median(rows[m, d].step_ms) / first) for d in depths] for m in methods}
    return [f"llama-2-7b, batch {batch}, 4 sinks + 252. Time of a step over the full cache's at {depths[0]} tokens. {SCALED} Our full cache appends in place "
            "too; the paper's (Hugging Face) copies it in every step. The paper gives no numbers: full grows linearly, streaming is flat "
            "from 256 on, in place lies below it.", "",
            *table(["tokens", *methods], [[d, *(f"{dict(normal[m])[d]:.2f} ({span(rows[m, d].step_ms, 1)} ms)" for m in methods)]
                                          for d in depths]),
            *line_plot("equip-fig3", f"A decode step, batch {batch}", "tokens so far", "time, full cache at the start = 1", normal,
                       log=True)], o.engine.command


def parts_of(o, shape, n, batch):
    """Where a step's time goes. Rotation is what a method that rotates nothing anew takes less for attention."""
    methods = {"streaming, shift + recompute": STREAMING_PAPER.format(n=n),
               "shift, no rotation": f"streaming:budget={n},mechanism=shift,rerotate=two-query",
               "in place, recompute": f"streaming:budget={n},mechanism=in-place,rerotate=recompute",
               "streaming, in place": STREAMING.format(n=n),
               "h2o, gather + recompute": H2O_PAPER.format(n=n), "h2o, in place": H2O.format(n=n)}
    depth = 2 * n
    rows = o.engine.decode(shape, methods, [depth], batch)
    return {m: rows[m, depth] for m in methods}


def figure_4(o):
    """Figure 4: where the time of a step goes"""
    n, batch = 256, o.effort.pick(4, 16)
    rows = parts_of(o, LLAMA_7B, n, batch)
    bare = rows["streaming, in place"]["ms_attention"]
    groups, lines = {}, []
    for m in ("streaming, shift + recompute", "streaming, in place", "h2o, gather + recompute", "h2o, in place"):
        step, update, attention = median(rows[m].step_ms), rows[m]["ms_evict"], rows[m]["ms_attention"]
        rope = max(0.0, attention - bare)
        groups[m.replace(", ", ",\n")] = {"update of the cache": update, "rotation, scores": rope, "attention": attention - rope,
                                          "the rest": step - update - attention}
        lines.append([m, *(f"{v:.2f}" for v in (update, rope, attention - rope, step - update - attention, step)),
                      f"{(update + rope) / step:.0%}"])
    return [f"llama-2-7b, batch {batch}, cache {n}. *update*: deciding and moving bytes; *rotation, scores*: what attention takes longer than "
            "that of streaming in place, which rotates no key anew and collects no weights. In the paper the update and RoPE together are up "
            f"to 64% of a step. {SCALED}", "",
            *table(["method", "update, ms", "rotation, scores", "attention", "the rest", "step", "update + rotation"], lines),
            *bar_plot("equip-fig4", f"A decode step, batch {batch}, cache {n}", "ms", groups, stacked=True)], o.engine.command


def figure_8a(o):
    """Figure 8a: end to end over sequence lengths"""
    batch, n = 8, 256
    depths = o.effort.pick([32, 256, 512], [32, 96, 160, 224, 256, 512])
    lengths = [512, 1024, 2048, 4096]
    methods = {"streaming": (STREAMING, STREAMING_PAPER), "h2o": (H2O, H2O_PAPER)}
    flat = {f"{k} {side}": m.format(n=n) for k, pair in methods.items() for side, m in zip(("ours", "paper"), pair)}
    rows = o.engine.decode(LLAMA_7B, flat, depths, batch)
    ms = {m: [median(rows[m, d].step_ms) for d in depths] for m in flat}

    def whole(m, length):
        """All steps from an empty cache to `length` tokens, between and beyond the depths that were measured."""
        total = 0.0
        for t in range(length):
            i = next((i for i in range(1, len(depths)) if t < depths[i]), None)
            if i is None or t >= n:
                total += ms[m][-1]
            else:
                at = max(0.0, (t - depths[i - 1]) / (depths[i] - depths[i - 1]))
                total += ms[m][i - 1] + at * (ms[m][i] - ms[m][i - 1])
        return total

    series = {k: [(length, whole(f"{k} paper", length) / whole(f"{k} ours", length)) for length in lengths] for k in methods}
    return [f"llama-2-7b, batch {batch}, cache {n}: all steps of generating so many tokens from nothing, summed from steps measured at "
            f"{', '.join(map(str, depths))} tokens. The paper: geometric means of 1.35x and 1.58x over streaming at its two lengths. {SCALED}", "",
            *table(["tokens", *(f"over {k}" for k in methods)],
                   [[length, *(f"**{dict(series[k])[length]:.2f}x**" for k in methods)] for length in lengths]),
            *line_plot("equip-fig8a", f"Whole generations, batch {batch}, cache {n}", "tokens", "speed-up of in place", series, log=True)
            ], o.engine.command


def figure_8b(o):
    """Figure 8b: what each optimisation brings"""
    batch = o.effort.pick(4, 16)
    rows, groups = [], {}
    for n in o.effort.pick([256], [256, 1024]):
        p = {m: r.step_ms for m, r in parts_of(o, LLAMA_30B, n, batch).items()}
        base = p["streaming, shift + recompute"]
        all_ = {"update in place": ratios(base, p["in place, recompute"]), "rotation": ratios(base, p["shift, no rotation"]),
                "both": ratios(base, p["streaming, in place"])}
        rows.append([n, *(times(v) for v in all_.values()), "1.50x–1.64x",
                     times(ratios(p["h2o, gather + recompute"], p["h2o, in place"]))])
        groups[str(n)] = {k: median(v) for k, v in all_.items()}
    return [f"llama-30b's shape, batch {batch}, over streaming by shift + recompute. {SCALED.replace('2 layers (of 32, 40, 28)', '1 layer of 60')}", "",
            *table(["cache", "update in place", "no rotation anew", "both", "paper, both", "h2o, both"], rows),
            *bar_plot("equip-fig8b", f"llama-30b, batch {batch}", "speed-up over shift + recompute", groups)], o.engine.command


def cache_sizes(o, paper, shapes, run_cell):
    rows = []
    for model, shape in shapes.items():
        for n in o.effort.pick([512], [512, 768, 1024]):
            rows.append([model, n, times(run_cell(shape, n)), f"{paper[model][n]:.2f}x (a GPU)"])
    return table(["model", "cache", "ours", "paper"], rows)


TABLE_3 = {"llama-2-7b": {"streaming": 7.42, "lagkv": 4.06, "snapkv": 2.89}, "opt-6.7b": {"streaming": 5.58, "lagkv": 3.36, "snapkv": 1.80}}


def table_3(o):
    """Table 3: attention and update of several methods"""
    n, batch, depth = 512, o.effort.pick(4, 16), 1024
    ways = {"streaming": "mechanism=shift", "lagkv": "mechanism=gather", "snapkv": "schedule=step,mechanism=gather", "h2o": "mechanism=gather"}
    rows = []
    for model in o.effort.pick(["llama-2-7b"], ["llama-2-7b", "opt-6.7b"]):
        shape, rotary = MODELS[model]
        positions, anew = ("cache", ",rerotate=recompute") if rotary else ("original", "")
        methods = {}
        for name, way in ways.items():
            method = f"{name}:budget={n},positions={positions},{way}"
            methods[name] = method.replace(way, way.replace("mechanism=shift", "mechanism=in-place").replace("mechanism=gather", "mechanism=in-place"))
            methods[name + ", paper"] = method + anew
        got = o.engine.decode(shape, methods, [depth], batch)
        for name in ways:
            ours, theirs = got[name, depth], got[name + ", paper", depth]
            alone = [r["ms_attention"] + r["ms_evict"] for r in (theirs, ours)]
            paper = TABLE_3[model].get(name)
            rows.append([model, name, f"{alone[0]:.1f} ({theirs['ms_evict']:.1f})", f"{alone[1]:.1f} ({ours['ms_evict']:.1f})", f"**{alone[0] / alone[1]:.2f}x**",
                         times(ratios(theirs.step_ms, ours.step_ms)), f"{paper:.2f}x" if paper else ""])
    return [f"Attention and the cache's update of a decode step that evicts, batch {batch} (the paper: 128, a GPU, OPT 13B), {depth:,} tokens so far, a cache of {n}; over the same "
            f"policy by shift (streaming) or gather, every kept key rotated anew where there are rotary positions. {SCALED}", "",
            *table(["model", "method", "shift or gather, ms (update)", "in place, ms (update)", "attention and update", "whole step", "paper"], rows)], o.engine.command


TABLE_1 = {"llama-2-7b": {512: 1.61, 768: 1.90, 1024: 1.96}, "llama-2-13b": {512: 1.89, 768: 1.99, 1024: 2.04}}
TABLE_4 = {"llama-2-7b": {512: 1.182, 768: 1.253, 1024: 1.284}, "llama-2-13b": {512: 1.216, 768: 1.295, 1024: 1.326}}


def table_1(o):
    """Table 1: h2o over cache sizes"""
    pair = lambda shape, n: o.engine.pair(shape, H2O.format(n=n), H2O_PAPER.format(n=n), 2048, 8)
    shapes = o.effort.pick({"llama-2-7b": LLAMA_7B}, {"llama-2-7b": LLAMA_7B, "llama-2-13b": LLAMA_13B})
    return [f"Batch 8, 2,048 tokens so far; over gather + recompute. {SCALED}", "", *cache_sizes(o, TABLE_1, shapes, pair)], o.engine.command


def table_4(o):
    """Table 4: without rotary positions"""
    ours, theirs = (without_rotation(m) for m in (STREAMING, STREAMING_PAPER))
    pair = lambda shape, n: o.engine.pair(shape + "@rope=0", ours.format(n=n), theirs.format(n=n), 2048, 8)
    shapes = o.effort.pick({"llama-2-7b": LLAMA_7B}, {"llama-2-7b": LLAMA_7B, "llama-2-13b": LLAMA_13B})
    return [f"Streaming in place over shift in models without rotary positions (`@rope=0`), batch 8, 2,048 tokens so far. {SCALED}", "",
            *cache_sizes(o, TABLE_4, shapes, pair)], o.engine.command


def full_cache(o):
    """Figure 10: in place beside the full cache, batch 32"""
    shape = scaled("llama-2-7b", 1, 32, 32000)
    batch, n = o.effort.pick(4, 32), 256
    rows, lines, groups = [], [], {}
    for depth, asked in o.effort.pick([(4096, 7.44)], [(4096, 7.44), (16384, 16.58)]):
        methods = {"full": "full", "streaming": STREAMING.format(n=n), "h2o": H2O.format(n=n)}
        got = o.engine.decode(shape, methods, [depth], batch, tokens=4, reps=3)
        step = {m: got[m, depth].step_ms for m in methods}
        attention = {m: got[m, depth]["ms_attention"] for m in methods}
        rows.append([f"{depth:,}", *(f"{median(step[m]):.1f} ({attention[m]:.1f})" for m in methods), times(ratios(step["full"], step["streaming"])),
                     times(ratios(step["full"], step["h2o"])), f"{attention['full'] / attention['streaming']:.1f}x",
                     f"{median(step['full']) / (median(step['full']) - attention['full']):.2f}x", f"up to {asked}x"])
        groups[f"{depth:,} tokens"] = {m: median(step["full"]) / median(step[m]) for m in ("streaming", "h2o")}
        lines.append(verdict(f"Streaming over the full cache, {depth:,} tokens", median(ratios(step["full"], step["streaming"])), asked))
    return [*lines, "", f"llama-2-7b, 1 layer, batch {batch}, a budget of {n}; decode steps in ms, attention in brackets. The weights' part of a step, "
            "which no eviction makes smaller, bounds the ratio: with 2 cores a batch of 32 is bound by arithmetic there, with 60 cores and "
            "their matrix units it is not. Both sides run our kernels; the paper's full side is vLLM's paged attention.", "",
            *table(["tokens", "full, ms", "streaming", "h2o", "full / streaming", "full / h2o", "attention alone", "if attention took no time", "paper"], rows),
            *bar_plot("equip-full", f"Over the full cache, batch {batch}", "speed-up", groups)], o.engine.command


def scaling(o):
    """D.3: several instances, several cores"""
    n, batch, tokens, rounds = 512, 8, o.effort.tokens, o.effort.rounds
    methods = {"streaming": (STREAMING, STREAMING_PAPER), "h2o": (H2O, H2O_PAPER)}
    flat = [m.format(n=n) for pair in methods.values() for m in pair]

    def measure(instances, threads):
        words = o.engine.words("decode", LLAMA_7B, flat, threads=threads, batch=batch, depth=2 * n, tokens=tokens, reps=rounds)
        o.engine.command = shown(words)
        with concurrent.futures.ThreadPoolExecutor(instances) as pool:
            outs = list(pool.map(lambda _: json.loads(run(words, prefix=o.engine.prefix)[1]), range(instances)))
        ours, theirs, rate = {}, {}, 0.0
        for out in outs:
            for i, k in enumerate(methods):
                ours.setdefault(k, []).extend(1 / x for x in out[2 * i]["samples"])
                theirs.setdefault(k, []).extend(1 / x for x in out[2 * i + 1]["samples"])
            rate += median(out[0]["samples"])
        return {k: ratios(theirs[k], ours[k]) for k in methods}, rate

    rows = []
    for instances, threads in [(1, 1), (1, o.threads), (o.threads, 1)]:
        found, rate = measure(instances, threads)
        rows.append([instances, threads, times(found["streaming"]), times(found["h2o"]), f"{rate:.0f}"])
    return [f"llama-2-7b, batch {batch} an instance, cache {n}; instances run at the same time, each in a process. The paper: 1.25x–1.7x over streaming with "
            f"all 60 cores in use, 2.35x over h2o at 16 to 60 cores. {SCALED}", "",
            *table(["instances", "threads each", "over streaming", "over h2o", "tokens/s of all, streaming in place"], rows)], o.engine.command
