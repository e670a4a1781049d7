#!/usr/bin/env python3
"""What a newcomer does first: the commands of README.md and docs/usage.md with SmolLM2, and ten mistakes. Prints the time and the
first lines of each; fails where a command fails, or where a mistake is not answered in one line that says what to do.

    python3 tests/system/first_hour.py [--model smollm2|FILE]      `make build` first; the model is pulled unless it is there
"""
import argparse
import json
import pathlib
import subprocess
import sys
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = "build/palimpsest"

# A mistake, and what its answer must have.
MISTAKES = [
    (["rnu"], "did you mean 'run'?"),
    (["run", "--bugdet", "64"], "did you mean '--budget'?"),
    (["run", "--method", "h20"], "did you mean 'h2o'?"),
    (["run", "--method", "h2o:bugdet=64"], "did you mean 'budget'?"),
    (["run", "-m", "smolm2"], "did you mean 'smollm2'?"),
    (["run", "-m", "nowhere.gguf"], "give the path of a GGUF file"),
    (["run", "-ngl", "99"], "--device"),
    (["run", "-cnv"], "palimpsest chat"),
    (["-hf", "a/b"], "palimpsest chat -hf a/b"),
    (["run", "--budget", "3"], "budget"),
]


def show(words, seconds, text):
    lines = [line for line in text.strip().splitlines() if line][:3]
    print(f"{seconds:7.1f} s  $ {' '.join(words)}")
    for line in lines:
        print(f"             {line[:150]}")


def run(*words, text=None):
    """Runs a command of the repository, which must print something."""
    start = time.monotonic()
    done = subprocess.run(words, cwd=ROOT, input=text or "", capture_output=True, text=True, timeout=900, check=False)
    show(words, time.monotonic() - start, done.stdout or done.stderr)
    if done.returncode != 0:
        sys.exit(f"first_hour.py: {' '.join(words)}: exit code {done.returncode}: {done.stderr.strip()[-500:]}")
    if not done.stdout.strip():
        sys.exit(f"first_hour.py: {' '.join(words)}: printed nothing")


def mistakes():
    for words, part in MISTAKES:
        done = subprocess.run([PROGRAM, *words], cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
        print(f"           $ palimpsest {' '.join(words)}\n             {done.stderr.strip()[:150]}")
        if done.returncode != 2 or part not in done.stderr or done.stderr.count("\n") != 1:
            sys.exit(f"first_hour.py: palimpsest {' '.join(words)}: not one line with '{part}'")


def serve(model):
    start = time.monotonic()
    server = subprocess.Popen([PROGRAM, "serve", "-m", model, "--port", "0"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        url = next(word for word in server.stdout.readline().split() if word.startswith("http")).rstrip("/")
        show(["palimpsest", "serve", "-m", model], time.monotonic() - start, url)
        body = json.dumps({"messages": [{"role": "user", "content": "Name two colours."}], "max_tokens": 30, "temperature": 0}).encode()
        start = time.monotonic()
        with urllib.request.urlopen(urllib.request.Request(f"{url}/v1/chat/completions", body, {"Content-Type": "application/json"}), timeout=120) as answer:
            show(["curl", "/v1/chat/completions"], time.monotonic() - start, json.load(answer)["choices"][0]["message"]["content"])
        with urllib.request.urlopen(url, timeout=30) as page:
            if b"<html" not in page.read():
                sys.exit("first_hour.py: / is not the page")
    finally:
        server.terminate()
        server.wait()


def main():
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("--model", default="smollm2")
    model = parse.parse_args().model
    run("make", "run", "RUN_ARGS=-n 200 --seed 1")
    if not model.endswith(".gguf"):
        run(PROGRAM, "pull", model)
    run(PROGRAM, "run", "-p", "Once upon a time", "--budget", "64", "--show-memory")
    run(PROGRAM, "run", model, "Name two colours.", "--temp", "0", "-n", "30")
    run(PROGRAM, "chat", "-m", model, "--temp", "0", "-n", "40", text="Name three planets.\n/stats\n")
    run(PROGRAM, "info", model)
    run(PROGRAM, "plan", model, "--memory", "1GiB")
    run(PROGRAM, "methods", "-m", model)
    serve(model)
    mistakes()
    print("first hour: passed")


if __name__ == "__main__":
    main()
