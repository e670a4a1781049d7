"""The table of the blog article "Sparse eviction is the right llama.cpp primitive": the cost of renumbering."""
from engine import bench
from report import bar_plot, median, ratios, span, table, times, verdict

PAPER = {"compact and shift": (3.40, "5.06x slower (as stated; the rates give 10.1x)"), "no eviction": (34.37, "1.00x"), "sparse": (38.05, "1.11x faster")}
DEPTH, KEPT = 1400, 128  # tokens without eviction (the article's contexts: 800 to 2,000), and with


def blog(o):
    """Compact-and-shift, no eviction, sparse: a budget of 128"""
    shape = o.effort.pick("qwen2.5-1.5b@layers=7@vocab=37888@type=q4_k", "qwen2.5-1.5b@type=q4_k")
    depth, k = DEPTH, KEPT
    methods = {
        "no eviction": "full", "sparse": f"sparse:budget={k}", "compact and shift": f"compact-shift:budget={k}",
        "compact and recompute": f"streaming:budget={k},mechanism=shift,rerotate=recompute",
        "streaming (positions in the cache, in place)": f"streaming:budget={k}",
        "h2o, sparse": f"h2o:budget={k}",
    }
    rows = {m: r for (m, _), r in o.engine.decode(shape, methods, [depth], tokens=o.effort.pick(8, 32)).items()}
    base = rows["no eviction"].step_ms
    lines = [[m, span(rows[m]["samples"]), times(ratios(base, rows[m].step_ms)), f"{rows[m]['ms_p99']:.1f}",
              *(f"{v}" for v in PAPER.get(m, ("", "")))] for m in methods]
    return [verdict("Sparse relative to no eviction", median(ratios(base, rows["sparse"].step_ms)), 1.11),
            verdict("Sparse relative to compact and shift", median(ratios(rows["compact and shift"].step_ms, rows["sparse"].step_ms)), 11.19), "",
            f"Qwen2.5-1.5B's shape with random Q4_K weights{' (7 of 28 layers, a quarter of the vocabulary)' if o.effort.quick else ''}, f16 cache. No eviction: {depth:,} tokens "
            "in the cache (the article's contexts: 800 to 2,000). The article measures llama.cpp, which runs a graph that rotates every kept key in every layer. "
            "Our engine moves and rotates keys in the cache; in-place eviction moves nothing, with cache positions as with original positions. llama.cpp on the same "
            "file: [below](#the-articles-table-in-llamacpp-and-here).", "",
            *table(["method", "tokens/s", "relative to no eviction", "p99 ms", "article, tokens/s", "article"], lines),
            *bar_plot("sparse", f"Decode with a budget of {k}", "relative to no eviction",
                      {m.split(" (")[0].replace(", ", ",\n"): {"ours": median(ratios(base, rows[m].step_ms)),
                                                         **({"article": PAPER[m][0] / 34.37} if m in PAPER else {})} for m in methods})
            ], o.engine.command


def beside_llama(o):
    """The article's table, in llama.cpp and here"""
    shape = o.effort.pick("qwen2.5-1.5b@layers=7@vocab=37888@type=q4_k", "qwen2.5-1.5b@type=q4_k")
    steps, cells = o.effort.pick(16, 64), 2304
    engines = ["llama.cpp", "llama.cpp, flash attention", "palimpsest"]
    rows = [("no eviction", "never", "never"), ("sparse", "remove", "original"), ("compact and shift", "shift", "compact"), ("renumbered in place", None, "streaming")]
    lines, command, over_compact, over_sparse, saved, extra = [], "", [], [], [], []
    for full in o.effort.pick([DEPTH], [800, DEPTH, 2000]):
        result, command = bench(o, "shift_bench", shape, o.engine.threads, cells, KEPT, steps, full)
        rates = {(c["engine"], c["mode"]): 1e3 / median(c["ms"]) for c in result["contestants"]}
        for label, theirs, ours in rows:
            article = PAPER[label][0] if label in PAPER else None
            shown = lambda rate, base: f"{rate:.2f} ({rate / base:.2f}x)"
            lines.append([f"{full:,}", label, shown(article, PAPER["no eviction"][0]) if article else "",
                          *(shown(rates[e, mode], rates[e, "never"]) if mode else "cannot" for e in engines for mode in [ours if e == "palimpsest" else theirs])])
        compact, sparse = (max(rates[e, mode] for e in engines[:2]) for mode in ("shift", "remove"))
        over_compact.append(rates["palimpsest", "original"] / compact)
        over_sparse.append(rates["palimpsest", "original"] / sparse)
        saved.append(sparse / compact)
        extra.append(1e3 / compact - 1e3 / sparse)
    return [verdict("Sparse here relative to llama.cpp's compact and shift", median(over_compact), 11.19), "",
            f"One process for each context, one file, steps in random order: tokens/s by the median of {steps} steps, and relative to no eviction. n_ctx {cells:,}, "
            f"f16 cache, random Q4_K weights in Qwen2.5-1.5B's shape{' (7 of 28 layers, a quarter of the vocabulary)' if o.effort.quick else ''}; {KEPT} tokens are kept. "
            f"In llama.cpp, sparse is `llama_memory_seq_rm` and decodes {median(saved):.2f} times as fast as `seq_rm` and `seq_add`, whose graph rotates all keys "
            f"again ({median(extra):.0f} ms per token; the article: about 135 ms). Here sparse is {median(over_sparse):.2f} times as fast as llama.cpp's.", "",
            *table(["context", "strategy", "article", *engines], lines)], command
