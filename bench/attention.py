#!/usr/bin/env python3
"""Decode attention beside what memory allows: the bytes of keys and values read a second over those of a plain read, in turn.

  make attention

In llama-3.2-1b's shape (8 KV heads in groups of 4, 64 dimensions, 16 layers; fewer where a layer is large), pages of 64 slots, caches
larger than a core's own. Writes this machine's section of docs/results/attention.md.
"""
import json
import os
import sys

from common import REPO, Failed, machine, run, shown
from parts import Page, machine_part, parser

TYPES = ["f32", "f16", "bf16", "q8_0"]  # CacheType's order
ASKED = 0.85
FILTER = "^Decode/page:64/slots:(8192|32768)/batch:[18]/"


def measured(command):
    found = json.loads(run(command)[1])["benchmarks"]
    rows = []
    for b in found:
        at = {k: int(v) for k, v in (part.split(":") for part in b["name"].split("/")[1:-1])}
        rows.append((TYPES[at["type"]], at["threads"], at["slots"], at["batch"], b["GB/s"], b["of_read"], b["weights_cost"]))
    return sorted(rows, key=lambda r: (TYPES.index(r[0]), *r[1:4]))


def main():
    parse = parser(__doc__)
    parse.add_argument("--bench", default=str(REPO / "build" / "attention_bench"))
    options = parse.parse_args()
    command = [options.bench, f"--benchmark_filter={FILTER}", "--benchmark_format=json"]
    try:
        rows = measured(command)
    except (Failed, FileNotFoundError) as error:
        sys.exit(f"attention: {error}")
    below = [f"{kind} on {threads}, {slots:,} x {batch}: {share:.0%}" for kind, threads, slots, batch, _, share, _ in rows if share < ASKED]
    lines = [f"Below {ASKED:.0%}: " + ("; ".join(below) or "nothing") + ".", "",
             "| cache type | threads | slots | sequences | GB/s of keys and values | of a plain read | handing out the weights costs |",
             "|---|---|---|---|---|---|---|",
             *(f"| {kind} | {threads} | {slots:,} | {batch} | {rate:.1f} | **{share:.0%}** | {cost:+.1%} |"
               for kind, threads, slots, batch, rate, share, cost in rows), ""]
    page = Page("attention", "Decode attention beside what memory allows",
                "Made by `make attention` (bench/attention.py), a section for each kind of machine. Medians; a plain read of 256 MiB and the "
                f"kernel take turns. Asked: {ASKED:.0%} of a plain read, at most 3% for the weights.")
    page.put(machine_part(machine()), machine(), lines, shown([os.path.relpath(options.bench, REPO), *command[1:]]))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
