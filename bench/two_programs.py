"""Decode and prefill speed of two builds of the program, in interleaved rounds.

    python3 bench/two_programs.py OLD NEW                    # all cases, about 15 minutes
    python3 bench/two_programs.py OLD NEW --types q4_0 --rounds 6
    python3 bench/two_programs.py OLD NEW --together         # both at once: for a machine whose clock changes

Each round runs OLD and NEW (the other order in every second round) on the same file of random weights. A case is a test,
weight type, method and depth; its ratio is the time of NEW over OLD in one round. With --together the two run at the same
time, with one thread each, on CPUs 0 and 1 (exchanged in every second round), so that a changing clock and other load
slow both. Prints the median ratio of each case with its 95% interval (bootstrap over rounds). Exits with 1 if an interval
lies above --limit.
"""
import argparse
import concurrent.futures
import os
import random
import statistics
import sys

import common

DECODE = ["full", "streaming:budget=1024", "h2o:budget=1024", "snapkv:budget=1024,schedule=step", "ems:budget=1024"]


def commands(options, model):
    """Commands without the program; each prints a list of rows."""
    decode = ["bench", "decode", "-m", model, "--tokens", options.tokens, "--reps", options.reps, "-t", options.threads, "--json"]
    yield decode + ["--depth", options.depths, "--method", "full"]
    yield decode + ["--depth", 1100] + [word for method in options.methods if method != "full" for word in ("--method", method)]
    yield ["bench", "prefill", "-m", model, "--tokens", 512, "--reps", options.reps, "-t", options.threads, "--json"]


def run_both(options, command, order):
    """Rows of OLD and of NEW. `order`: (0, 1), or (1, 0) for NEW first or, with --together, on CPU 0."""
    def run(side, prefix):
        return common.run_json([options.programs[side]] + command, prefix=prefix)
    if not options.together:
        rows = {side: run(side, options.prefix) for side in order}
    else:
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            runs = {side: pool.submit(run, side, f"{options.prefix} taskset -c {cpu}") for cpu, side in enumerate(order)}
            rows = {side: done.result() for side, done in runs.items()}
    return rows[0], rows[1]


def measure(options, model):
    times = {}  # case -> ([ms of old], [ms of new])
    for round_ in range(options.rounds):
        for command in commands(options, model):
            for side, rows in enumerate(run_both(options, command, (0, 1) if round_ % 2 == 0 else (1, 0))):
                for row in rows:
                    case = (row["test"], row["name"], row.get("depth", 0))
                    rate = statistics.median(row["samples"])
                    times.setdefault(case, ([], []))[side].append(1 / rate)
        common.say(f"round {round_ + 1} of {options.rounds}")
    return times


def interval(ratios, draws=2000):
    chance = random.Random(1)
    medians = sorted(statistics.median(chance.choices(ratios, k=len(ratios))) for _ in range(draws))
    return medians[int(0.025 * draws)], medians[int(0.975 * draws)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs=2, metavar="PROGRAM")
    parser.add_argument("--shape", default="llama-3.2-1b@layers=8@vocab=32000")
    parser.add_argument("--types", default="q4_0,q8_0")
    parser.add_argument("--depths", default="0,2048")
    parser.add_argument("--methods", nargs="+", default=DECODE)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--reps", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--limit", type=float, default=1.015, help="largest ratio that an interval may exclude (default: 1.015)")
    parser.add_argument("--models", default="/tmp/palimpsest-models", help="folder of the files of random weights")
    parser.add_argument("--prefix", default="", help="words before every measured command, for example 'chrt -r 1'")
    parser.add_argument("--together", action="store_true", help="run both at the same time, with one thread each")
    options = parser.parse_args()
    if options.together:
        options.threads = 1
    print(f"{common.machine()}, {options.threads} threads; {options.shape}, f16 cache; {common.today()}")
    print("| test | weights | method | depth | new / old, time | 95% interval |\n|---|---|---|---|---|---|")
    slower = 0
    for type_name in options.types.split(","):
        model = common.random_model(options.programs[0], options.models, options.shape, type_name)
        for (test, method, depth), (old, new) in measure(options, model).items():
            ratios = [b / a for a, b in zip(old, new)]
            low, high = interval(ratios)
            slower += low > options.limit
            print(f"| {test} | {type_name} | {method} | {depth:,} | {statistics.median(ratios):.3f} | {low:.3f} to {high:.3f} |", flush=True)
    sys.exit(1 if slower else 0)


if __name__ == "__main__":
    main()
