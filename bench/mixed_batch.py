"""Time of a batch of eight requests with four methods, whose keys are rotated in different ways, in two builds of the program.

    python3 bench/mixed_batch.py OLD NEW
    python3 bench/mixed_batch.py OLD NEW --rounds 9 --shape llama-3.2-1b@layers=8@vocab=32000

In each round both servers (the other first in every second round) generate the same eight texts at once, one with each
method and again. Prints the median ratio of the times, NEW over OLD, with its 95% interval (bootstrap over rounds).
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import statistics
import sys
import time
import urllib.request

import common
import two_programs

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "system"))
from server import Server  # noqa: E402

METHODS = ["full", "streaming:budget=256", "h2o:budget=256,positions=cache", "streaming:budget=256,rerotate=recompute"]


def generate(server, method, tokens):
    body = {"prompt": "Once upon a time", "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "cache": method}
    request = urllib.request.Request(f"{server.url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as answer:
        return json.load(answer)["choices"][0]["text"]


def seconds(server, tokens):
    start = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        texts = list(pool.map(lambda i: generate(server, METHODS[i % 4], tokens), range(8)))
    return time.monotonic() - start, texts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs=2, metavar="PROGRAM")
    parser.add_argument("--shape", default="llama-3.2-1b@layers=4@vocab=32000")
    parser.add_argument("--type", default="q4_0")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--models", default="/tmp/palimpsest-models", help="folder of the files of random weights")
    options = parser.parse_args()
    model = common.random_model(options.programs[0], options.models, options.shape, options.type)
    servers = [Server(program, "-m", model, "--port", 0, "-t", options.threads, "--cache-type", "f16") for program in options.programs]
    times = ([], [])
    for server in servers:
        seconds(server, 4)
    for round_ in range(options.rounds):
        for side in (0, 1) if round_ % 2 == 0 else (1, 0):
            times[side].append(seconds(servers[side], options.tokens)[0])
    for server in servers:
        server.end()
    ratios = [new / old for old, new in zip(*times)]
    low, high = two_programs.interval(ratios)
    print(f"{common.machine()}, {options.threads} threads; {options.shape}, {options.type}; 8 requests of {options.tokens} tokens; {common.today()}")
    print(f"old {statistics.median(times[0]):.2f} s, new {statistics.median(times[1]):.2f} s; ratio {statistics.median(ratios):.3f} ({low:.3f} to {high:.3f})")


if __name__ == "__main__":
    main()
