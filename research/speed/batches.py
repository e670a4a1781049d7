"""Time of a decode step of several sequences, relative to a step of one, for each weight type.

Each round runs one process per batch size and type, one after another, so that load on the machine affects all of them.
The bound of a step is the longer of two times: reading the weights once (taken from the step of one, which reads nothing
else), and the products at the CPU's limit of multiply-adds of that type, plus the attention as measured.

    make batches                         # all types, about 15 minutes
    make batches BATCHES_ARGS='--types q4_0 --rounds 3'
"""
import json
import pathlib
import re
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import common  # noqa: E402
import parts  # noqa: E402

TYPES = ["q4_0", "q8_0", "q4_K", "q5_K", "q6_K", "f16", "bf16"]
SLOWER = {"bf16": 2, "f16": 4}  # multiply-adds in a vector operation: this much fewer than of 8-bit integers
TARGETS = {8: 2.6, 32: 6.5}  # of Q4_0


def step(options, kind, batch):
    """Median milliseconds of a step, of its products, and of its attention."""
    command = ["build/palimpsest", "bench", "decode", "--synthetic", f"{options.model}@type={kind}", "--batch", batch, "--tokens",
               options.tokens, "--reps", 1, "--depth", options.depth, "-t", options.threads, "--method", "full", "--json"]
    row = common.run_json(command, prefix=options.prefix)[0]
    return row["ms_p50"], row["ms_attention"], command


def multiply_adds(options):
    """Of one token: the elements of all matrices that are multiplied; an embedding of its own is only looked up."""
    name, *changes = options.model.split("@")
    shape = next(s for s in json.loads((common.REPO / "src/palimpsest/model/synthetic/shapes.json").read_text()) if s["name"] == name)
    vocabulary = next((int(c[6:]) for c in changes if c.startswith("vocab=")), shape["vocabulary"])
    info = common.run_json(["build/palimpsest", "info", "--synthetic", options.model + "@type=q4_0", "--json"])
    return info["parameters"] - (0 if shape.get("tied", True) else vocabulary * shape["width"])


def main():
    parse = parts.parser(__doc__)
    parts.add(parse, "--threads", "--prefix")
    parse.add_argument("--model", default="llama-2-7b@layers=2")
    parse.add_argument("--types", nargs="+", default=TYPES, metavar="TYPE")
    parse.add_argument("--batches", type=int, nargs="+", default=[1, 8, 32])
    parse.add_argument("--depth", type=int, default=512)
    parse.add_argument("--tokens", type=int, default=24)
    parse.add_argument("--rounds", type=int, default=5)
    o = parse.parse_args()
    found = re.search(r"limit of 8-bit products: ([\d.]+) of one thread, ([\d.]+) of (\d+) together", common.run(["build/matmul_bench", 2048, 2048, 0])[1])
    peak = 1e9 * float(found.group(2) if o.threads >= int(found.group(3)) else found.group(1))
    work = multiply_adds(o)
    times, command = {}, []
    for i in range(o.rounds):
        for kind in o.types:
            for batch in o.batches:
                total, attention, command = step(o, kind, batch)
                times.setdefault((kind, batch), []).append((total, attention))
            common.say(f"round {i + 1} of {o.rounds}, {kind}: " + ", ".join(f"{times[kind, b][-1][0]:.1f} ms" for b in o.batches))
    rows, missed = [], []
    for kind in o.types:
        one = [t for t, _ in times[kind, o.batches[0]]]
        for batch in o.batches:
            some = times[kind, batch]
            ratios = [t / t1 for (t, _), t1 in zip(some, one)]
            attention = statistics.median(a for _, a in some)
            products = 1000 * batch * work * SLOWER.get(kind, 1) / peak
            bound = max(statistics.median(one), products + attention) / statistics.median(one)
            rows.append(f"| {kind} | {batch} | {statistics.median(t for t, _ in some):.2f} | {attention:.2f} | "
                        f"**{statistics.median(ratios):.2f}x** | {common.spread(ratios)} | {products:.1f} | {bound:.2f}x |")
            if kind == "q4_0" and statistics.median(ratios) > TARGETS.get(batch, 1e9):
                missed.append(f"Q4_0, batch {batch}: {statistics.median(ratios):.2f}x (target {TARGETS[batch]}x)")
    lines = ["# A step of many sequences", "",
             f"Time of a decode step, relative to a step of one sequence. {common.machine()}, {o.threads} threads; {o.model}, {o.depth} tokens in each cache (f16);"
             f" commit {common.commit()}, {common.today()}.", "",
             "| weights | batch | step, ms | of it attention | ratio to a batch of 1 | per round, median (min–max) | products at the limit, ms | bound |",
             "|---|---|---|---|---|---|---|---|", *rows, "",
             f"Limit of 8-bit products, {o.threads} threads together: {1e-9 * peak:.0f} * 10^9 multiply-adds a second. Bound: the products at this limit, and the attention"
             " as measured; at least the step of one. Targets missed: " + ("; ".join(missed) or "none") + ".", "",
             "`make batches` (research/speed/batches.py describes the method); one process per type and batch, for example", "", "```", common.shown(command), "```", ""]
    (common.RESEARCH / "batches.md").write_text("\n".join(lines))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
