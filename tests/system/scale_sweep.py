#!/usr/bin/env python3
"""deploy/ray/sweep.py: a sweep of 100 runs whose workers are killed, and once the sweep itself: each run is there once.

make scale-check
"""

import argparse
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent.parent / "tools" / "setup")]
import environment  # noqa: E402
from scale_ray import PACKAGES  # noqa: E402
from server import REPO  # noqa: E402

SMALL = "eval needle -t 1 --kind passkey --lengths 200 --depths 0.5 --samples 1"

# Counts the runs that start, then runs them.
COUNTING = """#!/bin/sh
case "$*" in *--only*) echo "$*" >> {count}; sleep 0.1 ;; esac
exec {program} "$@"
"""


def lines_of(path):
    """The complete lines."""
    return [json.loads(line) for line in path.read_text().split("\n")[:-1]] if path.exists() else []


def workers(program):
    """PIDs of the Ray workers that run a task now: parents of the program."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if b"--only" in words and str(program).encode() in words[:2]:
                found.append(int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1]))
        except OSError:
            continue
    return found


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--program", default=REPO / "build" / "palimpsest")
    arguments.add_argument("--runs", type=int, default=100)
    arguments.add_argument("--seed", type=int, default=1)
    options = arguments.parse_args()
    try:
        environment.enter("ray", PACKAGES, "600 MB on disk, a minute")
    except environment.Unavailable as error:
        sys.exit(f"Ray: skipped, {error}")
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        plan, results, count, program = folder / "plan.json", folder / "results.jsonl", folder / "count", folder / "palimpsest"
        plan.write_text(json.dumps({"each": {"budget": list(range(32, 32 + options.runs - 1))}, "runs": [
            {"run": f"{SMALL} --method streaming:budget={{budget}}"},
            {"run": "eval needle -m /no/such/model.gguf"}]}))  # fmt: skip
        program.write_text(COUNTING.format(count=count, program=pathlib.Path(options.program).resolve()))
        program.chmod(0o755)
        words = [
            sys.executable,
            REPO / "deploy" / "ray" / "sweep.py",
            plan,
            "-o",
            results,
            "--program",
            program,
            "--cpus",
            "0.5",
        ]
        kills, ended = 0, None
        for interrupted in (True, False):
            sweep = subprocess.Popen(list(map(str, words)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            at_start = len(lines_of(results))
            while sweep.poll() is None:
                time.sleep(rng.uniform(0.3, 0.9))
                done = len(lines_of(results))
                if interrupted and done > at_start + options.runs // 3:
                    sweep.send_signal(signal.SIGKILL)
                    kills += 1
                    break
                if done > at_start and (running := workers(options.program) or workers(program)):
                    os.kill(rng.choice(running), signal.SIGKILL)
                    kills += 1
            out, errors = sweep.communicate(timeout=300)
            if interrupted:
                with results.open("a") as file:
                    file.write('{"command": "palimpsest ev')  # as a full disk or a power failure leaves it
            else:
                ended = sweep.returncode
        print(out.strip())
        lines = lines_of(results)
        commands = [line["command"] for line in lines]
        assert len(set(commands)) == len(commands) == options.runs, (len(commands), len(set(commands)), errors[-2000:])
        assert ended == 1 and sum("error" in line for line in lines) == 1, (ended, errors[-2000:])
        starts = len(count.read_text().splitlines())
        # A kill repeats at most what ran then: the run of a worker, or those of the sweep.
        allowed = options.runs + kills + (os.cpu_count() or 1) * 2
        assert options.runs <= starts <= allowed, (starts, allowed)
        again = subprocess.run(list(map(str, words)), capture_output=True, text=True)
        assert again.returncode == 0 and "0 to do" in again.stdout and len(lines_of(results)) == options.runs, again.stdout
        native = subprocess.run([options.program, "sweep", plan, "-o", results], capture_output=True, text=True)
        assert f"{options.runs} already done" in native.stdout, native.stdout
        print(
            f"sweep on Ray: {kills} kills with -9, one of the sweep itself; {starts} starts for {options.runs} runs, each once"
        )
        assert kills > 3, kills


if __name__ == "__main__":
    main()
