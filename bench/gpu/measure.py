#!/usr/bin/env python3
"""Checks and measures palimpsest on a GPU. bench/gpu/run.sh sets up the environment and calls it.

Results of all parts are in OUT/results.json; a part that is there is not run again. What the programs print goes to
OUT/log.txt. A part that does not fit into the time left is skipped by name. The last lines are a table of all parts.
"""
import argparse
import csv
import glob
import io
import json
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
ROOT = os.environ.get("GPU_ROOT", "")
GPU = Path(os.environ.get("GPU_FOLDER", "/gpu"))
DEVICE = os.environ.get("GPU_DEVICE", "CUDA0")
PROGRAM = str(GPU / "palimpsest")
STORIES = str(REPO / "models/palimpsest-stories.gguf")
METHODS = ["streaming", "lazy", "h2o", "peak", "a2sf", "random", "tova", "snapkv", "critical", "pyramidkv", "adakv", "scissorhands", "lagkv",
           "global-local", "knorm", "keydiff", "auto", "compact-shift", "paged-eviction"]
START = time.monotonic()


class Skipped(Exception):
    pass


def say(text):
    print(f"[{time.monotonic() - START:5.0f} s] {text}", flush=True)


class Machine:
    def __init__(self, options):
        self.o = options
        self.out = Path(options.out)
        self.out.mkdir(parents=True, exist_ok=True)
        self.log = open(self.out / "log.txt", "a")
        self.models = Path(options.models)
        self.models.mkdir(parents=True, exist_ok=True)
        self.summary = []

    def left(self):
        return self.o.seconds - (time.monotonic() - START)

    def run(self, command, limit=120, env=None, check=True):
        """Runs one of the root's programs; returns what it printed."""
        command = [str(c) for c in command]
        if command[0].endswith(("llama-bench", "llama-batched-bench")):
            command = [f"{ROOT}/lib64/ld-linux-x86-64.so.2", *command] if ROOT else command
        limit = min(limit, self.left())
        if limit < 3:
            raise Skipped("no time left")
        full = {**os.environ, "GGML_BACKEND_PATH": str(GPU / "libggml-cuda.so"), **(env or {})}
        if os.environ.get("GPU_LIBRARIES") and command[0] == "ncu":  # a program of the system, with its C library
            at = command.index(PROGRAM)
            command = [*command[:at], "/usr/bin/env", f"LD_LIBRARY_PATH={os.environ['GPU_LIBRARIES']}", *command[at:]]
        elif os.environ.get("GPU_LIBRARIES"):
            full["LD_LIBRARY_PATH"] = os.environ["GPU_LIBRARIES"]
        if not (GPU / "libggml-cuda.so").exists():
            del full["GGML_BACKEND_PATH"]
        start = time.monotonic()
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=limit, env=full)
        except subprocess.TimeoutExpired as error:
            def text(x):
                return x.decode(errors="replace") if isinstance(x, bytes) else (x or "")
            self.log.write(f"\n$ {' '.join(command)}\n# stopped after {limit:.0f} s\n{text(error.stdout)}\n{text(error.stderr)}\n")
            self.log.flush()
            raise Skipped(f"stopped after {limit:.0f} s: {' '.join(command)[-120:]}") from error
        self.log.write(f"\n$ {' '.join(command)}\n# status {done.returncode}, {time.monotonic() - start:.1f} s\n{done.stdout}\n{done.stderr}\n")
        self.log.flush()
        if check and done.returncode != 0:
            raise RuntimeError(f"status {done.returncode}: {(done.stderr or done.stdout).strip()[-300:]}")
        return done.stdout

    def json(self, command, **more):
        out = self.run(command, **more)
        return json.loads(out[re.search(r"^[\[{]\s*$", out, re.MULTILINE).start():])  # log lines may stand before

    def ours(self, *arguments, **more):
        return self.json([PROGRAM, *arguments, "--json"], **more)

    def model(self, shape):
        path = self.models / (re.sub(r"[^\w.]", "-", shape) + ".gguf")
        if not path.exists():
            start = time.monotonic()
            self.run([PROGRAM, "bench", "make-model", "--synthetic", shape, "-o", path], limit=200)
            say(f"made {path.name}: {path.stat().st_size / 1e9:.1f} GB in {time.monotonic() - start:.0f} s")
        return path

    def tell(self, line):
        self.summary.append(line)
        say(line)


# --- parts ------------------------------------------------------------------------------------------------------------


def devices(m):
    """The card, and what the program finds."""
    card = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version,memory.total,clocks.sm,clocks.mem", "--format=csv,noheader"],
                          capture_output=True, text=True).stdout.strip()
    cpu = re.search(r"model name\s*: (.*)", open("/proc/cpuinfo").read()).group(1)
    text = m.run([PROGRAM, "info", "--devices"], limit=60)
    m.tell(f"card: {card}; CPU: {cpu}, {os.cpu_count()} cores")
    for line in text.splitlines():
        if line.startswith(("CUDA", "Vulkan")):
            m.tell(line)
    if DEVICE not in text:
        raise RuntimeError(f"no {DEVICE}")
    return {"card": card, "cpu": cpu, "cores": os.cpu_count(), "devices": text}


def text(m):
    """Greedy text and perplexity on the GPU beside the CPU's, on models that were trained."""
    rows = []
    models = [STORIES, *sorted(glob.glob(str(m.models / "*Instruct*.gguf")))]
    for model in models:
        name = Path(model).stem
        texts = {}
        for device in ("cpu", DEVICE):
            texts[device] = m.run([PROGRAM, "run", "-m", model, "--device", device, "--raw", "-p", "Once upon a time", "-n", 200, "--temp", 0,
                                   "--method", "full", "--ignore-eos"], limit=60)
        a, b = texts["cpu"], texts[DEVICE]
        same = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
        story = m.out / f"{name}.txt"
        story.write_text(m.run([PROGRAM, "run", "-m", model, "--device", DEVICE, "--raw", "-p", "Once upon a time", "-n", 1500, "--seed", 3, "--method",
                                "full", "--ignore-eos"], limit=60))
        for method in ("full", "streaming:budget=256", "h2o:budget=256", "tova:budget=256", "keydiff:budget=256"):
            row = {"model": name, "method": method}
            for device in ("cpu", DEVICE):
                try:
                    out = m.ours("eval", "perplexity", "-m", model, "--device", device, "-f", story, "--method", method, limit=60)
                    row[device] = perplexity_of(out)
                except RuntimeError as error:
                    row[f"{device} failed"] = str(error)
            rows.append(row)
        mine = [r for r in rows if r["model"] == name]
        worst = max((abs(r[DEVICE] / r["cpu"] - 1), r["method"]) for r in mine if r.get("cpu") and r.get(DEVICE))
        failed = [r["method"] for r in mine if f"{DEVICE} failed" in r]
        m.tell(f"{name}: greedy text equal for {same} of {len(a)} characters; perplexity differs by at most {worst[0]:.1e} ({worst[1]})"
               + (f"; failed: {', '.join(failed)}" if failed else ""))
        rows.append({"model": name, "equal_characters": same, "characters": len(a), "cpu": a, DEVICE: b})
    return rows


def perplexity_of(out):
    """The number called perplexity, wherever the JSON has it."""
    if isinstance(out, dict):
        if isinstance(out.get("perplexity"), (int, float)):
            return out["perplexity"]
        out = list(out.values())
    if isinstance(out, list):
        for each in out:
            found = perplexity_of(each) if isinstance(each, (dict, list)) else None
            if found is not None:
                return found
    return None


def kept(m):
    """Kept tokens of all methods, per head, on the GPU beside the CPU's."""
    rows = []
    story = REPO / "docs/usage.md"
    for method in METHODS:
        row = {"method": method}
        sets = {}
        for device in ("cpu", DEVICE):
            try:
                out = m.ours("eval", "retention", "--list", "-m", STORIES, "--device", device, "-f", story, "--tokens", 700, "--method",
                             f"{method}:budget=128", limit=40)
                sets[device] = heads_of(out)
            except RuntimeError as error:
                row[f"{device} failed"] = str(error)
        if len(sets) == 2:
            shares = [len(a & b) / max(1, len(a)) for a, b in zip(sets["cpu"], sets[DEVICE])]
            row.update(mean=statistics.mean(shares), worst=min(shares), heads=len(shares))
        rows.append(row)
        m.tell(f"kept, {method}: " + (f"{row['mean']:.4f} of the CPU's (worst head {row['worst']:.3f}, {row['heads']} heads)" if "mean" in row else
                                      str({k: v[-120:] for k, v in row.items() if "failed" in k})))
    return rows


def heads_of(out):
    """Sets of kept positions of all heads: the innermost lists under "kept" or "positions"."""
    found = []

    def walk(x, key=""):
        if isinstance(x, dict):
            for k, v in x.items():
                walk(v, k)
        elif isinstance(x, list):
            if key in ("positions", "kept") and (not x or isinstance(x[0], int)):
                found.append(set(x))
            else:
                for v in x:
                    walk(v, key)
    walk(out)
    return found


def tests(m):
    """The tests of the portable path, on this device."""
    rows = {}
    env = {"PALIMPSEST_TEST_DEVICE": DEVICE, "PALIMPSEST_EXACTNESS": "1"}
    for program, names, limit in (("test_graph", "*Vulkan*", 60), ("test_exactness", "*Vulkan*", 60)):
        out = m.run([GPU / program, f"--gtest_filter={names}"], env=env, check=False, limit=limit)
        passed = re.search(r"\[  PASSED  \] (\d+)", out)
        failed = sorted(set(re.findall(r"\[  FAILED  \] ([\w./]+)", out)))
        rows[program] = {"passed": int(passed.group(1)) if passed else 0, "failed": failed, "output": out[-6000:]}
        m.tell(f"{program}: {rows[program]['passed']} passed, failed: {failed or 'none'}")
    return rows


def decode_rows(m, path, depth, batch=1, methods=None, tokens=64, reps=2, limit=100, more=()):
    methods = methods or ["full", f"streaming:budget={depth}", *([f"h2o:budget={depth}"] if batch <= 32 and depth <= 16384 else [])]
    flags = [x for method in methods for x in ("--method", method)]
    out = m.ours("bench", "decode", "-m", path, "--device", DEVICE, "--depth", depth, "--tokens", tokens, "--reps", reps, "--batch", batch, "--fill",
                 "prompt", "-t", 1, "--threads-batch", 8, *flags, *more, limit=limit)
    return out if isinstance(out, list) else [out]


def llama_bench(m, path, *flags, limit=100):
    return m.json([f"{ROOT}/usr/bin/llama-bench", "-m", path, "-ngl", 999, "-fa", 1, "-o", "json", *flags], limit=limit)


def speed(m, shape, depths, prompts, reps=2, batches=(), batch_depth=2048, llama=True):
    path = m.model(shape)
    rows = []
    try:
        measure_speed(m, path, rows, depths, prompts, reps, batches, batch_depth, llama)
    except Skipped as error:
        m.tell(f"{shape}: {error}")
    table(m, shape, rows)
    return {"shape": shape, "rows": rows}


def measure_speed(m, path, rows, depths, prompts, reps, batches, batch_depth, llama):
    for depth in depths:
        rows += [{"side": "ours", "depth": depth, **r} for r in decode_rows(m, path, depth, reps=reps)]
    for batch in batches:
        rows += [{"side": "ours", "depth": batch_depth, **r} for r in decode_rows(m, path, batch_depth, batch=batch, reps=1, tokens=32)]
    for tokens in prompts:
        out = m.ours("bench", "prefill", "-m", path, "--device", DEVICE, "--tokens", tokens, "--reps", 4, "-t", 8, "--method", "full",
                     "--method", "streaming:budget=1024", "--method", "h2o:budget=1024")
        rows += [{"side": "ours", **r} for r in out]
    if llama:
        flags = ["-p", ",".join(map(str, prompts)), "-n", 0, "-r", reps + 1, "-ub", 512]
        rows += [{"side": "llama.cpp", "test": "prefill", "tokens": r["n_prompt"], "rate": r["avg_ts"]} for r in llama_bench(m, path, *flags)]
        flags = ["-p", 0, "-n", 64, "-d", ",".join(map(str, depths)), "-r", reps]
        rows += [{"side": "llama.cpp", "test": "decode", "depth": r["n_depth"], "batch": 1, "rate": r["avg_ts"]} for r in llama_bench(m, path, *flags)]
    if llama and batches:
        try:
            slots = (batch_depth + 64) * max(batches)
            out = m.run([f"{ROOT}/usr/bin/llama-batched-bench", "-m", path, "-ngl", 999, "-fa", "on", "-c", slots, "-npp", batch_depth, "-ntg", 32, "-npl",
                         ",".join(map(str, batches)), "--output-format", "jsonl"])
            for line in out.splitlines():
                if line.startswith("{"):
                    r = json.loads(line)
                    rows.append({"side": "llama.cpp", "test": "decode", "depth": r["pp"], "batch": r["pl"], "rate": r["speed_tg"]})
        except RuntimeError as error:
            m.tell(f"llama-batched-bench: {error}")


def rate_of(row):
    return row.get("rate") or row["tokens_per_second"]["median"]


def table(m, shape, rows):
    theirs = {(r["test"], r.get("depth"), r.get("batch"), r.get("tokens") if r["test"] == "prefill" else None): r["rate"] for r in rows
              if r["side"] == "llama.cpp"}
    full = {}
    for r in rows:
        if r["side"] != "ours":
            continue
        prefill = r["test"] == "prefill"
        place = (r["test"], None if prefill else r["depth"], None if prefill else r["batch"], r["tokens"] if prefill else None)
        if r["name"] == "full":
            full[place] = rate_of(r)
        line = f"{shape} {r['test']} " + (f"{r['tokens']}" if prefill else f"depth {r['depth']} batch {r['batch']}")
        line += f", {r['name']}: {rate_of(r):.1f} tokens/s"
        if place in full and r["name"] != "full":
            line += f", {rate_of(r) / full[place]:.3f}x of full"
        if place in theirs:
            line += f", {rate_of(r) / theirs[place]:.2f}x of llama.cpp ({theirs[place]:.1f})"
        if prefill:
            line += f"; prepare {r.get('ms_prepare', 0):.3f} ms a chunk"
        else:
            line += f"; step {r['ms_p50']:.3f} ms, prepare {r.get('ms_prepare', 0):.3f}, evict {r['ms_evict']:.3f}"
        m.tell(line)


def profile(m, shape="llama-3.2-1b@type=f16", depth=2048):
    """Kernels of decode steps, by ncu, launched one by one: their number and time beside the step's."""
    path = m.model(shape)
    rows = []
    for method in ("full", f"streaming:budget={depth}", f"h2o:budget={depth}"):
        out = m.run(["ncu", "--target-processes", "all", "--csv", "--page", "raw", "--launch-skip", 2500, "--launch-count", 600,
                     "--clock-control", "none", "--metrics", "gpu__time_duration.sum,dram__throughput.avg.pct_of_peak_sustained_elapsed", PROGRAM,
                     "bench", "decode", "-m", path, "--device", DEVICE, "--depth", depth, "--tokens", 12, "--reps", 1, "--fill", "random", "-t", 1,
                     "--method", method, "--json"], limit=60, check=False, env={"GGML_CUDA_DISABLE_GRAPHS": "1"})
        lines = list(csv.DictReader(io.StringIO(out[max(out.find('"ID"'), 0):])))[1:]  # the second line has the units
        kernels = {}
        for line in lines:
            name = re.sub(r"[<(].*", "", line["Kernel Name"])
            time_of = kernels.setdefault(name, [])
            time_of.append((float(line["gpu__time_duration.sum"].replace(",", "")), float(line["dram__throughput.avg.pct_of_peak_sustained_elapsed"])))
        rows.append({"method": method, "kernels": {k: {"count": len(v), "time": sum(t for t, _ in v), "dram": statistics.mean(d for _, d in v)}
                                                   for k, v in kernels.items()}})
        m.tell(f"ncu {method}: {len(lines)} kernels")
        for name, k in sorted(rows[-1]["kernels"].items(), key=lambda x: -x[1]["time"])[:14]:
            m.tell(f"    {k['count']:4} x {name[:60]}: {k['time'] / k['count']:.2f} each, {k['dram']:.0f}% of the memory's bandwidth")
    return rows


def serve(m, shape="llama-3.2-1b@type=q4_0"):
    """64 concurrent requests through the scheduler."""
    path = m.model(shape)
    rows = []
    for method in ("full", "streaming:budget=1024", "h2o:budget=1024"):
        out = m.ours("bench", "serve", "-m", path, "--device", DEVICE, "--method", method, "--num-prompts", 128, "--max-concurrency", 64, "--parallel", 64,
                     "--random-input-len", 1024, "--random-output-len", 128, "-t", 4, limit=90)
        rows.append({"method": method, "result": out})
        out = out[0] if isinstance(out, list) else out
        m.tell(f"serve {method}: {out['completed']} of 128 requests, {out['failed']} failed, {out['output_tokens_per_second']['median']:.0f} tokens/s, TTFT p50 "
               f"{out['ttft_ms']['p50']:.0f} ms, ITL p50 {out['itl_ms']['p50']:.1f} ms")
    return rows


PARTS = {
    "devices": devices,
    "text": text,
    "kept": kept,
    "tests": tests,
    "tiny": lambda m: speed(m, "llama-3.2-1b@layers=1@vocab=1000@type=q4_0", [256], [64], reps=1, batches=(2,), batch_depth=256),
    "1b-f16": lambda m: speed(m, "llama-3.2-1b@type=f16", [2048, 16384, 65536], [512, 4096], reps=1, batches=(8, 32, 128)),
    "1b-q4_0": lambda m: speed(m, "llama-3.2-1b@type=q4_0", [2048], [512, 4096], batches=(32,)),
    "8b-q4_0": lambda m: speed(m, "llama-3.1-8b@type=q4_0", [2048, 16384], [512, 4096], reps=1, batches=(8, 32)),
    "8b-f16": lambda m: speed(m, "llama-3.1-8b@type=f16", [2048], [512, 4096], reps=1, batches=(32,)),
    "7b-q4_0": lambda m: speed(m, "llama-2-7b@type=q4_0", [2048], [512], reps=1, batches=(8,)),
    "profile": profile,
    "serve": serve,
}


def main():
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("--out", required=True)
    parse.add_argument("--seconds", type=float, default=500, help="all parts together")
    parse.add_argument("--models", default="/tmp/gpu-models", help="folder for files of random weights")
    parse.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; all")
    o = parse.parse_args()
    m = Machine(o)
    failed = 0
    file = m.out / "results.json"
    results = json.loads(file.read_text()) if file.exists() else {}
    for name in o.parts or PARTS:
        if name in results:
            say(f"{name}: there already")
            continue
        start = time.monotonic()
        say(f"== {name}")
        try:
            results[name] = PARTS[name](m)
            file.write_text(json.dumps(results, indent=1))
        except Skipped as error:
            m.tell(f"{name}: skipped: {error}")
        except Exception as error:  # the next part may work
            failed += 1
            m.tell(f"{name}: FAILED: {type(error).__name__}: {error}")
        say(f"== {name}: {time.monotonic() - start:.0f} s")
    (m.out / "summary.txt").write_text("\n".join(m.summary) + "\n")
    print("\n".join(["", *m.summary]))
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
