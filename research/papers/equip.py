"""End-to-end figures and tables of EQUIP: in-place eviction against shift and gather with recomputed rotations."""
import concurrent.futures
import json
import time

from engine import GPT_J, H2O, H2O_CACHED, H2O_PAPER, LLAMA_13B, LLAMA_30B, LLAMA_7B, LLAMA_7B_ONE, NEOX, OPT, STREAMING, STREAMING_CACHED, STREAMING_PAPER, scaled
from report import bar_plot, geometric_mean, line_plot, median, ratios, span, table, times, verdict

from torch_report import gains

from common import run, shown

SCALED = ("Scaled models: 2 layers (of 32, 40, 28; NeoX 20B: 1 of 44) and a proportional vocabulary, so that each part of a step keeps its share; Q4_0 weights, f16 cache, "
          "2 cores instead of 60. Time of a decode step with a full cache: each step evicts.")


def both(o, shape, n, batch, depth=None, rotary=True):
    """(streaming, h2o): ratios of the paper's baseline to in place, per round; the steps of all, with the cached rotated half too."""
    fix = (lambda m: m) if rotary else (lambda m: without_rotation(m))
    methods = {"ours": STREAMING, "paper": STREAMING_PAPER, "h2o": H2O, "h2o paper": H2O_PAPER}
    if rotary:
        methods |= {"cached": STREAMING_CACHED, "h2o cached": H2O_CACHED}
    depth = depth or 2 * n
    rows = o.engine.decode(shape, {k: fix(m.format(n=n)) for k, m in methods.items()}, [depth], batch)
    steps = {k: rows[k, depth].step_ms for k in methods}
    return ratios(steps["paper"], steps["ours"]), ratios(steps["h2o paper"], steps["h2o"]), steps


def without_rotation(method):
    """The same method without rotary positions: no rotation to recompute."""
    return method.replace(",positions=cache", "").replace(",rerotate=recompute", "") + ",positions=original"


def grid(o, cells, name, title, x_label):
    """cells: [(model, x, shape, budget, batch, rotary)]"""
    rows, streaming, h2o = [], {}, {}
    for model, x, shape, n, batch, rotary in cells:
        s, h, steps = both(o, shape, n, batch, rotary=rotary)
        streaming.setdefault(model, []).append((x, median(s)))
        h2o.setdefault(model, []).append((x, median(h)))
        rows.append([model, n, batch, *(f"{median(steps[k]):.1f}" for k in ("paper", "ours")), times(s),
                     times(ratios(steps["paper"], steps["cached"])) if rotary else "",
                     *(f"{median(steps[k]):.1f}" for k in ("h2o paper", "h2o")), times(h),
                     times(ratios(steps["h2o paper"], steps["h2o cached"])) if rotary else ""])
    means = [geometric_mean([y for points in series.values() for _, y in points]) for series in (streaming, h2o)]
    lines = [verdict("Geometric mean relative to streaming by shift + recompute", means[0], 1.62),
             verdict("Geometric mean relative to h2o by gather + recompute", means[1], 4.48), "",
             *gains(),
             "The paper's geometric means: 1.62x and 4.48x (3.45x in its abstract); its baselines are PyTorch code (see PyTorch against our "
             f"baselines). {SCALED}", "",
             "*Cached half*: keys stored unrotated with their rotated half, as in the paper (`rerotate=cached-half`); *ratio*: our default (a second "
             "query for sinks + window, rotation in registers for h2o).", "",
             *table(["model", "cache", "batch", "streaming, shift, ms", "in place, ms", "ratio", "cached half", "h2o, gather, ms", "in place, ms",
                     "ratio", "cached half"], rows)]
    series = {f"{model}, {what}": points for what, by_model in (("streaming", streaming), ("h2o", h2o))
              for model, points in by_model.items()}
    return lines + line_plot(name, title, x_label, "speed-up of in place", series), o.engine.command


MODELS = {"llama-2-7b": (LLAMA_7B, True), "gpt-j-6b": (GPT_J, True), "gpt-neox-20b": (NEOX, True), "opt-6.7b": (OPT, False)}


def figure_7a(o):
    """Figure 7a: end to end by cache size"""
    sizes = o.effort.pick([256, 1024], [256, 512, 768, 1024])
    models = o.effort.pick({"llama-2-7b": MODELS["llama-2-7b"]}, MODELS)
    cells = [(model, n, shape, n, 8, rotary) for model, (shape, rotary) in models.items()
             for n in (sizes if model == "llama-2-7b" else sizes[1::2])]
    return grid(o, cells, "equip-fig7a", "Batch 8, by cache size", "cache, tokens")


def figure_7b(o):
    """Figure 7b: end to end by batch size"""
    batches = o.effort.pick([1, 8], [1, 4, 16, 32])
    models = o.effort.pick({"llama-2-7b": MODELS["llama-2-7b"]}, MODELS)
    cells = [(model, b, shape, 512, b, rotary) for model, (shape, rotary) in models.items()
             for b in (batches if model == "llama-2-7b" else batches[2:3])]
    return grid(o, cells, "equip-fig7b", "Cache of 512 tokens, by batch size", "sequences")


def copied(batch, tokens, layers=2, width=4096, rounds=5):
    """ms to append a token to copies of the f16 keys and values of llama-2-7b's `layers`; None without NumPy."""
    try:
        import numpy
    except ImportError:
        return None
    old, new = numpy.ones((batch, tokens, width), numpy.float16), numpy.ones((batch, 1, width), numpy.float16)
    times_ms = []
    for _ in range(rounds):
        begun = time.perf_counter()
        for _ in range(2 * layers):
            numpy.concatenate([old, new], axis=1)
        times_ms.append(1e3 * (time.perf_counter() - begun))
    return median(times_ms)


def figure_3(o):
    """Figure 3: step time by sequence length"""
    batch, n = o.effort.pick(8, 32), 256
    depths = o.effort.pick([64, 256, 1024], [64, 256, 512, 1024, 2048])
    methods = {"full cache": "full", "streaming, shift": STREAMING_PAPER.format(n=n), "in place": STREAMING.format(n=n)}
    rows = o.engine.decode(LLAMA_7B, methods, depths, batch, tokens=4)
    copy_ms = {d: copied(batch, d) for d in depths}
    first = median(rows["full cache", depths[0]].step_ms)
    steps = {(m, d): rows[m, d].step_ms for m in methods for d in depths}
    if all(copy_ms.values()):
        steps |= {("full cache, copied", d): [ms + copy_ms[d] for ms in rows["full cache", d].step_ms] for d in depths}
        methods = {"full cache, copied": None, **methods}
    normal = {m: [(d, median(steps[m, d]) / first) for d in depths] for m in methods}
    return [f"llama-2-7b, batch {batch}, 4 sinks + 252. Step time relative to the full cache at {depths[0]} tokens. {SCALED} Our full cache appends in place "
            "too; the paper's (Hugging Face) copies it at every step. *Copied*: our step and the time of numpy.concatenate of the keys and of the values of each layer "
            "with a new token's, as torch.cat does there. The paper gives no numbers: full grows linearly, streaming is constant "
            "from 256 tokens on, in place is below it.", "",
            *table(["tokens", *methods], [[d, *(f"{dict(normal[m])[d]:.2f} ({span(steps[m, d], 1)} ms)" for m in methods)]
                                          for d in depths]),
            *line_plot("equip-fig3", f"A decode step, batch {batch}", "tokens in the sequence", "time, full cache at the start = 1", normal,
                       log=True)], o.engine.command


def parts_of(o, shape, n, batch):
    """Step time by part. Rotation: the difference of attention time to a method that recomputes no rotation."""
    methods = {"streaming, shift + recompute": STREAMING_PAPER.format(n=n),
               "shift, no rotation": f"streaming:budget={n},mechanism=shift,rerotate=two-query",
               "in place, recompute": f"streaming:budget={n},mechanism=in-place,rerotate=recompute",
               "in place, cached half": STREAMING_CACHED.format(n=n),
               "streaming, in place": STREAMING.format(n=n),
               "h2o, in place, cached half": H2O_CACHED.format(n=n),
               "h2o, gather + recompute": H2O_PAPER.format(n=n), "h2o, in place": H2O.format(n=n)}
    depth = 2 * n
    rows = o.engine.decode(shape, methods, [depth], batch)
    return {m: rows[m, depth] for m in methods}


def figure_4(o):
    """Figure 4: step time by part"""
    n, batch = 256, o.effort.pick(4, 16)
    rows = parts_of(o, LLAMA_7B, n, batch)
    bare = rows["streaming, in place"]["ms_attention"]
    groups, lines = {}, []
    for m in ("streaming, shift + recompute", "in place, cached half", "streaming, in place", "h2o, gather + recompute", "h2o, in place, cached half", "h2o, in place"):
        step, update, attention = median(rows[m].step_ms), rows[m]["ms_evict"], rows[m]["ms_attention"]
        rope = max(0.0, attention - bare)
        groups[m.replace(", ", ",\n")] = {"cache update": update, "rotation, scores": rope, "attention": attention - rope,
                                          "other": step - update - attention}
        lines.append([m, *(f"{v:.2f}" for v in (update, rope, attention - rope, step - update - attention, step)),
                      f"{(update + rope) / step:.0%}"])
    return [f"llama-2-7b, batch {batch}, cache {n}. *Update*: selecting tokens and moving bytes. *Rotation, scores*: attention time in addition to "
            "streaming in place, which rotates no stored key and collects no weights. In the paper, update and RoPE together are up "
            f"to 64% of a step. {SCALED}", "",
            *table(["method", "update, ms", "rotation, scores", "attention", "other", "step", "update + rotation"], lines),
            *bar_plot("equip-fig4", f"A decode step, batch {batch}, cache {n}", "ms", groups, stacked=True)], o.engine.command


def figure_8a(o):
    """Figure 8a: end to end by sequence length"""
    batch, n = 8, 256
    depths = o.effort.pick([32, 256, 512], [32, 96, 160, 224, 256, 512])
    lengths = [512, 1024, 2048, 4096]
    methods = {"streaming": (STREAMING, STREAMING_PAPER), "h2o": (H2O, H2O_PAPER)}
    flat = {f"{k} {side}": m.format(n=n) for k, pair in methods.items() for side, m in zip(("ours", "paper"), pair)}
    rows = o.engine.decode(LLAMA_7B, flat, depths, batch)
    ms = {m: [median(rows[m, d].step_ms) for d in depths] for m in flat}

    def whole(m, length):
        """Total time of all steps from an empty cache to `length` tokens, interpolated between the measured depths."""
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
    return [f"llama-2-7b, batch {batch}, cache {n}: total time of a generation from an empty cache, summed from steps measured at "
            f"{', '.join(map(str, depths))} tokens. The paper: geometric means of 1.35x and 1.58x relative to streaming at its two lengths. {SCALED}", "",
            *table(["tokens", *(f"relative to {k}" for k in methods)],
                   [[length, *(f"**{dict(series[k])[length]:.2f}x**" for k in methods)] for length in lengths]),
            *line_plot("equip-fig8a", f"Complete generations, batch {batch}, cache {n}", "tokens", "speed-up of in place", series, log=True)
            ], o.engine.command


def figure_8b(o):
    """Figure 8b: ablation"""
    batch = o.effort.pick(4, 16)
    rows, groups = [], {}
    for n in o.effort.pick([256], [256, 1024]):
        p = {m: r.step_ms for m, r in parts_of(o, LLAMA_30B, n, batch).items()}
        base = p["streaming, shift + recompute"]
        all_ = {"in-place update": ratios(base, p["in place, recompute"]), "rotation": ratios(base, p["shift, no rotation"]),
                "both, cached half": ratios(base, p["in place, cached half"]), "both, second query": ratios(base, p["streaming, in place"])}
        rows.append([n, *(times(v) for v in all_.values()), "1.50x–1.64x",
                     *(times(ratios(p["h2o, gather + recompute"], p[way])) for way in ("h2o, in place, cached half", "h2o, in place"))])
        groups[str(n)] = {k: median(v) for k, v in all_.items()}
    return [f"Shape of llama-30b, batch {batch}, relative to streaming by shift + recompute. {SCALED.replace('2 layers (of 32, 40, 28; NeoX 20B: 1 of 44)', '1 layer of 60')}", "",
            "The paper's re-indexing is K cos + RK sin with the cached rotated half RK: *cached half*. *Second query*: our default for sinks + window.", "",
            *table(["cache", "in-place update", "no recomputed rotation", "both, cached half", "both, second query", "paper, both", "h2o, both, cached half",
                    "h2o, both, rotation in registers"], rows),
            *bar_plot("equip-fig8b", f"llama-30b, batch {batch}", "speed-up relative to shift + recompute", groups)], o.engine.command


def cache_sizes(o, paper, shapes, run_cell):
    rows = []
    for model, shape in shapes.items():
        for n in o.effort.pick([512], [512, 768, 1024]):
            rows.append([model, n, times(run_cell(shape, n)), f"{paper[model][n]:.2f}x (GPU)"])
    return table(["model", "cache", "ours", "paper"], rows)


TABLE_3 = {"llama-2-7b": {"streaming": 7.42, "lagkv": 4.06, "snapkv": 2.89}, "opt-6.7b": {"streaming": 5.58, "lagkv": 3.36, "snapkv": 1.80}}


def table_3(o):
    """Table 3: attention and update of several methods"""
    n, batch, depth = 512, o.effort.pick(4, 16), 1024
    ways = {"streaming": "mechanism=shift", "lagkv": "mechanism=gather", "snapkv": "schedule=step,mechanism=gather", "h2o": "mechanism=gather"}
    rows = []
    for model in o.effort.pick(["llama-2-7b"], ["llama-2-7b", "opt-6.7b"]):
        shape, rotary = MODELS[model]
        positions, recompute = ("cache", ",rerotate=recompute") if rotary else ("original", "")
        methods = {}
        for name, way in ways.items():
            method = f"{name}:budget={n},positions={positions},{way}"
            methods[name] = method.replace(way, way.replace("mechanism=shift", "mechanism=in-place").replace("mechanism=gather", "mechanism=in-place"))
            methods[name + ", paper"] = method + recompute
        got = o.engine.decode(shape, methods, [depth], batch)
        for name in ways:
            ours, theirs = got[name, depth], got[name + ", paper", depth]
            alone = [r["ms_attention"] + r["ms_evict"] for r in (theirs, ours)]
            paper = TABLE_3[model].get(name)
            rows.append([model, name, f"{alone[0]:.1f} ({theirs['ms_evict']:.1f})", f"{alone[1]:.1f} ({ours['ms_evict']:.1f})", f"**{alone[0] / alone[1]:.2f}x**",
                         times(ratios(theirs.step_ms, ours.step_ms)), f"{paper:.2f}x" if paper else ""])
    return [f"Attention and cache update of a decode step with eviction, batch {batch} (paper: 128, GPU, OPT 13B), sequence of {depth:,} tokens, cache of {n}; relative to the same "
            f"policy with shift (streaming) or gather, with every kept key rotated again if the model has rotary positions. {SCALED}", "",
            *table(["model", "method", "shift or gather, ms (update)", "in place, ms (update)", "attention and update", "whole step", "paper"], rows)], o.engine.command


TABLE_1 = {"llama-2-7b": {512: 1.61, 768: 1.90, 1024: 1.96}, "llama-2-13b": {512: 1.89, 768: 1.99, 1024: 2.04}}
TABLE_4 = {"llama-2-7b": {512: 1.182, 768: 1.253, 1024: 1.284}, "llama-2-13b": {512: 1.216, 768: 1.295, 1024: 1.326}}


def table_1(o):
    """Table 1: h2o by cache size"""
    pair = lambda shape, n: o.engine.pair(shape, H2O.format(n=n), H2O_PAPER.format(n=n), 2048, 8)
    shapes = o.effort.pick({"llama-2-7b": LLAMA_7B}, {"llama-2-7b": LLAMA_7B, "llama-2-13b": LLAMA_13B})
    return [f"Batch 8, sequences of 2,048 tokens; relative to gather + recompute. {SCALED}", "", *cache_sizes(o, TABLE_1, shapes, pair)], o.engine.command


TABLE_2 = {"gpt-j-6b": {(1024, 512): 1.25, (1024, 768): 1.28, (2048, 512): 1.45, (2048, 768): 1.52},
           "gpt-neox-20b": {(1024, 512): 1.27, (1024, 768): 1.30, (2048, 512): 1.41, (2048, 768): 1.43}}


def table_2(o):
    """Table 2: h2o of GPT-J and GPT-NeoX, by sequence length and cache size"""
    rows, worst = [], {}
    for model in o.effort.pick(["gpt-j-6b"], list(TABLE_2)):
        for (depth, n), paper in TABLE_2[model].items():
            got = o.engine.pair(MODELS[model][0], H2O.format(n=n), H2O_PAPER.format(n=n), depth, 8)
            rows.append([model, f"{depth:,}", n, times(got), f"{paper:.2f}x", f"{median(got) / paper:.2f}"])
            worst[model, depth, n] = median(got) / paper
    least = min(worst, key=worst.get)
    return [f"Batch 8; relative to gather + recompute, each model in its own architecture. {SCALED} The paper's figures are of an MI210. Least of ours over the paper's: "
            f"{worst[least]:.2f} ({least[0]}, {least[1]:,} tokens, cache of {least[2]}).", "",
            *table(["model", "tokens", "cache", "in place over gather", "paper", "ours / paper"], rows)], o.engine.command


def table_4(o):
    """Table 4: without rotary positions"""
    ours, theirs = (without_rotation(m) for m in (STREAMING, STREAMING_PAPER))
    pair = lambda shape, n: o.engine.pair(shape + "@rope=0", ours.format(n=n), theirs.format(n=n), 2048, 8)
    shapes = o.effort.pick({"llama-2-7b": LLAMA_7B}, {"llama-2-7b": LLAMA_7B, "llama-2-13b": LLAMA_13B})
    return [f"Streaming in place relative to shift, models without rotary positions (`@rope=0`), batch 8, sequences of 2,048 tokens. {SCALED}", "",
            *cache_sizes(o, TABLE_4, shapes, pair)], o.engine.command


def full_cache(o):
    """Figure 10: in-place eviction against the full cache, by batch size"""
    n, most = 256, o.effort.pick(4, 32)
    rows, lines, groups = [], [], {}
    for batch, depth, target in o.effort.pick([(4, 4096, 7.44)], [(batch, *cell) for batch in (8, 16, 32) for cell in ((4096, 7.44), (16384, 16.58))]):
        methods = {"full": "full", "streaming": STREAMING.format(n=n), "h2o": H2O.format(n=n)}
        got = o.engine.decode(LLAMA_7B_ONE, methods, [depth], batch, tokens=4, reps=3)
        step = {m: got[m, depth].step_ms for m in methods}
        attention = {m: got[m, depth]["ms_attention"] for m in methods}
        rows.append([batch, f"{depth:,}", *(f"{median(step[m]):.1f} ({attention[m]:.1f})" for m in methods), times(ratios(step["full"], step["streaming"])),
                     times(ratios(step["full"], step["h2o"])), f"{attention['full'] / attention['streaming']:.1f}x",
                     f"{median(step['full']) / (median(step['full']) - attention['full']):.2f}x", f"up to {target}x"])
        groups[f"batch {batch},\n{depth:,}"] = {m: median(step["full"]) / median(step[m]) for m in ("streaming", "h2o")}
        if batch == most:
            lines.append(verdict(f"Streaming relative to the full cache, batch {batch}, {depth:,} tokens", median(ratios(step["full"], step["streaming"])), target))
    return [*lines, "", f"llama-2-7b, 1 layer, budget {n}; decode steps in ms, attention in parentheses. The matrix products, which eviction does not "
            "reduce, limit the ratio: with 2 cores, a batch of 32 is limited by their arithmetic; with 60 cores and "
            "matrix units it is not. Both sides use our kernels; the paper's full cache is vLLM's paged attention.", "",
            *table(["batch", "tokens", "full, ms", "streaming", "h2o", "full / streaming", "full / h2o", "attention alone", "limit (attention in no time)", "paper"], rows),
            *bar_plot("equip-full", "Relative to the full cache, by batch and tokens", "speed-up", groups)], o.engine.command


def scaling(o):
    """Appendix D.3: several instances, several cores"""
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
    return [f"llama-2-7b, batch {batch} per instance, cache {n}; instances run concurrently in separate processes. The paper: 1.25x–1.7x relative to streaming with "
            f"all 60 cores in use, 2.35x relative to h2o at 16 to 60 cores. {SCALED}", "",
            *table(["instances", "threads per instance", "relative to streaming", "relative to h2o", "total tokens/s, streaming in place"], rows)], o.engine.command
