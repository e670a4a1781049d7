"""Recall measured with palimpsest: held-out questions (questions.py), answered greedily by `palimpsest serve`.

    python recall.py --tokenizer research/train/tokenizer.json --out recall.json [--program build/palimpsest] [--model FILE]
        [--questions 500] [--distances 64 256 512 1024 1900] [--method full] [--method streaming:budget=256]

Two counts: `answer`: the text after `answer:` is the fact's statement word for word; `value`: it contains the value. Needs
the program and Python only.
"""
import argparse
import json
import random
import re
import subprocess
import urllib.request

from bpe import Tokenizer
from questions import HELD, question


def ask(url, prompts, method, tokens):
    body = dict(prompt=prompts, max_tokens=tokens, temperature=0, stop=["\n"], cache=method)
    request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as answer:
        return [c["text"] for c in sorted(json.load(answer)["choices"], key=lambda c: c["index"])]


class Server:
    """Runs `palimpsest serve` within the block; its address is `url`."""

    def __init__(self, program, flags=()):
        self.command = [program, "serve", "--port", "0", "--method", "full", *flags]

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.url = re.search(r"http://\S+", self.process.stdout.readline()).group(0).rstrip("/.,")
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()


def questions(tokenizer, distance, count):
    """(prompt, fact) pairs, the same for every method."""
    rng, rows = random.Random(f"{HELD} {distance}"), []
    for _ in range(count):
        ids, start, _, fact = question(rng, tokenizer, distance)
        text = tokenizer.decode(ids[1:start])
        rows.append((text[: text.rindex("answer:") + len("answer:")], fact))
    return rows


def recall(url, rows, method, batch=20):
    """Number of answers that are correct word for word, and that contain the value; and per kind, those correct and all."""
    whole = value = 0
    kinds = {}
    for at in range(0, len(rows), batch):
        some = rows[at: at + batch]
        for (_, fact), said in zip(some, ask(url, [p for p, _ in some], method, 24)):
            right = said.strip() == fact.answer_form.replace("@", " " + fact.value)
            whole += right
            kind = kinds.setdefault(fact.kind, [0, 0])
            kind[0] += right
            kind[1] += 1
            value += bool(re.search(rf" {fact.value}(?!\w)", said))
    return whole, value, kinds


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--tokenizer", required=True)
    a.add_argument("--out")
    a.add_argument("--program", default="palimpsest")
    a.add_argument("--model")
    a.add_argument("--questions", type=int, default=500)
    a.add_argument("--distances", type=int, nargs="*", default=[64, 256, 512, 1024, 1900])
    a.add_argument("--method", action="append")
    a.add_argument("--batch", type=int, default=20, help="questions per request")
    o = a.parse_args()
    tokenizer = Tokenizer.load(o.tokenizer)
    with Server(o.program, ["-m", o.model] if o.model else []) as server:
        out = {}
        for method in o.method or ["full", "streaming:budget=256"]:
            out[method] = {}
            for distance in o.distances:
                rows = questions(tokenizer, distance, o.questions)
                whole, value, kinds = recall(server.url, rows, method, o.batch)
                whole, value = whole / len(rows), value / len(rows)
                shares = {k: round(right / asked, 4) for k, (right, asked) in sorted(kinds.items())}
                out[method][distance] = dict(questions=len(rows), answer=round(whole, 4), value=round(value, 4), kinds=shares)
                print(f"{method}, distance {distance}: answer {100 * whole:.1f}%, value {100 * value:.1f}%; answer by kind: "
                      + ", ".join(f"{k} {100 * v:.0f}%" for k, v in shares.items()), flush=True)
    if o.out:
        with open(o.out, "w") as f:
            json.dump(out, f, indent=1)


if __name__ == "__main__":
    main()
