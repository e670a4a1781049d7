#!/usr/bin/env python3
"""Runs the commands of the documentation. A command that cannot run here is named with what it needs.

usage: tools/site/commands.py [PAGE.md ...]      needs build/palimpsest

Lines of code blocks that begin with `palimpsest`, `curl` or `make` are commands; a trailing backslash continues one. They run
in a scratch folder with the files that the pages name: model.gguf (the default model), book.txt, folder/, DIR/, questions.jsonl.
Servers answer the page's `curl` commands and end with it."""

import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = ["README.md", "docs/usage.md", "docs/evaluation.md", "docs/server.md", "docs/write-a-policy.md", "docs/packages.md"]
COMMAND = re.compile(r"^(?: {4})?(?:\$ )?((?:build/)?palimpsest|curl|make)( .*|)$")
OUTPUT = re.compile(r"palimpsest: ")  # what the command prints
# Commands that are not run: expression, what it needs.
NEEDS = {
    r"^make (?!help)": "minutes; only the target's existence is checked",
    r"longbench": "LongBench's files",
    r"plotly\.min\.js": "Plotly (make sweep)",
    r"sweep bench/": "minutes (make sweep)",
    r"--num-prompts 200|--reps 3": "minutes",
    r'curl .*/v1/sessions/|"session":': "a server with --session-path",
    r"palimpsest (pull|rm)|smollm2": "the network (tests/hub)",
    r"palimpsest fit (?!.*--quick)|bench methods": "minutes (tests/apps)",
    r"palimpsest chat": "a terminal (tests/apps/chat_test.cpp)",
    r"-f notes\.md|-md draft": "a second model",
    r"serve -m bge": "an encoder (tests/encoder)",
    r"serve --models-dir": "a folder of models (tests/server)",
}


def commands_of(page):
    """The commands of a page, whole: with continued lines, and quotes that end on a later line."""
    lines = iter((ROOT / page).read_text().splitlines())
    for line in lines:
        match = COMMAND.match(line)
        if not match or OUTPUT.search(match[0].strip()[:12]):
            continue
        text = match[1].removeprefix("build/") + match[2]
        while text.endswith("\\") or text.count("'") % 2 or text.count('"') % 2 and "'" not in text:
            following = next(lines, None)
            if following is None:
                break
            text = text.removesuffix("\\") + ("\n" if not text.endswith("\\") else " ") + following.removeprefix("    ")
        yield text.split("   #")[0].strip()


def targets():
    return set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.M))


def prepare(folder):
    text = "\n".join(f"The keeper of tower {i} lit lamp {i * 7 % 100} and went home in the rain." for i in range(400))
    (folder / "book.txt").write_text(text)
    (folder / "folder").mkdir()
    (folder / "folder" / "part.txt").write_text(text[:4000])
    questions = [{"prompt": "The lamp is", "choices": [" lit", " wet"], "answer": 0},
                 {"prompt": "The keeper", "choices": [" went home", " lamp"], "answer": 0}]
    (folder / "questions.jsonl").write_text("".join(json.dumps(q) + "\n" for q in questions))
    shutil.copy(ROOT / "models/palimpsest-stories.gguf", folder / "model.gguf")
    (folder / "DIR").mkdir()
    programs = folder / "bin"
    programs.mkdir()
    (programs / "palimpsest").symlink_to(ROOT / "build/palimpsest")
    return dict(os.environ, PATH=f"{programs}:{os.environ['PATH']}")


def wait_for_port(port, seconds=20):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with socket.socket() as s:
            if s.connect_ex(("127.0.0.1", port)) == 0:
                return True
        time.sleep(0.1)
    return False


def stop(server):
    if server is not None:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(60)


def run_page(page, folder, env):
    """The lines of the report, and the number of failures."""
    report, failures, server = [], 0, None
    known = targets()
    try:
        for command in commands_of(page):
            shown = command.replace("\n", " ")[:100]
            need = next((what for pattern, what in NEEDS.items() if re.search(pattern, command, re.S)), None)
            if command.startswith("make ") and command.split()[1] not in known:
                report.append(f"FAILED   {shown}: no such target")
                failures += 1
            elif need:
                report.append(f"not run  {shown}  (needs: {need})")
            elif command.startswith("palimpsest serve"):
                stop(server)
                server = subprocess.Popen("exec " + command, shell=True, cwd=folder, env=env, start_new_session=True,
                                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                ok = wait_for_port(8080)
                failures += not ok
                report.append(f"{'ran' if ok else 'FAILED'}      {shown}")
            else:
                start = time.monotonic()
                done = subprocess.run(command, shell=True, cwd=folder, env=env, capture_output=True, text=True, timeout=300)
                bad = done.returncode != 0 or done.stdout.startswith('{"error"')
                after = (ROOT / page).read_text().partition(command.split("\n")[0].split("   #")[0])[2]
                expected = "palimpsest: error:" in after[:120]
                ok = bad == expected
                failures += not ok
                report.append(f"{'ran' if ok else 'FAILED':8} {time.monotonic() - start:4.1f} s  {shown}")
                if not ok:
                    report.append(f"    exit {done.returncode}: {(done.stderr or done.stdout).strip()[-500:]}")
    finally:
        stop(server)
    return report, failures


def main():
    failures = 0
    for page in sys.argv[1:] or PAGES:
        with tempfile.TemporaryDirectory() as folder:
            report, failed = run_page(page, pathlib.Path(folder), prepare(pathlib.Path(folder)))
        failures += failed
        print(f"{page}\n" + "".join(f"  {line}\n" for line in report), flush=True)
    sys.exit(f"{failures} commands failed" if failures else 0)


if __name__ == "__main__":
    main()
