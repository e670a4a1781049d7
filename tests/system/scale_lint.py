#!/usr/bin/env python3
"""ruff and mypy (strict) over deploy/ray, beside Ray's own types; ruff over its tests and the simulation: make scale-check."""

import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent.parent / "tools" / "setup")]
import environment  # noqa: E402
from scale_ray import PACKAGES  # noqa: E402
from server import REPO  # noqa: E402


def main():
    try:
        environment.enter("ray", [*PACKAGES, "mypy==2.4.1", "ruff==0.17.6"], "600 MB on disk, a minute")
    except environment.Unavailable as error:
        sys.exit(f"Ray: skipped, {error}")
    tests = [str(path) for path in [*HERE.glob("scale_*.py"), HERE / "routing_test.py"]]
    subprocess.run([sys.executable, "-m", "ruff", "check", "deploy", "bench/scale", *tests], check=True, cwd=REPO)
    files = sorted(path.name for path in (REPO / "deploy" / "ray").glob("*.py"))
    words = [sys.executable, "-m", "mypy", "--config-file", REPO / "pyproject.toml", *files]
    subprocess.run(list(map(str, words)), check=True, cwd=REPO / "deploy" / "ray")


if __name__ == "__main__":
    main()
