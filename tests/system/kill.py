#!/usr/bin/env python3
"""Kills the server with SIGKILL during writes of sessions and of caches on disk, repeatedly; every session must be the old or
the new one, complete, and no cache on disk may be damaged.

  make serve-kill                         (200 times, some minutes)
  tests/system/kill.py --times 10

Clients continuously restore and save a few sessions under the same names, so that the server is nearly always writing; another
resends chats, for which the memory has no room. After each kill, a new server must list every saved session, continue from
each, have removed unfinished files, and find no damaged cache for the chats.
"""
import argparse
import json
import pathlib
import random
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from server import REPO, Server  # noqa: E402

FLAGS = ["--port", 0, "--max-num-seqs", 8, "--cache-memory", 64, "--prefix-cache-memory", 3, "--disk-cache", 64, "--chat-template", "chatml"]
CHATS = 6
SESSIONS = {"tale": "full", "stream": "streaming:budget=256", "heavy": "h2o:budget=512", "paged": "paged-eviction:budget=512"}


def complete(server, body):
    request = urllib.request.Request(server.url + "/v1/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request, timeout=60))


def go_on(server, name, tokens):
    return complete(server, {"max_tokens": tokens, "ignore_eos": True, "cache": SESSIONS[name],
                             "session": {"restore": name, "save": name}})


def chat(server, number, turn):
    """Resends a chat; the number of its tokens that were on disk."""
    messages = [{"role": "user", "content": f"{number}: tell me a story about cat {number * 7}. " * 20}]
    for i in range(turn):
        messages += [{"role": "assistant", "content": f"Cat {i} ran home."}, {"role": "user", "content": f"And then? {number} {i}"}]
    body = {"messages": messages, "max_tokens": 2, "cache": "full"}
    request = urllib.request.Request(server.url + "/v1/chat/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    answer = json.load(urllib.request.urlopen(request, timeout=60))
    return answer["usage"]["prompt_tokens_details"].get("disk_tokens", 0)


class Chats(threading.Thread):
    """Resends chats until the server is killed."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self.server, self.saved = server, 0
        self.start()

    def run(self):
        try:
            for turn in range(1000):
                for number in range(CHATS, 2 * CHATS):
                    chat(self.server, number, turn % 5)
        except (OSError, ValueError):
            pass


class Writer(threading.Thread):
    """Saves one session repeatedly until the server is killed."""

    def __init__(self, server, name):
        super().__init__(daemon=True)
        self.server, self.name, self.saved = server, name, 0
        self.start()

    def run(self):
        try:
            while True:
                go_on(self.server, self.name, 1)
                self.saved += 1
        except (OSError, ValueError):  # killed: refused, reset, or a partial answer
            pass


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--program", default=REPO / "build" / "palimpsest")
    arguments.add_argument("--times", type=int, default=200)
    arguments.add_argument("--seed", type=int, default=1)
    options = arguments.parse_args()
    rng = random.Random(options.seed)
    folder = tempfile.TemporaryDirectory()
    flags = [*FLAGS, "--session-path", folder.name]

    server = Server(options.program, *flags)
    for name, method in SESSIONS.items():
        complete(server, {"prompt": "Once upon a time " * 60, "max_tokens": 8, "ignore_eos": True, "cache": method,
                          "session": {"save": name}})
    saved = unfinished = found = times = 0
    for time_ in range(5 * options.times):  # more than the wanted times until a chat was on disk when the server was killed
        if time_ >= options.times and found > 0:
            break
        times += 1
        writers = [Writer(server, name) for name in SESSIONS] + [Chats(server)]
        time.sleep(rng.uniform(0.02, 0.4))
        server.process.kill()
        server.process.wait()
        for writer in writers:
            writer.join(60)
            assert not writer.is_alive(), "a client still waits for a killed server"
            saved += writer.saved
        unfinished += sum(".new." in file.name for file in pathlib.Path(folder.name).rglob("*"))

        server = Server(options.program, *flags)
        left = [file.name for file in pathlib.Path(folder.name).rglob("*") if ".new." in file.name]
        assert not left, f"unfinished files not removed: {left}"
        listed = json.load(urllib.request.urlopen(server.url + "/v1/sessions", timeout=60))["data"]
        assert {s["id"] for s in listed} == set(SESSIONS), listed
        for name in SESSIONS:
            try:
                go_on(server, name, 1)
            except urllib.error.HTTPError as error:
                raise AssertionError(f"session {name} is damaged: {error.read().decode()}") from None
        found += sum(chat(server, number, time_ % 15) > 0 for number in range(CHATS))  # longer than the last time
        assert "disk cache" not in server.log_text(), server.log_text()
    server.end()
    print(f"killed {times} times: all sessions complete each time; {saved} saves answered, {unfinished} interrupted"
          f" during a write; {found} chats continued from disk")
    assert saved > 0 and found > 0


if __name__ == "__main__":
    main()
