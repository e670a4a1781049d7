#!/usr/bin/env python3
"""The tables and figures of the five seeds, and where each is in docs/results: each page begins with its list.

  research/papers/contents.py            writes the lists into the pages
  research/papers/contents.py --check    fails if a page's list is old or names a section that is not there, or, where
                                      ../shared/seeds is there, if a table or figure of a seed is missing"""
import pathlib
import re
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
from common import REPO, RESEARCH  # noqa: E402

DRAWING, GPU = "a drawing: nothing to measure", "needs that GPU"
WEIGHTS = "needs weights of that model, which cannot be had here"
# Page: (seed, [(name in the seed, what it shows, part of the page or link, what is missing or differs)]).
CONTENTS = {
    "equip": ("000_50038989182632ed.txt", [
        ("Figure 1", "the software stack", None, DRAWING),
        ("Figure 2", "rotary positions", None, DRAWING),
        ("Figure 3", "latency by sequence length, three implementations", "fig3", "the copying cache: our step and NumPy's copies"),
        ("Figure 4", "parts of a step", "fig4", "with the cached rotated half"),
        ("Figure 5", "position index", None, DRAWING),
        ("Figure 6", "data flow", None, DRAWING),
        ("Figure 7", "speed-up by cache size and batch size, on an Intel server", None, "its parts a and b"),
        ("Figure 7a", "by cache size", "fig7a", "1 or 2 layers of each model, in its own architecture"),
        ("Figure 7b", "by batch size", "fig7b", "as 7a"),
        ("Figure 8", "sequence length and ablation", None, "its parts a and b"),
        ("Figure 8a", "by sequence length", "fig8a", ""),
        ("Figure 8b", "in-place update and rotation apart", "fig8b", "the row measured is `rerotate=two-query`"),
        ("Figure 9", "on an MI210", None, GPU),
        ("Figure 9b", "each optimisation on an MI210", None, GPU),
        ("Figure 10", "against the full cache in pages", "full", "1 layer"),
        ("Figure 11", "attention as tensors", None, DRAWING),
        ("Figure 12", "shift and append", None, DRAWING),
        ("Figure 13", "gather and append", None, DRAWING),
        ("Figure 14", "eviction in place", None, DRAWING),
        ("Figure 15", "rotated keys in place", None, DRAWING),
        ("Figure 16", "RoPE's program", None, DRAWING),
        ("Figure 17", "the update's program", None, DRAWING),
        ("Figure 18", "the update before paged attention", None, DRAWING),
        ("Figure 19", "perplexity of Llama 2 7B, equal with and without", "parity", "with the default model; " + WEIGHTS),
        ("Table 1", "H2O by cache size, MI210", "table1", "on this CPU"),
        ("Table 2", "H2O for GPT-J and NeoX, MI210", "table2", "on this CPU"),
        ("Table 3", "attention and update of methods, MI210", "table3", "on this CPU"),
        ("Table 4", "without rotary positions, MI210", "table4", "on this CPU"),
        ("Table 5", "cache update alone", "table5", "CPU rows"),
        ("Table 6", "rotation at contiguous and random positions", "table6", "CPU rows"),
    ]),
    "lazy": ("001_790fda230e29792a.txt", [
        ("Figure 1", "the cache's length while decoding", "lazyFig1", "at C = 256"),
        ("Table 1", "PG19", "lazy1", "4 of Pythia's layers; perplexity with the default model: [below](#the-default-model-stories-and-a-book)"),
        ("Table A1", "WikiText-103", "lazyA1", "as table 1"),
        ("Table A2", "time of forward pass and update by R", "lazyA2", "fitted over R: [below](#time-per-token-by-r-fitted-to-t_forward--t_update--r)"),
        ("Table A3", "ablation", "lazyA3", ""),
        ("Table A4", "routes that did not help", "lazyA4", "drafts, quantised weights and caches; the others are routes of PyTorch"),
    ]),
    "paged-eviction": ("002_dbd0803ff33f501c.txt", [
        ("Figure 1", "the technique", None, DRAWING),
        ("Figure 2", "accuracy by budget, LongBench", "paged2", "one of its datasets, with the default model; " + WEIGHTS),
        ("Figure 3", "throughput by budget, time per token", "paged3", "1 layer of each model"),
        ("Figure 4", "throughput and ROUGE by page size", "paged4", "1 layer of each model; ROUGE (d to i) with the default model: [below](#figure-4-parts-d-to-i-accuracy-by-page-size)"),
        ("Figure 5", "StreamingLLM in blocks", None, DRAWING),
        ("Figure 6", "eviction of single tokens", None, "a drawing; the pages that it leaves are counted [below](#a-long-generation-with-real-keys)"),
    ]),
    "ems": ("003_4eee4e4158895823.txt", [
        ("Figure 1", "the workflow", None, DRAWING),
        ("Figure 2", "tokens selected by each score", "heads", "their mean place, on the default model and stories260K, instead of a picture"),
        ("Figure 3", "the framework", None, DRAWING),
        ("Figure 4", "sparsity and redundancy of heads", "heads", "on the default model and stories260K"),
        ("Figure 5", "evict, then merge", None, DRAWING),
        ("Figure 6", "perplexity by budget", "small-model.md", "with the default model and other budgets"),
        ("Figure 7", "needle at 32,000 tokens", "ems7", "with the default model, up to 1,980 tokens; " + WEIGHTS),
        ("Figure 8", "shares of global and local tokens", "heads", "as figure 4"),
        ("Figure 9", "selected tokens by layer and model", "heads", "mean over heads, two models"),
        ("Table 1", "LongBench, four models", "ems1", "two of its datasets, with the default model; " + WEIGHTS),
        ("Table 2", "needle by budget", "small-model.md", "with the default model"),
        ("Table 3", "latency with a memory limit", "ems3lengths", "1 of 32 layers; at the longest, with the scheduler's max batch: [above](#table-3-throughput-under-a-memory-limit)"),
        ("Table 4", "scores and strategies", "stream", "perplexity of a story instead of LongBench; strategies: evict (`gamma=1`), merge"),
        ("Table 5", "budgets by head", "small-model.md", "recall and perplexity with the default model"),
        ("Table 6", "merge threshold tau", "stream", "as table 4"),
        ("Table 7", "gamma", "stream", "as table 4"),
        ("Table 8", "similarity of key, value, product", "stream", "as table 4"),
        ("Table 9", "budgets, four models", "small-model.md", "with the default model; " + WEIGHTS),
    ]),
    "sparse": ("004_46a7ca047cb438e6.txt", [
        ("Table of calls", "seq_rm and seq_add", None, "what they do: nothing to measure"),
        ("Table of rates", "tokens/s at K = 128", "blog", "in our engine; in llama.cpp and here: [below](#the-articles-table-in-llamacpp-and-here)"),
        ("412 runs", "mechanism, policy, K, prompt", "runs", "410 runs; in our engine only, with the default model"),
    ]),
}
# Why a page's worst figure falls short of the paper's.
REASONS = {
    ("equip", "Min relative to gather, in place at scattered slots"):
        "64 random slots of 1,024 touch 41 of 64 tiles of 16 keys, so most of K is read and written: at most about 6x over our gather; the rest of the paper's ratio is PyTorch's indexing and allocation",
    ("sparse", "Sparse relative to compact and shift"):
        "ours moves 3.7 MB of kept keys and values and rotates 1.8 MB, beside 870 MB of weights that a step reads: at most 1.01x; llama.cpp's graph rotates all cells and takes 15 ms",
    ("ems", "EMS relative to the full cache, 4,096 + 128"):
        "32 tokens are read for each one generated; prompts are read one after another, at the same speed with both, and take nearly all the time",
    ("lazy", "Lazy relative to strict, by shift"): "above the paper's",
    ("paged-eviction", "PagedEviction relative to streaming in pages"): "the same work in other slots: the difference is noise",
}
BEGIN, END = "<!-- contents -->\n", "<!-- end contents -->\n"


def heading_of(text, part):
    found = re.search(rf"<!-- part {part} -->\n## (.*)\n", text)
    return found and found[1]


def slug(heading):
    return re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-")


def rows_of(page, text):
    for name, what, where, note in CONTENTS[page][1]:
        if where and where.endswith(".md"):
            assert (RESEARCH / where).exists(), f"{page}.md, {name}: {where} does not exist"
            place = f"[{pathlib.Path(where).name}]({where})"
        elif where:
            heading = heading_of(text, where)
            assert heading, f"{page}.md, {name}: no section of part {where}"
            place = f"[{heading.split(':')[0]}](#{slug(heading)})"
        else:
            place = "–"
        yield f"| {name} | {what} | {place} | {note} |"


def counted(rows):
    """Measured, without measurements, missing (their names)."""
    absent = [row for row in rows if "| – |" in row]
    missing = [row for row in absent if "drawing" not in row and "nothing to measure" not in row and "its parts a and b" not in row]
    return len(rows) - len(absent), len(absent) - len(missing), [row.split("|")[1].strip() for row in missing]


def ratios_of(text):
    """[(ours over the paper's, what)] of a page's verdicts."""
    found = re.findall(r"^- (.*): \*\*([0-9.]+)x\*\* \(target: at least ([0-9.]+)x\)", text, re.MULTILINE)
    return sorted((float(ours) / float(paper), what, ours, paper) for what, ours, paper in found)


def ratio_lines():
    lines = ["", "*Ratio of ratios*: ours over the paper's, of each figure that a page compares with the paper's number. The papers measure GPUs or 60 cores with baselines in PyTorch; here both sides are our "
             "kernels on 2 cores.", "", "| page | figures compared | median | worst | the worst: ours, paper | why |", "|---|---|---|---|---|---|"]
    for page in CONTENTS:
        ratios = ratios_of((RESEARCH / f"{page}.md").read_text())
        if not ratios:
            lines.append(f"| [{page}]({page}.md) | 0 | – | – | its tables have both numbers side by side | |")
            continue
        share, what, ours, paper = ratios[0]
        lines.append(f"| [{page}]({page}.md) | {len(ratios)} | {statistics.median(r for r, *_ in ratios):.2f} | {share:.2f} | {what}: {ours}x, {paper}x | {REASONS.get((page, what), '')} |")
    return lines


def measured():
    """On which machines and commits the pages' sections were measured."""
    found = [m for page in CONTENTS for m in re.findall(r"; \d{4}-\d\d-\d\d [0-9:]+ UTC, (.*?), palimpsest (\S+)\.\*$", (RESEARCH / f"{page}.md").read_text(), re.MULTILINE)]
    machines, commits = (sorted(set(column)) for column in zip(*found))
    return f"Measured on {'; '.join(machines)}; palimpsest {', '.join(commits)}."


def summary():
    """research/results/papers.md: all papers."""
    lines = ["# The papers' tables and figures", "", "Written by `research/papers/contents.py` from the lists that the pages begin with. " + measured(), "",
             "| page | tables and figures | measured here | nothing to measure | missing |", "|---|---|---|---|---|"]
    for page in CONTENTS:
        rows = list(rows_of(page, (RESEARCH / f"{page}.md").read_text()))
        done, without, missing = counted(rows)
        lines.append(f"| [{page}]({page}.md) | {len(rows)} | {done} | {without} | {', '.join(missing) or 'none'} |")
    return "\n".join([*lines, *ratio_lines()]) + "\n"


def listed(page, text):
    """The page with its list, after the introduction."""
    rows = list(rows_of(page, text))
    done, drawings, missing = counted(rows)
    lines = [f"All {len(rows)} tables and figures: {done} measured here, {drawings} without measurements, {len(missing)} missing.", "",
             "| of the paper | shows | here | missing or different |", "|---|---|---|---|", *rows]
    block = BEGIN + "\n".join(lines) + "\n" + END
    if BEGIN in text:
        return text[:text.index(BEGIN)] + block + text[text.index(END) + len(END):]
    at = text.index("<!-- part ")
    return text[:at] + block + "\n" + text[at:]


def forgotten(page):
    """Tables and figures with a caption or a mention in the seed that the list does not have."""
    seed = REPO / "../shared/seeds" / CONTENTS[page][0]
    if not seed.exists():
        return []
    mentioned = {f"{'Table' if kind.lower().startswith('t') else 'Figure'} {number}"
                 for kind, number in re.findall(r"\b(Table|Figure|Fig\.) ?([A-Z]?[0-9]+[ab]?)\b", seed.read_text())}
    return sorted(mentioned - {name for name, *_ in CONTENTS[page][1]})


def main():
    wrong = []
    for page in CONTENTS:
        path = RESEARCH / f"{page}.md"
        text = path.read_text()
        new = listed(page, text)
        wrong += [f"{page}.md: the list lacks {name}" for name in forgotten(page)]
        if "--check" not in sys.argv:
            path.write_text(new)
        elif new != text:
            wrong.append(f"{page}.md: its list is old: run research/papers/contents.py")
    together = RESEARCH / "papers.md"
    if "--check" not in sys.argv:
        together.write_text(summary())
    elif not together.exists() or together.read_text() != summary():
        wrong.append(f"{together.name} is old: run research/papers/contents.py")
    sys.exit("\n".join(wrong) if wrong else 0)


if __name__ == "__main__":
    main()
