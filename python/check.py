"""make python-check: installs the package into an environment of its own and tests it there.

    python3 python/check.py [--python PYTHON] [--wheel FILE] [pytest arguments]

--wheel tests a wheel instead of this clone. Needs PyPI; the environment is ~/.cache/palimpsest/python-check-VERSION.
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
BUILD = ROOT / "build-python"
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "palimpsest"


def run(*words, **environment):
    print("$", *words, flush=True)
    subprocess.run(list(map(str, words)), check=True, cwd=ROOT, env={**os.environ, **environment})


def run_page(python, page):
    """The page's Python blocks in order, in one process, in which a warning is an error."""
    blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / page).read_text(), re.M | re.S)
    blocks = [block for block in blocks if "openai" not in block]  # serve-check runs those
    assert blocks, page
    run(python, "-X", "dev", "-W", "error", "-c", "\n".join(blocks))


NOTEBOOK = """
import nbclient, nbformat, sys
book = nbformat.read("examples/policy.ipynb", 4)
assert not any(cell.get("outputs") for cell in book.cells), "commit the notebook without outputs"
nbclient.NotebookClient(book, timeout=600, kernel_name="python3").execute()
assert any("text/html" in out.get("data", {}) for cell in book.cells for out in cell.get("outputs", []))
nbformat.write(book, sys.argv[1])
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="the Python to test with")
    parser.add_argument("--wheel", help="a wheel to test instead of this clone")
    flags, rest = parser.parse_known_args()
    version = subprocess.run([flags.python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], check=True,
                             capture_output=True, text=True).stdout.strip()  # fmt: skip
    folder = CACHE / f"python-check-{version}"
    python = folder / "bin" / "python"
    if not python.exists():
        run(flags.python, "-m", "venv", folder)
    run(python, "-m", "pip", "install", "-q", "--force-reinstall", "--no-deps", flags.wheel or ".",
        "-C", "cmake.define.PALIMPSEST_PYTHON_CHECK=ON")
    run(python, "-m", "pip", "install", "-q", "numpy", *checks())

    program = BUILD / "fading_max"
    run(python, "-X", "dev", "-m", "pytest", "-q", "python/tests", *rest,
        **({"PALIMPSEST_FADING_MAX": str(program)} if program.exists() else {}))
    for page in ("README.md", "docs/python.md", "docs/from-kvpress.md"):
        run_page(python, page)
    BUILD.mkdir(exist_ok=True)
    run(python, "-c", NOTEBOOK, BUILD / "policy.ipynb")
    run(python, "-m", "ruff", "check", "python", "--exclude", "*.pyi")
    run(python, "-m", "mypy", "-p", "palimpsest")
    run(python, "-W", "error", "-m", "pdoc", "-d", "google", "-o", BUILD / "reference", "palimpsest", "!palimpsest._palimpsest")


def checks():
    """The packages of the extra `check` in pyproject.toml."""
    line = next(line for line in (ROOT / "pyproject.toml").read_text().splitlines() if line.startswith("check = "))
    return re.findall(r'"([^"]+)"', line)


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        sys.exit(f"python-check: ended with {error.returncode}: {' '.join(map(str, error.cmd))[:200]}")
