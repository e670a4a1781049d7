"""The build backend's progress: a build in a terminal of its own, whose standard output is a file, as under pip."""

import os
import pathlib
import pty
import sys

import pytest

BACKEND = pathlib.Path(__file__).resolve().parents[1] / "backend"
BUILD = """
import os, sys
sys.path.insert(0, sys.argv[1])
os.dup2(os.open(sys.argv[2], os.O_CREAT | os.O_WRONLY), 1)
import palimpsest_backend
with palimpsest_backend.progress():
    os.system("echo '[1/3] Building CXX object src/a.cpp.o'; echo palimpsest: building ggml >&2")
    os.system("echo '[2/3] Building CXX object src/b.cpp.o'; echo a warning >&2")
    os.system("echo '[3/3] Linking CXX executable palimpsest'")
print("after")
"""


def test_progress_is_shown_on_the_terminal(tmp_path):
    pytest.importorskip("scikit_build_core")
    captured = tmp_path / "captured"
    child, terminal = pty.fork()
    if child == 0:
        os.execv(sys.executable, [sys.executable, "-c", BUILD, str(BACKEND), str(captured)])
    shown = b""
    try:
        while piece := os.read(terminal, 4096):
            shown += piece
    except OSError:  # the end of a terminal on Linux
        pass
    assert os.waitpid(child, 0)[1] == 0, shown
    text = shown.decode()
    assert "palimpsest: 1 of 3 (33%), 0.0 min: a.cpp.o" in text
    assert "palimpsest: building ggml" in text
    assert "b.cpp.o" not in text, "less than ten seconds after the first"
    assert "palimpsest: 3 of 3 (100%)" in text
    lines = captured.read_text().splitlines()
    assert lines[0].startswith("[1/3]") and "a warning" in lines and lines[-1] == "after"
