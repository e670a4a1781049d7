#!/usr/bin/env python3
"""What a router costs: the same requests to a server, and through HAProxy and Ray Serve to servers with the same flags.

  python3 bench/scale/hop.py [--times 200]

One client, the default model, in turns: the time of a request of one token, and of a stream of 64 (median; an event a token).
"""

import argparse
import http.client
import json
import pathlib
import shutil
import statistics
import sys
import time

REPO = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(REPO / "tests" / "system"), str(REPO / "tools" / "setup")]
import environment  # noqa: E402
from scale_ray import FLAGS, PACKAGES, Application  # noqa: E402
from scale_routers import Pair, Proxy, configured  # noqa: E402
from server import free_port  # noqa: E402


class Client:
    def __init__(self, url):
        self.connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=60)

    def seconds(self, tokens):
        body = {"prompt": "Once upon a time", "max_tokens": tokens, "ignore_eos": True, "seed": 1, "stream": tokens > 1}
        begin = time.perf_counter()
        self.connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        answer = self.connection.getresponse()
        raw = answer.read()
        assert answer.status == 200, raw
        return time.perf_counter() - begin


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--times", type=int, default=200)
    options = arguments.parse_args()
    try:
        environment.enter("ray", PACKAGES, "600 MB on disk, a minute")
    except environment.Unavailable as error:
        sys.exit(f"Ray: {error}")
    pair = Pair(REPO / "build" / "palimpsest", *FLAGS)
    clients = {"server": Client(pair.servers[0].url)}
    proxies = []
    if program := shutil.which("haproxy", path="/usr/sbin:/usr/bin"):
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        proxies.append(Proxy([program, "-db", "-f", configured("haproxy/haproxy.cfg", port, pair.ports)], url + "/health"))
        clients["HAProxy"] = Client(url)
    proxies.append(Application(1, *FLAGS))
    clients["Ray Serve"] = Client(proxies[-1].url)
    try:
        for tokens in (1, 64):
            times = {name: [] for name in clients}
            for i in range(options.times // (1 if tokens == 1 else 5) + 5):
                for name, client in clients.items():
                    seconds = client.seconds(tokens)
                    if i >= 5:
                        times[name].append(seconds)
            medians = {name: statistics.median(values) * 1000 for name, values in times.items()}
            print(f"{tokens} tokens: " + ", ".join(f"{name} {ms:.1f} ms" for name, ms in medians.items()))
    finally:
        for proxy in proxies:
            proxy.end()
        pair.end()


if __name__ == "__main__":
    main()
