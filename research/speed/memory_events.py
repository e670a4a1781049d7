"""Cost of memory events: decode tokens/s of the server while a client reads "memory_events", over the same without.

Both kinds of requests go to one server, one at a time, interleaved. The client reads the bytes and does not parse them.
Time is counted from the first bytes of the answer to the last; without the field nothing is recorded or sent. The server's
processor time per token is measured too: it hardly depends on what else the machine does. It includes reading the prompt.

    make memory-events
    make memory-events EVENTS_ARGS='--rounds 3 default'
"""
import json
import os
import pathlib
import random
import statistics
import sys
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import common  # noqa: E402
import parts  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "system"))
from server import Server  # noqa: E402

TARGET = 0.97
SHAPE = "llama-3.1-8b@layers=8@vocab=32000"
PARTS = ["default", "8b"]
# Model; methods; tokens of the prompt and of the answer.
CASES = {"default": (None, ["streaming:budget=256", "h2o:budget=256"], 64, 4000),
         "8b": (SHAPE, ["streaming:budget=1024", "h2o:budget=1024"], 1100, 128)}


def decode(url, body):
    """Tokens per second after the first bytes, and the bytes of the answer."""
    request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        size = len(answer.read1(1 << 16))
        start = time.monotonic()
        while data := answer.read1(1 << 20):
            size += len(data)
        return (body["max_tokens"] - 1) / (time.monotonic() - start), size


def processor_seconds(process):
    fields = open(f"/proc/{process.pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(server, method, prompt, tokens, rounds):
    """Of each kind: tokens per second and processor seconds in each round, and bytes per token."""
    text = random.Random(1).choices(range(100, 400), k=prompt)
    body = {"prompt": text, "max_tokens": tokens, "ignore_eos": True, "stream": True, "seed": 1, "cache": method}
    kinds = {"without": body, "with": {**body, "memory_events": {"layer": 0, "head": 0}}}
    speeds, seconds, sizes = {name: [] for name in kinds}, {name: [] for name in kinds}, {}
    for each in range(rounds + 1):
        for name in (kinds if each % 2 else reversed(kinds)):
            before = processor_seconds(server.process)
            speed, size = decode(server.url, kinds[name])
            if each > 0:  # the first round warms up, and leaves the prompt's prefix
                speeds[name].append(speed)
                seconds[name].append(processor_seconds(server.process) - before)
            sizes[name] = size / tokens
    return speeds, seconds, sizes


def main():
    parse = parts.parser(__doc__, PARTS)
    parts.add(parse, "--program", "--threads", "--folder")
    parse.add_argument("--rounds", type=int, default=7)
    o = parts.parsed(parse, PARTS)
    page = parts.ResearchPage("memory-events", "Cost of memory events",
                      "Decode speed of the server while one client reads memory events, relative to the same requests without them "
                      f"(`make memory-events`; research/speed/memory_events.py describes the method). Target: at least {TARGET}x. Without the field nothing is recorded.", PARTS)

    def work(part):
        shape, methods, prompt, tokens = CASES[part]
        model = common.random_model(o.program, o.folder, shape, "q4_0") if shape else common.REPO / "models" / "palimpsest-stories.gguf"
        lines = ["| method | with, tokens/s | without, tokens/s | with / without | processor time, with / without | bytes per token, with | without |", "|---|---|---|---|---|---|---|"]
        server = Server(o.program, "-m", model, "--port", 0, "-t", o.threads)
        try:
            for method in methods:
                speeds, seconds, sizes = measure(server, method, prompt, tokens, o.rounds)
                ratio = statistics.median(a / b for a, b in zip(speeds["with"], speeds["without"]))
                processor = statistics.median(seconds["with"]) / statistics.median(seconds["without"])
                lines.append(f"| {method} | {common.spread(speeds['with'])} | {common.spread(speeds['without'])} | {'' if ratio >= TARGET else 'below the target: '}{ratio:.3f}x | {processor:.3f}x |"
                             f" {sizes['with']:.0f} | {sizes['without']:.0f} |")
                common.say(lines[-1])
        finally:
            server.process.terminate()
            server.process.wait()
        lines += ["", f"{tokens} tokens after a prompt of {prompt}, {o.threads} threads; medians (min–max) of {o.rounds} rounds; the ratio is the median of the rounds' ratios."]
        page.put(part, f"{shape + ', q4_0' if shape else 'Default model'}", lines)

    raise SystemExit(parts.work_through(o.parts, work))


if __name__ == "__main__":
    main()
