#!/usr/bin/env python3
"""Overload: 100 clients on 4 slots. Compares Retry-After with what came true: make overload.

Each client wants some answers, one after another, and waits as Retry-After says when it is refused. Retry-After
estimates when the requests that wait then will all have begun; the server's log says when they did. Prints both, and
the error; fails where the median error is 50% or more.

  make overload OVERLOAD_ARGS='--model smollm2'      (the default is the default model, with long answers)
"""
import argparse
import asyncio
import datetime
import json
import pathlib
import random
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import load  # noqa: E402
from load import WORDS, post, read_head, read_pieces  # noqa: E402
from server import REPO, Server  # noqa: E402


async def ask(port, body):
    """Status, headers and body of a completion."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(post("/v1/completions", body))
        await writer.drain()
        status, headers = await read_head(reader)
        return status, headers, b"".join([piece async for piece in read_pieces(reader, headers)])
    finally:
        writer.close()


async def client(number, port, options, refusals):
    rng = random.Random(1000 * options.seed + number)
    for _ in range(options.answers):
        text = " ".join(rng.choices(WORDS, k=rng.choice([5, 30, 300]))).capitalize()
        body = {"prompt": text, "max_tokens": rng.choice(options.tokens), "temperature": 1,
                "seed": rng.randrange(1 << 30), "ignore_eos": rng.random() < 0.5}
        while True:
            now = datetime.datetime.now(datetime.timezone.utc).timestamp()
            status, headers, answer = await ask(port, body)
            if status == 200:
                break
            assert status == 429, (status, answer[:300])
            refusals.append((now, int(headers["retry-after"])))
            await asyncio.sleep(int(headers["retry-after"]))


def spans(log):
    """When each answered request arrived and began, in seconds."""
    for line in log:
        if line["event"] == "request" and line["path"] == "/v1/completions" and line["status"] == 200:
            end = datetime.datetime.fromisoformat(line["time"].replace("Z", "+00:00")).timestamp()
            arrival = end - line["ms"] / 1000
            yield arrival, arrival + line["queue_ms"] / 1000, end


async def run(options, server):
    refusals = []
    await ask(server.port, {"prompt": "Once upon a time", "max_tokens": 20, "ignore_eos": True})  # as after any start
    await asyncio.gather(*[client(i, server.port, options, refusals) for i in range(options.clients)])
    return refusals


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--program", default=REPO / "build" / "palimpsest")
    arguments.add_argument("--model")
    arguments.add_argument("--clients", type=int, default=100)
    arguments.add_argument("--answers", type=int, default=2, help="of each client")
    arguments.add_argument("--tokens", type=int, nargs="+", default=[400, 1600, 4800], help="max_tokens, drawn of these")
    arguments.add_argument("--slots", type=int, default=4)
    arguments.add_argument("--queue", type=int, default=24)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--json", help="write refusals and requests into this file")
    options = arguments.parse_args()
    load.PATIENCE = 3600
    model = ["-m", options.model] if options.model else []
    server = Server(options.program, "--port", 0, "--max-num-seqs", options.slots, "--max-queue", options.queue,
                    "--method", "streaming:budget=256", *model)
    try:
        refusals = asyncio.run(run(options, server))
    finally:
        log = server.end()
    requests = list(spans(log))
    rows = []
    for at, said in sorted(refusals):
        waits = [begin - at for arrival, begin, _ in requests if arrival < at < begin]
        if waits:
            rows.append((at, said, max(waits)))
    assert rows, "no request was refused: raise --clients or --tokens"
    errors = sorted(abs(said - true) / true for _, said, true in rows)
    start = min(arrival for arrival, _, _ in requests)
    print(f"{options.clients} clients, {options.slots} slots, a queue of {options.queue}: {len(requests)} answers,"
          f" {len(refusals)} refusals in {max(end for _, _, end in requests) - start:.0f} s")
    print("after s  refusals  Retry-After  came true")
    width = max(1.0, (rows[-1][0] - start) / 12)
    for k in range(13):
        part = [row for row in rows if k * width <= row[0] - start < (k + 1) * width]
        if part:
            said, true = (statistics.median(row[i] for row in part) for i in (1, 2))
            print(f"{k * width:7.0f}  {len(part):8}  {said:11.0f}  {true:9.1f}")
    high = errors[int(0.9 * len(errors))]
    print(f"error of Retry-After: median {statistics.median(errors):.0%}, 90th percentile {high:.0%}")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps({"refusals": rows, "requests": requests}))
    assert statistics.median(errors) < 0.5, "Retry-After is not what came true"


if __name__ == "__main__":
    main()
