"""Threads, fork, Ctrl-C, memory. PALIMPSEST_LONG=1: the long forms."""

import gc
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
import tracemalloc

import numpy as np
import pytest
from conftest import STORY

import palimpsest

LONG = bool(os.environ.get("PALIMPSEST_LONG"))


def resident():
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / 2**20  # MiB


def check_growth(work, times):
    """What the second half of many repetitions adds: resident memory below 32 MiB, Python's objects below 64 KiB."""
    for _ in range(times // 2):
        work()
    tracemalloc.start()
    try:
        work()
        gc.collect()
        before, traced = resident(), tracemalloc.get_traced_memory()[0]
        for _ in range(times - times // 2 - 1):
            work()
        gc.collect()
        resident_mib, traced_kib = resident() - before, (tracemalloc.get_traced_memory()[0] - traced) / 1024
    finally:
        tracemalloc.stop()
    print(f"{times} times: resident {resident_mib:+.1f} MiB, traced {traced_kib:+.1f} KiB in the second half")
    assert resident_mib < 32 and traced_kib < 64


def test_steps_of_eight_threads_leak_nothing(model):
    steps = 10_000 if LONG else 600
    failures = []

    def run(seed):
        try:
            session = model.session("h2o", budget=64, attention=seed % 2 == 0)
            session.prefill(model.tokenize(STORY))
            for i in range(steps):
                session.decode((seed * 31 + i) % 3000)
                if i % 50 == 0:
                    session.keys(0, 0).copy()
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    def all_threads():
        threads = [threading.Thread(target=run, args=(seed,)) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    all_threads()
    before = resident()
    all_threads()
    assert not failures
    grown = resident() - before
    print(f"8 threads x {steps} steps: resident {grown:+.1f} MiB in the second run")
    assert grown < 32


def test_one_session_in_two_threads(model):
    session = model.session("full")

    def run():
        for i in range(200):
            session.decode(i)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert session.position == 400


def test_opened_models_leak_nothing():
    def work():
        model = palimpsest.Model()
        model.session().decode(5)

    check_growth(work, 1000 if LONG else 60)


def test_views_and_exceptions_leak_nothing(model):
    class Fails:
        needs = {"attention_window": 8, "keys": 0}

        def score(self, head):
            self.kept = head.keys
            raise KeyError("now")

    palimpsest.register("fails-later", Fails)
    tokens = model.tokenize(STORY)

    def work():
        session = model.session("random:policy=fails-later", budget=40)
        with pytest.raises(palimpsest.PolicyError):
            session.prefill(tokens)
        late = model.session("full")
        late.prefill(tokens)
        keys = late.keys(0, 0)
        raw = np.asarray(keys)
        late.decode(3)
        with pytest.raises(palimpsest.StepPassed):
            keys.copy()
        assert np.isfinite(raw).all()

    check_growth(work, 1000 if LONG else 100)


def child(code, **options):
    return subprocess.Popen(
        [sys.executable, "-X", "dev", "-W", "error", "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        **options,
    )  # fmt: skip


def test_a_forked_process_gets_an_error():
    code = """
import os, palimpsest
model = palimpsest.Model()
session = model.session()
session.decode(5)
pid = os.fork()
if pid == 0:
    for use in (lambda: session.decode(5), lambda: palimpsest.Model(), lambda: model.generate("a").text):
        try:
            use()
            os._exit(1)
        except palimpsest.Error as error:
            assert "forked" in str(error)
    os._exit(0)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    process = child(code)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err


def test_a_process_forked_before_may_open_a_model():
    code = """
import os, palimpsest
pid = os.fork()
if pid == 0:
    os._exit(0 if palimpsest.Model().generate("One day", max_tokens=5).text else 1)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    process = child(code)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err


@pytest.mark.parametrize(
    "work",
    [
        "for _ in model.generate('One day', max_tokens=-1, ignore_eos=True): pass",
        "palimpsest.evaluate.perplexity(model, 'One day it rained. ' * 30_000, 'streaming')",
    ],
)
def test_ctrl_c(work):
    # A shell's background jobs ignore SIGINT, and so do their children.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    process = child(f"import palimpsest\nmodel = palimpsest.Model()\nprint('go', flush=True)\n{work}")
    try:
        assert process.stdout.readline() == "go\n"
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert "KeyboardInterrupt" in err and process.returncode != 0


def test_a_server_left_running_ends_with_the_process():
    code = "import palimpsest\nserver = palimpsest.Server(palimpsest.Model())\nprint(server.port)"
    process = child(code)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0 and not err
