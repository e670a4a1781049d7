"""make python-check: builds the wheel, installs it into an environment of its own, and tests it there.

    python3 python/check.py [--python PYTHON] [--wheel FILE] [--long] [--only PART ...] [pytest arguments]

Needs PyPI; the environment is ~/.cache/palimpsest/python-check-VERSION. --wheel tests a wheel that is there. --long runs
the tests of threads and memory in their long forms. Parts: tests, pages (README.md, docs/python.md, docs/from-kvpress.md,
docs/add-to-the-benchmark.md), notebook, lint (ruff, mypy), reference (pdoc), times. See also python/clean.py.
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import time

import wheel

ROOT = wheel.ROOT
BUILD = ROOT / "build-python"
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "palimpsest"
PARTS = ("tests", "pages", "notebook", "lint", "reference", "times")


def run(*words, **environment):
    print("$", *words, flush=True)
    subprocess.run(list(map(str, words)), check=True, cwd=ROOT, env={**os.environ, **environment})


def page_code(page):
    """The page's Python blocks in order."""
    blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / page).read_text(), re.M | re.S)
    blocks = [block for block in blocks if "openai" not in block]  # serve-check runs those
    assert blocks, page
    return "\n".join(blocks)


NOTEBOOK = """
import nbclient, nbformat, sys
book = nbformat.read(sys.argv[1], 4)
assert not any(cell.get("outputs") for cell in book.cells), "commit the notebook without outputs"
nbclient.NotebookClient(book, timeout=600, kernel_name="python3").execute()
assert any("opacity:" in out.get("data", {}).get("text/html", "") for cell in book.cells for out in cell.get("outputs", []))
nbformat.write(book, sys.argv[2])
"""


def import_seconds(python, module):
    """The best of five processes."""
    times = []
    for _ in range(5):
        start = time.perf_counter()
        subprocess.run([python, "-c", f"import {module}"], check=True)
        times.append(time.perf_counter() - start)
    return min(times)


def extra(name):
    """The packages of an extra in pyproject.toml."""
    line = next(line for line in (ROOT / "pyproject.toml").read_text().splitlines() if line.startswith(f"{name} = "))
    return re.findall(r'"([^"]+)"', line)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="the Python to test with")
    parser.add_argument("--wheel", help="a wheel to test instead of this clone")
    parser.add_argument("--long", action="store_true", help="the long forms of tests")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    flags, rest = parser.parse_known_args()
    version = subprocess.run([flags.python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], check=True,
                             capture_output=True, text=True).stdout.strip()  # fmt: skip
    package = flags.wheel or wheel.make(flags.python, ["cmake.define.PALIMPSEST_PYTHON_CHECK=ON"])
    folder = CACHE / f"python-check-{version}"
    python = folder / "bin" / "python"
    if not python.exists():
        run(flags.python, "-m", "venv", folder)
    run(python, "-m", "pip", "install", "-q", "--force-reinstall", "--no-deps", package)
    run(python, "-m", "pip", "install", "-q", "numpy", *extra("check"), *extra("notebook"))

    if "tests" in flags.only:
        programs = sorted(BUILD.glob("*/fading_max"), key=lambda path: path.stat().st_mtime)
        environment = {"PALIMPSEST_FADING_MAX": str(programs[-1])} if programs else {}
        environment |= {"PALIMPSEST_LONG": "1"} if flags.long else {}
        run(python, "-X", "dev", "-m", "pytest", "-q", "-rsP" if flags.long else "-rs", "python/tests", *rest, **environment)
    if "pages" in flags.only:
        for page in ("README.md", "docs/python.md", "docs/from-kvpress.md", "docs/add-to-the-benchmark.md"):
            run(python, "-X", "dev", "-W", "error", "-c", page_code(page))
    if "notebook" in flags.only:
        start = time.perf_counter()
        run(python, "-c", NOTEBOOK, ROOT / "examples" / "policy.ipynb", BUILD / "policy.ipynb")
        print(f"examples/policy.ipynb: {time.perf_counter() - start:.0f} s")
    if "lint" in flags.only:
        run(python, "-m", "ruff", "check", "python", "--exclude", "*.pyi")
        run(python, "-m", "mypy", "-p", "palimpsest")
    if "reference" in flags.only:
        run(python, "-W", "error", "-m", "pdoc", "-d", "google", "-o", BUILD / "reference", "palimpsest",
            "!palimpsest._palimpsest")  # fmt: skip
    if "times" in flags.only:
        print(f"import palimpsest: {import_seconds(python, 'palimpsest'):.2f} s; "
              f"numpy alone: {import_seconds(python, 'numpy'):.2f} s")  # fmt: skip


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        sys.exit(f"python-check: ended with {error.returncode}: {' '.join(map(str, error.cmd))[:200]}\n{error.stderr or ''}")
