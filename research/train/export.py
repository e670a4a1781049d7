"""Writes a checkpoint as GGUF, as F16 or Q8_0 (norms stay F32).

    python export.py --data DATA --run RUN --out model.gguf [--type q8_0]
"""
import argparse
import os

import gguf
import numpy as np
import torch

from bpe import BOS, EOS, SPECIAL, Tokenizer
from model import Config

# ChatML, in the form that llama.cpp recognises without a Jinja engine.
CHAT = ("{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
BLOCK = {"attn_norm": "attn_norm", "ffn_norm": "ffn_norm", "q": "attn_q", "k": "attn_k", "v": "attn_v", "o": "attn_output",
         "gate": "ffn_gate", "up": "ffn_up", "down": "ffn_down"}


def gguf_name(name):
    parts = name.split(".")
    if parts[0] == "blocks":
        return f"blk.{parts[1]}.{BLOCK[parts[2]]}.weight"
    return {"embed": "token_embd.weight", "norm": "output_norm.weight"}[parts[0]]


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--data", required=True)
    a.add_argument("--run", required=True)
    a.add_argument("--out", required=True)
    a.add_argument("--type", default="q8_0", choices=["q8_0", "f16", "f32"])
    a.add_argument("--name", default="Palimpsest stories")
    a.add_argument("--context", type=int, help="trained context length, if less than the model's")
    o = a.parse_args()
    data = torch.load(os.path.join(o.run, "checkpoint.pt"), map_location="cpu", weights_only=False)
    c = Config(**data["config"])
    tokenizer = Tokenizer.load(os.path.join(o.data, "tokenizer.json"))

    w = gguf.GGUFWriter(o.out + ".part", "llama")
    w.add_name(o.name)
    w.add_author("the Palimpsest project")
    w.add_license("MIT")
    w.add_description("Tells simple stories without end; trained from scratch by research/train. See models/README.md.")
    w.add_context_length(o.context or c.context)
    w.add_embedding_length(c.dim)
    w.add_block_count(c.layers)
    w.add_feed_forward_length(c.ffn)
    w.add_head_count(c.heads)
    w.add_head_count_kv(c.kv_heads)
    w.add_key_length(c.head_dim)
    w.add_value_length(c.head_dim)
    w.add_rope_dimension_count(c.head_dim)
    w.add_rope_freq_base(c.rope_base)
    w.add_layer_norm_rms_eps(c.eps)
    w.add_vocab_size(c.vocab)
    w.add_uint64("palimpsest.training.tokens", data["seen"])  # identifies the checkpoint for check.py
    w.add_file_type({"f32": 0, "f16": 1, "q8_0": 7}[o.type])

    kinds = [gguf.TokenType.CONTROL] * len(SPECIAL) + [gguf.TokenType.NORMAL] * (len(tokenizer.tokens) - len(SPECIAL))
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("gpt-2")
    w.add_token_list(tokenizer.tokens)
    w.add_token_scores([0.0] * len(tokenizer.tokens))
    w.add_token_types(kinds)
    w.add_token_merges([" ".join(m) for m in tokenizer.merges])
    w.add_bos_token_id(BOS)
    w.add_eos_token_id(EOS)
    w.add_unk_token_id(BOS)
    w.add_pad_token_id(BOS)
    w.add_add_bos_token(True)
    w.add_add_eos_token(False)
    w.add_chat_template(CHAT)

    for name, tensor in data["model"].items():
        x = tensor.float().numpy()
        if x.ndim == 1 or o.type == "f32":
            w.add_tensor(gguf_name(name), x.astype(np.float32))
        elif o.type == "f16":
            w.add_tensor(gguf_name(name), x.astype(np.float16))
        else:
            q = gguf.GGMLQuantizationType.Q8_0
            w.add_tensor(gguf_name(name), gguf.quants.quantize(x, q), raw_dtype=q)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    os.replace(o.out + ".part", o.out)
    print(f"{o.out}: {os.path.getsize(o.out)/2**20:.2f} MiB, {data['seen']/1e6:.1f} M training tokens")


if __name__ == "__main__":
    main()
