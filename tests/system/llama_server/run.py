#!/usr/bin/env python3
"""The tests of llama.cpp's server (tools/server/tests) against `palimpsest serve`; only flags are translated.

  make llama-server-check                         the suite of the source package of llama-cpp-python (PyPI, 77 MB)
  make llama-server-check LLAMA_ARGS='--suite DIR --only test_basic'

Prints each failure beside its reason in misses.txt, and ends with 1 if one has none, or if a line of misses.txt is
stale. Needs shared/models/stories260K (PALIMPSEST_SHARED).
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import xml.etree.ElementTree

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
sys.path.insert(0, str(HERE.parent.parent.parent / "tools" / "setup"))
import environment  # noqa: E402
from server import REPO, free_port  # noqa: E402

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "palimpsest"
SOURCE = "llama-cpp-python==0.3.36"
PACKAGES = ["pytest==8.3.5", "openai==2.54.0", "requests==2.34.2", "wget==3.2", "filelock==3.16.1", "numpy==2.2.6",
            "prometheus-client==0.20.0", "aiohttp==3.14.5", "scikit-build-core==0.11.6"]


def fetched(python):
    """The folder of the suite, from the cache or from PyPI."""
    folder = CACHE / ("llama-server-tests-" + SOURCE.split("==")[1])
    if not folder.exists():
        with tempfile.TemporaryDirectory() as download:
            subprocess.run([python, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:",
                            "--no-build-isolation", "-d", download, SOURCE], check=True)
            with tarfile.open(next(pathlib.Path(download).glob("*.tar.gz"))) as archive:
                members = [m for m in archive if m.isfile() and
                           ("/tools/server/tests/" in m.name or "/llama.cpp/models/templates/" in m.name)]
                for member in members:
                    member.name = member.name.split("/llama.cpp/")[1]
                archive.extractall(folder, members, filter="data")
    return folder / "tools" / "server" / "tests"


def misses():
    """[(pattern, reason)] of misses.txt."""
    out = []
    for line in (HERE / "misses.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            pattern, reason = line.split(None, 1)
            out.append((re.compile(pattern), reason))
    return out


def results(report):
    """{test: passed, failed or skipped}"""
    out = {}
    for case in xml.etree.ElementTree.parse(report).iter("testcase"):
        name = case.get("classname").split(".")[-1] + "::" + case.get("name")
        kinds = {child.tag for child in case}
        out[name] = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", type=pathlib.Path, help="folder tools/server/tests of llama.cpp")
    parser.add_argument("--only", default="", help="tests to run, as of pytest -k")
    parser.add_argument("--program", default=str(REPO / "build" / "palimpsest"))
    args = parser.parse_args()
    shared = pathlib.Path(os.environ.get("PALIMPSEST_SHARED", REPO.parent / "shared"))
    stories = shared / "models" / "stories260K" / "stories260K.gguf"
    if not stories.exists():
        sys.exit(f"{stories} is missing: set PALIMPSEST_SHARED")
    python = environment.python("llama-server-tests-python", PACKAGES, "a minute")
    suite = args.suite or fetched(python)
    report = CACHE / "llama-server-tests.xml"
    subprocess.run(
        [python, "-m", "pytest", "unit", "-p", "plugin", "-m", "not slow", "-q", "--tb=short", f"--junitxml={report}",
         *(["-k", args.only] if args.only else [])],
        cwd=suite, check=False,
        env={**os.environ, "LLAMA_SERVER_BIN_PATH": str(HERE / "launcher.py"), "PALIMPSEST_PROGRAM": args.program,
             "PORT": str(free_port()), "PALIMPSEST_STORIES": str(stories.resolve()), "PYTHONPATH": f"{HERE}:{suite}"})
    known, unknown = misses(), 0
    stale = {pattern for pattern, _ in known}
    found = results(report)
    for name, result in sorted(found.items()):
        if result != "failed":
            continue
        reasons = [(pattern, reason) for pattern, reason in known if pattern.search(name)]
        stale -= {pattern for pattern, _ in reasons}
        print(f"{name}: {reasons[0][1] if reasons else 'NO REASON in misses.txt'}")
        unknown += not reasons
    if args.only:
        stale = set()
    for pattern in stale:
        print(f"misses.txt: nothing that fails matches {pattern.pattern}")
    counts = {kind: sum(result == kind for result in found.values()) for kind in ("passed", "failed", "skipped")}
    print("llama-server's tests: " + ", ".join(f"{count} {kind}" for kind, count in counts.items()) +
          f"; {unknown} failures without a reason")
    sys.exit(1 if unknown or stale or not found else 0)


if __name__ == "__main__":
    main()
