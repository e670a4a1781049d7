"""llama.cpp. `method`: "full", by llama-server for answers and llama-bench for speed (flash attention off and on, the
better one counts); "shift", by llama-completion in a context of `kept` cells, speed only."""
import json
import re
import socket
import subprocess
import tempfile
import time
import urllib.request

import job


def run(*command):
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True)


def answers(task):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    server = subprocess.Popen(["llama-server", "-m", task["model"], "--port", str(port), "-t", str(task["threads"]), "-c",
                               "4096", "-np", "1", "--no-webui"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            try:
                urllib.request.urlopen(url + "/health", timeout=1)
                break
            except OSError:
                time.sleep(0.1)
        tokens = []
        for prompt in task["prompts"]:
            body = {"prompt": prompt, "n_predict": task["tokens"], "temperature": 0, "ignore_eos": True,
                    "return_tokens": True, "cache_prompt": False}
            request = urllib.request.Request(url + "/completion", json.dumps(body).encode(),
                                             {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=600) as answer:
                tokens.append(json.load(answer)["tokens"])
        return tokens
    finally:
        server.terminate()
        server.wait()


def full_speed(task):
    size = len(task["prompts"][0])
    best = {}
    for name, flags in {"ttft_s": ["-p", size, "-n", 0], "tpot_s": ["-p", 0, "-n", task["tokens"], "-d", size]}.items():
        for flash in (0, 1):
            rows = json.loads(run("llama-bench", "-m", task["model"], "-t", task["threads"], "-fa", flash, "-r", 2, "-o",
                                  "json", *flags).stdout)
            seconds = (size if name == "ttft_s" else 1) / max(rows[0]["samples_ts"])
            best[name] = min(seconds, best.get(name, seconds))
    return best


def shift_speed(task):
    """The prompt's second half fills the context, which is then shifted again and again, half of it at a time."""
    kept = task["kept"]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as text:
        text.write("word " * (kept // 2))
        text.flush()
        log = run("llama-completion", "-m", task["model"], "-t", task["threads"], "-c", kept, "--context-shift", "-f",
                  text.name, "-n", kept, "--ignore-eos", "--temp", 0, "-no-cnv", "--no-warmup").stderr
    return {"ttft_s": None, "tpot_s": float(re.search(r"\n.*?eval time.*?\n.*? eval time =.*?([\d.]+) ms per token", log).group(1)) / 1e3}


def main():
    task = job.read()
    log = subprocess.run(["llama-completion", "--version"], capture_output=True, text=True)
    version = "llama.cpp " + re.search(r"version: (.*)", log.stdout + log.stderr).group(1)
    if task["kind"] == "answers":
        job.answer(tokens=answers(task), version=version)
    else:
        job.answer(**(full_speed if task["method"] == "full" else shift_speed)(task), version=version)


main()
