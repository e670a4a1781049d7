#!/usr/bin/env python3
"""`palimpsest sweep` on a Ray cluster: each run is a task, results are in one file, in the sweep's own format.

    python deploy/ray/sweep.py bench/sweeps/default-model.json -o results.jsonl [--address auto]
    palimpsest report results.jsonl -o report.html

Every node has the program, the sweep file and what it names at the same paths. A line is on disk before its run counts as
done: the same command goes on after Ctrl-C, kill -9 or a power failure. When a worker dies, its run starts again, nothing
else; `palimpsest sweep` may continue the file, too.
"""

import argparse
import contextlib
import fcntl
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from typing import IO, Any

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no telemetry
os.environ.setdefault("RAY_AUTH_MODE", "token")  # as `ray start` has it
import ray  # noqa: E402
import ray.exceptions  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
DEATHS = 5  # of workers in one run, after which the sweep gives up


def output(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def end_with_parent() -> None:
    """In the child before exec: SIGKILL when the worker dies."""
    import ctypes

    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).prctl(1, 9)


@ray.remote(max_retries=0)
def run(program: str, sweep: str, number: int) -> str:
    """The run's line. palimpsest ends with 1 if the run failed, which its line says."""
    ended = subprocess.run(
        [program, "sweep", sweep, "--only", str(number)], capture_output=True, text=True, preexec_fn=end_with_parent
    )
    if ended.returncode not in (0, 1) or not ended.stdout.startswith("{"):
        raise RuntimeError(f"{program} sweep --only {number}: ended with {ended.returncode}: {ended.stderr[-500:]}")
    return ended.stdout


@contextlib.contextmanager
def results(path: str) -> Iterator[tuple[IO[bytes], list[dict[str, Any]]]]:
    """The file, locked as `palimpsest sweep` locks it, and its complete lines; an incomplete last one is dropped."""
    with open(path, "a+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            sys.exit(f"sweep.py: {path} is being written by another sweep: wait for it, or name another file")
        file.seek(0)
        text = file.read()
        end = text.rfind(b"\n") + 1
        file.truncate(end)
        yield file, [json.loads(line) for line in text[:end].splitlines()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sweep", help="JSON file, as for `palimpsest sweep`")
    parser.add_argument("-o", "--results", required=True)
    parser.add_argument("--program", default=str(HERE.parent.parent / "build" / "palimpsest"))
    parser.add_argument("--address", help="of a Ray cluster; default: one on this machine, for this sweep")
    parser.add_argument("--cpus", type=float, default=1, help="of a run, for Ray's placement: the value of the runs' --threads")
    parser.add_argument("--retry", action="store_true", help="repeat failed runs")
    flags = parser.parse_args()
    sweep = str(pathlib.Path(flags.sweep).resolve())
    try:
        commands = output(flags.program, "sweep", sweep, "--list").splitlines()
        version = output(flags.program, "--version").split()[-1]
    except subprocess.CalledProcessError as error:
        sys.exit(error.stderr.strip())

    with results(flags.results) as (file, lines):
        done = {line["command"]: "result" in line for line in lines if line.get("version") == version}
        left = [i for i, command in enumerate(commands, 1)
                if command not in done or (flags.retry and not done[command])]  # fmt: skip
        print(
            f"{len(commands)} runs; {len(commands) - len(left)} already done; {len(left)} to do; results in {flags.results}",
            flush=True,
        )
        local: dict[str, Any] = {} if flags.address else {"include_dashboard": False}
        ray.init(address=flags.address, log_to_driver=False, **local)
        task = run.options(num_cpus=flags.cpus)
        tasks = {task.remote(flags.program, sweep, number): number for number in left}
        deaths: dict[int, int] = {}
        failed = 0
        while tasks:
            (ready,), _ = ray.wait(list(tasks), num_returns=1)
            number = tasks.pop(ready)
            try:
                line = ray.get(ready)
            except ray.exceptions.RayError as error:  # the worker, its node, or the run's own process was killed
                deaths[number] = deaths.get(number, 0) + 1
                if deaths[number] >= DEATHS:
                    sys.exit(f"sweep.py: {commands[number - 1]}: killed {DEATHS} times; the last time: {error}")
                tasks[task.remote(flags.program, sweep, number)] = number
                continue
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())
            if "error" in json.loads(line):
                failed += 1
                print(f"failed: {commands[number - 1]}\n  {json.loads(line)['error']}", flush=True)
        print(f"{len(left)} runs done, {failed} failed; {sum(deaths.values())} repeated because a worker died")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
