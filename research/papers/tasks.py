"""Accuracy in kind: LongBench's records (PagedEviction, figure 2; EMS, table 1) and needles by depth and length (EMS, figure 7), with the
default model. `palimpsest eval longbench` and `eval needle` do the same for any GGUF file."""
from report import heat_plot, line_plot, table

from common import SHARED, run_json, shown
from parts import Skip

LONGBENCH = SHARED / "tasks/longbench"
MODEL = ("The default model has 5.2 M parameters, a context of 2,048 and was trained on stories: it can neither summarise news nor read Chinese, so that these scores, with "
         "the papers' metrics and prompts, show the way and not the methods' order. What it can do is recall: [small-model.md](small-model.md), [frontier.md](frontier.md). The same "
         "command takes any GGUF file with `-m`.")


def asked(o, words):
    """The runs of an evaluation with the default model, by method."""
    command = [o.engine.program, "eval", *words, "-t", 1, "--json"]
    o.engine.command = shown(command)
    return {r["name"]: r for r in run_json(command, prefix=o.engine.prefix)["runs"]}


def longbench(o, dataset, methods, limit):
    file = LONGBENCH / f"{dataset}.jsonl"
    if not file.exists():
        raise Skip(f"needs {shown([file])}")
    words = ["longbench", "-f", file, "--limit", limit]
    for method in methods:
        words += ["--method", method]
    return asked(o, words)


def scored(run):
    low, high = run["score_low"], run["score_high"]
    return f"{100 * run['score']:.1f}" + (f" ({100 * low:.1f}–{100 * high:.1f})" if low is not None else "")


def paged_figure_2(o):
    """Figure 2: accuracy by budget"""
    budgets, limit = o.effort.pick([256], [256, 512, 1024]), o.effort.pick(5, 40)
    ways = {"streaming": "streaming:budget={n}", "inverse key norm": "knorm:budget={n},sinks=0,recent=0,schedule=prompt+step", "keydiff": "keydiff:budget={n},sinks=0,recent=0,schedule=prompt+step",
            "paged-eviction": "paged-eviction:budget={n}"}
    runs = longbench(o, "multi_news", ["full", *(m.format(n=n) for n in budgets for m in ways.values())], limit)
    rows = [["full cache", *[scored(runs["full"])] * len(budgets)]]
    rows += [[label, *(scored(runs[m.format(n=n)]) for n in budgets)] for label, m in ways.items()]
    series = {"full cache": [(n, 100 * runs["full"]["score"]) for n in budgets]}
    series |= {label: [(n, 100 * runs[m.format(n=n)]["score"]) for n in budgets] for label, m in ways.items()}
    return [f"ROUGE-L (mean, 95% interval) on {limit} records of LongBench's multi_news; prompts truncated in the middle to 2,048 tokens with the answer. {MODEL}", "",
            *table(["method", *(f"budget {n:,}" for n in budgets)], rows), *line_plot("paged-fig2", "multi_news, default model", "budget, tokens", "ROUGE-L", series, log=True)], o.engine.command


def paged_figure_4(o):
    """Figure 4, parts d to i: accuracy by page size"""
    pages, limit, budget = o.effort.pick([16], [8, 16, 32, 64]), o.effort.pick(5, 40), 512
    methods = {page: f"paged-eviction:budget={budget},page={page}" for page in pages}
    runs = longbench(o, "multi_news", ["full", *methods.values()], limit)
    rows = [["full cache", "–", scored(runs["full"])], *(["paged-eviction", page, scored(runs[m])] for page, m in methods.items())]
    return [f"ROUGE-L (mean, 95% interval) on {limit} records of LongBench's multi_news, budget {budget}; gov_report is not here. {MODEL}", "",
            *table(["method", "slots per page", "ROUGE-L"], rows)], o.engine.command


def ems_table_1(o):
    """Table 1: LongBench, budget 256"""
    ways = {"full cache": "full", "StreamingLLM": "streaming:budget=256", "H2O": "h2o:budget=256", "SnapKV": "snapkv:budget=256", "PyramidKV": "pyramidkv:budget=256",
            "EMS, with cache positions": "ems:budget=256,positions=cache", "EMS, with original positions": "ems:budget=256,positions=original"}
    news, chinese = (longbench(o, dataset, ways.values(), limit) for dataset, limit in (("multi_news", o.effort.pick(5, 40)), ("passage_retrieval_zh", o.effort.pick(2, 10))))
    rows = [[label, scored(news[m]), scored(chinese[m])] for label, m in ways.items()]
    return [f"LongBench's own metrics (mean, 95% interval); {o.effort.pick(5, 40)} and {o.effort.pick(2, 10)} records: the two of its datasets that are here. {MODEL}", "",
            *table(["method", "multi_news, ROUGE-L", "passage_retrieval_zh"], rows)], o.engine.command


def ems_figure_7(o):
    """Figure 7: needle by depth and length"""
    budget, samples = 128, o.effort.pick(2, 10)
    lengths, depths = [256, 512, 1024, 1536, 1980], [0, 0.25, 0.5, 0.75, 1]
    ways = {"full cache": "full", "StreamingLLM": f"streaming:budget={budget}", "SnapKV": f"snapkv:budget={budget}", "EMS": f"ems:budget={budget},tau=0.6,gamma=4"}
    words = ["needle", "--kind", "needle", "--questions", 1, "--samples", samples, "--lengths", ",".join(map(str, lengths)), "--depths", ",".join(map(str, depths))]
    for method in ways.values():
        words += ["--method", method]
    runs = asked(o, words)
    maps = {label: [[next(c["share"] for c in runs[m]["cells"] if c["depth"] == d and c["length"] == n) for n in lengths] for d in depths] for label, m in ways.items()}
    rows = [[label, scored(runs[m]), *(f"{100 * sum(column) / len(depths):.0f}" for column in zip(*maps[label]))] for label, m in ways.items()]
    return [f"Share of right answers, %; {samples} texts for each depth and length, a sentence about a city in stories, question at the end. Budget {budget} per head, of up to 1,980 "
            "tokens (the paper: 512 of 32,000); its model's weights cannot be had here.", "",
            *table(["method", "all (95% interval)", *(f"{n:,} tokens" for n in lengths)], rows),
            *heat_plot("ems-fig7", "needle: share of right answers", "tokens", "depth", lengths, depths, maps)], o.engine.command
