#!/usr/bin/env python3
"""deploy/ray under load while replicas are killed: three replicas, 64 clients; every answer is what it is alone, or an error
that says "try again"; no session is lost.

  make scale-check                                     (60 s, a replica killed every 15 s)
  tests/system/scale_ray.py --seconds 300 --kill-every 60 --compare      (also throughput of one replica)
"""

import argparse
import asyncio
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent.parent / "tools" / "setup")]
import environment  # noqa: E402
from server import REPO, Server, free_port  # noqa: E402

PACKAGES = (REPO / "deploy" / "ray" / "requirements.txt").read_text().split()
FLAGS = ["--chat-template", "chatml", "--cache-memory", "256", "-t", "1"]


class Application:
    """deploy/ray/app.py on a free port."""

    def __init__(self, replicas, *flags, program=None, more=()):
        self.log = tempfile.TemporaryFile("w+")
        self.port = free_port()
        words = [
            sys.executable,
            REPO / "deploy" / "ray" / "app.py",
            "--port",
            self.port,
            "--replicas",
            replicas,
            "--cpus",
            0.5,
            *more,
        ]
        words += ["--program", program] if program else []
        self.process = subprocess.Popen(
            [*map(str, words), "--", *map(str, flags)], stdout=subprocess.PIPE, stderr=self.log, text=True
        )
        for line in self.process.stdout:
            if line.startswith("palimpsest on Ray"):
                break
        else:
            self.log.seek(0)
            raise AssertionError(self.log.read()[-3000:])
        self.url = f"http://127.0.0.1:{self.port}"

    def servers(self):
        """PIDs of the running servers and of the actors that own them: descendants of the application's processes."""
        parents = {}
        for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
            try:
                parents[int(stat.parent.name)] = int(stat.read_text().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue
        found = []
        for pid in parents:
            try:
                words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            above, at = [], pid
            while at in parents and at > 1:
                at = parents[at]
                above.append(at)
            if b"serve" in words[1:3] and self.process.pid in above:
                found.append((pid, parents[pid]))
        return sorted(found)

    def end(self):
        self.process.terminate()
        code = self.process.wait(timeout=120)
        assert code == 0, code


async def kill(application, load, every, rng):
    """kill -9, in turns: a server, and the actor that owns one."""
    kills = []
    while time.monotonic() + every / 2 < load.end:
        await asyncio.sleep(every - (5 if not kills else 0))
        if not (servers := application.servers()):
            load.wrong.append(("kill", "no server runs"))
            return kills
        server, actor = rng.choice(servers)
        what = "actor" if len(kills) % 2 else "server"
        os.kill(actor if what == "actor" else server, signal.SIGKILL)
        kills.append(what)
    return kills


async def measure(application, alone, options, title, kill_every=0.0, seconds=None):
    import aiohttp
    from scale_load import Api, Load

    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=300)) as http:
        load = Load(Api(application.url, http), alone, seconds or options.seconds, options.clients, options.seed)
        tasks = [load.run()]
        if kill_every:
            tasks.append(kill(application, load, kill_every, random.Random(options.seed)))
        done = await asyncio.gather(*tasks)
    load.report(title)
    if kill_every:
        print(f"  killed with -9: {', '.join(done[1])}")
        assert done[1], "nothing was killed"
    assert not load.wrong, f"{len(load.wrong)} wrong answers"
    assert load.count["answers"] > options.clients and load.count["turns of sessions"] > 0, load.count
    return load


async def alone_answers(url):
    import aiohttp
    from scale_load import Alone, Api

    alone = Alone()
    async with aiohttp.ClientSession() as http:
        await alone.ask(Api(url, http))
    return alone


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--program", default=REPO / "build" / "palimpsest")
    arguments.add_argument("--seconds", type=float, default=60)
    arguments.add_argument("--kill-every", type=float, default=15)
    arguments.add_argument("--clients", type=int, default=64)
    arguments.add_argument("--replicas", type=int, default=3)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--compare", action="store_true", help="also one replica, and one server without a router")
    options = arguments.parse_args()
    try:
        environment.enter("ray", PACKAGES, "600 MB on disk, a minute")
    except environment.Unavailable as error:
        sys.exit(f"Ray: skipped, {error}")
    folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
    flags = [*FLAGS, "--session-path", folder.name]
    server = Server(options.program, "--port", 0, *flags)
    try:
        alone = asyncio.run(alone_answers(server.url))
        if options.compare:
            asyncio.run(measure(server, alone, options, "one server, no router", seconds=options.seconds / 5))
    finally:
        server.end()
    for replicas in [1, options.replicas] if options.compare else [options.replicas]:
        application = Application(replicas, *flags, program=options.program)
        try:
            if replicas == 1 or options.compare:
                asyncio.run(measure(application, alone, options, f"{replicas} replicas", seconds=options.seconds / 5))
            if replicas > 1:
                load = asyncio.run(measure(application, alone, options, f"{replicas} replicas, killed", options.kill_every))
        finally:
            application.end()
    found, later = load.count["later turns that found their cache"], load.count["later turns of chats"]
    assert found > later / 2, f"chats do not stick: {found} of {later}"


if __name__ == "__main__":
    main()
