"""Shared by the benchmark scripts: running programs, naming the machine, writing results."""
import datetime
import json
import os
import pathlib
import platform
import shlex
import statistics
import subprocess
import sys

REPO = pathlib.Path(__file__).resolve().parent.parent
SHARED = pathlib.Path(os.environ.get("PALIMPSEST_SHARED") or REPO.parent / "shared")
RESULTS = REPO / "docs" / "results"  # pages that answer a user's question
RESEARCH = REPO / "research" / "results"  # all other pages
# With passive waiting, which the tests use, each operator of a graph wakes threads: a small model's step takes 10 times as long.
os.environ.pop("OMP_WAIT_POLICY", None)


class Failed(Exception):
    """A program failed; the text names it and its error."""


def say(text):
    print(f"[{datetime.datetime.now():%H:%M:%S}] {text}", file=sys.stderr, flush=True)


def run(command, prefix="", timeout=None, check=True):
    """Runs a command (list of words) after the prefix words; returns (exit code, stdout, stderr)."""
    words = shlex.split(prefix) + [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, timeout=timeout, cwd=REPO, errors="replace")
    if check and done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:] or ["no output"]
        raise Failed(f"{shlex.join(words)}: exit code {done.returncode}: {last[0]}")
    return done.returncode, done.stdout, done.stderr


def run_json(command, **how):
    return json.loads(run(command, **how)[1])


def model_file(program, name):
    """The path of a model: a file, or a name of `palimpsest list`, which is pulled if it is not there. "none": none."""
    if name == "none":
        return None
    return name if os.path.exists(name) else run([program, "pull", name])[1].strip()


def random_model(program, folder, shape, type_name):
    """Path of a GGUF file of random weights; created if missing."""
    path = os.path.join(folder, f"random-{shape.replace('@', '-').replace('=', '')}-{type_name}.gguf")
    if not os.path.exists(path):
        os.makedirs(folder, exist_ok=True)
        say(f"writing {path}")
        run([program, "bench", "make-model", "--synthetic", f"{shape}@type={type_name}", "-o", path + ".part"])
        os.replace(path + ".part", path)  # an interrupted run leaves no half a model
    return path


def shown(command):
    """A command as typed in the root of the clone."""
    words = []
    for word in map(str, command):
        if word.startswith(str(SHARED)):
            word = "../shared" + word[len(str(SHARED)):]
        words.append(os.path.relpath(word, REPO) if word.startswith(str(REPO)) else word)
    return shlex.join(words)


VECTORS = {"amx_int8": "AMX", "avx512_vnni": "AVX-512 VNNI", "avx512f": "AVX-512", "avx_vnni": "AVX-VNNI", "avx2": "AVX2"}  # best first


def machine():
    """The CPU and its vector instructions: virtual CPUs of different kinds have one name."""
    name, vectors = platform.processor() or platform.machine(), ""
    try:
        for line in open("/proc/cpuinfo"):
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                name = value.strip()
            elif key.strip() == "flags":
                vectors = next((f" ({title})" for flag, title in VECTORS.items() if flag in value.split()), "")
                break
    except OSError:
        pass
    level = os.environ.get("PALIMPSEST_SIMD")  # as on a lesser CPU
    return f"{name}{vectors}{f' as {level}' if level else ''}, {os.cpu_count()} cores"


def commit():
    """The commit measured; -dirty if files other than the result pages differ from it."""
    git = ["git", "-c", f"safe.directory={REPO}"]
    try:
        code, out, _ = run([*git, "describe", "--always"], check=False)
        changed, _, _ = run([*git, "diff", "--quiet", "HEAD", "--", f"{REPO}", f":(exclude){RESULTS}", f":(exclude){RESEARCH}"], check=False)
    except FileNotFoundError:
        code, out, changed = 1, "", 0
    return out.strip() + ("-dirty" if changed else "") if code == 0 else os.environ.get("PALIMPSEST_COMMIT", "of an unknown commit")


def today():
    return f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d %H:%M} UTC"


def spread(values):
    """median (min–max)"""
    return f"{statistics.median(values):.2f} ({min(values):.2f}–{max(values):.2f})"
