"""Creates the data folder: tokenizer, and prose as token ids (two books held out).

    python prepare.py --prose novels.tar.xz --out DATA [--vocab 3072]
"""
import argparse
import os
import random

import numpy as np

import documents
import prose
from bpe import Tokenizer, train
from lexicon import WHOLE

OFTEN = 400  # copies of each one-token word in the tokenizer's training sample


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--prose", required=True)
    a.add_argument("--out", required=True)
    a.add_argument("--vocab", type=int, default=3072)
    a.add_argument("--tokenizer", help="use this tokenizer instead of training one")
    a.add_argument("--books", type=int, default=1000, help="max number of books")
    o = a.parse_args()
    os.makedirs(o.out, exist_ok=True)
    texts = [t for _, t in prose.books(o.prose)][: o.books]
    if o.tokenizer:
        tokenizer = Tokenizer.load(o.tokenizer)
    else:
        rng = random.Random(1)
        sample = [documents.KINDS[k](rng, 4000) for k in ["saga", "saga", "quiz", "chat"] for _ in range(600)]
        sample = [s.replace("\x01", "").replace("\x02", "").replace("<|im_start|>", " ").replace("<|im_end|>", " ") for s in sample]
        sample += [t[10000:70000] for t in texts]
        sample += [w for w in WHOLE for _ in range(OFTEN)]
        tokenizer = Tokenizer(train(sample, o.vocab))
    tokenizer.save(os.path.join(o.out, "tokenizer.json"))
    order = list(range(len(texts)))
    random.Random(2).shuffle(order)
    for name, some in (("prose-held", order[:2]), ("prose", order[2:])):
        ids = [np.array(tokenizer.encode(texts[i])[0], dtype=np.uint16) for i in some]
        np.save(os.path.join(o.out, name + ".npy"), np.concatenate(ids))
        print(name, sum(map(len, ids)), "tokens of", sum(len(texts[i]) for i in some), "characters")


if __name__ == "__main__":
    main()
