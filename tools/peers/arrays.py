"""Logits, keys, values and attention weights of the Python package against transformers, in f32, on a model of the Llama
architecture.

    python3 tools/peers/arrays.py [MODEL.gguf]      needs the package installed in this Python (docs/python.md)

The reference runs in the environment of tools/peers (torch, 5 GB). Prints the largest differences, and ends with 1 if one
exceeds its bound.
"""
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

import palimpsest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "setup"))
import environment  # noqa: E402

TEXT = "note: Flora hid the yellow saw in the orchard.\nquestion: Where did Flora hide the yellow saw?\nanswer:"
REFERENCE = """
import sys, numpy as np, torch, transformers
sys.path.insert(0, sys.argv[1])
import hf_model
hf_model.convert(sys.argv[2], sys.argv[3])
model = transformers.LlamaForCausalLM.from_pretrained(sys.argv[3], attn_implementation="eager", dtype=torch.float32)
tokens = torch.tensor([np.load(sys.argv[3] + "/tokens.npy").tolist()])
with torch.no_grad():
    out = model(tokens, output_attentions=True, use_cache=True)
keys = np.stack([layer.keys[0].numpy() for layer in out.past_key_values.layers])
values = np.stack([layer.values[0].numpy() for layer in out.past_key_values.layers])
attention = np.stack([weights[0, :, -1].numpy() for weights in out.attentions])  # of the last query
np.savez(sys.argv[3] + "/out.npz", logits=out.logits[0].numpy(), keys=keys, values=values, attention=attention)
"""


def adjacent(rows):
    """Half a head apart -> adjacent pairs, the order of GGUF."""
    return rows.reshape(*rows.shape[:-1], 2, -1).swapaxes(-1, -2).reshape(rows.shape)


def main():
    model = palimpsest.Model(sys.argv[1] if len(sys.argv) > 1 else None)
    tokens = model.tokenize(TEXT)
    session = model.session("full", cache_type="f32", attention=True)
    logits = np.stack([session.decode(token) for token in tokens])
    with tempfile.TemporaryDirectory() as folder:
        np.save(folder + "/tokens.npy", tokens)
        packages = [f"torch=={environment.TORCH}", "numpy", "kvpress==0.5.5", "gguf==0.19.0"]  # as run.py
        python = environment.python(f"torch-{environment.TORCH}", packages, "5 GB")
        environ = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
        subprocess.run([python, "-c", REFERENCE, HERE, model.path, folder], check=True, env=environ)
        theirs = dict(np.load(folder + "/out.npz"))
    shape = model.shape
    groups = theirs["attention"].reshape(shape["layers"], shape["kv_heads"][0], -1, len(tokens)).mean(axis=2)
    ours = {name: np.zeros_like(theirs[name]) for name in ("keys", "values")} | {"attention": np.zeros_like(groups)}
    for layer in range(shape["layers"]):
        for head in range(shape["kv_heads"][layer]):
            ours["keys"][layer, head] = session.keys(layer, head)
            ours["values"][layer, head] = session.values(layer, head)
            ours["attention"][layer, head] = session.attention(layer, head)
    pairs = {
        "logits": (logits, theirs["logits"]), "keys": (ours["keys"], adjacent(theirs["keys"])),
        "values": (ours["values"], theirs["values"]), "attention": (ours["attention"], groups),
    }  # fmt: skip
    wrong = False
    for name, (mine, other) in pairs.items():
        difference = float(np.abs(mine - other).max())
        # The engine multiplies quantized weights with activations of 8 bits, the reference with f32.
        bound = 0.05 if name == "attention" else 0.02 * float(np.abs(other).max())
        wrong |= not difference <= bound
        largest = np.abs(other).max()
        print(f"{name:10} {str(mine.shape):22} max |difference| {difference:.2e}, max {largest:.3f}, bound {bound:.2e}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
