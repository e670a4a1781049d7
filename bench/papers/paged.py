"""PagedEviction's figures 3 and 4: throughput by budget and by page size."""
from engine import scaled
from report import line_plot, median, ratios, span, table, times, verdict

LLAMA_1B = scaled("llama-3.2-1b", 2, 16, 128256)
# As the paper's baselines have it: tokens die in their slots, a page is freed when it is empty.
APPEND = ",mechanism=append"
METHODS = {
    "streaming, in pages": "streaming:budget={n}" + APPEND,
    "inverse key norm": "knorm:budget={n},schedule=prompt+step" + APPEND,
    "keydiff": "keydiff:budget={n},schedule=prompt+step" + APPEND,
    "paged-eviction": "paged-eviction:budget={n}",
    "inverse key norm, in place": "knorm:budget={n},schedule=prompt+step",
}
PROMPT, WHOLE = 1024, 1024 + 8192 // 2
ABOUT = ("Llama-3.2-1B's shape with 2 of 16 layers and an eighth of the vocabulary, random Q4_0 weights, f16 cache. The paper: 64 requests of 1,024 + "
         "8,192 tokens on an A100. Ours: {batch} sequences in lockstep after a prompt of 1,024 that is really read, decoding alone; the full cache beside "
         "PagedEviction in a run of its own, at the 5,120 tokens that it holds on average over those 8,192 (random rows). Slots: held for each "
         "live token when the measurement ends. ")


def at(o, budget, page, batch):
    methods = {k: m.format(n=budget) for k, m in METHODS.items()}
    rows = o.engine.decode(LLAMA_1B, methods, [PROMPT], batch=batch, tokens=o.effort.pick(32, 192), reps=o.effort.pick(1, 2),
                           fill="prompt", page_size=page)
    command = o.engine.command
    both = o.engine.decode(LLAMA_1B, {"full": "full", "paged-eviction": methods["paged-eviction"]}, [WHOLE], batch=batch,
                           tokens=32, page_size=page)
    o.engine.command = command
    rows = {k: r for (k, _), r in rows.items()}
    over = {"full": ratios(both["full", WHOLE].step_ms, both["paged-eviction", WHOLE].step_ms)}
    over.update({k: ratios(r.step_ms, rows["paged-eviction"].step_ms) for k, r in rows.items() if k != "paged-eviction"})
    return rows, over


def lines_of(first, rows, over):
    out = [[first, "full cache, at 5,120", "", "", times(over["full"])]]
    for k, r in rows.items():
        out.append([first, k, span(r["samples"]), f"{r['slots_per_token']:.2f}x", times(over[k]) if k in over else "–"])
    return out


def series(over_by):
    labels = ["full", *(k for k in METHODS if k != "paged-eviction")]
    return {k: [(x, median(over[k])) for x, over in over_by.items()] for k in labels}


HEADS = ["method", "tokens/s", "slots", "paged-eviction over it"]


def figure_3(o):
    """Figure 3: throughput by budget"""
    batch = o.effort.pick(2, 4)
    lines, over_by = [], {}
    for budget in o.effort.pick([256, 1024], [256, 512, 1024]):  # a prompt of 1,024 never fills 2,048
        rows, over_by[budget] = at(o, budget, 16, batch)
        lines += lines_of(budget, rows, over_by[budget])
    most = over_by[1024]
    return [ABOUT.format(batch=batch) + "Pages of 16.", "",
            verdict("PagedEviction over the full cache at a budget of 1,024", median(most["full"]), 1.37),
            verdict("... over inverse key norm", median(most["inverse key norm"]), 1.39),
            verdict("... over streaming in pages", median(most["streaming, in pages"]), 1), "",
            "The paper, at 1,024: 1.37x the full cache, 1.39x inverse key norm and KeyDiff, 1.04x streaming.", "",
            *table(["budget", *HEADS], lines),
            *line_plot("paged-fig3", "PagedEviction over the others", "budget", "times", series(over_by), log=True)], o.engine.command


def figure_4(o):
    """Figure 4: throughput by page size"""
    batch = o.effort.pick(2, 4)
    lines, over_by = [], {}
    for page in o.effort.pick([16, 64], [16, 32, 64, 128]):
        rows, over_by[page] = at(o, 512, page, batch)
        lines += lines_of(page, rows, over_by[page])
    return [ABOUT.format(batch=batch) + "A budget of 512. The paper's pages of 8 do not exist here: a page is a multiple of 16 slots.", "",
            *table(["page", *HEADS], lines),
            *line_plot("paged-fig4", "PagedEviction over the others, budget 512", "slots of a page", "times", series(over_by), log=True)], o.engine.command
