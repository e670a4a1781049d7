"""Palimpsest itself. `method`: as --method takes it. Answers through `palimpsest serve`, speed through `palimpsest run`."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import urllib.request

REPO = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(REPO / "tools" / "serve"), str(REPO / "tools" / "train")]
import job  # noqa: E402
from bpe import Tokenizer  # noqa: E402
from server import Server  # noqa: E402

PROGRAM = os.environ.get("PALIMPSEST_PROGRAM", REPO / "build" / "palimpsest")


def answers(asked, tokenizer):
    server = Server(PROGRAM, "--port", 0, "-m", asked["model"], "-t", asked["threads"])
    name, _, rest = asked["method"].partition(":")
    cache = {"method": name, **dict(pair.split("=") for pair in rest.split(",") if pair)}
    tokens = []
    for prompt in asked["prompts"]:
        body = {"prompt": prompt, "max_tokens": asked["tokens"], "temperature": 0, "ignore_eos": True, "cache": cache}
        request = urllib.request.Request(server.url + "/v1/completions", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=600) as answer:
            tokens.append(tokenizer.encode(json.load(answer)["choices"][0]["text"])[0])
    server.end()
    return tokens


def speed(asked, tokenizer):
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as text:
        text.write(tokenizer.decode(asked["prompts"][0][1:]))  # the beginning of text is the program's to add
        text.flush()
        command = [PROGRAM, "run", "-m", asked["model"], "-f", text.name, "-n", asked["tokens"], "-t", asked["threads"],
                   "--method", asked["method"], "--temp", 0, "--ignore-eos", "--json"]
        run = json.loads(subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True).stdout)
    assert run["prompt_tokens"] == len(asked["prompts"][0]), (run["prompt_tokens"], len(asked["prompts"][0]))
    return {"ttft_s": run["ttft_ms"] / 1e3, "tpot_s": run["tpot_ms"]["mean"] / 1e3}


def main():
    asked = job.read()
    tokenizer = Tokenizer.load(str(REPO / "tools" / "train" / "tokenizer.json"))
    version = subprocess.run([PROGRAM, "--version"], capture_output=True, text=True).stdout.strip()
    if asked["kind"] == "answers":
        job.answer(tokens=answers(asked, tokenizer), version=version)
    else:
        job.answer(**speed(asked, tokenizer), version=version)


main()
