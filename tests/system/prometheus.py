#!/usr/bin/env python3
"""Prometheus with packages/container/prometheus.yml scrapes a server that needs an API key: make serve-check.

The key reaches Prometheus as compose.yaml hands it over: in the file that `credentials_file` names. Skipped without
Prometheus (PROMETHEUS=/path/to/prometheus names one that is not in PATH).
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from server import REPO, Server, free_port  # noqa: E402

CONTAINER = REPO / "packages" / "container"
KEY = "a-key-of-this-test"


def target_of(port, seconds=30):
    """The scraped target as Prometheus shows it, once it has been scraped."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            answer = urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/targets", timeout=5).read()
            for target in json.loads(answer)["data"]["activeTargets"]:
                if target["health"] != "unknown":
                    return target
        except OSError:
            pass
        time.sleep(0.2)
    raise AssertionError(f"Prometheus scraped nothing in {seconds} s")


def scrape(program, server, settings, key_file, key, folder):
    (folder / "key").write_text(key)
    text = settings.replace(key_file, str(folder / "key")).replace("palimpsest:8080", f"127.0.0.1:{server.port}")
    (folder / "prometheus.yml").write_text(text.replace("scrape_interval: 5s", "scrape_interval: 1s"))
    port = free_port()
    flags = {"config.file": folder / "prometheus.yml", "storage.tsdb.path": folder / f"data-{key}",
             "web.listen-address": f"127.0.0.1:{port}"}
    process = subprocess.Popen([program, *[f"--{name}={value}" for name, value in flags.items()]],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        return target_of(port)
    finally:
        process.terminate()
        process.wait()


def main():
    settings, compose = ((CONTAINER / name).read_text() for name in ("prometheus.yml", "compose.yaml"))
    key_file = re.search(r"credentials_file: ([^ }]+)", settings).group(1)
    source = re.search(r"source: (\S+), target: " + re.escape(key_file) + "}", compose).group(1)
    written = re.search(rf"^  {source}: .*\$\{{PALIMPSEST_API_KEY:-", compose, re.M)
    assert written, f"compose.yaml does not write {key_file}"
    program = os.environ.get("PROMETHEUS") or shutil.which("prometheus")
    if program is None:
        print("prometheus: skipped, it is not installed")
        return
    server = Server(REPO / "build" / "palimpsest", "--port", 0, environment={"PALIMPSEST_API_KEY": KEY})
    with tempfile.TemporaryDirectory() as folder:
        good = scrape(program, server, settings, key_file, KEY, pathlib.Path(folder))
        bad = scrape(program, server, settings, key_file, "none", pathlib.Path(folder))
    server.end()
    assert good["health"] == "up", good
    assert bad["health"] == "down" and "401" in bad["lastError"], bad
    print("prometheus: scrapes /metrics with the key of compose.yaml; without it, 401")


if __name__ == "__main__":
    main()
