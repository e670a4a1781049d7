#!/usr/bin/env python3
"""Kills the server with SIGKILL during session writes, repeatedly; every session must be the old or the new one, complete.

  make serve-kill                         (200 times, some minutes)
  tests/system/kill.py --times 10

Clients continuously restore and save a few sessions under the same names, so that the server is nearly always writing.
After each kill, a new server must list every saved session, continue from each, and have removed unfinished files.
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

FLAGS = ["--port", 0, "--max-num-seqs", 8, "--cache-memory", 64]
SESSIONS = {"tale": "full", "stream": "streaming:budget=256", "heavy": "h2o:budget=512", "paged": "paged-eviction:budget=512"}


def complete(server, body):
    request = urllib.request.Request(server.url + "/v1/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request, timeout=60))


def go_on(server, name, tokens):
    return complete(server, {"max_tokens": tokens, "ignore_eos": True, "cache": SESSIONS[name],
                             "session": {"restore": name, "save": name}})


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
    saved = unfinished = 0
    for _ in range(options.times):
        writers = [Writer(server, name) for name in SESSIONS]
        time.sleep(rng.uniform(0.02, 0.4))
        server.process.kill()
        server.process.wait()
        for writer in writers:
            writer.join(60)
            assert not writer.is_alive(), "a client still waits for a killed server"
            saved += writer.saved
        unfinished += sum(".new." in file.name for file in pathlib.Path(folder.name).iterdir())

        server = Server(options.program, *flags)
        left = [file.name for file in pathlib.Path(folder.name).iterdir() if ".new." in file.name]
        assert not left, f"unfinished files not removed: {left}"
        listed = json.load(urllib.request.urlopen(server.url + "/v1/sessions", timeout=60))["data"]
        assert {s["id"] for s in listed} == set(SESSIONS), listed
        for name in SESSIONS:
            try:
                go_on(server, name, 1)
            except urllib.error.HTTPError as error:
                raise AssertionError(f"session {name} is damaged: {error.read().decode()}") from None
    server.end()
    print(f"killed {options.times} times: all sessions complete each time; {saved} saves answered, {unfinished} interrupted"
          " during a write")
    assert saved > 0


if __name__ == "__main__":
    main()
