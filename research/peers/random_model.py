"""Random weights in Llama 3.2 1B's shape, with fewer layers and the default model's vocabulary, as GGUF in Q8_0: every
engine can read it, and speed does not depend on the values.

    python random_model.py models/palimpsest-stories.gguf 4 out/peers/random.gguf
"""
import sys

import gguf
import numpy as np

WIDTH, HEADS, KV_HEADS, HEAD, FEED_FORWARD = 2048, 32, 8, 64, 8192
Q8 = gguf.GGMLQuantizationType.Q8_0


def main(like, layers, out):
    reader, random = gguf.GGUFReader(like), np.random.default_rng(1)
    vocabulary = len(reader.fields["tokenizer.ggml.tokens"].contents())
    w = gguf.GGUFWriter(out, "llama")
    w.add_context_length(32768)
    w.add_embedding_length(WIDTH)
    w.add_block_count(layers)
    w.add_feed_forward_length(FEED_FORWARD)
    w.add_head_count(HEADS)
    w.add_head_count_kv(KV_HEADS)
    w.add_key_length(HEAD)
    w.add_value_length(HEAD)
    w.add_rope_dimension_count(HEAD)
    w.add_rope_freq_base(500000.0)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_vocab_size(vocabulary)
    w.add_file_type(7)
    for key, field in reader.fields.items():
        if key.startswith("tokenizer."):
            w.add_key_value(key, field.contents(), field.types[0], field.types[1] if len(field.types) > 1 else None)

    def matrix(name, rows, columns):
        weight = random.standard_normal((rows, columns), dtype=np.float32) * columns**-0.5
        w.add_tensor(f"{name}.weight", gguf.quants.quantize(weight, Q8), raw_dtype=Q8)

    def norm(name):
        w.add_tensor(f"{name}.weight", np.ones(WIDTH, np.float32))

    matrix("token_embd", vocabulary, WIDTH)
    for n in range(layers):
        norm(f"blk.{n}.attn_norm")
        matrix(f"blk.{n}.attn_q", HEADS * HEAD, WIDTH)
        matrix(f"blk.{n}.attn_k", KV_HEADS * HEAD, WIDTH)
        matrix(f"blk.{n}.attn_v", KV_HEADS * HEAD, WIDTH)
        matrix(f"blk.{n}.attn_output", WIDTH, HEADS * HEAD)
        norm(f"blk.{n}.ffn_norm")
        matrix(f"blk.{n}.ffn_gate", FEED_FORWARD, WIDTH)
        matrix(f"blk.{n}.ffn_up", FEED_FORWARD, WIDTH)
        matrix(f"blk.{n}.ffn_down", WIDTH, FEED_FORWARD)
    norm("output_norm")
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
