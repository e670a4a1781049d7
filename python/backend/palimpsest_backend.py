"""The build backend of `pip install .`: scikit-build-core's, with progress on the terminal.

Without -v pip shows nothing of a build until it ends. Here Ninja's lines "[37/120] Building ..." are counted, and the
terminal shows every ten seconds how far the build is. What pip captures is as before.
"""
import contextlib
import os
import re
import sys
import threading
import time

from scikit_build_core import build as _build
from scikit_build_core.build import *  # noqa: F403  the other hooks

# pip's path of this backend: a pip that the build runs (python/foundation) would look for its own backends there.
for _name in ("_PYPROJECT_HOOKS_BACKEND_PATH", "PEP517_BACKEND_PATH"):  # of new and old pips
    os.environ.pop(_name, None)

INTERVAL = 10.0  # seconds between two lines
STEP = re.compile(r"\[(\d+)/(\d+)\] (\S.*)")


def watch(lines, copy, terminal, interval=INTERVAL):
    """Copies lines; shows those of the build's own scripts, and now and then Ninja's count, on the terminal."""
    start, shown = time.monotonic(), None

    def show(text):
        terminal.write(f"\r\x1b[Kpalimpsest: {text}\n".encode())

    for line in lines:
        copy.write(line)
        text = line.decode(errors="replace").strip()
        if text.startswith("palimpsest: "):
            show(text.removeprefix("palimpsest: "))
        elif step := STEP.match(text):
            now, (done, of) = time.monotonic(), (int(step[1]), int(step[2]))
            if of > 1 and (shown is None or now - shown >= interval or done == of):
                shown = now
                what = step[3].split("/")[-1]
                show(f"{done} of {of} ({100 * done // of}%), {(now - start) / 60:.1f} min: {what}")


@contextlib.contextmanager
def progress():
    """Progress of what writes to standard output and error meanwhile, programs too; nothing without a terminal."""
    with contextlib.ExitStack() as stack:
        try:
            terminal = None if os.isatty(1) else stack.enter_context(open("/dev/tty", "wb", buffering=0))
        except OSError:
            terminal = None
        if terminal is None:  # pip -v shows the build itself
            yield
            return
        sys.stdout.flush(), sys.stderr.flush()
        read, write = os.pipe()
        before = {number: os.dup(number) for number in (1, 2)}
        for number in before:
            os.dup2(write, number)
        os.close(write)
        lines = stack.enter_context(open(read, "rb"))
        copy = stack.enter_context(open(os.dup(before[1]), "wb", buffering=0))
        watcher = threading.Thread(target=watch, args=(lines, copy, terminal))
        watcher.start()
        try:
            yield
        finally:
            sys.stdout.flush(), sys.stderr.flush()
            for number, saved in before.items():
                os.dup2(saved, number)
                os.close(saved)
            watcher.join()


def build_wheel(*arguments, **named):
    with progress():
        return _build.build_wheel(*arguments, **named)


def build_editable(*arguments, **named):
    with progress():
        return _build.build_editable(*arguments, **named)
