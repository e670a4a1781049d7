"""Training rows: every row is one document of exactly `length` + 1 tokens that begins with BOS.

A shard is a few hundred rows, a function of (seed, stage, number), so that a resumed run has the same data.
"""
import random

import numpy as np

import documents
from documents import CHARS_PER_TOKEN
from bpe import BOS
from lexicon import WHOLE

ANSWER_WEIGHT = 4
OTHER_WEIGHT = 12  # names of `doubles`, which are few
AGAIN_WEIGHT = 3  # repeated names, things and locations, for consistent stories


def repeats(rng, vocab, length):
    """Repeated random tokens, which only induction predicts. Only predictable tokens have a weight."""
    ids, known = [BOS], [0]
    while len(ids) <= length:
        once = [rng.randrange(3, vocab) for _ in range(rng.choice([4, 8, 16, 32]))]
        for turn in range(rng.choice([2, 3, 4])):
            ids += once
            known += [0] + [1] * (len(once) - 1) if turn else [0] * len(once)
    return ids[: length + 1], known[: length + 1]


def carriers(tokenizer):
    """The tokens of names, things and locations."""
    if not hasattr(tokenizer, "carriers"):
        tokenizer.carriers = {tokenizer.word(w)[0] for w in WHOLE if len(tokenizer.word(w)) == 1}
    return tokenizer.carriers


def weigh(ids, recall, special):
    out, before = [], set()
    for i, r in zip(ids, recall):
        out.append(ANSWER_WEIGHT if r else AGAIN_WEIGHT if i in before else 1)
        if i in special:
            before.add(i)
    return out


def row(rng, kind, tokenizer, books, length):
    """Ids, loss weights, and recall marks. Only answers of chats and prompts have a weight. Only stories train the tokens after
    BOS, so that the model starts a story from an empty prompt."""
    ids, weights, recall = plain_row(rng, kind, tokenizer, books, length)
    if kind != "saga":
        weights[1] = 0
    return ids, weights, recall


def plain_row(rng, kind, tokenizer, books, length):
    if kind == "prose":
        start = rng.randrange(len(books) - length)
        return [BOS] + books[start: start + length].tolist(), [1] * (length + 1), [0] * (length + 1)
    if kind == "repeats":
        ids, known = repeats(rng, len(tokenizer.tokens), length)
        return ids, known, [0] * (length + 1)
    ids, recall = tokenizer.encode(documents.KINDS[kind](rng, int(length * CHARS_PER_TOKEN) + 40))
    ids, recall = [BOS] + ids, [0] + recall
    if len(ids) < length + 1:
        raise ValueError(f"a {kind} document of {len(ids)} tokens is too short for a row of {length + 1}")
    ids, recall = ids[: length + 1], recall[: length + 1]
    weights = weigh(ids, recall, carriers(tokenizer))
    if kind in ("haystack", "far"):  # only the answers: a model that learns to write such prompts writes them in the middle of a story
        ends = [0, *recall]  # the token after an answer is its end
        weights = [w if r or e else 0 for w, r, e in zip(weights, recall, ends)]
    if kind == "doubles":
        weights = [OTHER_WEIGHT if r else 0 for r in recall]
    if kind == "chat":
        weights = [w if a else 0 for w, a in zip(weights, answered(ids, tokenizer))]
    return ids, weights, recall


def answered(ids, tokenizer):
    """For each token of a chat, whether the assistant says it, the end of the message included."""
    begin, end = tokenizer.encode(documents.MODEL)[0], tokenizer.encode(documents.END)[0][0]
    out, inside = [], False
    for i, token in enumerate(ids):
        inside = inside or ids[i - len(begin): i] == begin
        out.append(inside)
        inside = inside and token != end
    return out


def shard(seed, stage, number, tokenizer, books, length, rows, mixture):
    """Arrays [rows, length + 1]: ids (uint16), weights, recall (uint8). `mixture`: {kind: share}."""
    rng = random.Random(f"{seed}/{stage}/{number}")
    kinds, shares = zip(*sorted(mixture.items()))
    made = [row(rng, k, tokenizer, books, length) for k in rng.choices(kinds, shares, k=rows)]
    ids, weights, recall = zip(*made)
    return np.array(ids, np.uint16), np.array(weights, np.uint8), np.array(recall, np.uint8)
