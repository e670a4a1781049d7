"""Shared by the parts: results with their spread, tables, plots."""
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
from plot import Bars, Map, Panel, keep  # noqa: E402


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


def line_plot(name, title, x_label, y_label, series, log=False, marker="o"):
    """series: {label: [(x, y)...]}; returns Markdown that names the plot."""
    return keep(name, title, [Panel("", x_label, y_label, series, log_x=log, from_zero=True, lines_only=marker is None)])


def heat_plot(name, title, x_label, y_label, x_ticks, y_ticks, maps):
    """maps: {label: [row for each y: [share from 0 to 1 for each x]]}, side by side; returns Markdown that names the plot."""
    panels = [Map(label, x_label, "" if i else y_label, list(map(str, x_ticks)), list(map(str, y_ticks)), rows) for i, (label, rows) in enumerate(maps.items())]
    return keep(name, title, panels, columns=len(panels))


def bar_plot(name, title, y_label, groups, stacked=False):
    """groups: {group: {label: height}}; returns Markdown that names the plot."""
    return keep(name, title, [Bars("", y_label, groups, stacked)])
