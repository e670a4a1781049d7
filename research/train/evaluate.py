"""Evaluates a checkpoint: loss on held-out stories and prose, loss by position, recall by distance, attention on the first tokens.

    python evaluate.py --data DATA --run RUN [--questions 500] [--distances 64 256 512 1024 1900]
Writes RUN/evaluation.json.
"""
import argparse
import json
import os
import random

import numpy as np
import torch
import torch.nn.functional as F

from bpe import BOS, Tokenizer
from check import load
from documents import CHARS_PER_TOKEN, saga
from questions import HELD, question


def story_rows(tokenizer, count, length):
    rng = random.Random(HELD + " stories")
    return [([BOS] + tokenizer.encode(saga(rng, int(length * CHARS_PER_TOKEN)))[0])[: length + 1] for _ in range(count)]


def prose_rows(books, count, length):
    starts = np.linspace(0, len(books) - length - 1, count).astype(int)
    return [[BOS] + books[s: s + length].tolist() for s in starts]


@torch.no_grad()
def losses(model, rows):
    ids = torch.tensor(rows)
    out = []
    for r in ids:
        logits = model(r[None, :-1])[0]
        out.append(F.cross_entropy(logits, r[1:], reduction="none"))
    return torch.stack(out)


@torch.no_grad()
def recall(model, tokenizer, distance, count):
    rng, right, kinds = random.Random(f"{HELD} {distance}"), 0, {}
    for _ in range(count):
        ids, start, n, fact = question(rng, tokenizer, distance)
        logits = model.hidden(torch.tensor([ids[: start + n - 1]]))[0, start - 1:] @ model.embed.weight.T
        ok = logits.argmax(-1).tolist() == ids[start: start + n]
        right += ok
        hits = kinds.setdefault(fact.kind, [0, 0])
        hits[0] += ok
        hits[1] += 1
    return right / count, {k: round(a / b, 3) for k, (a, b) in sorted(kinds.items())}


@torch.no_grad()
def sinks(model, rows, first=4):
    """Mean attention weight on the first tokens, [layer][head], over the queries after position 64."""
    total = torch.zeros(model.c.layers, model.c.heads)
    for r in rows:
        x = model.embed(torch.tensor([r]))
        cos, sin = model.cos[: len(r)], model.sin[: len(r)]
        for i, block in enumerate(model.blocks):
            q, k, _ = block.qkv(x, cos, sin)
            s = (q @ k.mT) * model.c.head_dim ** -0.5
            s = s.masked_fill(torch.ones(len(r), len(r)).triu(1).bool(), -torch.inf).softmax(-1)
            total[i] += s[0, :, 64:, :first].sum(-1).mean(-1)
            x = block(x, cos, sin)
    return (total / len(rows)).tolist()


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--data", required=True)
    a.add_argument("--run", required=True)
    a.add_argument("--rows", type=int, default=16)
    a.add_argument("--questions", type=int, default=500)
    a.add_argument("--distances", type=int, nargs="*", default=[64, 256, 512, 1024, 1900])
    a.add_argument("--context", type=int, help="measure losses on rows of this length; default: the model's")
    o = a.parse_args()
    torch.set_num_threads(1)
    model, data = load(o.run)
    tokenizer = Tokenizer.load(os.path.join(o.data, "tokenizer.json"))
    held = np.load(os.path.join(o.data, "prose-held.npy"))
    length = (o.context or model.c.context) - 1
    out = dict(tokens_seen=data["seen"], steps=data["step"], hours=round(data["seconds"] / 3600, 2), parameters=model.count())
    for name, rows in (("stories", story_rows(tokenizer, o.rows, length)), ("prose", prose_rows(held, o.rows, length))):
        each = losses(model, rows)
        out["loss_" + name] = round(each.mean().item(), 4)
        out["loss_by_position_" + name] = {f"{lo}-{hi}": round(each[:, lo:hi].mean().item(), 4)
                                           for lo, hi in ((0, 64), (64, 256), (256, 512), (512, 1024), (1024, 2048)) if lo < length}
        print(name, out["loss_" + name], out["loss_by_position_" + name], flush=True)
    out["recall"], out["recall_by_kind"] = {}, {}
    for d in o.distances:
        out["recall"][d], out["recall_by_kind"][d] = recall(model, tokenizer, d, o.questions)
        print(f"recall at {d}: {100*out['recall'][d]:.1f}%", out["recall_by_kind"][d], flush=True)
    out["weight_on_first_4"] = [[round(x, 3) for x in layer] for layer in sinks(model, story_rows(tokenizer, 4, 512))]
    for i, layer in enumerate(out["weight_on_first_4"]):
        print("first four tokens, layer", i, layer)
    with open(os.path.join(o.run, "evaluation.json"), "w") as f:
        json.dump(out, f, indent=1)


if __name__ == "__main__":
    main()
