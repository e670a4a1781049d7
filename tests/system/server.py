"""Starts, monitors and stops (SIGTERM) a palimpsest server. Shared by the scripts of this folder."""
import json
import os
import pathlib
import re
import socket
import subprocess
import tempfile
import time
import urllib.request

REPO = pathlib.Path(__file__).resolve().parent.parent.parent


def free_port(port=0):
    """`port` if it is free, else 0. For 0: any free port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return 0
        return probe.getsockname()[1]


class Server:
    def __init__(self, program, *flags, environment=None):
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen([program, "serve", *map(str, flags)], stdout=subprocess.PIPE, stderr=self.log,
                                        text=True, env={**os.environ, **(environment or {})})
        line = self.process.stdout.readline()
        assert line.startswith("palimpsest serves "), line + self.log_text()
        self.url = line.split()[-1]  # http://ADDRESS:PORT or unix:PATH
        self.port = int(self.url.rsplit(":", 1)[1]) if self.url.startswith("http://") else None

    def metric(self, name, labels="[^}]*"):
        text = urllib.request.urlopen(self.url + "/metrics", timeout=60).read().decode()
        return float(re.search(rf"^palimpsest_{name}{{{labels}}} (\S+)$", text, re.M).group(1))

    def wait_until_idle(self, seconds=10):
        """Waits until no request runs or waits and no page is in use or reserved."""
        names = ["num_requests_running", "num_requests_waiting", "kv_cache_bytes", "kv_cache_reserved_perc"]
        end = time.monotonic() + seconds
        while any(left := [self.metric(name) for name in names]):
            assert time.monotonic() < end, f"not idle after {seconds} s: {dict(zip(names, left))}"
            time.sleep(0.05)

    def log_text(self):
        self.log.seek(0)
        return self.log.read()

    def end(self):
        """Stops the server; requires exit code 0. Returns its log, one JSON object per line."""
        self.process.terminate()
        code = self.process.wait(timeout=60)
        log = self.log_text()
        assert code == 0, f"the server ended with {code}\n{log[-20000:]}"
        return [self.read_line(line) for line in log.splitlines()]

    @staticmethod
    def read_line(line):
        try:
            return json.loads(line)
        except ValueError:
            raise AssertionError(f"a line of the log is not JSON: {line[:1000]!r}") from None
