"""Plots a run: loss on text and on recall by tokens, recall by distance, attention on the first tokens. Needs matplotlib.

    python curves.py --run RUN --out models/curves.svg
"""
import argparse
import json
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
from plot import Map, Panel, plot  # noqa: E402


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
    panels = [Panel("Training loss", "million tokens", "nats per token", {"text of the mixture": list(zip(seen, (e["loss"] for e in curve))),
                                                                          "recall": list(zip(seen, (e["recall"] for e in curve)))},
                    from_zero=True, lines_only=True)]
    path = os.path.join(o.run, "evaluation.json")
    if os.path.exists(path):
        with open(path) as f:
            measured = json.load(f)
        panels.append(Panel("Recall, held-out questions, full cache", "tokens between fact and question", "% correct",
                            {"full cache": [(int(distance), 100 * v) for distance, v in measured["recall"].items()]}, log_x=True, from_zero=True))
        weights = measured["weight_on_first_4"]
        panels.append(Map("Attention on the first four tokens, %", "head", "layer", list(range(len(weights[0]))), list(range(len(weights))), weights))
    plot(o.out, "The default model: training", panels, columns=len(panels))


if __name__ == "__main__":
    main()
