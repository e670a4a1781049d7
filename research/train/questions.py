"""Held-out questions: a fact among others of its kind, then stories, then its question, at an exact distance in tokens.

    python questions.py --tokenizer research/train/tokenizer.json --out questions.jsonl [--questions 500] [--distances 64 256 ...]
Writes one JSON object per line: distance, kind, prompt (ends with `answer:`), answer, value, lead (the answer before the value).
"""
import argparse
import json
import random

import facts
from bpe import BOS, Tokenizer
from documents import CHARS_PER_TOKEN
from grammar import World
from stories import story

HELD = "held-out"  # training seeds begin with a number


def filler(rng, tokenizer, world, room):
    """Exactly `room` tokens of story lines, as in `documents.quiz`."""
    text = ""
    while len(text) < room * CHARS_PER_TOKEN + 50:
        text += "".join(f"story: {p}\n" for p in story(world)[1])
    ids = tokenizer.encode(text)[0][: max(0, room)]
    if ids:
        ids[-1] = tokenizer.encode("\n")[0][0]
    return ids


def chosen(rng, w):
    """The fact to be asked for, the fact that states its value (another one if the question needs two), and six facts with both."""
    kind, used = rng.choice(facts.KINDS), set()
    if rng.random() < len(facts.KINDS) / (len(facts.KINDS) + 2):
        pool = facts.some(rng, 3, w, [kind], used) + facts.some(rng, 3, w, [k for k in facts.KINDS if k is not kind], used)
        return pool[0], pool[0], pool
    asked = facts.chains(rng, 1, w, used)[0]
    pool = asked.parts + facts.some(rng, 2, w, [facts.friend], used) + facts.some(rng, 2, w, facts.LINKED, used)
    return asked, asked.parts[1], pool


def question(rng, tokenizer, distance):
    """Ids, start and length of the value, and the fact; the value is `distance` tokens after the fact's."""
    w = World(rng, 8)
    fact, told, pool = chosen(rng, w)
    rng.shuffle(pool)
    at = pool.index(told)
    said = "note: " + told.says[0].replace("@", facts.mark(told.value)) + "\n"
    before = "".join(f"note: {f.state(rng)}\n" for f in pool[:at])
    after = "".join(f"note: {f.state(rng)}\n" for f in pool[at + 1:])
    asked = f"question: {fact.ask(rng)}\nanswer: {fact.answer(rng)}\n"
    head, told = tokenizer.encode(before + said)
    middle = tokenizer.encode(after)[0]
    tail, recall = tokenizer.encode(asked)
    room = distance - len(middle) - recall.index(1) - (len(head) - told.index(1))
    ids = [BOS] + head + middle + filler(rng, tokenizer, w, room) + tail
    start = len(ids) - len(tail) + recall.index(1)
    return ids, start, sum(recall), fact


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--tokenizer", required=True)
    a.add_argument("--out", required=True)
    a.add_argument("--questions", type=int, default=500)
    a.add_argument("--distances", type=int, nargs="*", default=[64, 256, 512, 1024, 1900])
    o = a.parse_args()
    tokenizer = Tokenizer.load(o.tokenizer)
    with open(o.out, "w") as f:
        for distance in o.distances:
            rng = random.Random(f"{HELD} {distance}")
            for _ in range(o.questions):
                ids, start, n, fact = question(rng, tokenizer, distance)
                text = tokenizer.decode(ids[1:start])
                cut = text.rindex("answer:") + len("answer:")
                row = dict(distance=distance, kind=fact.kind, prompt=text[:cut], lead=text[cut:], value=fact.value)
                f.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
