#!/usr/bin/env python3
"""palimpsest bench against llama.cpp's llama-bench, on one file of random weights, in interleaved rounds.

  make versus [VERSUS_ARGS='--types q4_0 --depths 0,2048 --prompts 512 --rounds 2']

Both use the same GGUF file, the same number of threads, f16 caches, batches of 512, and repacked weights. llama-bench runs
with flash attention off and on; the better of the two counts. The programs are interleaved in every round. Depth:
llama-bench prefills a prompt of that length (once per process, untimed); palimpsest fills its cache with random rows,
which is equally fast to attend to (--check-fill times both). The spread is over all samples of all rounds.
"""
import json
import os
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
from common import REPO, Failed, commit, machine, random_model, run, run_json, say, spread, today  # noqa: E402
from parts import ResearchPage, add, machine_part, parser  # noqa: E402

DECODE = {0: 0.98, 2048: 1.25, 8192: 1.9}  # targets, by depth
PREFILL = {"q8_0": 5, "q4_0": 1.3, "q4_K": 1.5, "q6_K": 1.5, "f16": 1.5, "bf16": 1.5}


def arguments():
    parse = parser(__doc__)
    add(parse, "--program")
    parse.add_argument("--llama-bench", default="llama-bench")
    parse.add_argument("--shape", default="llama-3.2-1b@vocab=32000")
    parse.add_argument("--types", default="q8_0,q4_0,q4_K,q6_K,f16,bf16")
    parse.add_argument("--depths", default="0,2048,8192")
    parse.add_argument("--tokens", type=int, default=32, help="tokens decoded per sample")
    parse.add_argument("--prompts", default="512,4096", help="tokens of a prompt")
    parse.add_argument("--reps", type=int, default=3, help="samples per round")
    parse.add_argument("--rounds", type=int, default=3)
    parse.add_argument("--deep", type=int, default=4096, help="depths from this one on run --deep-rounds rounds")
    parse.add_argument("--deep-rounds", type=int, default=1, help="rounds of deep tests: llama-bench prefills the prompt each time")
    add(parse, "--threads")
    parse.add_argument("--models", default=str(REPO / "out"), help="folder of the files of random weights")
    add(parse, "--prefix")
    parse.add_argument("--pause", type=float, default=0, help="seconds between measurements")
    parse.add_argument("--check-fill", action="store_true", help="also time palimpsest after a real prefill")
    add(parse, "--add")
    parse.add_argument("--from-json", help="measure nothing: table of an earlier run's samples")
    return parse.parse_args()


class Versus:
    def __init__(self, options):
        self.options = options
        self.samples = {}  # (type, test, tokens of the prompt or depth, side) -> tokens per second
        self.limits = {}   # (type, depth) -> tokens per second
        self.raw = os.path.join(options.models, "versus.json")
        self.note = ""

    def add(self, key, values):
        self.samples.setdefault(key, []).extend(values)

    def llama(self, path, type_name, test, depth, flash):
        o = self.options
        size = ["-p", depth, "-n", 0] if test == "prefill" else ["-p", 0, "-n", o.tokens, "-d", depth]
        # The prefill before a decode is not timed; it is faster with small batches when flash attention is off.
        batch = ["-ub", 512 if test == "prefill" else 128]
        command = [o.llama_bench, "-m", path, *size, "-r", o.reps, *batch, "-t", o.threads, "-fa", flash,
                   "-ctk", "f16", "-ctv", "f16", "-o", "json"]
        for row in run_json(command, prefix=o.prefix):
            self.add((type_name, test, depth, f"llama.cpp, flash attention {flash}"), row["samples_ts"])

    def ours(self, path, type_name, test, depth, fill="random"):
        o = self.options
        command = [o.program, "bench", test, "-m", path, "--method", "full", "--reps", o.reps, "-t", o.threads, "--cache-type", "f16",
                   "--fill", fill, "--json", *(["--tokens", depth] if test == "prefill" else ["--tokens", o.tokens, "--depth", depth])]
        for row in run_json(command, prefix=o.prefix):
            self.add((type_name, test, depth, "palimpsest" + ("" if fill == "random" else ", prompt read")), row["samples"])
            if "limit_tokens_per_second" in row:
                self.limits[type_name, depth] = row["limit_tokens_per_second"]

    def measure(self):
        o = self.options
        paths = {t: random_model(o.program, o.models, o.shape, t) for t in o.types.split(",")}
        depths, prompts = ([int(n) for n in text.split(",") if n] for text in (o.depths, o.prompts))
        for round_ in range(o.rounds):
            for type_name, path in paths.items():
                for test, depth in [("prefill", n) for n in prompts] + [("decode", d) for d in depths]:
                    if depth >= o.deep and round_ >= o.deep_rounds:
                        continue
                    time.sleep(o.pause)
                    say(f"round {round_ + 1}: {type_name} {test} at {depth}")
                    self.ours(path, type_name, test, depth)
                    for flash in ("off", "on"):
                        self.llama(path, type_name, test, depth, flash)
                        self.ours(path, type_name, test, depth)
                    if o.check_fill and test == "decode" and depth > 0 and round_ == 0:
                        self.ours(path, type_name, test, depth, "prompt")
                    self.keep()

    def keep(self):
        """Saves the samples so far: --from-json makes their table, --add continues from them."""
        with open(self.raw, "w") as file:
            json.dump({"samples": list(self.samples.items()), "limits": list(self.limits.items()), "machine": machine(),
                       "note": self.note}, file)


def table(samples, limits):
    lines = ["| weights | test | llama.cpp, flash off | flash on | palimpsest | ratio to the better | target | limit |",
             "|---|---|---|---|---|---|---|---|"]
    missed = []
    for type_name, test, depth in dict.fromkeys(key[:3] for key in samples):
        side = lambda name: samples.get((type_name, test, depth, name))
        off, on, ours = side("llama.cpp, flash attention off"), side("llama.cpp, flash attention on"), side("palimpsest")
        better = max(statistics.median(v) for v in (off, on) if v)
        ratio = statistics.median(ours) / better
        target = PREFILL.get(type_name) if test == "prefill" else DECODE.get(depth)
        what = f"prefill of {depth:,}" if test == "prefill" else f"decode at {depth:,}"
        limit = limits.get((type_name, depth)) if test == "decode" else None
        kind = type_name.replace("q", "Q")
        lines.append(f"| {kind} | {what} | {spread(off) if off else '–'} | "
                     f"{spread(on) if on else '–'} | {spread(ours)} | **{ratio:.2f}x** | "
                     f"{f'{target:.2f}x' if target else ''} | {f'{limit:.1f}' if limit else ''} |")
        if target and ratio < target:
            missed.append(f"{kind} {what}: {ratio:.2f}x, target {target:.2f}x")
        read = side("palimpsest, prompt read")
        if read:
            lines.append(f"| {kind} | {what}, after a real prefill | | | {spread(read)} | "
                         f"{statistics.median(read) / statistics.median(ours):.3f}x of random rows | | |")
    return lines, missed


def write(samples, limits, name, note):
    """Writes the section of this machine; other sections are unchanged."""
    lines, missed = table(samples, limits)
    sizes = [len(values) for values in samples.values()]
    page = ResearchPage("versus-llama-bench", "Decode and prefill against llama-bench",
                "Generated by `make versus`, one section per machine; research/speed/versus_llama_bench.py describes the method. Tokens per second, "
                "median (min–max) over all samples. Limit: the weights and the cache are read once per token at the read bandwidth measured in "
                "the same run; this bandwidth varies, so a result can exceed the limit.")
    lines += ["", "Targets missed: " + ("; ".join(missed) + "." if missed else "none."), ""]
    page.put(machine_part(name), name, lines, foot=f"*{min(sizes)} to {max(sizes)} samples per cell. {note}*")
    print("\n".join(lines))


def main():
    options = arguments()
    if options.from_json:
        with open(options.from_json) as file:
            kept = json.load(file)
        write({tuple(k): v for k, v in kept["samples"]}, {tuple(k): v for k, v in kept["limits"]}, kept["machine"], kept["note"])
        return
    versus = Versus(options)
    if options.add and os.path.exists(versus.raw):
        with open(versus.raw) as file:
            kept = json.load(file)
        versus.samples, versus.limits = ({tuple(k): v for k, v in kept[name]} for name in ("samples", "limits"))
    try:
        _, out, err = run([options.llama_bench, "--version"], check=False)
        version = next((line for line in (out + err).splitlines() if "version" in line), "version unknown").strip()
        versus.note = (f"llama.cpp {version}; {machine()}, {options.threads} threads; {options.shape}, f16 cache; "
                       f"{options.tokens} tokens decoded, {options.reps} samples per run; "
                       f"palimpsest {commit()}; {today()}.")
        versus.measure()
    except FileNotFoundError as error:
        sys.exit(f"versus: {error.filename}: not found; run `make versus`, whose environment has it")
    except Failed as error:
        sys.exit(f"versus: {error}")
    write(versus.samples, versus.limits, machine(), versus.note)


if __name__ == "__main__":
    main()
