#!/usr/bin/env python3
"""Converts Hugging Face checkpoints of GPT-J and OPT to GGUF; llama.cpp's convert_hf_to_gguf.py supports neither.

  tools/convert/hf_to_gguf.py FOLDER -o MODEL.gguf [--type f16]

FOLDER: config.json, the weights (safetensors or pytorch_model.bin, single or sharded) and the tokenizer (vocab.json and
merges.txt, or tokenizer.json). Weights are converted one at a time. Creates an environment with the gguf
package (from PyPI, pinned) in the cache folder, once.
"""
import argparse
import json
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "setup"))
import environment  # noqa: E402

from refused import Refused  # noqa: E402

GGUF = "gguf==0.19.0"
TYPES = ["f32", "f16", "bf16", "q8_0"]


def stored(gguf, name, tensor, type_name):
    """Vectors and position tables stay in f32: they are small."""
    if tensor.ndim < 2 or name == "position_embd.weight":
        type_name = "f32"
    kind = gguf.GGMLQuantizationType[type_name.upper()]
    if type_name == "q8_0" and tensor.shape[-1] % 32 != 0:
        kind = gguf.GGMLQuantizationType.F16
    return gguf.quants.quantize(tensor, kind), kind


def header(writer, family, tokenizer, name):
    arch = family.architecture
    writer.add_name(name)
    for key, value in family.keys.items():
        (writer.add_float32 if isinstance(value, float) else writer.add_uint32)(f"{arch}.{key}", value)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokenizer.tokens)
    writer.add_token_types(tokenizer.types)
    writer.add_token_merges(tokenizer.merges)
    for role, number in tokenizer.ids.items():
        getattr(writer, {"bos": "add_bos_token_id", "eos": "add_eos_token_id", "unk": "add_unk_token_id", "pad": "add_pad_token_id"}[role])(number)
    writer.add_add_bos_token(bool(tokenizer.settings.get("add_bos_token", family.tokenizer_adds_bos)))


def convert(folder, out, type_name):
    import gguf

    from checkpoint import Checkpoint
    from families import family_of, gguf_name
    from tokenizer import Tokenizer

    config = json.loads((folder / "config.json").read_text())
    family = family_of(config)
    tokenizer = Tokenizer(folder, family.vocabulary, config)
    weights = Checkpoint(folder)
    names = {gguf_name(family, name): name for name in weights.names() if gguf_name(family, name) is not None}
    expected = {*family.whole.values(), *(f"blk.{i}.{part}.weight" for i in range(family.layers) for part in family.parts.values())}
    if missing := sorted(expected - names.keys()):
        raise Refused(f"{folder}: weight {missing[0]} is missing{f', and {len(missing) - 1} others' if len(missing) > 1 else ''}: "
                      "download all parts")

    part = f"{out}.part"
    writer = gguf.GGUFWriter(part, family.architecture)
    header(writer, family, tokenizer, config.get("_name_or_path") or folder.resolve().name)

    def tensors():
        for name, source in names.items():
            yield name, *stored(gguf, name, family.prepared(name, weights.read(source)), type_name)

    for name, tensor, kind in tensors():  # two passes, shapes then data: only one tensor is in memory
        writer.add_tensor_info(name, tensor.shape, tensor.dtype, tensor.nbytes, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for _, tensor, _ in tensors():
        writer.write_tensor_data(tensor)
    writer.close()
    os.replace(part, out)
    print(f"{out}: {family.architecture}, {len(names)} tensors, {os.path.getsize(out) / 2**20:.1f} MiB", file=sys.stderr)


def main():
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("folder", type=pathlib.Path)
    parse.add_argument("-o", "--out", required=True, metavar="MODEL.gguf")
    parse.add_argument("--type", choices=TYPES, default="f16", help="type of the matrices (default: f16)")
    given = parse.parse_args()
    try:
        environment.enter("gguf", [GGUF], "about 10 seconds")
        convert(given.folder, given.out, given.type)
    except (Refused, environment.Unavailable, OSError) as error:
        sys.exit(f"hf_to_gguf: {error}")


if __name__ == "__main__":
    main()
