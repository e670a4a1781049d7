#!/usr/bin/env python3
"""Chats that resend all their messages, under a method that evicts.

  tests/system/chats.py                          (one chat of 40 turns, then 64 chats on a pool too small for all)
  tools/env python3 tests/system/chats.py --chats 0 --plot docs/results/chats.svg        (needs matplotlib)

One chat: tokens read and TTFT of each turn, with and without "cache_prompt", and whether each answer equals that of a
session that never resends. Many chats: hits, misses, tokens read, bytes kept and resident memory, round by round.
"""
import argparse
import concurrent.futures
import http.client
import json
import os
import pathlib
import random
import statistics
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "bench"))
from plot import Panel, plot  # noqa: E402
from server import REPO, Server  # noqa: E402

WORDS = "the little dog cat bird girl boy went to a park and saw big red ball in tree she was happy".split()


def message(rng):
    return " ".join(rng.choices(WORDS, k=rng.randrange(8, 24))).capitalize() + "."


def post(connection, body):
    """The answer's head. The server closes idle connections."""
    for attempt in range(5):
        try:
            connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
            return connection.getresponse()
        except ConnectionError:
            connection.close()
            if attempt == 4:
                raise
    return None


def ask(connection, messages, **more):
    """Streams an answer: its text, usage, and TTFT in ms."""
    body = {"messages": messages, "stream": True, "stream_options": {"include_usage": True}, "max_tokens": 48,
            "temperature": 0.8, "seed": len(messages), **more}
    start, first, text, usage = time.monotonic(), None, "", None
    with post(connection, json.dumps(body)) as answer:
        assert answer.status == 200, answer.read()
        for line in answer:
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            assert "error" not in event, event
            usage = event.get("usage") or usage
            for choice in event["choices"]:
                part = choice["delta"].get("content") or ""
                if part and first is None:
                    first = (time.monotonic() - start) * 1000
                text += part
    return text, usage, first or 0.0


def connect(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
    connection.connect()
    return connection


def read_tokens(usage):
    return usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"]


def turns_of_a_chat(server, turns, **more):
    rng, messages, out, connection = random.Random(1), [], [], connect(server)
    for _ in range(turns):
        messages.append({"role": "user", "content": message(rng)})
        text, usage, ttft = ask(connection, messages, **more)
        messages.append({"role": "assistant", "content": text})
        out.append((text, usage, ttft))
    return out


def session_of_a_chat(server, turns):
    rng, out, connection = random.Random(1), [], connect(server)
    for i in range(turns):
        session = {"save": "chat"} if i == 0 else {"restore": "chat", "save": "chat"}
        text, _, _ = ask(connection, [{"role": "user", "content": message(rng)}], session=session, seed=2 * i + 1)
        out.append(text)
    return out


def one_chat(options, folder):
    flags = ["--port", 0, "--chat-template", "chatml", "--method", options.method, "--cache-memory", 64,
             "--prefill-chunk", 64, "--session-path", folder, "-t", options.threads]
    server = Server(options.program, *flags)
    resent, fresh = turns_of_a_chat(server, options.turns), turns_of_a_chat(server, options.turns, cache_prompt=False)
    never = session_of_a_chat(server, options.turns)
    server.end()
    print(f"one chat of {options.turns} turns, {options.method}, everything resent in each request")
    print("turn  prompt  evicted   read  read without   TTFT ms  TTFT without")
    for i, ((_, usage, ttft), (_, other, slow)) in enumerate(zip(resent, fresh), 1):
        if i <= 3 or i % 5 == 0:
            print(f"{i:4}  {usage['prompt_tokens']:6}  {usage['evicted_tokens']:7}  {read_tokens(usage):5}"
                  f"  {read_tokens(other):12}  {ttft:8.1f}  {slow:12.1f}")
    half = options.turns // 2
    ttft = [statistics.median(t for _, _, t in resent[part]) for part in (slice(1, half), slice(half, None))]
    print(f"median TTFT, first half {ttft[0]:.1f} ms, second half {ttft[1]:.1f} ms; most tokens read by a turn after the "
          f"first: {max(read_tokens(u) for _, u, _ in resent[1:])}")
    if options.plot:
        def by_turn(results, value):
            return [(turn, value(result)) for turn, result in enumerate(results, 1)]
        names = {"resent": resent, "(resent, cache_prompt false": fresh}
        plot(pathlib.Path(options.plot), f"A chat that resends all its messages, {options.method}", [
            Panel("Time to first token", "turn", "ms", {n: by_turn(r, lambda x: x[2]) for n, r in names.items()},
                  from_zero=True),
            Panel("Tokens read", "turn", "tokens", {n: by_turn(r, lambda x: read_tokens(x[1])) for n, r in names.items()},
                  from_zero=True)])
    print(f"answers equal to a session that never resends: {sum(a[0] == b for a, b in zip(resent, never))} of {len(never)}"
          f"; to cache_prompt=false: {sum(a[0] == b[0] for a, b in zip(resent, fresh))}")


def resident(process):
    with open(f"/proc/{process.pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def many_chats(options):
    flags = ["--port", 0, "--chat-template", "chatml", "--method", options.method, "--cache-memory", options.memory,
             "--prefill-chunk", 64, "--max-num-seqs", 16, "--max-queue", 256, "-t", options.threads]
    server = Server(options.program, *flags)
    chats = [[] for _ in range(options.chats)]
    connections = [connect(server) for _ in chats]
    print(f"\n{options.chats} chats at once, {options.method}, --cache-memory {options.memory}")
    print("round  requests   hits  misses  tokens sent     read  kept MiB  RSS MiB")

    def turn(i):
        chats[i].append({"role": "user", "content": message(random.Random(1000 * len(chats[i]) + i))})
        text, usage, _ = ask(connections[i], chats[i])
        chats[i].append({"role": "assistant", "content": text})
        return usage

    names = ["history_cache_queries_total", "history_cache_hits_total"]
    before = [0, 0]
    with concurrent.futures.ThreadPoolExecutor(options.chats) as pool:
        for round_ in range(1, options.rounds + 1):
            usages = list(pool.map(turn, range(options.chats)))
            now = [server.metric(name) for name in names]
            asked, hits = (a - b for a, b in zip(now, before))
            before = now
            print(f"{round_:5}  {asked:8.0f}  {hits:5.0f}  {asked - hits:6.0f}"
                  f"  {sum(u['prompt_tokens'] for u in usages):11}  {sum(map(read_tokens, usages)):7}"
                  f"  {server.metric('prefix_cache_bytes') / (1 << 20):8.1f}  {resident(server.process):7.1f}")
    for connection in connections:
        connection.close()
    server.wait_until_idle()
    server.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=REPO / "build" / "palimpsest")
    parser.add_argument("--method", default="h2o:budget=128")
    parser.add_argument("--turns", type=int, default=40)
    parser.add_argument("--chats", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--memory", type=float, default=64, help="--cache-memory of the many chats")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--plot", help="SVG file for the chat of many turns")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        one_chat(options, folder)
    if options.chats > 0:
        many_chats(options)


if __name__ == "__main__":
    main()
