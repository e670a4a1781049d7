"""Python packages from PyPI for scripts: a virtual environment in the cache folder, created once.

    import environment
    environment.enter("gguf", ["gguf==0.19.0"], "about 10 seconds")     # the packages are available from here on

Scripts with the same name share an environment; missing packages are added.
"""
import os
import pathlib
import shlex
import shutil
import subprocess
import sys

TORCH = "2.15.0"  # for scripts that compare with PyTorch: one environment, 5 GB


class Unavailable(Exception):
    """Names what could not be installed, and why."""


def python(name, packages, size):
    """Python of the environment `name` with `packages`; created or extended if necessary."""
    root = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "palimpsest" / name
    program, done = root / "bin" / "python", root / "done"
    have = done.read_text().split() if done.exists() else None
    missing = [p for p in packages if p not in (have or [])]
    if missing or have is None:
        print(f"{name}: installing {', '.join(missing)} into {root} ({size}) ...", file=sys.stderr, flush=True)
        steps = [] if program.exists() else [[sys.executable, "-m", "venv", root]]
        for words in [*steps, [program, "-m", "pip", "install", "-q", *missing]]:
            try:
                ended = subprocess.run(list(map(str, words)), capture_output=True, text=True)
            except OSError as error:
                raise Unavailable(f"{missing} cannot be installed: {error}") from error
            if ended.returncode != 0:
                if not done.exists():
                    shutil.rmtree(root, ignore_errors=True)  # half an environment would stay broken
                last = (ended.stderr.strip() or ended.stdout.strip()).splitlines()[-1:]
                raise Unavailable(f"{', '.join(missing)} cannot be installed: {' '.join(last)}")
        done.write_text("\n".join([*(have or []), *missing, ""]))
    return program


def enter(name, packages, size, prefix=""):
    """Runs this script again with the environment's Python (and `prefix` words before it)."""
    program = python(name, packages, size)
    if pathlib.Path(sys.prefix) == program.parent.parent:
        return
    words = [*shlex.split(prefix), str(program), str(pathlib.Path(sys.argv[0]).resolve()), *sys.argv[1:]]
    os.execvp(words[0], words)
