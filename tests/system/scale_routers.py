#!/usr/bin/env python3
"""HAProxy and LiteLLM's proxy in front of two servers, with the files of deploy/: the clients of scale_load.py, one server
killed with -9 and started again. Parts that cannot be installed are skipped by name.

  make scale-check
  tests/system/scale_routers.py --only haproxy --seconds 20
"""

import argparse
import asyncio
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent.parent / "tools" / "setup")]
import environment  # noqa: E402
from scale_ray import FLAGS, PACKAGES, alone_answers, measure  # noqa: E402
from server import REPO, Server, free_port  # noqa: E402

DEPLOY = REPO / "deploy"
LITELLM = ["litellm[proxy]==1.99.4"]


class Pair:
    """Two servers on fixed ports. Killing one starts it again."""

    def __init__(self, program, *flags):
        self.program, self.flags, self.ports = program, flags, [free_port(), free_port()]
        self.servers = [self._start(port) for port in self.ports]
        self.killed = 0

    def _start(self, port):
        return Server(self.program, "--port", port, *self.flags)

    async def kill(self, load, every, _rng):
        """As scale_ray.kill()."""
        kills = []
        while time.monotonic() + every / 2 < load.end:
            await asyncio.sleep(every)
            i = len(kills) % 2
            self.servers[i].process.send_signal(signal.SIGKILL)
            self.servers[i].process.wait()
            kills.append("ab"[i])
            await asyncio.sleep(every / 4)
            self.servers[i] = self._start(self.ports[i])
        return kills

    def metric(self, name):
        return [server.metric(name) for server in self.servers]

    def end(self):
        for server in self.servers:
            server.end()


class Proxy:
    """A router as a child process; `ready`: a path that it answers with 200."""

    def __init__(self, words, ready, environment=None):
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            list(map(str, words)), stdout=self.log, stderr=self.log, env={**os.environ, **(environment or {})}
        )
        end = time.monotonic() + 90
        while True:
            try:
                urllib.request.urlopen(ready, timeout=2).read()
                return
            except (OSError, urllib.error.URLError):
                self.log.seek(0)
                assert self.process.poll() is None and time.monotonic() < end, self.log.read()[-3000:]
                time.sleep(0.2)

    def end(self):
        self.process.terminate()
        self.process.wait(timeout=30)


def configured(file, port, ports):
    """A copy of a configuration file with other ports."""
    text = (DEPLOY / file).read_text()
    for old, new in zip([8000, 8081, 8082], [port, *ports], strict=True):
        text, times = re.subn(rf"(127\.0\.0\.1:){old}\b", rf"\g<1>{new}", text)
        assert times or old == 8000, (file, old)
    copy = tempfile.NamedTemporaryFile("w", suffix=pathlib.Path(file).suffix, delete=False)
    copy.write(text)
    copy.close()
    return copy.name


def post(url, path, body, **headers):
    request = urllib.request.Request(url + path, json.dumps(body).encode(), {"Content-Type": "application/json", **headers})
    return urllib.request.urlopen(request, timeout=60)


def sticks(pair, url):
    """Requests with one session, and turns of one chat, go to one server; many keys go to both."""
    for name, many in (("session", False), ("chat", False), ("sessions", True)):
        before = pair.metric("prompt_tokens_total")
        for i in range(20):
            content = f"Question {i}" if many or name == "session" else "Question"
            messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": content}]
            if name == "chat":
                messages += [{"role": "assistant", "content": "Yes."}, {"role": "user", "content": "And?"}] * i
            session = {"x-session-id": "one"} if name == "session" else {}
            post(url, "/v1/chat/completions", {"messages": messages, "max_tokens": 2}, **session).read()
        used = sum(after > old for old, after in zip(before, pair.metric("prompt_tokens_total"), strict=True))
        assert used == (2 if many else 1), (name, used)


def streams(url, model):
    """Events come one by one, not at the end."""
    body = {
        "messages": [{"role": "user", "content": "Tell me a story."}],
        "max_tokens": 400,
        "stream": True,
        "model": model,
        "seed": 1,
        "temperature": 0.7,
    }
    times = []
    with post(url, "/v1/chat/completions", body) as answer:
        for line in answer:
            if line.startswith(b"data: {"):
                times.append(time.monotonic())
    assert len(times) > 20 and times[0] < times[-1] - (times[-1] - times[len(times) // 2]) / 2, "the stream came at once"


async def run_load(url, alone, options, pair, title):
    class Front:
        pass

    front = Front()
    front.url = url
    import scale_ray

    scale_ray.kill = lambda _, load, every, rng: pair.kill(load, every, rng)
    return await measure(front, alone, options, title, options.seconds / 3)


def haproxy(options, pair, alone):
    program = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin")
    if program is None:
        return "skipped: apt install haproxy"
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    proxy = Proxy([program, "-db", "-f", configured("haproxy/haproxy.cfg", port, pair.ports)], url + "/health")
    try:
        sticks(pair, url)
        # Larger than HAProxy's buffer: it has no key, but goes on to a server.
        body = {"prompt": "Once", "max_tokens": 2, "metadata": {"padding": "x" * 60_000}}
        assert json.load(post(url, "/v1/completions", body))["usage"]["completion_tokens"] == 2
        streams(url, None)
        asyncio.run(run_load(url, alone, options, pair, "HAProxy, 2 servers, killed"))
    finally:
        proxy.end()
    return "passed"


def litellm(options, pair, alone):
    try:
        python = environment.python("litellm", LITELLM, "700 MB on disk, two minutes")
    except environment.Unavailable as error:
        return f"skipped: {error}"
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    proxy = Proxy(
        [
            python.parent / "litellm",
            "--config",
            configured("litellm/config.yaml", port, pair.ports),
            "--host",
            "127.0.0.1",
            "--port",
            port,
            "--telemetry",
            "False",
        ],
        url + "/health/liveliness",
        {"LITELLM_LOCAL_MODEL_COST_MAP": "True"},
    )
    try:
        streams(url, "palimpsest")
        wanted = list(zip(alone.requests, alone.answers, strict=True))[:8]
        before = pair.metric("prompt_tokens_total")
        for i in range(24):
            if i == 8:
                pair.servers[0].process.kill()
                pair.servers[0].process.wait()
            body, text = wanted[i % 8]
            # LiteLLM has a field `cache` of its own and keeps it.
            body = {key: value for key, value in body.items() if key != "cache"} | {"extra_body": {"cache": body["cache"]}}
            got = json.load(post(url, "/v1/completions", {**body, "model": "palimpsest"}))["choices"][0]["text"]
            assert got == text, (got, text)
        pair.servers[0] = Server(pair.program, "--port", pair.ports[0], *pair.flags)
        assert pair.metric("prompt_tokens_total")[1] > before[1]
    finally:
        proxy.end()
    return "passed: streams, 24 completions, one server killed"


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--program", default=REPO / "build" / "palimpsest")
    arguments.add_argument("--seconds", type=float, default=30)
    arguments.add_argument("--clients", type=int, default=32)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--only", choices=["haproxy", "litellm"])
    options = arguments.parse_args()
    try:
        environment.enter("ray", PACKAGES, "600 MB on disk, a minute")  # aiohttp is among them
    except environment.Unavailable as error:
        sys.exit(f"clients: skipped, {error}")
    folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
    pair = Pair(options.program, *FLAGS, "--session-path", folder.name)
    try:
        alone = asyncio.run(alone_answers(pair.servers[0].url))
        for router in (haproxy, litellm):
            if options.only in (None, router.__name__):
                print(f"{router.__name__}: {router(options, pair, alone)}", flush=True)
    finally:
        pair.end()


if __name__ == "__main__":
    main()
