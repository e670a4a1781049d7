"""Checks the generator and the tokenizer without PyTorch or numpy: python3 selfcheck.py"""
import hashlib
import os
import random
import re
import sys

import documents
import facts
from bpe import SPECIAL, Tokenizer, train
import interludes
from grammar import World
from lexicon import BOYS, GIRLS, WHOLE
from plots import PLOTS
from questions import question
from stories import OPENINGS, story

PRONOUN = re.compile(r"(?<![\w.])(he|she|him|his|her|hers|himself|herself)(?!\w)", re.IGNORECASE)


def check(ok, what):
    if not ok:
        sys.exit(f"selfcheck: {what}")


def make(kind, seed, size=6000):
    return documents.KINDS[kind](random.Random(seed), size)


def main():
    for kind in documents.KINDS:
        a, b, c = make(kind, 1), make(kind, 1), make(kind, 2)
        check(a == b, f"{kind}: one seed gives two texts")
        check(a != c, f"{kind}: two seeds give one text")
        check(len(a) >= 6000, f"{kind}: too short")
        check(a.isascii(), f"{kind}: not ASCII")

    # Every plot is used; no template syntax remains.
    titles = set()
    for seed in range(600):
        title, paragraphs = story(World(random.Random(seed)))
        text = "\n".join(paragraphs)
        titles.add(title)
        left = re.search(r"[${}|~^]|\x22\x22|  | [,.]|\ba [aeiou]\w+ (?!.*\bone\b)", text)
        check(not left, f"story {seed} ({title}): {text[max(0, left.start() - 30): left.end() + 30] if left else ''!r}")
        check(not re.search(r"[.!?] [a-z]", re.sub(r'"[^"]*"', '""', text)), f"story {seed} ({title}): a sentence begins small")
    check(len(PLOTS) >= 40 and len(titles) > 300, "too few stories")

    # Pronouns come from the person, never from a template; everybody is named and speaks.
    templates = [beat for _, beats in PLOTS for beat in beats] + interludes.ALONE + interludes.TOGETHER + OPENINGS
    for text in templates:
        check(not PRONOUN.search(text), f"a pronoun without a person in {text!r}")

    # A story has a cast of its own: no name of one is in the next. ("Will" is also another word.)
    people = set(GIRLS + BOYS) - set(re.findall(r"[A-Z][a-z]+", " ".join(templates)))
    for seed in range(20):
        rng, w, before = random.Random(seed), None, set()
        for _ in range(12):
            w = World(rng, before=w)
            names = set(re.findall(r"[A-Z][a-z]+", " ".join(story(w)[1]))) & people
            check(len(names) >= 2, f"saga {seed}: a story of {names}")
            check(not names & before, f"saga {seed}: {names & before} in two stories")
            before |= names

    # A question's answer occurs before it with the same key; the marks are balanced.
    for seed in range(200):
        rng = random.Random(seed)
        known = facts.some(rng, 12)
        check(len({f.key for f in known}) == len(known), "two facts share a key")
        for f in known:
            answer = f.answer(rng)
            check(answer.count("\x01") == answer.count("\x02") == 1, f"marks in {answer!r}")
            check(f" {f.value}" in f.state(rng), f"the statement of {f.key} lacks its value")
        text = make(rng.choice(["quiz", "haystack"]), seed)
        for m in re.finditer("\x01([^\x02]*)\x02", text):
            check(m.group(1) in text[: m.start()], f"document {seed}: {m.group(1)!r} was never told")

    # The tokenizer: lossless; digits are separate; marks do not change the ids.
    sample = [make(k, 3, 20000).replace("\x01", "").replace("\x02", "") for k in documents.KINDS]
    tokenizer = Tokenizer(train(sample, 600))
    check(len(tokenizer.tokens) == 600 == len(tokenizer.id), "vocabulary of the wrong size")
    text = make("quiz", 9) + "It's 1,234.5 \u00e9\u4e16\t \n\n end "
    ids, recall = tokenizer.encode(text)
    plain = text.replace("\x01", "").replace("\x02", "")
    check(tokenizer.decode(ids) == plain, "text does not come back")
    check(tokenizer.encode(plain)[0] == ids, "the marks change the tokens")
    check(sum(recall) > 0, "no recall marked")
    check(not any(re.search(r"\d", t) and len(t) > 1 for t in tokenizer.tokens[len(SPECIAL):]), "digits merged")
    check(tokenizer.encode("<|im_start|>a<|im_end|>")[0][0] == 1, "special tokens are not read")
    # The model's tokenizer: names and things are one token; held-out questions have the right distance.
    tokenizer = Tokenizer.load(os.path.join(os.path.dirname(os.path.abspath(__file__)), "tokenizer.json"))
    spelled = [w for w in WHOLE if len(tokenizer.word(w)) != 1]
    check(not spelled, f"not one token: {spelled[:5]}")
    for seed in range(100):
        ids, start, n, fact = question(random.Random(seed), tokenizer, 256)
        value = tokenizer.encode(" " + fact.value)[0]
        check(ids[start: start + n] == value == ids[start - 256: start - 256 + n], f"question {seed}: {fact.key} is not 256 tokens away")

    print(f"selfcheck: passed; {len(PLOTS)} plots, digest {hashlib.sha256(make('saga', 1).encode()).hexdigest()[:12]}")


if __name__ == "__main__":
    main()
