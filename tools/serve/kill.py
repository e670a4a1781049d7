#!/usr/bin/env python3
"""Kills a server with -9 while it saves sessions, again and again: is every session whole, the old one or the new?

  make serve-kill                         (200 times, some minutes)
  tools/serve/kill.py --times 10

Clients go on with a few sessions without pause, each answer saved over the session that it went on from, so that the
server is nearly always writing some of them. After each kill a server that is started anew must list every session
that was ever saved, go on from each of them, and have swept up what was never finished.
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

FLAGS = ["--port", 0, "--max-sequences", 8, "--cache-memory", 64]
SESSIONS = {"tale": "full", "stream": "streaming:budget=256", "heavy": "h2o:budget=512", "paged": "paged-eviction:budget=512"}


def complete(server, body):
    request = urllib.request.Request(server.url + "/v1/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request, timeout=60))


def go_on(server, name, tokens):
    return complete(server, {"max_tokens": tokens, "ignore_eos": True, "cache": SESSIONS[name],
                             "session": {"restore": name, "save": name}})


class Writer(threading.Thread):
    """Saves one session over and over, until the server is no more."""

    def __init__(self, server, name):
        super().__init__(daemon=True)
        self.server, self.name, self.saved = server, name, 0
        self.start()

    def run(self):
        try:
            while True:
                go_on(self.server, self.name, 1)
                self.saved += 1
        except (OSError, ValueError):  # killed: refused, reset, or half an answer
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
            assert not writer.is_alive(), "a client still waits for a server that is no more"
            saved += writer.saved
        unfinished += sum(".new." in file.name for file in pathlib.Path(folder.name).iterdir())

        server = Server(options.program, *flags)
        left = [file.name for file in pathlib.Path(folder.name).iterdir() if ".new." in file.name]
        assert not left, f"not swept up: {left}"
        listed = json.load(urllib.request.urlopen(server.url + "/v1/sessions", timeout=60))["data"]
        assert {s["id"] for s in listed} == set(SESSIONS), listed
        for name in SESSIONS:
            try:
                go_on(server, name, 1)
            except urllib.error.HTTPError as error:
                raise AssertionError(f"session {name} is damaged: {error.read().decode()}") from None
    server.end()
    print(f"killed {options.times} times: every session whole each time; {saved} saves were answered, {unfinished} were"
          " cut short in the middle of a file")
    assert saved > 0


if __name__ == "__main__":
    main()
