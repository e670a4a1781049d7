#!/usr/bin/env python3
"""Eight agents in a fixed memory: chats that are resent with each tool result, for an hour.

  make serve-agents                                                          (one hour, SmolLM2, which is pulled)
  tests/system/agents.py --seconds 60 --model models/palimpsest-stories.gguf

Each agent has a system prompt, resends its chat with a tool result of 40 to 400 tokens after every answer, and starts
a new chat when its own reaches --context tokens. Every second agent's method is `full`, the others' --method. Required:
every request is answered; the answers of `full` equal those of a second, idle server to the same chats (a sample of
--alone answers, and of each chat those up to the first that found less in the cache here than there: it was read in
other steps, which round otherwise); memory (in runs of half an hour and more) and open files in the second half are those of the
first, threads are no more than the requests at once; at the end no page is in use, and the server stops with exit code 0.
"""
import argparse
import collections
import http.client
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from server import REPO, Server  # noqa: E402

WORDS = ("file line test error value function the of and returns is not list open read write path config server client "
         "expected found in at with user name key table row cache memory token build failed passed warning").split()


def ask(port, body):
    """The answer and the seconds it took; a 429 is repeated after the time it says."""
    start = time.monotonic()
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=900)
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
        got = connection.getresponse()
        text = got.read()
        connection.close()
        if got.status != 429:
            assert got.status == 200, (got.status, text[:300])
            return json.loads(text), time.monotonic() - start
        time.sleep(int(got.headers["Retry-After"]))


class Agents:
    def __init__(self, server, options):
        self.server, self.options = server, options
        self.end = time.monotonic() + options.seconds
        self.count = collections.Counter()
        self.wrong, self.chats, self.times, self.samples = [], [], [], []

    def agent(self, number):
        rng = random.Random(f"{self.options.seed} {number}")
        method = "full" if number % 2 == 0 else self.options.method
        while time.monotonic() < self.end:
            messages = [{"role": "system", "content": f"You are agent {number}. " + self.text(rng, 150)}]
            tokens, chat = 0, []
            while time.monotonic() < self.end and tokens < self.options.context:
                messages.append({"role": "user", "content": self.text(rng, rng.choice([30, 100, 300]))})
                body = {"messages": list(messages), "max_tokens": 32, "temperature": 0, "cache": method}
                try:
                    got, seconds = ask(self.server.port, body)
                except (AssertionError, OSError, http.client.HTTPException) as error:
                    self.wrong.append((number, len(messages), repr(error)))
                    return
                choice, usage = got["choices"][0], got["usage"]
                tokens = usage["total_tokens"]
                answer = choice["message"]["content"]
                messages.append({"role": "assistant", "content": answer})
                self.times.append(seconds)
                self.count["answers"] += 1
                self.count["prompt tokens"] += usage["prompt_tokens"]
                self.count["read"] += usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"]
                self.count["evicted"] += usage.get("evicted_tokens", 0)
                chat.append((body, answer, choice["finish_reason"], usage["prompt_tokens_details"]["cached_tokens"]))
            self.count["chats"] += 1
            if method == "full":
                self.chats.append(chat)

    @staticmethod
    def text(rng, words):
        return " ".join(rng.choices(WORDS, k=words))

    def watch(self):
        process, start = pathlib.Path("/proc") / str(self.server.process.pid), time.monotonic()
        while time.monotonic() < self.end:
            memory = int((process / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            self.samples.append((time.monotonic() - start, memory, len(list((process / "task").iterdir())),
                                 len(list((process / "fd").iterdir()))))
            time.sleep(min(1, self.options.seconds / 60))

    def run(self):
        threads = [threading.Thread(target=self.agent, args=[i]) for i in range(self.options.agents)]
        threads.append(threading.Thread(target=self.watch))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def alone(self, port):
        """Compares answers with those to the same chats alone. Returns the number compared."""
        rng, compared = random.Random(self.options.seed), 0
        for chat in rng.sample(self.chats, len(self.chats)):
            for body, answer, reason, cached in chat:
                if compared == self.options.alone:
                    return compared
                got, _ = ask(port, body)
                if got["usage"]["prompt_tokens_details"]["cached_tokens"] != cached:
                    break
                compared += 1
                choice = got["choices"][0]
                if (choice["message"]["content"], choice["finish_reason"]) != (answer, reason):
                    self.wrong.append((body, answer, choice["message"]["content"]))
        return compared

    def report(self):
        c, seconds = self.count, self.options.seconds
        steady = [s for s in self.samples if s[0] > seconds / 5]
        half = len(steady) // 2
        early, late = ([statistics.median(s[k] for s in part) for k in (1, 2, 3)] for part in (steady[:half], steady[half:]))
        times = sorted(self.times)
        print(f"{self.options.agents} agents, {seconds:g} s, {self.options.cache_memory} MiB: {c['answers']} answers in"
              f" {c['chats']} chats, {c['prompt tokens']} prompt tokens, {c['read']} read, {c['evicted']} evicted")
        print(f"seconds per answer: p50 {times[len(times) // 2]:.2f}, p99 {times[len(times) * 99 // 100]:.2f}, max {times[-1]:.2f}")
        print(f"resident memory: {early[0] / 2**20:.1f} MiB, then {late[0] / 2**20:.1f}; max"
              f" {max(s[1] for s in self.samples) / 2**20:.1f}; threads {early[1]:g}, {late[1]:g}; open files"
              f" {early[2]:g}, {late[2]:g}", flush=True)
        # Threads serve as many requests as there were at once.
        assert late[1] <= early[1] + self.options.agents and late[2] == early[2], "threads or open files grow"
        if seconds >= 1800:  # before, the cache still fills
            assert late[0] <= early[0] * 1.02 + 8 * 2**20, "resident memory grows"


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--program", default=REPO / "build" / "palimpsest")
    arguments.add_argument("--model", default="smollm2", help="a name of `palimpsest list`, or a file")
    arguments.add_argument("--agents", type=int, default=8)
    arguments.add_argument("--seconds", type=float, default=3600)
    arguments.add_argument("--cache-memory", type=int, default=512, help="MiB")
    arguments.add_argument("--context", type=int, default=1800, help="tokens after which an agent starts a new chat")
    arguments.add_argument("--method", default="auto:budget=512", help="of every second agent")
    arguments.add_argument("--alone", type=int, default=100, help="answers that are compared with those to the same chats alone")
    arguments.add_argument("--seed", type=int, default=1)
    options = arguments.parse_args()
    if not str(options.model).endswith(".gguf"):
        subprocess.run([options.program, "pull", options.model], check=True, stdout=subprocess.DEVNULL)
    flags = ["-m", options.model, "--port", 0, "--cache-memory", options.cache_memory]
    server = Server(options.program, *flags)
    agents = Agents(server, options)
    try:
        agents.run()
        server.wait_until_idle(30)
        agents.report()
    finally:
        log = server.end()
    assert not any(line["event"] == "failed" for line in log)
    server = Server(options.program, *flags)
    try:
        compared = agents.alone(server.port)
    finally:
        server.end()
    for wrong in agents.wrong[:5]:
        print("WRONG:", *wrong, sep="\n  ")
    assert not agents.wrong, f"{len(agents.wrong)} wrong answers"
    assert compared > 0, "no answer could be compared"
    print(f"{compared} answers of `full` equal those to the same chats alone")


if __name__ == "__main__":
    main()
