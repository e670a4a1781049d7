"""Trains the scorers of policies `learned`, `temporal` and `kvzap` on a model's attention: linear least squares per head.

    train.py DUMP... --out models/palimpsest-stories

writes NAME.scorer, NAME.temporal and NAME.kvzap. A DUMP is an output folder of `example_dump_attention MODEL TEXT TOKENS FOLDER` (texts.py
writes texts). For queries at every `step`-th position, each preceding token is one sample:

    inputs   learned: 1, ||k||, ||v||, k, v; temporal: also age and attention, lately and in total
             as in src/palimpsest/policy/learned.cpp and temporal.cpp; k unrotated
    target   sqrt(mean attention that the token receives from all later queries)

kvzap: each token of a text is one sample with the inputs of `learned`; target: ln(max attention while the model repeats the text).

--evaluate DUMP... prints the share of later attention that the tokens with the highest scores receive, beside heuristics.

The square root is a compromise between the attention itself (dominated by a few sinks) and its logarithm (dominated by the
lowest values). The ridge is a share of the inputs' mean square. Needs numpy.
"""
import argparse
import json
import pathlib
import struct

import numpy as np


FILES = {"learned": (b"PLMPSCOR", "scorer"), "temporal": (b"PLMPTIME", "temporal"), "kvzap": (b"PLMPKZAP", "kvzap")}
RIDGE = {"learned": 1e-3, "temporal": 1e-4, "kvzap": 1e-3}
LATELY, LEAST = 48, 1e-4  # queries of the window: the policy has 32 to 63


def inputs(keys, values, time=None):
    """[heads][tokens][3 + head_dim + value_dim], with `time` [heads][tokens][6] after the first 3."""
    size = lambda x: np.linalg.norm(x, axis=-1, keepdims=True)
    return np.concatenate([np.ones_like(keys[..., :1]), size(keys), size(values), *([] if time is None else [time]), keys, values], -1)


def time_inputs(received, query):
    """[heads][query + 1][6]. `received`: attention summed over the queries up to each, [heads][queries][tokens]."""
    total = received[:, query, : query + 1]
    before = query - LATELY
    lately = total - received[:, before, : query + 1] if before >= 0 else total
    lately = np.maximum(lately, 0) / lately.sum(-1, keepdims=True)
    age = np.broadcast_to(1.0 + query - np.arange(query + 1), total.shape)
    return np.stack([np.log(age), age ** -0.5, np.log(total + LEAST), np.log(lately + LEAST), np.sqrt(total / age), np.sqrt(lately)], -1)


def later(attention, query):
    """Mean attention that tokens 0..query receive from the queries after it, [heads][query + 1]."""
    return attention[:, query + 1:, : query + 1].mean(1)


def load(folder):
    return tuple(np.load(folder / f"{name}.npy").astype(np.float64) for name in ("attention", "keys", "values"))


KINDS = {"learned": lambda keys, values, received, query: inputs(keys[:, : query + 1], values[:, : query + 1]),
         "temporal": lambda keys, values, received, query: inputs(keys[:, : query + 1], values[:, : query + 1],
                                                                  time_inputs(received, query))}


def least_squares(dumps, step):
    """{kind: weights [heads][inputs]}. Only the sums of squares and products of a dump are kept."""
    squares, products = dict.fromkeys(FILES, 0), dict.fromkeys(FILES, 0)
    for folder in dumps:
        attention, keys, values = load(folder)
        received = attention.cumsum(1)
        seen, target = inputs(keys, values), np.log(np.maximum(np.load(folder / "repeated.npy").astype(np.float64), LEAST))
        squares["kvzap"] = squares["kvzap"] + seen.mT @ seen
        products["kvzap"] = products["kvzap"] + (seen.mT @ target)[..., 0]
        for query in range(step - 1, attention.shape[1] * 3 // 4, step):
            target = np.sqrt(later(attention, query))[..., None]
            for kind, of in KINDS.items():
                seen = of(keys, values, received, query)
                squares[kind] = squares[kind] + seen.mT @ seen
                products[kind] = products[kind] + (seen.mT @ target)[..., 0]
    weights = {}
    for kind in FILES:
        width = squares[kind].shape[-1]
        ridge = RIDGE[kind] * np.trace(squares[kind], axis1=-2, axis2=-1)[:, None, None] / width * np.eye(width)
        weights[kind] = np.linalg.solve(squares[kind] + ridge, products[kind][..., None])[..., 0]
    return weights


def evaluate(dumps, weights):
    """Rows of Markdown: the share of later attention that the kept tokens receive; 4 sinks and the newest 16 are kept."""
    budgets, shares = (64, 128, 256, 512), {}
    for folder in dumps:
        attention, keys, values = load(folder)
        received = attention.cumsum(1)
        for query in (499, 899, 1299):
            target, total = later(attention, query), received[:, query, : query + 1]
            scores = {"newest": np.broadcast_to(np.arange(query + 1.0), total.shape),
                      "attention of the last 32 queries": total - received[:, query - 32, : query + 1],
                      "attention of all queries": total}
            for kind, of in KINDS.items():
                scores[kind] = (of(keys, values, received, query) @ weights[kind][..., None])[..., 0]
            scores["upper bound"] = target
            for name, score in scores.items():
                score = np.array(score)
                score[:, :4] = score[:, -16:] = np.inf
                order = np.argsort(-score, -1)
                for budget in budgets:
                    kept = np.take_along_axis(target, order[:, :budget], 1).sum(1) / target.sum(1)
                    shares.setdefault((name, budget), []).append(kept.mean())
    names = dict.fromkeys(name for name, _ in shares)
    return [f"| scored by | {' | '.join(f'{b} kept' for b in budgets)} |", "|---" * (1 + len(budgets)) + "|",
            *(f"| {name} | " + " | ".join(f"{100 * np.mean(shares[name, b]):.1f}%" for b in budgets) + " |" for name in names)]


def checksum(data):
    """core/checksum.h"""
    value, mask = 0xCBF29CE484222325, (1 << 64) - 1
    for at in range(0, len(data), 8):
        value = (value ^ int.from_bytes(data[at: at + 8], "little")) * 0x100000001B3 & mask
        value ^= value >> 29
    return value


def write(path, magic, model, weights):
    """The format: src/palimpsest/policy/scorer_file.h."""
    data = magic + struct.pack("<IIQ", 1, 0x01020304, model["fingerprint"])
    data += struct.pack("<iiii", *(model[key] for key in ("layers", "kv_heads", "head_dim", "value_dim")))
    flat = np.ascontiguousarray(weights, dtype="<f4").tobytes()
    data += struct.pack("<Q", len(flat) // 4) + flat
    pathlib.Path(path).write_bytes(data + struct.pack("<Q", checksum(data)))


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("dump", nargs="+", type=pathlib.Path)
    a.add_argument("--out", required=True, help="the model's path without .gguf")
    a.add_argument("--step", type=int, default=128)
    a.add_argument("--evaluate", nargs="+", type=pathlib.Path, default=[], metavar="DUMP")
    o = a.parse_args()
    models = [json.loads((folder / "model.json").read_text()) for folder in [*o.dump, *o.evaluate]]
    if any(model != models[0] for model in models):
        raise SystemExit("the dumps belong to different models")
    weights = least_squares(o.dump, o.step)
    for kind, (magic, extension) in FILES.items():
        path = pathlib.Path(f"{o.out}.{extension}")
        write(path, magic, models[0], weights[kind])
        print(f"{path}: {path.stat().st_size} bytes, from {len(o.dump)} texts")
    if o.evaluate:
        print(*evaluate(o.evaluate, weights), sep="\n")


if __name__ == "__main__":
    main()
