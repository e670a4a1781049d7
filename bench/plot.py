"""The plotter of all pages and of `palimpsest ... --plot`: deterministic SVG files of panels side by side.

    tools/env python3 bench/plot.py FILE.json...       draws out/plots/FILE.svg (make plots: all of research/results/plots)
    tools/env python3 bench/plot.py curves.json -o curves.svg
"""
import argparse
import dataclasses
import json
import math
import pathlib
import textwrap

from common import REPO, RESEARCH

MANY = 5  # lines in a panel
DATA = RESEARCH / "plots"


@dataclasses.dataclass
class Panel:
    """Lines. A point whose y is None interrupts its line."""
    title: str
    x_label: str
    y_label: str
    series: dict  # name -> [(x, y), ...]; a name that begins with "(" is drawn dashed
    log_x: bool = False
    log_y: bool = False
    from_zero: bool = False
    lines_only: bool = False  # no marker at each point
    marks: list = dataclasses.field(default_factory=list)  # [(x, text)]: vertical lines
    kind: str = "lines"

    def size(self):
        return 5.2, 3.6

    def draw(self, axis, pyplot):
        from matplotlib.ticker import FuncFormatter, NullFormatter
        if len(self.series) > 10:
            axis.set_prop_cycle(color=pyplot.get_cmap("tab20").colors)
        for name, points in self.series.items():
            xs, ys = zip(*((x, math.nan if y is None else y) for x, y in points))
            axis.plot(xs, ys, label=name.lstrip("("), linewidth=1.5, markersize=4, marker="" if self.lines_only else "o",
                      linestyle="--" if name.startswith("(") else "-")
        for x, text in self.marks:
            axis.axvline(x, linestyle=":", linewidth=1, color="black")
            axis.annotate(text, (x, 1), xycoords=("data", "axes fraction"), fontsize=8, ha="left", va="bottom")
        axis.set_title(self.title)
        axis.set_xlabel(self.x_label)
        axis.set_ylabel(self.y_label)
        if self.log_x:
            axis.set_xscale("log", base=2)
            axis.set_xticks(sorted({x for points in self.series.values() for x, _ in points}))
            axis.xaxis.set_minor_formatter(NullFormatter())
        if self.log_y:
            axis.set_yscale("log")
            number = FuncFormatter(lambda y, _: f"{y:g}")
            axis.yaxis.set_major_formatter(number)
            ys = [y for points in self.series.values() for _, y in points if y]
            axis.yaxis.set_minor_formatter(number if max(ys) < 10 * min(ys) else NullFormatter())
        axis.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x / 1e6:g}M" if x >= 1e6 else f"{x:,.0f}"))
        if self.from_zero:
            axis.set_ylim(bottom=0)
        if len(self.series) > MANY:  # beside the axes, so that lines do not cross it
            axis.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8)
        elif len(self.series) > 1:
            axis.legend(frameon=False)


@dataclasses.dataclass
class Bars:
    title: str
    y_label: str
    groups: dict  # group -> {label: height}
    stacked: bool = False
    kind: str = "bars"

    def size(self):
        return max(7, 1.1 * len(self.groups) + 1.5), 3.4

    def draw(self, axis, pyplot):
        labels = list(dict.fromkeys(label for bars in self.groups.values() for label in bars))
        width = 0.6 if self.stacked else 0.8 / len(labels)
        base = [0.0] * len(self.groups)
        for i, label in enumerate(labels):
            heights = [bars.get(label, 0) for bars in self.groups.values()]
            at = [g if self.stacked else g + (i - (len(labels) - 1) / 2) * width for g in range(len(self.groups))]
            axis.bar(at, heights, width, bottom=base if self.stacked else None, label=label)
            if self.stacked:
                base = [b + h for b, h in zip(base, heights)]
        axis.set_xticks(range(len(self.groups)), ["\n".join(textwrap.fill(line, 11) for line in group.splitlines()) for group in self.groups])
        axis.set(ylabel=self.y_label, title=self.title)
        axis.grid(axis="x", visible=False)
        axis.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))


@dataclasses.dataclass
class Map:
    title: str
    x_label: str
    y_label: str
    x_ticks: list
    y_ticks: list
    rows: list  # for each y: [share from 0 to 1 for each x]
    kind: str = "map"

    def size(self):
        return 2.4, 2.8

    def draw(self, axis, pyplot):
        axis.imshow(self.rows, vmin=0, vmax=1, cmap="viridis", aspect="auto")
        axis.grid(visible=False)
        for y, row in enumerate(self.rows):
            for x, share in enumerate(row):
                axis.text(x, y, f"{100 * share:.0f}", ha="center", va="center", fontsize=7, color="black" if share > 0.6 else "white")
        axis.set_xticks(range(len(self.x_ticks)), self.x_ticks, fontsize=7)
        axis.set_yticks(range(len(self.y_ticks)), self.y_ticks, fontsize=7)
        axis.set_title(self.title, fontsize=9)
        axis.set_xlabel(self.x_label, fontsize=8)
        axis.set_ylabel(self.y_label, fontsize=8)


KINDS = {"lines": Panel, "bars": Bars, "map": Map}


def plot(path, title, panels, columns=2):
    """Writes the panels; returns the file's name. Without matplotlib: an error that says how to install it."""
    try:
        import matplotlib
    except ImportError as missing:
        raise SystemExit(f"plots need matplotlib ({missing}): tools/env --add python3-matplotlib, or install it") from missing
    matplotlib.use("svg")
    # The same data gives the same file.
    matplotlib.rcParams.update({"svg.hashsalt": "palimpsest", "svg.fonttype": "none", "font.size": 9, "axes.grid": True,
                                "grid.color": "#e0e0e0", "axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True})
    from matplotlib import pyplot

    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    width, height = (max(side) for side in zip(*(panel.size() for panel in panels)))
    figure, axes = pyplot.subplots(rows, columns, figsize=(width * columns, height * rows), squeeze=False)
    for axis in axes.flat[len(panels):]:
        axis.remove()
    for axis, panel in zip(axes.flat, panels):
        panel.draw(axis, pyplot)
    figure.suptitle(textwrap.fill(title, int(14 * width * columns)), fontsize=11)
    figure.tight_layout()
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
    return path.name


def keep(name, title, panels, columns=2):
    """The plot of a page of research/results: its data are in the repository, the SVG file is not. Returns Markdown for the page."""
    DATA.mkdir(parents=True, exist_ok=True)
    (DATA / f"{name}.json").write_text(as_json(title, [dataclasses.asdict(panel) for panel in panels], columns))
    return [link(name, title), ""]


def link(name, title):
    return f"Plot: {title} ([data](plots/{name}.json); `make plots PLOTS={name}` draws it)."


def as_json(title, panels, columns):
    """JSON with a line for each series or group. `panels`: dictionaries."""
    def lines(value, indent):
        if not isinstance(value, dict):
            return json.dumps(value, ensure_ascii=False)
        inside = [f"{indent} {json.dumps(key, ensure_ascii=False)}: {lines(item, indent + ' ') if key in ('series', 'groups') else json.dumps(item, ensure_ascii=False)}"
                  for key, item in value.items()]
        return "{\n" + ",\n".join(inside) + f"\n{indent}" + "}"
    return (f'{{"title": {json.dumps(title, ensure_ascii=False)}, "columns": {columns}, "panels": [\n ' +
            ",\n ".join(lines(panel, " ") for panel in panels) + "\n]}\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+", metavar="FILE.json", help="of --plot, or the name of a plot in research/results/plots")
    parser.add_argument("-o", "--out", type=pathlib.Path, default=REPO / "out" / "plots", help="folder, or FILE.svg of a single plot")
    options = parser.parse_args()
    for name in options.data:
        path = pathlib.Path(name) if name.endswith(".json") else DATA / f"{name}.json"
        data = json.loads(path.read_text())
        out = options.out if options.out.suffix == ".svg" else options.out / f"{path.stem}.svg"
        plot(out, data["title"], [KINDS[panel["kind"]](**panel) for panel in data["panels"]], data.get("columns", 2))
        print(out)


if __name__ == "__main__":
    main()
