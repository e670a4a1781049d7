"""A GGUF file of the Llama architecture as a folder that transformers reads, weights in f32.

GGUF stores the rows of Q and K with adjacent rotary pairs; Hugging Face's Llama stores the pairs half a head apart.
"""
import pathlib
import sys

import gguf
import numpy as np
import torch
import transformers

NAMES = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
         "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm",
         "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
         "token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def halves(rows, heads):
    """Rows of each head: even ones, then odd ones."""
    return rows.reshape(heads, -1, 2, rows.shape[-1]).swapaxes(1, 2).reshape(rows.shape)


def convert(source, folder):
    reader = gguf.GGUFReader(source)

    def field(key, missing=None):
        """A number of the file; `missing`: what the format means where it is left out."""
        found = reader.fields.get(f"llama.{key}")
        if found is None and missing is None:
            raise SystemExit(f"{source}: no llama.{key}: only files of the Llama architecture can be converted")
        return missing if found is None else found.contents()

    heads = field("attention.head_count")
    kv_heads = field("attention.head_count_kv", heads)
    state = {}
    for tensor in reader.tensors:
        weight = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        *block, name, _ = tensor.name.split(".")
        if name in ("attn_q", "attn_k"):
            weight = halves(weight, heads if name == "attn_q" else kv_heads)
        prefix = f"model.layers.{block[1]}." if block else ""
        state[f"{prefix}{NAMES[name]}.weight"] = torch.from_numpy(np.ascontiguousarray(weight))
    tied = "lm_head.weight" not in state
    if tied:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    vocabulary, width = state["model.embed_tokens.weight"].shape
    config = transformers.LlamaConfig(
        vocab_size=vocabulary, hidden_size=width, intermediate_size=field("feed_forward_length"),
        num_hidden_layers=field("block_count"), num_attention_heads=heads, num_key_value_heads=kv_heads,
        head_dim=field("attention.key_length", width // heads), max_position_embeddings=field("context_length"),
        rms_norm_eps=float(field("attention.layer_norm_rms_epsilon")), tie_word_embeddings=tied,
        rope_parameters={"rope_type": "default", "rope_theta": float(field("rope.freq_base", 10000.0))})
    model = transformers.LlamaForCausalLM(config)
    model.load_state_dict(state)
    pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)


if __name__ == "__main__":
    convert(*sys.argv[1:])
