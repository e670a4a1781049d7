"""Deterministic SVG plots: panels side by side, lines with a legend."""
import dataclasses

MANY = 5  # lines in a panel


@dataclasses.dataclass
class Panel:
    title: str
    x_label: str
    y_label: str
    series: dict  # name -> [(x, y), ...]; a name that begins with "(" is drawn dashed
    log_x: bool = False
    log_y: bool = False
    from_zero: bool = False
    lines_only: bool = False  # no marker at each point


def plot(path, title, panels, columns=2):
    """Writes the panels; returns the file's name. Without matplotlib: an error that says how to install it."""
    try:
        import matplotlib
    except ImportError as missing:
        raise SystemExit(f"plots need matplotlib ({missing}): tools/env --add python3-matplotlib, or install it") from missing
    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "palimpsest", "svg.fonttype": "none", "font.size": 9, "axes.grid": True,
                                "grid.color": "#e0e0e0", "axes.spines.top": False, "axes.spines.right": False})
    from matplotlib import pyplot
    from matplotlib.ticker import FuncFormatter, NullFormatter

    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    figure, axes = pyplot.subplots(rows, columns, figsize=(5.2 * columns, 3.6 * rows), squeeze=False)
    for axis in axes.flat[len(panels):]:
        axis.remove()
    for axis, panel in zip(axes.flat, panels):
        if len(panel.series) > 10:
            axis.set_prop_cycle(color=pyplot.get_cmap("tab20").colors)
        for name, points in panel.series.items():
            xs, ys = zip(*points)
            axis.plot(xs, ys, label=name.lstrip("("), linewidth=1.5, markersize=4, marker="" if panel.lines_only else "o",
                      linestyle="--" if name.startswith("(") else "-")
        axis.set_title(panel.title)
        axis.set_xlabel(panel.x_label)
        axis.set_ylabel(panel.y_label)
        if panel.log_x:
            axis.set_xscale("log", base=2)
            axis.set_xticks(sorted({x for points in panel.series.values() for x, _ in points}))
            axis.xaxis.set_minor_formatter(NullFormatter())
        if panel.log_y:
            axis.set_yscale("log")
            axis.yaxis.set_minor_formatter(NullFormatter())
            axis.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
        axis.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x / 1e6:g}M" if x >= 1e6 else f"{x:,.0f}"))
        if panel.from_zero:
            axis.set_ylim(bottom=0)
        if len(panel.series) > MANY:  # beside the axes, so that lines do not cross it
            axis.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8)
        elif len(panel.series) > 1:
            axis.legend(frameon=False)
    figure.suptitle(title, fontsize=11)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
    return path.name
