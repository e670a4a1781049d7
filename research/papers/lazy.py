"""Tables of Lazy Pruning: time per token and perplexity of strict and lazy pruning, with and without a cache."""
import collections
import json
import pathlib
import re
import sys
import tempfile
from statistics import mean, stdev

from engine import scaled
from report import bar_plot, line_plot, median, ratios, span, table, times, verdict

from common import REPO, SHARED, run, run_json, shown
from parts import Skip

PYTHIA = scaled("pythia-2.8b", 4, 32, 50304)
C, S, R = 2048, 32, 64
SPEED = ("Speed: shape of pythia-2.8b with 4 of 32 layers and an eighth of the vocabulary, Q4_0 weights, batch 1, C = 2,048, S = 32, R = 64 as "
         "in the paper. The paper uses an A800 GPU, where kernel launches limit a step.")
QUALITY = ("Perplexity: stories260K, which has 260,000 parameters and a context of 512, hence an eighth of the paper's values: C = 256, S = 4, R = 8. "
           "All strict rows keep the same tokens; they differ by the f16 rounding of keys stored at different rotations.")

# As in the paper: the kept tokens are shifted and rotated by the constant difference (equation 9).
STRICT = "streaming:budget={c},sinks={s},mechanism=shift,rerotate=delta"
LAZY = "lazy:budget={c},sinks={s},every={r},mechanism=shift,rerotate=delta"
METHODS = {
    "window-recompute": "window-recompute:budget={c}",
    "strict": STRICT,
    "lazy": LAZY,
    "strict, in place": "streaming:budget={c},sinks={s}",
    "lazy, in place": "lazy:budget={c},sinks={s},every={r}",
}


def at_speed(method):
    return method.format(c=C, s=S, r=R, slack=16, drop=32)


def at_quality(method):
    return method.format(c=256, s=4, r=8, slack=2, drop=4)


_known = {}  # two tables have the same speeds: measured once per run


def speeds(o, methods, tokens):
    """Rows of each method; window-recompute takes seconds per token, so it runs few tokens."""
    key = tuple(methods.values()), tokens
    if key not in _known:
        quick = {k: at_speed(m) for k, m in methods.items() if "window-recompute" not in m}
        rows = {k: r for (k, _), r in o.engine.decode(PYTHIA, quick, [C + R], tokens=tokens).items()}
        command = o.engine.command
        slow = {k: at_speed(m) for k, m in methods.items() if k not in quick}
        if slow:
            got = o.engine.decode(PYTHIA, slow, [C + R], tokens=1, reps=o.effort.pick(1, 3), fill="prompt")
            rows.update({k: r for (k, _), r in got.items()})
        _known[key] = rows, command
    rows, o.engine.command = _known[key]
    return rows


def perplexities(o, text, methods, gutenberg, tokens):
    model = SHARED / "models/stories260K/stories260K.gguf"
    for path in (model, text):
        if not path.exists():
            raise Skip(f"needs {shown([path])}")
    words = [o.engine.program, "eval", "perplexity", "-m", model, "-f", text, "--tokens", tokens, "-t", 1, "--json",
             *(["--gutenberg"] if gutenberg else [])]
    for m in methods.values():
        words += ["--method", at_quality(m)]
    runs = json.loads(run(words)[1])["runs"]
    return {k: r["perplexity"] for k, r in zip(methods, runs, strict=True)}, shown(words)


def main_table(o, text, gutenberg, paper):
    rows = speeds(o, METHODS, o.effort.pick(64, 128))
    command = o.engine.command
    loss, second = perplexities(o, text, METHODS, gutenberg, o.effort.pick(1000, 4000))
    base = median(rows["window-recompute"].step_ms)
    lines = []
    for k in METHODS:
        ms, p = median(rows[k].step_ms), paper.get(k)
        lines.append([k, span(rows[k].step_ms), f"{base / ms:,.1f}x", f"{rows[k]['ms_p99']:.2f}", f"{loss[k]:.3f}",
                      f"{loss[k] / loss['window-recompute'] - 1:+.2%}", f"{rows[k]['cache_bytes_peak'] / 2**20:.1f}",
                      *([f"{p[0]} ms", f"{p[1]}x", f"{p[2]}", f"{p[2] / paper['window-recompute'][2] - 1:+.2%}", f"{p[3]:,} MB" if len(p) > 3 else ""] if p else [""] * 5)])
    lazy = ratios(rows["strict"].step_ms, rows["lazy"].step_ms)
    ours = ratios(rows["lazy"].step_ms, rows["strict, in place"].step_ms)
    paper_lazy = round(paper["strict"][0] / paper["lazy"][0], 2)
    return [verdict("Lazy relative to strict, by shift", median(lazy), paper_lazy),
            verdict("Lazy in place relative to recomputing the window", base / median(rows["lazy, in place"].step_ms), round(paper["window-recompute"][0] / paper["lazy"][0], 2)), "",
            f"{SPEED} {QUALITY}", "",
            f"Lazy over strict: {times(lazy)} (paper: {paper_lazy:.2f}x). Strict in place over lazy: {times(ours)}. "
            "In-place eviction costs nothing measurable, so strict pruning in place is as fast as lazy pruning and keeps strict pruning's quality.", "",
            *table(["method", "ms per token", "speed relative to recompute", "p99 ms", "perplexity", "difference to recompute", "peak cache, MiB", "paper, ms", "paper, speed",
                    "paper, perplexity", "paper, difference", "paper, peak memory"], lines),
            f"Perplexities: `{second}`", ""], command


def table_1(o):
    """Table 1: PG19"""
    return main_table(o, SHARED / "text/pg19-test/10146.txt", True,
                      {"window-recompute": (97.91, "1.00", 19.761, 5723), "strict": (19.57, "5.00", 20.181, 6941), "lazy": (14.37, "6.81", 20.318, 6941)})


def table_a1(o):
    """Table A1: WikiText"""
    return main_table(o, SHARED / "text/wikitext-2/wiki.test.raw", False,
                      {"window-recompute": (97.36, "1.00", 9.359), "strict": (20.22, "4.82", 9.496), "lazy": (14.45, "6.74", 9.519)})


def table_a2(o):
    """Table A2: time of forward pass and cache update"""
    methods = {k: METHODS[k] + ",slack={slack}" for k in ("strict", "lazy", "strict, in place", "lazy, in place")}
    paper = {"strict": (2000, 14.12, 5.57, 19.69), "lazy": (31, 14.03, 0.09, 14.12)}
    tokens = o.effort.pick(128, 256)
    rows = speeds(o, methods, tokens)
    lines, groups = [], {}
    for k, r in rows.items():
        forward, update = r["ms_forward"], r["ms_evict"]
        lines.append([k, r["evictions"], f"{forward:.2f}", f"{update:.3f}", f"{forward + update:.2f}",
                      *(f"{v}" for v in paper.get(k, ("", "", "", "")))])
        groups[k.replace(", ", ",\n")] = {"forward": forward, "update": update}
    return [f"{SPEED} sigma = 16. {tokens} tokens (paper: 2,000).", "",
            *table(["method", "prune events", "forward, ms", "update, ms", "total, ms", "paper: events", "forward", "update", "total"], lines),
            *bar_plot("lazy-a2", "Time per token by part", "ms", groups, stacked=True)], o.engine.command


def over_r(o):
    """Time per token by R, fitted to T_forward + T_update / R"""
    periods = o.effort.pick([1, 8, 64], [1, 2, 4, 8, 16, 32, 64, 128, 256])
    ways = {"by shift": LAZY, "in place": METHODS["lazy, in place"]}
    methods = {(way, r): m.format(c=C, s=S, r=r) for way, m in ways.items() for r in periods}
    rows = o.engine.decode(PYTHIA, methods, [C + max(periods)], tokens=2 * max(periods))
    series, lines, fits = {}, [], []
    for way in ways:
        ms = [rows[(way, r), C + max(periods)]["ms_forward"] + rows[(way, r), C + max(periods)]["ms_evict"] for r in periods]
        x = [1 / r for r in periods]
        mean_x, mean_y = sum(x) / len(x), sum(ms) / len(ms)
        update = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, ms)) / sum((a - mean_x) ** 2 for a in x)
        forward = mean_y - update * mean_x
        rest, spread = sum((b - forward - update * a) ** 2 for a, b in zip(x, ms)), sum((b - mean_y) ** 2 for b in ms)
        series[way] = list(zip(periods, ms))
        fits.append([way, f"{forward:.2f}", f"{update:.2f}", f"{1 - rest / spread:.3f}"])
        lines.append([way, *(f"{v:.2f}" for v in ms)])
    return [f"{SPEED.replace(', R = 64', '')} Mean over {2 * max(periods)} tokens of forward pass and eviction. Paper (A800): T_forward 14.03 ms, T_update 5.57 ms. In place there is next to nothing "
            "to fit: R^2 says how much of the spread R explains.", "",
            *table(["ms per token at R =", *periods], lines), *table(["", "T_forward, ms", "T_update, ms", "R^2"], fits),
            *line_plot("lazy-r", "Time per token by R", "R", "ms", series, log=True)], o.engine.command


def table_a4(o):
    """Table A4: routes that the paper found ineffective"""
    lazy = at_speed(LAZY.replace(",mechanism=shift,rerotate=delta", ""))
    lines, tokens = [], o.effort.pick(64, 128)
    base = lambda shape, **more: o.engine.decode(shape, {"lazy": lazy}, [C + R], tokens=tokens, **more)["lazy", C + R].step_ms
    of_types = {name: base(PYTHIA.replace("q4_0", name)) for name in ("f16", "q8_0", "q4_0")}
    command = o.engine.command
    for name in ("q8_0", "q4_0"):
        lines.append(["quantised weights", f"{name} over f16", times(ratios(of_types["f16"], of_types[name])), "INT8: slower or unstable; INT4: problematic"])
    llama = "llama-3.2-1b@layers=4@vocab=8192@type=q4_0"  # Pythia's heads of 80 dimensions have no whole groups of 32
    caches = {name: base(llama, cache_type=name) for name in ("f16", "q8_0", "q4")}
    for name in ("q8_0", "q4"):
        lines.append(["quantised caches, shape of Llama 3.2 1B", f"{name} over f16", times(ratios(caches["f16"], caches[name])), "(not tried)"])
    rows = o.engine.rows(o.engine.words("decode", PYTHIA, [lazy], depth=C + R, tokens=tokens, reps=o.effort.rounds, draft_max="0,3",
                                        draft_accept="0,0.3,0.6,0.9"))
    none = next(r for r in rows if r["drafts"] == 0)
    for share in (0, 0.3, 0.6, 0.9):
        row = next(r for r in rows if r["drafts"] > 0 and r["accept"] == share)
        gain = ratios(row["samples"], none["samples"])
        lines.append(["speculative decoding", f"3 drafts in each step, {share:.0%} accepted, over none", times(gain), "slower: few drafts are accepted"])
    return [f"{SPEED} Lazy Pruning in place; Q4_0 weights where the row names no type. The drafts are forced to be accepted with the given probability: what a drafter must reach. "
            "A drafter that drafts from the text itself costs no second model; with the price of a draft measured, drafts stop where they do not pay ([drafts.md](../../docs/results/drafts.md)).", "",
            *table(["route", "ours", "tokens per second, relative", "paper"], lines),
            "Nothing to compare: FlashAttention, `torch.compile`, StaticCache and fused residuals are routes of PyTorch; this engine's attention is already blockwise and its graph is reused.", ""], command


def lengths(o, method, tokens):
    """Tokens in the cache while each token is read, from the times of eviction in the memory view."""
    with tempfile.TemporaryDirectory() as folder:
        page = pathlib.Path(folder) / "memory.html"
        run([o.engine.program, "run", "-n", tokens, "--ignore-eos", "--seed", "1", "-t", "1", "--method", method, "--show-memory", page])
        gone = [int(t) for t in re.findall(r"0 of \d+ heads, evicted after (\d+) tokens", page.read_text())]
    left = collections.Counter(gone)
    out, now = [], 0
    for t in range(1, tokens + 1):
        now += 1 - left[t - 1]
        out.append(now)
    return out


def loss_around_evictions(o, c, r, width=8):
    """Loss by the number of tokens read since the last eviction, beside strict pruning of the same text."""
    tokens = o.effort.pick(4000, 40000)
    with tempfile.TemporaryDirectory() as folder:
        text = pathlib.Path(folder) / "stories.txt"
        text.write_text(run([sys.executable, REPO / "research/train/documents.py", "saga", 6 * tokens])[1])
        words = [o.engine.program, "eval", "perplexity", "-f", text, "--tokens", tokens, "--prefill-chunk", 1, "--bin", 1, "-t", 1, "--json"]
        runs = run_json([*words, *(w for m in (f"lazy:budget={c},every={r}", f"streaming:budget={c}") for w in ("--method", m))])["runs"]
    lazy, strict = ([point["nll"] for point in row["curve"]] for row in runs)
    by_phase = collections.defaultdict(list)  # the first eviction comes when token C + R is read, and leaves C with it
    for i in range(c + r - 1, len(lazy)):
        by_phase[(i - (c + r - 1)) % r // width].append((lazy[i], strict[i]))
    rows, saved = [], []
    for phase in sorted(by_phase):
        pairs = by_phase[phase]
        difference = [a - b for a, b in pairs]
        rows.append([f"{phase * width} to {(phase + 1) * width - 1}", f"{c + phase * width} to {c + (phase + 1) * width - 1}", *(f"{mean(side):.4f}" for side in zip(*pairs)),
                     f"{mean(difference):+.4f} ± {1.96 * stdev(difference) / len(difference) ** 0.5:.4f}"])
        saved.append((phase * width, -mean(difference)))
    return [f"**Loss around evictions**: the default model, {tokens:,} tokens of held-out stories, token by token; by the tokens read since the last eviction of R = {r}. The same tokens are predicted "
            "by both; intervals: 95%, of paired differences.", "",
            *table(["tokens since the eviction", "tokens in the cache", "loss, lazy, nats", "loss, strict", "difference"], rows),
            *line_plot("lazy-loss", f"Loss that the tokens above C = {c} save, R = {r}", "tokens since the eviction", "nats per token", {"strict minus lazy": saved})]


def figure_1(o):
    """Figure 1: length of the cache while decoding"""
    tokens, c, r = o.effort.pick(500, 1000), 256, 64
    methods = {"strict (R = 1)": f"streaming:budget={c}", f"lazy (R = {r})": f"lazy:budget={c},every={r}",
               "lazy, after the forward pass": f"lazy:budget={c},every={r},evict=after", "lazy, slack 16": f"lazy:budget={c},every={r},slack=16", "lazy, slack 16, max-drop 32": f"lazy:budget={c},every={r},slack=16,max-drop=32"}
    series = {label: lengths(o, method, tokens) for label, method in methods.items()}
    rows = []
    for label, length in series.items():
        after = length[c + r:]
        steps = [b - a for a, b in zip(length, length[1:])]
        rows.append([label, max(length), min(after), sum(step < 1 for step in steps)])
    plot = line_plot("lazy-fig1", f"Length of the cache, C = {c}", "token", "tokens in the cache", {label: list(enumerate(length, 1)) for label, length in series.items()}, marker=None)
    return [f"The default model, {tokens:,} tokens, C = {c}; from the times at which each token was evicted (`--show-memory`). An eviction comes before the insertion that needs its room, so the "
            f"longest cache is C + R - 1; the paper evicts after the forward pass, at most C + R (`evict=after`).", "",
            *table(["method", "longest", "shortest after the first eviction", "evictions"], rows), *plot, *loss_around_evictions(o, c, r)], "research/papers/run.py lazyFig1"


LADDER = {
    "strict": (STRICT, ("19.57", "20.181")),
    "strict, other path (fused rotation)": ("streaming:budget={c},sinks={s},mechanism=shift,rerotate=fused", ("20.02", "20.181")),
    "lazy": (LAZY, ("14.38", "20.318")),
    "lazy, slack 16": (LAZY + ",slack={slack}", ("14.35", "20.262")),
    "lazy, slack 16, max-drop 32": (LAZY + ",slack={slack},max-drop={drop}", ("14.53", "20.272")),
    "strict, in place": (METHODS["strict, in place"], ("", "")),
    "lazy, in place": (METHODS["lazy, in place"], ("", "")),
    "lazy, in place, slack 16": (METHODS["lazy, in place"] + ",slack={slack}", ("", "")),
}


def table_a3(o):
    """Table A3: ablation of the options"""
    methods = {k: m for k, (m, _) in LADDER.items()}
    rows = speeds(o, methods, o.effort.pick(64, 128))
    command = o.engine.command
    loss, second = perplexities(o, SHARED / "text/pg19-test/10146.txt", methods, True, o.effort.pick(1000, 8000))
    lines = [[k, span(rows[k].step_ms), times(ratios(rows["strict"].step_ms, rows[k].step_ms)), f"{loss[k]:.3f}", *LADDER[k][1]] for k in methods]
    return [f"{SPEED} {QUALITY} For perplexity, slack and max-drop are 2 and 4. The paper's second row is strict pruning on another code path.", "",
            *table(["method", "ms per token", "speed relative to strict", "perplexity", "paper, ms", "paper, perplexity"], lines),
            f"Perplexities: `{second}`", ""], command


OWN = {
    "window-recompute": "window-recompute:budget=256,sinks=4",
    "strict": "streaming:budget=256,sinks=4",
    "lazy, R = 8": "lazy:budget=256,sinks=4,every=8",
    "lazy, R = 64": "lazy:budget=256,sinks=4,every=64",
    "window-recompute, no sinks": "window-recompute:budget=256",
    "full": "full",
}


def own_table(o, title, text, *flags):
    words = [o.engine.program, "eval", "perplexity", "-f", text, "--tokens", o.effort.pick(1000, 6000), "--prefill-chunk", 1, "-t", 1, "--json", *flags]
    for method in OWN.values():
        words += ["--method", method]
    runs = run_json(words)["runs"]
    lines = []
    for label, r in zip(OWN, runs, strict=True):
        difference = r["difference"]
        lines.append([label, f"{r['perplexity']:.3f}", "" if r is runs[0] else f"{difference['nll']:+.4f} ({difference['low']:+.4f} to {difference['high']:+.4f})",
                      f"{r['evicted']:,}", f"{r['tokens_per_second']:,.0f}", f"{r['tokens_per_second'] / runs[0]['tokens_per_second']:.1f}x"])
    return [f"**{title}**", "", *table(["method", "perplexity", "difference to recompute, nats per token (95%)", "evicted", "tokens/s", "speed relative to recompute"], lines)], shown(words)


def own(o):
    """The default model: stories and a book"""
    with tempfile.TemporaryDirectory() as folder:
        text = pathlib.Path(folder) / "stories.txt"
        text.write_text(run([sys.executable, REPO / "research/train/documents.py", "saga", 36000])[1])
        lines, command = own_table(o, "Held-out stories in the style of the training data (`research/train/documents.py saga 36000`)", text)
    book = SHARED / "text/pg19-test/10146.txt"
    if book.exists():
        more, command = own_table(o, "A book (PG19 10146), unlike the training data", book, "--gutenberg")
        lines += more
    return ["models/palimpsest-stories.gguf, C = 256, S = 4 sinks except in the row without sinks; token by token on one thread. Intervals: bootstrap over paired blocks of "
            "the text. In the paper, perplexity is 19.761 (recompute), 20.181 (strict) and 20.318 (lazy), at 1.00x, 5.00x and 6.81x speed.", "", *lines], command
