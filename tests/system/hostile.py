#!/usr/bin/env python3
"""Measures the delay of other clients while hostile requests are sent in a loop: grammars, JSON schemas, tools, images, long
chats, long lists to embed.

  make serve-hostile                                                         (HOSTILE_ARGS=--long: 5 minutes each)
  tests/system/hostile.py --seconds 20 --attackers 4

Measures, without and then with the attackers: the time of GET /health, and the inter-token latency of a streaming client.
Both p99 values may be at most 100 ms above their baselines. Every hostile request must be answered, and the server must
stop with exit code 0.
"""
import argparse
import asyncio
import collections
import json
import math
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from load import http, post, read_head, read_pieces  # noqa: E402
from server import REPO, Server  # noqa: E402

FLAGS = ["--port", 0, "--chat-template", "chatml", "--max-num-seqs", 16, "--max-queue", 64]
MAX_DELAY_MS = 100


def chain(count, last, body):
    rules = [f"r{i} ::= {body(f'r{i + 1}')}" for i in range(count)]
    return "\n".join(["root ::= r0", *rules, f"r{count} ::= {last}"])


def grammars():
    yield 'root ::= "a"{5,2}'
    yield 'root ::= ("a" | "b"){2000,1999} "c"'
    yield chain(150_000, '"a"', lambda r: r)
    yield chain(20_000, '"a"', lambda r: r + ' "b"')
    yield chain(60, '"a"', lambda r: f"{r} | {r}")
    yield chain(60, '"a"', lambda r: f'{r} "x" | {r} "y"')
    yield chain(40, '"a"?', lambda r: f"{r} {r}")
    yield "root ::= " + "(" * 200_000 + '"a"' + ")" * 200_000
    yield "root ::= " + "(" * 30 + '"a"' + "){1,1000}" * 30
    yield 'root ::= "' + "a" * 100_000 + '"{1999}'
    yield 'root ::= ("a"? "b"?)* "c"'
    yield "root ::= e root \"a\" | \"b\"\ne ::= f\nf ::= \"\" | \"c\""
    yield "root ::= " + "[a-z ]* " * 200 + '"0"'
    yield "root ::= w{0,500}\nw ::= [a-z ]{0,500} [a-z ]{0,500}"
    yield 'root ::= s "0"\ns ::= "a" s s | [a-z ] s s | [a-z ]'
    yield "root ::= (" + "[a-z ] | " * 2000 + '"b")*'
    yield "root ::= (" + '"a" | ' * 40_000 + '"b")*'
    yield "root ::= [" + "a-z0-9" * 40_000 + "]*"
    yield 'root ::= "' + "(" * 1 + '" root ")" root | [a-z ]'
    yield 'root ::= ([a-z ] | [a-z ] | [a-z ])* "0"'


def schemas():
    def nested(depth, level):
        out = {"type": "null"}
        for _ in range(depth):
            out = level(out)
        return out

    yield nested(30, lambda s: {"type": ["array", "array"], "items": s, "maxItems": 0})
    yield nested(30, lambda s: {"type": ["array"] * 30, "items": s, "maxItems": 5})
    yield nested(30, lambda s: {"type": "array", "items": s, "minItems": 1000, "maxItems": 1000})
    yield nested(9, lambda s: {"anyOf": [s] * 3})
    yield {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(30_000)}}
    yield {"type": "object", "properties": {f"p{i}": {"type": "string", "maxLength": 999} for i in range(20)}}
    yield {"enum": [f"value {i}" for i in range(9_000)]}
    yield {"const": "x" * 1_000_000}
    yield {"$ref": "#"}
    yield {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}


def chats():
    """Bodies of /v1/chat/completions."""
    user = [{"role": "user", "content": "Hello"}]
    for schema in schemas():
        yield {"messages": user, "max_tokens": 100, "tool_choice": "required",
               "tools": [{"type": "function", "function": {"name": "f", "parameters": schema}}]}
    yield {"messages": user, "max_tokens": 100, "tool_choice": "required", "parallel_tool_calls": True, "tools": [
        {"type": "function", "function": {"name": f"f{i}", "description": "x" * 200, "parameters": {"type": "object"}}}
        for i in range(128)]}
    yield {"messages": [{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 1_000_000}}]}]}
    yield {"messages": [{"role": ("user", "assistant")[i % 2], "content": "x"} for i in range(501)], "max_tokens": 1}
    yield {"messages": [{"role": "assistant", "tool_calls": [
        {"id": str(i), "function": {"name": "f", "arguments": "{}"}} for i in range(200)]}], "max_tokens": 1}
    yield {"messages": user, "chat_template_kwargs": {f"v{i}": "x" * 100 for i in range(5000)}, "max_tokens": 1}


def bodies():
    """Paths and bodies."""
    out = [("/v1/chat/completions", json.dumps(body).encode()) for body in chats()]
    out.append(("/v1/embeddings", json.dumps({"input": ["once upon a time"] * 2048}).encode()))
    out.append(("/v1/embeddings", json.dumps({"input": list(range(1, 500)) * 2000}).encode()))
    out.append(("/v1/responses", json.dumps({"input": [{"type": "reasoning"}] * 100_000}).encode()))
    return out + [("/v1/completions", body) for body in completions()]


def completions():
    common = {"prompt": "Once upon a time", "max_tokens": 200, "temperature": 1}
    out = [json.dumps({**common, "grammar": g}).encode() for g in grammars()]
    for schema in schemas():
        response_format = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
        out.append(json.dumps({**common, "response_format": response_format}).encode())
    out.append(b'{"prompt":' + b"[" * 1_000_000)
    out.append(b'{"prompt":"x","temperature":1e999}')
    out.append(b'{"prompt":"x","max_tokens":' + b"9" * 100_000 + b"}")
    return out


class Measure:
    def __init__(self, port):
        self.port = port
        self.stop = False
        self.health, self.gaps = [], []
        self.statuses = collections.Counter()
        self.slowest = []

    async def ask(self, request):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 24)
        try:
            writer.write(request)
            status, headers = await read_head(reader)
            async for _ in read_pieces(reader, headers):
                pass
            return status
        finally:
            writer.close()

    async def watch(self):
        while not self.stop:
            begin = time.monotonic()
            assert await self.ask(http("GET", "/health")) == 200
            self.health.append(time.monotonic() - begin)
            await asyncio.sleep(0.005)

    async def stream(self):
        """The measured client: consecutive streams, inter-token latency."""
        while not self.stop:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 24)
            writer.write(post("/v1/completions", {"prompt": "One day", "max_tokens": 2000, "ignore_eos": True,
                                                  "cache": "streaming:budget=128"}, stream=True))
            status, headers = await read_head(reader)
            assert status == 200, status
            last = None
            async for _ in read_pieces(reader, headers):
                now = time.monotonic()
                if last is not None:
                    self.gaps.append(now - last)
                last = now
                if self.stop:
                    break
            writer.close()

    async def attack(self, number, every):
        i = number
        while not self.stop:
            path, body = every[i % len(every)]
            i += 1
            begin = time.monotonic()
            self.statuses[await self.ask(http("POST", path, body))] += 1
            self.slowest.append((time.monotonic() - begin, i % len(every)))

    async def run(self, seconds, attackers):
        every = bodies()
        tasks = [self.watch(), self.stream()]
        tasks += [self.attack(n * len(every) // max(attackers, 1), every) for n in range(attackers)]
        running = asyncio.gather(*tasks)
        done, _ = await asyncio.wait([running], timeout=seconds)
        if not done:
            self.stop = True
        await running


def p(values, share):
    return sorted(values)[min(len(values) - 1, math.ceil(share * len(values)) - 1)] * 1e3


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--program", default=REPO / "build" / "palimpsest")
    arguments.add_argument("--seconds", type=float, default=15, help="duration of the baseline and of the attack")
    arguments.add_argument("--attackers", type=int, default=4, help="clients that send consecutive hostile requests")
    arguments.add_argument("--long", action="store_true", help="300 seconds each")
    options = arguments.parse_args()
    options.seconds = 300 if options.long else options.seconds
    server = Server(options.program, *FLAGS)
    log = []
    try:
        results = []
        for attackers in (0, options.attackers):
            measure = Measure(server.port)
            asyncio.run(measure.run(options.seconds, attackers))
            server.wait_until_idle(60)
            results.append(measure)
    finally:
        log = server.end()
    assert not any(line["event"] == "failed" for line in log)
    calm, attacked = results
    failed = []
    for name, before, after in (("/health", calm.health, attacked.health), ("inter-token latency", calm.gaps, attacked.gaps)):
        delay = p(after, 0.99) - p(before, 0.99)
        print(f"{name}: p50 {statistics.median(before) * 1e3:.1f} ms, p99 {p(before, 0.99):.1f} ms; under attack"
              f" p50 {statistics.median(after) * 1e3:.1f} ms, p99 {p(after, 0.99):.1f} ms, max {max(after) * 1e3:.1f} ms:"
              f" p99 {delay:+.1f} ms")
        if delay > MAX_DELAY_MS:
            failed.append(name)
    print(f"{options.attackers} attackers: {sum(attacked.statuses.values())} hostile requests,"
          f" statuses {dict(sorted(attacked.statuses.items()))}, slowest {max(attacked.slowest)[0] * 1e3:.0f} ms")
    assert attacked.statuses and set(attacked.statuses) <= {200, 400, 429}, attacked.statuses
    assert not failed, f"delayed by more than {MAX_DELAY_MS} ms: {', '.join(failed)}"


if __name__ == "__main__":
    main()
