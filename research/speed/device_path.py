#!/usr/bin/env python3
"""Decode steps on the device path (stock ggml operators on the CPU) over the fast path, in interleaved rounds.

  tools/env python3 research/speed/device_path.py [--depths 2000,8000 --types f16,f32,q8_0 --rounds 5]

Targets of f16: 1.3x at 2,000 tokens in the cache, 1.7x at 8,000. "flash" forces ggml's flash attention, also where products are the default.
"""
import argparse
import os
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
from common import REPO, machine, run_json, say  # noqa: E402

SIDES = {"fast": ([], ""), "device": (["--portable"], ""), "flash": (["--portable"], "flash"), "products": (["--portable"], "products")}


def main():
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("--program", default=str(REPO / "build/palimpsest"))
    parse.add_argument("--shape", default="llama-3.2-1b@layers=2@vocab=1000@type=q8_0")
    parse.add_argument("--methods", nargs="*", default=["full"])
    parse.add_argument("--types", default="f16,f32")
    parse.add_argument("--depths", default="2000,8000")
    parse.add_argument("--sides", default="device,flash,products")
    parse.add_argument("--tokens", type=int, default=16)
    parse.add_argument("--threads", type=int, default=1)
    parse.add_argument("--rounds", type=int, default=5)
    o = parse.parse_args()
    sides = ["fast", *o.sides.split(",")]
    times = {}
    for round_ in range(o.rounds):
        for method in o.methods:
            for kind in o.types.split(","):
                for depth in o.depths.split(","):
                    for side in sides:
                        flags, attention = SIDES[side]
                        os.environ["PALIMPSEST_DEVICE_ATTENTION"] = attention
                        row = run_json([o.program, "bench", "decode", "--synthetic", o.shape, "-t", o.threads, "--cache-type", kind, "--method",
                                        method, "--depth", depth, "--tokens", o.tokens, "--reps", 1, "--fill", "prompt", "--json", *flags])[0]
                        times.setdefault((method, kind, depth, side), []).append(row["ms_p50"])
        say(f"round {round_ + 1} of {o.rounds}")
    print(f"{o.shape}, {o.threads} thread(s), {machine()}: ms of a step, median of {o.rounds} rounds; ratio to the fast path, median (min–max)\n")
    print(f"| method | cache | tokens | fast | {' | '.join(sides[1:])} |\n|---|---|---|---|{'---|' * len(sides[1:])}")
    for method in o.methods:
        for kind in o.types.split(","):
            for depth in o.depths.split(","):
                fast = times[method, kind, depth, "fast"]
                cells = []
                for side in sides[1:]:
                    ours = times[method, kind, depth, side]
                    ratios = [a / b for a, b in zip(ours, fast)]
                    cells.append(f"{statistics.median(ours):.1f}: {statistics.median(ratios):.2f}x ({min(ratios):.2f}–{max(ratios):.2f})")
                print(f"| {method} | {kind} | {int(depth):,} | {statistics.median(fast):.1f} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
