"""PagedEviction's figures 3 and 4: throughput by budget and by page size; and many requests under one pool of pages."""
from engine import scaled
from report import line_plot, median, ratios, span, table, times, verdict

LLAMA_1B = scaled("llama-3.2-1b", 1, 16, 128256)
# As the paper's baselines have it: tokens die in their slots, a page is freed when it is empty.
APPEND = ",mechanism=append"
METHODS = {
    "full cache": "full",
    "streaming, in pages": "streaming:budget={n}" + APPEND,
    "inverse key norm": "knorm:budget={n},schedule=prompt+step" + APPEND,
    "paged-eviction": "paged-eviction:budget={n}",
}
OURS = "paged-eviction"
PROMPT, WRITTEN = 1024, 8192
DEPTHS = [1024, 5120, 9184]  # tokens so far at which steps are measured
STEPS = 16  # a page's worth
ABOUT = ("Llama-3.2-1B's shape with 1 of 16 layers and a sixteenth of the vocabulary (each part of a step keeps its share), random Q4_0 "
         "weights, f16 cache, {batch} requests of 1,024 + 8,192 tokens at once, as in the paper (on an A100 of 40 GB the full cache of this "
         "model holds 64 of them, too: 18 GiB). Tokens a second: read and written, over the time of all prompts and of 8,192 steps; the time of a "
         "step is measured at {depths} tokens, {steps} steps each, and what lies between is interpolated. Before each the cache is as the "
         "generation would have left it (`--fill history`: the method drops tokens one by one, by scores of random keys and "
         "values). Slots: held for each live token at the end.")


def measured(o, methods, batch, page):
    """{label: (seconds of the whole run, of each round; the last row)}; rounds of all methods alternate."""
    depths = o.effort.pick(DEPTHS[::2], DEPTHS)
    rows = o.engine.decode(LLAMA_1B, methods, depths, batch=batch, tokens=STEPS, reps=2, fill="history", prompt=PROMPT, page_size=page)
    command = o.engine.command
    reading = o.engine.prefill(LLAMA_1B, methods, PROMPT, page_size=page)
    o.engine.command = command
    out = {}
    for label in methods:
        rounds = []
        for step_ms in zip(*(rows[label, d].step_ms for d in depths)):
            points = [*zip(depths, step_ms), (PROMPT + WRITTEN, step_ms[-1])]
            steps = sum((b - a) * (x + y) / 2 for (a, x), (b, y) in zip(points, points[1:]))
            rounds.append(steps / 1e3 + batch * PROMPT / median(reading[label]["samples"]))
        out[label] = rounds, rows[label, depths[-1]]
    return out


def lines_of(first, runs, batch):
    out, over = [], {}
    for label, (seconds, row) in runs.items():
        if label != OURS:
            over[label] = ratios(seconds, runs[OURS][0])
        out.append([first, label, span([batch * (PROMPT + WRITTEN) / s for s in seconds], 0), f"{row['slots_per_token']:.2f}x",
                    f"{row['cache_bytes'] / batch / 2**20:.1f}", f"{row['ms_attention']:.1f}", f"{row['ms_evict']:.2f}",
                    times(over[label]) if label in over else "–"])
    return out, over


HEADS = ["method", "tokens/s", "slots", "MiB each at the end", "attention, ms a step", "evicting, ms", "paged-eviction over it"]


def about(o, batch):
    return ABOUT.format(batch=batch, steps=STEPS, depths=", ".join(f"{d:,}" for d in o.effort.pick(DEPTHS[::2], DEPTHS)))


def curves(o, first, choices, method_of, name, x_label):
    """One table and one plot over `choices`; {choice: {label: ratios}}."""
    batch = o.effort.pick(8, 64)
    lines, over_by = [], {}
    for choice in choices:
        budget, page = method_of(choice)
        runs = measured(o, {k: m.format(n=budget) for k, m in METHODS.items()}, batch, page)
        more, over_by[choice] = lines_of(choice, runs, batch)
        lines += more
    series = {k: [(x, median(over[k])) for x, over in over_by.items()] for k in METHODS if k != OURS}
    return table([first, *HEADS], lines), line_plot(name, "PagedEviction over the others", x_label, "times", series, log=True), over_by


def keydiff(o):
    """KeyDiff looks at all keys again at each decision, so its history takes a model: where the prompt ends, only."""
    methods = {"keydiff": "keydiff:budget=1024,schedule=prompt+step" + APPEND, OURS: METHODS[OURS].format(n=1024)}
    rows = o.engine.decode(LLAMA_1B, methods, [PROMPT], batch=o.effort.pick(2, 16), tokens=STEPS, reps=2, fill="prompt", page_size=16)
    over = ratios(rows["keydiff", PROMPT].step_ms, rows[OURS, PROMPT].step_ms)
    return ("KeyDiff, which the paper finds as slow as inverse key norm, compares all keys anew at each decision: a history of random scores "
            f"says nothing about it. Right after a prompt, before anything is fragmented, its steps take {times(over)} as long as PagedEviction's.")


def figure_3(o):
    """Figure 3: throughput by budget"""
    rows, plot, over_by = curves(o, "budget", o.effort.pick([256, 1024], [256, 512, 1024, 2048, 4096]), lambda n: (n, 16), "paged-fig3", "budget")
    command, most = o.engine.command, over_by[1024]
    paper = table(["at a budget of 1,024", "ours", "the paper's (A100, vLLM)"],
                  [["over the full cache", times(most["full cache"]), "1.37x"], ["over inverse key norm", times(most["inverse key norm"]), "1.39x"],
                   ["over streaming", times(most["streaming, in pages"]), "1.04x"]])
    return [about(o, o.effort.pick(8, 64)) + " Pages of 16. Streaming does the same work in other slots: what differs from 1.00x there is the machine.", "",
            verdict("PagedEviction over the full cache at a budget of 1,024", median(most["full cache"]), 1.37),
            verdict("... over inverse key norm", median(most["inverse key norm"]), 1.39),
            verdict("... over streaming in pages", median(most["streaming, in pages"]), 1), "", *paper, *rows, *plot, keydiff(o), ""], command


def figure_4(o):
    """Figure 4: throughput by page size"""
    rows, plot, over_by = curves(o, "page", o.effort.pick([16, 64], [16, 32, 64, 128]), lambda page: (1024, page), "paged-fig4", "slots of a page")
    best = max(median(over["full cache"]) for over in over_by.values())
    return [about(o, o.effort.pick(8, 64)) + " A budget of 1,024. The paper's pages of 8 do not exist here: a page is a multiple of 16 slots.", "",
            f"The paper: up to 3.1x the full cache over all its models and page sizes; ours: up to {best:.2f}x.", "", *rows, *plot], o.engine.command


def one_pool(o):
    """64 requests under one pool, by the scheduler"""
    requests, read, written, budget, at_once = o.effort.pick((16, 64, 192, 64, 4), (64, 256, 768, 128, 12))
    row_bytes = 8 * 2 * 64 * 2  # KV heads x (key, value) x dimensions x bytes of f16, of the one layer
    pool = at_once * (read + written) * row_bytes / 2**20
    methods = {k: m.format(n=budget) for k, m in METHODS.items()}
    rows = o.engine.serve(LLAMA_1B, methods, requests, read, written, pool, page_size=16, chunk=256)

    def each(label):
        return f"{rows[label]['tpot_ms']['mean'] / rows[label]['running_peak']:.2f}"

    lines = []
    for label, row in rows.items():
        rate = row["total_tokens_per_second"]["samples"]
        lines.append([label, row["running_peak"], span(rate, 0), f"{row['cache_bytes_peak'] / 2**20:.1f}", row["cache_bytes_after"],
                      f"{row['ttft_ms']['mean'] / 1e3:.1f}", f"{row['tpot_ms']['mean']:.1f}", f"{row['itl_ms']['p99']:.0f}",
                      times(ratios(rows[OURS]["total_tokens_per_second"]["samples"], rate)) if label != OURS else "–"])
    return [f"`bench serve`: {requests} requests of {read:,} + {written:,} tokens that arrive at once, the same model; a pool of {pool:.0f} MiB, which is what "
            f"{at_once} of them need with a full cache; a budget of {budget}, pages of 16. A request is admitted when its worst case fits: for tokens "
            "that die in their slots that is nearly a page for every token, so these baselines get no more requests into the pool than the "
            "full cache. (So it is with the paper's 8B model: 64 requests need 72 GiB of full cache and its card has about 20 left.) "
            f"What a fuller step brings on 2 cores: {each('full cache')} ms for each token with the full cache, {each(OURS)} with PagedEviction, and first tokens "
            "that come sooner. Bytes after: what the pool holds when the last request has gone.", "",
            *table(["method", "at once", "tokens/s", "pages at the peak, MiB", "bytes after", "first token, s", "time per token, ms", "gaps p99, ms",
                    "paged-eviction over it"], lines)], o.engine.command
