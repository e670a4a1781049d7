"""The table of the blog article "Sparse eviction is the right llama.cpp primitive": the cost of renumbering, in our engine."""
from report import bar_plot, median, ratios, span, table, times, verdict

PAPER = {"compact and shift": (3.40, "5.06x slower (as stated; the rates give 10.1x)"), "no eviction": (34.37, "1.00x"), "sparse": (38.05, "1.11x faster")}


def blog(o):
    """Compact-and-shift, no eviction, sparse: a budget of 128"""
    shape = o.effort.pick("qwen2.5-1.5b@layers=7@vocab=37888@type=q4_k", "qwen2.5-1.5b@type=q4_k")
    depth, k = 1400, 128
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
            "file: `make versus-shift`.", "",
            *table(["method", "tokens/s", "relative to no eviction", "p99 ms", "article, tokens/s", "article"], lines),
            *bar_plot("sparse", f"Decode with a budget of {k}", "relative to no eviction",
                      {m.split(" (")[0].replace(", ", ",\n"): {"ours": median(ratios(base, rows[m].step_ms)),
                                                         **({"article": PAPER[m][0] / 34.37} if m in PAPER else {})} for m in methods})
            ], o.engine.command
