"""Shared by the parts: results with their spread, tables, plots."""
import pathlib
import statistics
import sys
import textwrap

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
from common import RESEARCH, say  # noqa: E402


def median(values):
    return statistics.median(values)


def geometric_mean(values):
    return statistics.geometric_mean(values)


def ratios(slow, fast):
    """Ratios per round: both sides of a round are adjacent in time."""
    return [a / b for a, b in zip(slow, fast)]


def times(values):
    """1.62x (1.58–1.70): median, min and max of ratios."""
    return f"**{median(values):.2f}x** ({min(values):.2f}–{max(values):.2f})"


def span(values, digits=2):
    return f"{median(values):.{digits}f} ({min(values):.{digits}f}–{max(values):.{digits}f})"


def table(heads, rows):
    return ["| " + " | ".join(map(str, heads)) + " |", "|" + "---|" * len(heads), *("| " + " | ".join(map(str, row)) + " |" for row in rows), ""]


def verdict(what, value, target):
    return f"- {what}: **{value:.2f}x** (target: at least {target:g}x): {'yes' if value >= target else '**no**'}."


def _pyplot():
    try:
        import matplotlib
    except ImportError:
        say("no plots: matplotlib is not installed (tools/env --add python3-matplotlib)")
        return None
    matplotlib.use("svg")
    # The same data gives the same file.
    matplotlib.rcParams.update({"svg.hashsalt": "palimpsest", "svg.fonttype": "none", "font.size": 9, "axes.grid": True,
                                "grid.alpha": 0.3, "axes.spines.top": False, "axes.spines.right": False})
    from matplotlib import pyplot
    return pyplot


def _save(pyplot, figure, name, title):
    figure.tight_layout()
    RESEARCH.mkdir(parents=True, exist_ok=True)
    figure.savefig(RESEARCH / f"{name}.svg", metadata={"Date": None})
    pyplot.close(figure)
    return [f"![{title}]({name}.svg)", ""]


def _legend(axes):
    """Beside the plot, where it hides nothing."""
    axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))


def line_plot(name, title, x_label, y_label, series, log=False, marker="o"):
    """series: {label: [(x, y)...]}; returns Markdown that embeds the plot."""
    pyplot = _pyplot()
    if pyplot is None:
        return []
    figure, axes = pyplot.subplots(figsize=(7, 3.4))
    for label, points in series.items():
        axes.plot(*zip(*points), marker=marker, markersize=3, label=label)
    ticks = sorted({x for points in series.values() for x, _ in points})
    if log:
        axes.set_xscale("log", base=2)
        axes.set_xticks(ticks, [f"{t:g}" for t in ticks])
    axes.set(xlabel=x_label, ylabel=y_label, title=title)
    axes.set_ylim(bottom=0)
    _legend(axes)
    return _save(pyplot, figure, name, title)


def heat_plot(name, title, x_label, y_label, x_ticks, y_ticks, maps):
    """maps: {label: [row for each y: [share from 0 to 1 for each x]]}, side by side; returns Markdown that embeds the plot."""
    pyplot = _pyplot()
    if pyplot is None:
        return []
    figure, all_axes = pyplot.subplots(1, len(maps), figsize=(2.4 * len(maps), 2.8), sharey=True)
    for axes, (label, rows) in zip(all_axes, maps.items()):
        axes.imshow(rows, vmin=0, vmax=1, cmap="viridis", aspect="auto")
        for y, row in enumerate(rows):
            for x, share in enumerate(row):
                axes.text(x, y, f"{100 * share:.0f}", ha="center", va="center", fontsize=7, color="black" if share > 0.6 else "white")
        axes.set_xticks(range(len(x_ticks)), x_ticks, fontsize=7)
        axes.set_yticks(range(len(y_ticks)), y_ticks, fontsize=7)
        axes.set_title(label, fontsize=9)
        axes.set_xlabel(x_label, fontsize=8)
    all_axes[0].set_ylabel(y_label, fontsize=8)
    return _save(pyplot, figure, name, title)


def bar_plot(name, title, y_label, groups, lines=(), stacked=False):
    """groups: {group: {label: height}}; lines: (height, text) drawn across."""
    pyplot = _pyplot()
    if pyplot is None:
        return []
    figure, axes = pyplot.subplots(figsize=(max(7, 1.1 * len(groups) + 1.5), 3.4))
    labels = list(dict.fromkeys(label for bars in groups.values() for label in bars))
    width = 0.6 if stacked else 0.8 / len(labels)
    base = [0.0] * len(groups)
    for i, label in enumerate(labels):
        heights = [bars.get(label, 0) for bars in groups.values()]
        at = [g if stacked else g + (i - (len(labels) - 1) / 2) * width for g in range(len(groups))]
        axes.bar(at, heights, width, bottom=base if stacked else None, label=label)
        if stacked:
            base = [b + h for b, h in zip(base, heights)]
    for height, text in lines:
        axes.axhline(height, linestyle="--", linewidth=1, color="black")
        axes.text(len(groups) - 0.5, height, f" {text}", va="center", fontsize=8)
    axes.set_xticks(range(len(groups)), ["\n".join(textwrap.fill(line, 11) for line in group.splitlines()) for group in groups])
    axes.set(ylabel=y_label, title=title)
    axes.grid(axis="x", visible=False)
    _legend(axes)
    return _save(pyplot, figure, name, title)
