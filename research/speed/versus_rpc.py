#!/usr/bin/env python3
"""palimpsest against llama-bench over the same two RPC servers on loopback, on one file of random weights, in interleaved
rounds. Prints a table.

  tools/env python3 research/speed/versus_rpc.py [--rounds 3 --depths 0,2048]

Each server has one thread. Both clients give half of the layers to each server. llama-bench runs with flash attention off
and on; the better of the two counts.
"""
import argparse
import pathlib
import socket
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
from common import REPO, random_model, run_json, say, spread  # noqa: E402


def arguments():
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("--program", default=str(REPO / "build/palimpsest"))
    parse.add_argument("--llama-bench", default="llama-bench")
    parse.add_argument("--shape", default="llama-3.2-1b@vocab=32000")
    parse.add_argument("--type", default="q8_0")
    parse.add_argument("--depths", default="0,2048")
    parse.add_argument("--prompts", default="128")
    parse.add_argument("--tokens", type=int, default=16)
    parse.add_argument("--rounds", type=int, default=3)
    parse.add_argument("--models", default=str(REPO / "out"))
    return parse.parse_args()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def serve(program):
    port = free_port()
    server = subprocess.Popen([program, "rpc-server", "--port", str(port), "-t", "1"], stdout=subprocess.DEVNULL)
    for _ in range(100):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return server, f"127.0.0.1:{port}"
        except OSError:
            time.sleep(0.1)
    raise SystemExit("no RPC server started")


def main():
    o = arguments()
    path = random_model(o.program, o.models, o.shape, o.type)
    servers, addresses = zip(*(serve(o.program) for _ in range(2)))
    rpc = ",".join(addresses)
    tests = [("prefill", int(n)) for n in o.prompts.split(",") if n] + [("decode", int(n)) for n in o.depths.split(",") if n]
    samples = {}
    try:
        for round_ in range(o.rounds):
            for test, n in tests:
                say(f"round {round_ + 1}: {test} at {n}")
                size = ["-p", n, "-n", 0] if test == "prefill" else ["-p", 0, "-n", o.tokens, "-d", n]
                for flash in (0, 1):
                    for row in run_json([o.llama_bench, "-m", path, "--rpc", rpc, "-ngl", 99, *size, "-r", 1, "-fa", flash, "-o", "json"]):
                        samples.setdefault((test, n, f"flash {flash}"), []).extend(row["samples_ts"])
                size = ["--tokens", n] if test == "prefill" else ["--tokens", o.tokens, "--depth", n]
                for row in run_json([o.program, "bench", test, "-m", path, "--rpc", rpc, "--tensor-split", "1,1", "--method", "full",
                                     "--reps", 1, "--fill", "prompt", "--json", *size]):
                    samples.setdefault((test, n, "palimpsest"), []).extend(row["samples"])
    finally:
        for server in servers:
            server.kill()
    print("| test | llama.cpp, flash off | flash on | palimpsest | ratio to the better |\n|---|---|---|---|---|")
    for test, n in tests:
        sides = [samples[test, n, side] for side in ("flash 0", "flash 1", "palimpsest")]
        medians = [statistics.median(side) for side in sides]
        print(f"| {test} {n:,} | {' | '.join(map(spread, sides))} | **{medians[2] / max(medians[:2]):.2f}x** |")


if __name__ == "__main__":
    main()
