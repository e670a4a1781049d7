"""Logits, keys, values and attention weights of the Python package against transformers, in f32, on a model of the Llama
architecture: of the file, and of a copy with its weights in f32.

    python3 research/peers/arrays.py [MODEL.gguf]      needs the package installed in this Python (docs/python.md)

The reference runs in the environment of research/peers (torch, 5 GB). Prints the largest differences, and ends with 1 if one
exceeds its bound: 1e-4 of the largest value with weights in f32, as tests/model/logits_test.cpp; of quantized weights,
which the engine multiplies with activations of 8 bits, 2%.
"""
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

import palimpsest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "tools" / "setup"))
import environment  # noqa: E402

TEXT = "note: Flora hid the yellow saw in the orchard.\nquestion: Where did Flora hide the yellow saw?\nanswer:"
REFERENCE = """
import sys, gguf, numpy as np, torch, transformers
sys.path.insert(0, sys.argv[1])
import hf_model
hf_model.convert(sys.argv[2], sys.argv[3])
reader = gguf.GGUFReader(sys.argv[2])
writer = gguf.GGUFWriter(sys.argv[3] + "/f32.gguf", reader.fields["general.architecture"].contents())
for field in reader.fields.values():
    if not field.name.startswith("GGUF.") and field.name not in ("general.architecture", "general.file_type"):
        element = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), field.types[0], sub_type=element)
for tensor in reader.tensors:
    writer.add_tensor(tensor.name, gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32))
writer.write_header_to_file(), writer.write_kv_data_to_file(), writer.write_tensors_to_file(), writer.close()
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


def arrays(path, tokens):
    """Of the package: logits [token, vocabulary], keys, values [layer, head, token, width], attention [layer, head, token]."""
    model = palimpsest.Model(path)
    session = model.session("full", cache_type="f32", attention=True)
    logits = np.stack([session.decode(token) for token in tokens])
    heads = [range(count) for count in model.shape["kv_heads"]]

    def all_heads(of):
        return np.stack([np.stack([np.asarray(of(layer, head)) for head in row]) for layer, row in enumerate(heads)])

    return {"logits": logits, "keys": all_heads(session.keys), "values": all_heads(session.values),
            "attention": all_heads(session.attention)}


def main():
    path = sys.argv[1] if len(sys.argv) > 1 else palimpsest.default_model()
    tokens = palimpsest.Model(path).tokenize(TEXT)
    with tempfile.TemporaryDirectory() as folder:
        np.save(folder + "/tokens.npy", tokens)
        packages = [f"torch=={environment.TORCH}", "numpy", "kvpress==0.5.5", "gguf==0.19.0", "optimum-quanto==0.2.7"]  # as run.py
        python = environment.python(f"torch-{environment.TORCH}", packages, "5 GB")
        environ = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
        subprocess.run([python, "-c", REFERENCE, HERE, path, folder], check=True, env=environ)
        theirs = dict(np.load(folder + "/out.npz"))
        quantized, exact = arrays(path, tokens), arrays(folder + "/f32.gguf", tokens)
    theirs["keys"] = adjacent(theirs["keys"])
    layers, kv_heads = exact["attention"].shape[:2]
    theirs["attention"] = theirs["attention"].reshape(layers, kv_heads, -1, len(tokens)).mean(axis=2)  # of the query group
    wrong = False
    for weights, ours, share in (("f32", exact, 1e-4), ("as in the file", quantized, 0.02)):
        for name, other in theirs.items():
            largest = float(np.abs(other).max())
            difference = float(np.abs(ours[name] - other).max())
            bound = max(share, 0.05 if share > 1e-4 and name == "attention" else 0) * largest
            wrong |= not difference <= bound
            print(f"weights {weights:15} {name:10} {str(other.shape):16} max |difference| {difference:.2e} of {largest:.3f}, "
                  f"bound {bound:.2e}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
