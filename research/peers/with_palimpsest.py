"""Palimpsest itself. `method`: as --method takes it. Answers through `palimpsest serve`, speed through `palimpsest run`."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import urllib.request

REPO = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(REPO / "tests" / "system"), str(REPO / "research" / "train")]
import job  # noqa: E402
from bpe import Tokenizer  # noqa: E402
from server import Server  # noqa: E402

PROGRAM = os.environ.get("PALIMPSEST_PROGRAM", REPO / "build" / "palimpsest")


def answers(task, tokenizer):
    method, _, kind = task["method"].partition(" ")  # "snapkv:budget=256 q4"
    server = Server(PROGRAM, "--port", 0, "-m", task["model"], "-t", task["threads"], "--cache-type", kind or "f16")
    name, _, rest = method.partition(":")
    cache = {"method": name, **dict(pair.split("=") for pair in rest.split(",") if pair)}
    tokens = []
    for prompt in task["prompts"]:
        body = {"prompt": prompt, "max_tokens": task["tokens"], "temperature": 0, "ignore_eos": True, "cache": cache}
        request = urllib.request.Request(server.url + "/v1/completions", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=600) as answer:
            tokens.append(tokenizer.encode(json.load(answer)["choices"][0]["text"])[0])
    server.end()
    return tokens


def speed(task, tokenizer):
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as text:
        text.write(tokenizer.decode(task["prompts"][0][1:]))  # the program adds BOS
        text.flush()
        command = [PROGRAM, "run", "-m", task["model"], "-f", text.name, "-n", task["tokens"], "-t", task["threads"],
                   "--method", task["method"], "--temp", 0, "--ignore-eos", "--json"]
        run = json.loads(subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True).stdout)
    assert run["prompt_tokens"] == len(task["prompts"][0]), (run["prompt_tokens"], len(task["prompts"][0]))
    return {"ttft_s": run["ttft_ms"] / 1e3, "tpot_s": run["tpot_ms"]["mean"] / 1e3}


def kept(task, tokenizer):
    sets = []
    texts = task.get("texts") or [tokenizer.decode(prompt[1:]) for prompt in task["prompts"]]  # the program adds BOS
    for prompt, words in zip(task["prompts"], texts, strict=True):
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as text:
            text.write(words)
            text.flush()
            command = [PROGRAM, "eval", "retention", "-m", task["model"], "-f", text.name, "-t", task["threads"], "--cache-type", "f32",
                       "--prefill-chunk", 2048, "--method", task["method"], "--json", "--list"]
            run = json.loads(subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True).stdout)
        assert run["tokens"] == len(prompt), (run["tokens"], len(prompt))
        sets.append([head["kept"] for head in run["runs"][0]["heads"]])
    return sets


def main():
    task = job.read()
    tokenizer = Tokenizer.load(str(REPO / "research" / "train" / "tokenizer.json"))
    version = subprocess.run([PROGRAM, "--version"], capture_output=True, text=True).stdout.strip()
    if task["kind"] == "kept":
        job.answer(kept=kept(task, tokenizer), version=version)
    elif task["kind"] == "answers":
        job.answer(tokens=answers(task, tokenizer), version=version)
    else:
        job.answer(**speed(task, tokenizer), version=version)


main()
