"""Figures 3 and 4 of PagedEviction: throughput by budget and by page size, in the shapes of its three models; and concurrent requests with one page pool."""
from engine import scaled
from report import line_plot, median, ratios, span, table, times, verdict

LLAMA_1B = scaled("llama-3.2-1b", 1, 16, 128256)
SHAPES = {"1B": LLAMA_1B, "3B": scaled("llama-3.2-3b", 1, 28, 128256), "8B": scaled("llama-3.1-8b", 1, 32, 128256)}
# As in the paper's baselines: slots are freed only when their page is empty.
APPEND = ",mechanism=append"
METHODS = {
    "full cache": "full",
    "streaming, in pages": "streaming:budget={n}" + APPEND,
    "inverse key norm": "knorm:budget={n},sinks=0,recent=0,schedule=prompt+step" + APPEND,
    "paged-eviction": "paged-eviction:budget={n}",
}
OURS = "paged-eviction"
PROMPT, WRITTEN = 1024, 8192
DEPTHS = [1024, 5120, 9184]  # context lengths at which steps are measured
STEPS = 16  # a page's worth
ABOUT = ("Shapes of Llama-3.2-1B, Llama-3.2-3B and Llama-3.1-8B with 1 of 16, 28 and 32 layers and that share of the vocabulary (each part of a step keeps its share), random Q4_0 "
         "weights, f16 cache, {batch} concurrent requests of 1,024 prompt + 8,192 generated tokens, as in the paper (the full cache of 64 such requests of the 1B, "
         "18 GiB, fits the paper's A100 of 40 GB). Tokens/s: prompt and generated tokens, over the time of all prompts and of 8,192 steps. The time of a "
         "step is measured at {depths} tokens, {steps} steps each, and interpolated. The cache before each measurement is fragmented as by "
         "generation (`--fill history`: the method evicts tokens one by one, by scores of random keys and "
         "values). Slots: allocated slots per kept token at the end.")


def measured(o, shape, methods, batch, page):
    """{label: (seconds of the whole run, of each round; mean ms of a step, of each round; the last row)}; rounds of all methods alternate."""
    depths = o.effort.pick(DEPTHS[::2], DEPTHS)
    rows = o.engine.decode(shape, methods, depths, batch=batch, tokens=STEPS, reps=2, fill="history", prompt=PROMPT, page_size=page)
    command = o.engine.command
    reading = o.engine.prefill(shape, methods, PROMPT, page_size=page)
    o.engine.command = command
    out = {}
    for label in methods:
        rounds, means = [], []
        for step_ms in zip(*(rows[label, d].step_ms for d in depths)):
            points = [*zip(depths, step_ms), (PROMPT + WRITTEN, step_ms[-1])]
            steps = sum((b - a) * (x + y) / 2 for (a, x), (b, y) in zip(points, points[1:]))
            means.append(steps / WRITTEN)
            rounds.append(steps / 1e3 + batch * PROMPT / median(reading[label]["samples"]))
        out[label] = rounds, means, rows[label, depths[-1]]
    return out


def lines_of(first, runs, batch):
    out, over = [], {}
    for label, (seconds, _, row) in runs.items():
        if label != OURS:
            over[label] = ratios(seconds, runs[OURS][0])
        out.append([first, label, span([batch * (PROMPT + WRITTEN) / s for s in seconds], 0), f"{row['slots_per_token']:.2f}x",
                    f"{row['cache_bytes'] / batch / 2**20:.1f}", f"{row['ms_attention']:.1f}", f"{row['ms_evict']:.2f}",
                    times(over[label]) if label in over else "–"])
    return out, over


HEADS = ["method", "total tok/s", "slots", "MiB per request at the end", "attention, ms per step", "eviction, ms", "paged-eviction relative to it"]


def about(o, batch):
    return ABOUT.format(batch=batch, steps=STEPS, depths=", ".join(f"{d:,}" for d in o.effort.pick(DEPTHS[::2], DEPTHS)))


def curves(o, first, choices_of, method_of, name, x_label):
    """choices_of: {model: choices}. Tables and plots by model; {(model, choice): {label: ratios}}; {(model, choice): {label: mean ms of a step}}."""
    batch = o.effort.pick(8, 64)
    lines, over_by, ms = [], {}, {}
    for model, choices in choices_of.items():
        rows = []
        for choice in choices:
            budget, page = method_of(choice)
            methods = {k: m.format(n=budget) for k, m in METHODS.items()}
            if page < 16:  # smaller than a page of memory
                methods[OURS] += f",page={page}"
            runs = measured(o, SHAPES[model], methods, batch, max(page, 16))
            more, over_by[model, choice] = lines_of(choice, runs, batch)
            ms[model, choice] = {label: means for label, (_, means, _) in runs.items()}
            rows += more
        series = {k: [(x, median(over_by[model, x][k])) for x in choices] for k in METHODS if k != OURS}
        lines += [f"**{model}**", "", *table([first, *HEADS], rows),
                  *line_plot(name + ("" if model == "1B" else f"-{model.lower()}"), f"PagedEviction relative to other methods, {model}", x_label, "speed-up", series, log=True)]
    return lines, over_by, ms


def keydiff(o):
    """KeyDiff compares all keys at each eviction, so its history needs a real model: measured after the prompt only."""
    methods = {"keydiff": "keydiff:budget=1024,sinks=0,recent=0,schedule=prompt+step" + APPEND, OURS: METHODS[OURS].format(n=1024)}
    rows = o.engine.decode(LLAMA_1B, methods, [PROMPT], batch=o.effort.pick(2, 16), tokens=STEPS, reps=2, fill="prompt", page_size=16)
    over = ratios(rows["keydiff", PROMPT].step_ms, rows[OURS, PROMPT].step_ms)
    return ("KeyDiff, which is as slow as inverse key norm in the paper, compares all keys at each eviction, so a history of random scores does "
            f"not represent it. Directly after a prompt, without fragmentation, its steps take {times(over)} the time of PagedEviction's.")


def figure_3(o):
    """Figure 3: throughput by budget"""
    choices_of = o.effort.pick({"1B": [256, 1024]}, {"1B": [256, 512, 1024, 2048, 4096], "3B": [256, 1024, 4096], "8B": [256, 1024, 4096]})
    rows, over_by, ms = curves(o, "budget", choices_of, lambda n: (n, 16), "paged-fig3", "budget")
    command, at_1024 = o.engine.command, over_by["1B", 1024]
    paper_saved = {"1B": 12, "3B": 10, "8B": 11}  # percent of the full cache's time per token
    per_token = [[model, *(span(ms[model, 1024][label], 1) for label in METHODS),
                  f"{100 * (1 - median(ratios(ms[model, 1024][OURS], ms[model, 1024]['full cache']))):.0f}%", f"{paper_saved[model]}%"] for model in choices_of]
    paper = table(["at a budget of 1,024", "ours", "paper (A100, vLLM)"],
                  [["relative to the full cache", times(at_1024["full cache"]), "1.37x"], ["relative to inverse key norm", times(at_1024["inverse key norm"]), "1.39x"],
                   ["relative to streaming", times(at_1024["streaming, in pages"]), "1.04x"]])
    return [about(o, o.effort.pick(8, 64)) + " Pages of 16 slots. Streaming does the same work as PagedEviction in other slots, so its difference from 1.00x is noise.", "",
            verdict("PagedEviction relative to the full cache at a budget of 1,024", median(at_1024["full cache"]), 1.37),
            verdict("PagedEviction relative to inverse key norm", median(at_1024["inverse key norm"]), 1.39),
            verdict("PagedEviction relative to streaming in pages", median(at_1024["streaming, in pages"]), 1), "", *paper,
            "**Part d**: mean time of a step of all requests while 8,192 tokens are generated, budget 1,024, ms (median, min–max); *saved*: by PagedEviction, of the full cache's.", "",
            *table(["model", *METHODS, "saved", "paper"], per_token), *rows, keydiff(o), ""], command


def figure_4(o):
    """Figure 4: throughput by page size"""
    choices_of = o.effort.pick({"1B": [8, 16, 64]}, {"1B": [8, 16, 32, 64, 128], "3B": [8, 16, 32, 128], "8B": [8, 16, 32, 128]})
    rows, over_by, _ = curves(o, "page", choices_of, lambda page: (1024, page), "paged-fig4", "slots per page")
    best = max(median(over["full cache"]) for over in over_by.values())
    return [about(o, o.effort.pick(8, 64)) + " Budget 1,024. Pages of 8 are halves of a page of memory, of 16 slots; the other "
            "methods' pages are those of memory.", "",
            f"Max speed-up over the full cache: 3.1x in the paper (all its models and page sizes), {best:.2f}x here. Parts d to i, ROUGE by page size: next section.", "", *rows], o.engine.command


def one_pool(o):
    """64 requests with one page pool"""
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
    return [f"`bench serve`: {requests} simultaneous requests of {read:,} prompt + {written:,} generated tokens, the same model; a pool of {pool:.0f} MiB, the size of "
            f"{at_once} full caches; budget {budget}, pages of 16 slots. Admission reserves the worst case of a request. If slots are freed only when their page "
            "is empty, the worst case is nearly one page per token, so these baselines admit no more requests than the "
            "full cache. (The paper's 8B model is in the same situation: 64 requests need 72 GiB of full cache, and its GPU has about 20 GiB free.) "
            f"Time per token of a step on 2 cores: {each('full cache')} ms with the full cache, {each(OURS)} ms with PagedEviction, which also has a "
            "lower TTFT. Bytes after: bytes in the pool after the last request.", "",
            *table(["method", "peak concurrency", "total tok/s", "peak of pages, MiB", "bytes after", "mean TTFT, s", "mean TPOT, ms", "p99 ITL, ms",
                    "paged-eviction relative to it"], lines)], o.engine.command
