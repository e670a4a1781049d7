"""Plots a run as SVG: loss on text and on recall by tokens, recall by distance.

    python curves.py --run RUN --out models/curves.svg
"""
import argparse
import json
import os

COLOURS = ["#1f5fa8", "#c2571a", "#3b8a3e"]
W, H, LEFT, TOP, GAP = 400, 260, 50, 40, 70


def panel(x0, title, xlabel, ylabel, xs, series, ymax, ticks):
    """One set of axes at `x0`. `series`: [(name, ys)], all over `xs`; `ticks`: [(x, label)]."""
    lo, hi = min(xs), max(xs)
    px = lambda x: x0 + (x - lo) / ((hi - lo) or 1) * W
    py = lambda y: TOP + H - min(y, ymax) / ymax * H
    out = [f'<text x="{x0}" y="{TOP - 16}" font-weight="bold">{title}</text>',
           f'<path d="M{x0} {TOP}V{TOP + H}H{x0 + W}" fill="none" stroke="#333"/>',
           f'<text x="{x0 + W / 2}" y="{TOP + H + 36}" text-anchor="middle">{xlabel}</text>',
           f'<text transform="translate({x0 - 36},{TOP + H / 2}) rotate(-90)" text-anchor="middle">{ylabel}</text>']
    for i in range(6):
        y = ymax * i / 5
        out.append(f'<path d="M{x0} {py(y):.1f}h{W}" stroke="#ddd"/><text x="{x0 - 6}" y="{py(y) + 4:.1f}" text-anchor="end">{y:g}</text>')
    for x, label in ticks:
        out.append(f'<text x="{px(x):.1f}" y="{TOP + H + 18}" text-anchor="middle">{label}</text>')
    for (name, ys), colour, i in zip(series, COLOURS, range(9)):
        points = " ".join(f"{px(x):.1f},{py(y):.1f}" for x, y in zip(xs, ys))
        out.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        out.append(f'<text x="{x0 + W - 6}" y="{TOP + 14 + 16 * i}" text-anchor="end" fill="{colour}">{name}</text>')
    return out


def sinks(x0, weights):
    """A square for each layer and head: the mean attention weight on the first four tokens."""
    side = min(48, W // len(weights[0]), H // len(weights))
    out = [f'<text x="{x0}" y="{TOP - 16}" font-weight="bold">Attention on the first four tokens</text>']
    for i, layer in enumerate(weights):
        out.append(f'<text x="{x0 - 6}" y="{TOP + (i + 0.5) * side + 4:.0f}" text-anchor="end">layer {i}</text>')
        for j, v in enumerate(layer):
            ink = "white" if v > 0.5 else "black"
            out.append(f'<rect x="{x0 + j * side}" y="{TOP + i * side}" width="{side - 2}" height="{side - 2}" fill="#1f5fa8" fill-opacity="{v}" stroke="#999"/>'
                       f'<text x="{x0 + (j + 0.5) * side - 1}" y="{TOP + (i + 0.5) * side + 3}" text-anchor="middle" fill="{ink}" font-size="11">{100 * v:.0f}</text>')
    out.append(f'<text x="{x0}" y="{TOP + H + 36}">columns: heads; numbers: % of the weight, mean of queries after the 64th</text>')
    return out


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--run", required=True)
    a.add_argument("--out", required=True)
    o = a.parse_args()
    with open(os.path.join(o.run, "curve.jsonl")) as f:
        curve = [json.loads(line) for line in f]
    last = {}
    for e in curve:  # after a kill, steps occur twice: the later ones count
        last[e["step"]] = e
    curve = [last[s] for s in sorted(last)]
    seen = [e["seen"] / 1e6 for e in curve]
    whole = int(max(seen))
    step = max(1, whole // 5)
    out = panel(LEFT, "Training loss", "million tokens", "nats per token", seen,
                [("text of the mixture", [e["loss"] for e in curve]), ("recall", [e["recall"] for e in curve])], 5,
                [(t, str(t)) for t in range(0, whole + 1, step) if t >= min(seen)])
    width = LEFT + W + 30
    path = os.path.join(o.run, "evaluation.json")
    if os.path.exists(path):
        with open(path) as f:
            measured = json.load(f)
        recall = measured["recall"]
        at = range(len(recall))
        out += panel(width + GAP, "Recall, held-out questions", "tokens between fact and question", "% correct", list(at),
                     [("full cache", [100 * v for v in recall.values()])], 100, list(zip(at, recall)))
        width += GAP + W + 30
        out += sinks(width + GAP, measured["weight_on_first_4"])
        width += GAP + W + 30
    with open(o.out, "w") as f:
        f.write(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {TOP + H + 50}" font-family="DejaVu Sans,Helvetica,Arial,sans-serif" font-size="12">'
                f'<rect width="100%" height="100%" fill="white"/>' + "\n".join(out) + "</svg>\n")


if __name__ == "__main__":
    main()
