#!/usr/bin/env python3
"""Measures what bench/scale/simulate.py needs of one server: time of a step by number of sequences, time of a prompt's tokens.

  python3 bench/scale/service_times.py -o build/service.json [--threads 2] [-m MODEL | --synthetic SHAPE]

`bench serve` with all requests at once, 1 to 32 of them: time per output token is a + b * sequences, by least squares. The
time per prompt token is TTFT / length of one long prompt.
"""

import argparse
import json
import pathlib
import subprocess

REPO = pathlib.Path(__file__).resolve().parent.parent.parent


def bench(options, requests, prompt, output):
    words = [
        options.program,
        "bench",
        "serve",
        "--json",
        "--num-prompts",
        requests,
        "--random-input-len",
        prompt,
        "--random-output-len",
        output,
        "--method",
        options.method,
        *options.flags,
    ]
    return json.loads(subprocess.run(list(map(str, words)), check=True, capture_output=True, text=True).stdout)[0]


def line(points):
    """Least squares: (a, b) of y = a + b x."""
    n = len(points)
    mean_x, mean_y = sum(x for x, _ in points) / n, sum(y for _, y in points) / n
    b = sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)
    return mean_y - b * mean_x, b


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", required=True)
    parser.add_argument("--program", default=REPO / "build" / "palimpsest")
    parser.add_argument("--method", default="h2o:budget=512")
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("flags", nargs="*", metavar="-- FLAG", help="flags of bench serve: --synthetic SHAPE, --threads N")
    options = parser.parse_args()
    points = []
    for sequences in (1, 2, 4, 8, 16, 32):
        run = bench(options, sequences, 32, 48)
        points.append((sequences, run["itl_ms"]["p50"] / 1000))
    a, b = line(points)
    for sequences, seconds in points:
        print(f"{sequences} sequences: {seconds * 1000:.2f} ms a step, fitted {(a + b * sequences) * 1000:.2f}", flush=True)
    per_token = bench(options, 1, options.prompt, 2)["ttft_ms"]["p50"] / 1000 / options.prompt
    service = {
        "step_seconds": max(a, 0),
        "seconds_per_sequence": b,
        "seconds_per_prompt_token": per_token,
        "flags": options.flags,
        "method": options.method,
    }
    pathlib.Path(options.output).write_text(json.dumps(service) + "\n")
    print(f"a step: {a * 1000:.2f} ms + {b * 1000:.2f} ms for each sequence; a prompt's token: {per_token * 1e6:.0f} us")


if __name__ == "__main__":
    main()
