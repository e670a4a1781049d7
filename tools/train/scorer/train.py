"""Trains the scorer of policy `learned` on a model's attention: linear least squares per head.

    train.py DUMP... --out models/palimpsest-stories.scorer

A DUMP is an output folder of `example_dump_attention MODEL TEXT TOKENS FOLDER` (texts.py writes texts). For queries at every
`step`-th position, each preceding token is one sample:

    inputs   1, ||k||, ||v||, k, v            as in src/palimpsest/policy/learned.cpp; k unrotated
    target   sqrt(mean attention that the token receives from all later queries)

The square root is a compromise between the attention itself (dominated by a few sinks) and its logarithm (dominated by the
lowest values). The ridge is a thousandth of the inputs' mean square. Needs numpy.
"""
import argparse
import json
import pathlib
import struct

import numpy as np


def inputs(keys, values):
    """[heads][tokens][3 + head_dim + value_dim]"""
    size = lambda x: np.linalg.norm(x, axis=-1, keepdims=True)
    return np.concatenate([np.ones_like(keys[..., :1]), size(keys), size(values), keys, values], -1)


def later(attention, query):
    """Mean attention that tokens 0..query receive from the queries after it, [heads][query + 1]."""
    return attention[:, query + 1:, : query + 1].mean(1)


def least_squares(dumps, step):
    """Weights [heads][inputs]. Only the sums of squares and products of a dump are kept."""
    squares = products = 0
    for folder in dumps:
        attention, keys, values = (np.load(folder / f"{name}.npy") for name in ("attention", "keys", "values"))
        x = inputs(keys.astype(np.float64), values.astype(np.float64))
        tokens = attention.shape[1]
        for query in range(step - 1, tokens * 3 // 4, step):
            seen = x[:, : query + 1]
            squares = squares + seen.mT @ seen
            products = products + (seen.mT @ np.sqrt(later(attention, query))[..., None])[..., 0]
    width = squares.shape[-1]
    ridge = 1e-3 * np.trace(squares, axis1=-2, axis2=-1)[:, None, None] / width * np.eye(width)
    return np.linalg.solve(squares + ridge, products[..., None])[..., 0]


def checksum(data):
    """core/checksum.h"""
    value, mask = 0xCBF29CE484222325, (1 << 64) - 1
    for at in range(0, len(data), 8):
        value = (value ^ int.from_bytes(data[at: at + 8], "little")) * 0x100000001B3 & mask
        value ^= value >> 29
    return value


def write(path, model, weights):
    """The format: src/palimpsest/policy/learned.cpp."""
    data = b"PLMPSCOR" + struct.pack("<IIQ", 1, 0x01020304, model["fingerprint"])
    data += struct.pack("<iiii", *(model[key] for key in ("layers", "kv_heads", "head_dim", "value_dim")))
    flat = np.ascontiguousarray(weights, dtype="<f4").tobytes()
    data += struct.pack("<Q", len(flat) // 4) + flat
    pathlib.Path(path).write_bytes(data + struct.pack("<Q", checksum(data)))


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("dump", nargs="+", type=pathlib.Path)
    a.add_argument("--out", required=True)
    a.add_argument("--step", type=int, default=128)
    o = a.parse_args()
    models = [json.loads((folder / "model.json").read_text()) for folder in o.dump]
    if any(model != models[0] for model in models):
        raise SystemExit("the dumps belong to different models")
    write(o.out, models[0], least_squares(o.dump, o.step))
    print(f"{o.out}: {pathlib.Path(o.out).stat().st_size} bytes, from {len(o.dump)} texts")


if __name__ == "__main__":
    main()
