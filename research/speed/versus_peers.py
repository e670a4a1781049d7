#!/usr/bin/env python3
"""Prompts, decode at depths and batches of real models beside builds of llama.cpp and ik_llama.cpp, in interleaved rounds.

  python3 research/speed/versus_peers.py --peer llama.cpp=/usr/bin --peer ik_llama.cpp=FOLDER [--rounds 3] [--threads 2]

FOLDER holds a peer's llama-bench and llama-batched-bench. All sides read the same file, with f16 caches (or --cache-types), flash attention on,
and batches of 512. Depth: the peers read a prompt of that length first; palimpsest fills its cache with random rows, which takes as long to
attend to. Batches: sequences of 128 tokens each, one token of each a step. Writes a section of research/results/versus-peers.md; samples are
kept in out/versus-peers.json, so that an interrupted run resumes.
"""
import json
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
from common import Failed, commit, machine, model_file, random_model, run, run_json, say, today  # noqa: E402
from parts import ResearchPage, add, machine_part, parser  # noqa: E402

SHAPE = "llama-3.2-1b@layers=8@vocab=32000"


def ours(o, file, test, size, cache):
    shared = [o.program, "bench", "prefill" if test == "prompt" else "decode", "-m", file, "--method", "full", "-t", o.threads, "--cache-type", cache, "--json"]
    how = {"prompt": ["--tokens", size, "--reps", 1], "decode": ["--tokens", 32, "--depth", size, "--reps", 1],
           "batch": ["--tokens", 16, "--depth", 128, "--batch", size, "--reps", 1]}[test]
    row = run_json([*shared, *how])[0]
    return statistics.median(row["samples"]), row.get("limit_tokens_per_second")


def peer(o, folder, file, test, size, cache):
    folder = pathlib.Path(folder)
    shared = ["-m", file, "-t", o.threads, "-ctk", cache, "-ctv", cache, "-fa", "1"]
    if test == "batch":
        _, out, errors = run([folder / "llama-batched-bench", *shared[:-1], "on", "-npp", 128, "-ntg", 16, "-npl", size, "-c", size * 160])
        table = [[cell.strip() for cell in line.strip("|").split("|")] for line in (out + errors).splitlines() if line.startswith("|")]
        return float(table[-1][table[0].index("S_TG t/s")]), None
    how = ["-p", size, "-n", 0] if test == "prompt" else ["-p", 0, "-n", 32] if size == 0 else ["-p", 0, "-n", 0, "-gp", f"{size},32"]
    if test == "decode" and size and (folder / "llama-completion").exists():  # llama.cpp's own: -d
        how = ["-p", 0, "-n", 32, "-d", size]
    rows = run_json([folder / "llama-bench", *shared, *how, "-r", 1, "-o", "json"])
    return rows[-1]["avg_ts"], None


def main():
    parse = parser(__doc__)
    add(parse, "--program", "--smollm2", "--gemma", "--threads", "--folder")
    parse.add_argument("--peer", action="append", default=[], help="NAME=FOLDER")
    parse.add_argument("--types", default="q4_0,q8_0,q4_K,q6_K,iq4_xs", help="of random weights in the shape of Llama 3.2 1B with 8 layers; empty: none")
    parse.add_argument("--prompts", default="512,2048")
    parse.add_argument("--depths", default="0,2048,8000")
    parse.add_argument("--batches", default="8,32")
    parse.add_argument("--cache-types", default="f16")
    parse.add_argument("--rounds", type=int, default=3)
    parse.add_argument("--note", default="", help="a sentence about the run, for the page")
    o = parse.parse_args()
    files = {"SmolLM2 135M Q4_1": model_file(o.program, o.smollm2), "Gemma 3 270M Q4_K_M": model_file(o.program, o.gemma)}
    files.update({f"1B, 8 layers, {t}": random_model(o.program, o.folder, SHAPE, t) for t in o.types.split(",") if t})
    numbers = lambda text: [int(n) for n in text.split(",") if n]
    tests = [("prompt", n) for n in numbers(o.prompts)] + [("decode", n) for n in numbers(o.depths)] + [("batch", n) for n in numbers(o.batches)]
    sides = {"palimpsest": lambda *job: ours(o, *job), **{p.split("=", 1)[0]: (lambda *job, folder=p.split("=", 1)[1]: peer(o, folder, *job)) for p in o.peer}}
    store = pathlib.Path(o.folder, "versus-peers.json")
    samples = json.loads(store.read_text()) if store.exists() else {}
    for turn in range(o.rounds):
        for model, file in files.items():
            for cache in o.cache_types.split(","):
                for test, size in tests:
                    for side, measure in sides.items():
                        key = "|".join([machine(), str(o.threads), model, cache, test, str(size), side])
                        if file is None or len(samples.get(key, [])) > turn:
                            continue
                        try:
                            value = measure(file, test, size, cache)
                        except (Failed, FileNotFoundError, ValueError, IndexError) as error:
                            say(f"{key}: {error}")
                            value = (None, None)
                        samples.setdefault(key, []).append(value)
                        store.parent.mkdir(parents=True, exist_ok=True)
                        store.write_text(json.dumps(samples, indent=0))
                        say(f"{key}: {value[0]}")
    write(o, samples, list(sides))


def write(o, samples, sides):
    lines = ["| model | cache | test | " + " | ".join(sides) + " | over the best peer | of the read bandwidth |", "|---" * (5 + len(sides)) + "|"]
    rows = {}
    for key, values in samples.items():
        cpu, threads, model, cache, test, size, side = key.split("|")
        if (cpu, threads) == (machine(), str(o.threads)):
            rows.setdefault((model, cache, test, int(size)), {})[side] = values
    order = ["prompt", "decode", "batch"]
    for (model, cache, test, size), by_side in sorted(rows.items(), key=lambda row: (row[0][0].startswith("1B"), row[0][0], row[0][1], order.index(row[0][2]), row[0][3])):
        median = {}
        for side, values in by_side.items():
            known = [value for value, _ in values if value]
            if known:
                median[side] = statistics.median(known)
        limits = [limit for _, limit in by_side.get("palimpsest", []) if limit]
        best = max((value for side, value in median.items() if side != "palimpsest"), default=None)
        what = {"prompt": f"prompt of {size:,}", "decode": f"decode at {size:,}", "batch": f"{size} sequences"}[test]
        mine = median.get("palimpsest")
        share = f"{mine / statistics.median(limits):.0%}" if limits and mine and test == "decode" else ""
        lines.append(f"| {model} | {cache} | {what} | " + " | ".join(f"{median[s]:,.1f}" if s in median else "–" for s in sides) +
                     f" | {f'**{mine / best:.2f}x**' if best and mine else ''} | {share} |")
    page = ResearchPage("versus-peers", "Real models beside llama.cpp and ik_llama.cpp", "Generated by research/speed/versus_peers.py, whose head describes the method; a section per machine and number of "
                        "threads. Tokens per second, medians of the rounds.")
    page.put(machine_part(f"{machine()} {o.threads}"), f"{machine()}, {o.threads} threads", [*lines, "", *([o.note, ""] if o.note else [])],
             foot=f"*palimpsest {commit()}; {today()}.*")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
