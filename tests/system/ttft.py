#!/usr/bin/env python3
"""TTFT of short requests, alone and concurrent with a long prompt; compares several programs.

  tests/system/ttft.py
  tests/system/ttft.py --program old/palimpsest --program build/palimpsest --long 100000

A client sends consecutive short requests while another client's long prompt is prefilled. Rounds alternate between the
programs. Prints p50, p99 and max of the TTFT, and the TTFT of the long prompt.
"""
import argparse
import http.client
import json
import math
import pathlib
import random
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from server import REPO, Server  # noqa: E402


def first_token_ms(port, tokens, rng, max_tokens):
    """TTFT of one streamed completion of random tokens."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    body = {"prompt": [rng.randrange(300, 400) for _ in range(tokens)], "max_tokens": max_tokens, "temperature": 0,
            "stream": True, "ignore_eos": True}
    start = time.monotonic()
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        raise SystemExit(f"status {response.status}: {response.read().decode()}")
    line = response.readline()
    elapsed = 1000 * (time.monotonic() - start)
    if not line.startswith(b"data:"):
        raise SystemExit(f"no event: {line!r}")
    response.read()
    connection.close()
    return elapsed


def measure(server, args, rng):
    """TTFT of short requests alone, of short requests beside the long prompt, and of the long prompt."""
    alone = [first_token_ms(server.port, args.short, rng, args.tokens) for _ in range(args.requests)]
    took = []
    reader = threading.Thread(target=lambda: took.append(first_token_ms(server.port, args.long, rng, 1)))
    reader.start()
    time.sleep(0.2)
    beside = []
    while not took:
        beside.append(first_token_ms(server.port, args.short, rng, args.tokens))
        time.sleep(args.pause)
    reader.join()
    return alone, beside, took


def percentiles(times):
    times = sorted(times)
    at = [times[min(len(times) - 1, math.ceil(share * len(times)) - 1)] for share in (0.5, 0.99)]
    return "{:10.1f} {:10.1f} {:10.1f}".format(*at, times[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", action="append", help="default: build/palimpsest")
    parser.add_argument("--long", type=int, default=100_000, help="tokens of the long prompt")
    parser.add_argument("--short", type=int, default=10, help="tokens of a short prompt")
    parser.add_argument("--tokens", type=int, default=4, help="output tokens of a short request")
    parser.add_argument("--requests", type=int, default=50, help="short requests before the long prompt, in each round")
    parser.add_argument("--pause", type=float, default=0.01, help="seconds between short requests")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--flags", default="", help="further flags of `serve`, e.g. '--method full --cache-memory 8000'")
    args = parser.parse_args()
    programs = args.program or [str(REPO / "build/palimpsest")]
    found = {program: ([], [], []) for program in programs}
    for round_number in range(args.rounds):
        for program in programs:
            server = Server(program, "--port", 0, "--timeout", 0, "--max-body", 64, *args.flags.split())
            for all_times, times in zip(found[program], measure(server, args, random.Random(round_number))):
                all_times += times
            server.end()
    print(f"TTFT of {args.short}-token requests, ms; {args.rounds} rounds")
    print(f"{'':44} {'requests':>8} {'p50':>10} {'p99':>10} {'max':>10}")
    for program, (alone, beside, took) in found.items():
        print(f"{program}")
        print(f"{'  alone':44} {len(alone):8} {percentiles(alone)}")
        print(f"{f'  concurrent with a prompt of {args.long:,} tokens':44} {len(beside):8} {percentiles(beside)}")
        print(f"{'  the long prompt':44} {len(took):8} {percentiles(took)}")


if __name__ == "__main__":
    main()
