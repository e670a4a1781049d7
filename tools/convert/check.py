#!/usr/bin/env python3
"""Tests hf_to_gguf.py: small random GPT-J and OPT models of `transformers` are converted and run by palimpsest over 200
tokens. Compares the logits with those of transformers in f32, and the tokenizer. Two formats each: sharded safetensors with
tokenizer.json; torch.save with vocab.json and merges.txt.

  make convert-check        (downloads PyTorch and transformers from PyPI once, 5 GB)
"""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
REPO = HERE.parent.parent
sys.path.insert(0, str(HERE.parent / "setup"))
import environment  # noqa: E402

PACKAGES = [f"torch=={environment.TORCH}", "numpy", "transformers==5.23.0"]
TOKENS = 200
WORDS = ["Once upon a time, there was a cat.", "  two spaces\n\nand lines\t.", "don't 1234 caf\u00e9 \U0001f600 ?!", ""]


def models(transformers):
    """Small configurations with all features: rotary positions on part of each head, biases, learned positions."""
    gptj = transformers.GPTJConfig(vocab_size=320, n_positions=256, n_embd=96, n_layer=3, n_head=4, rotary_dim=16, n_inner=200,
                                   bos_token_id=0, eos_token_id=0, attn_implementation="eager")
    opt = transformers.OPTConfig(vocab_size=320, max_position_embeddings=256, hidden_size=96, num_hidden_layers=3, ffn_dim=160,
                                 num_attention_heads=4, word_embed_proj_dim=96, bos_token_id=0, eos_token_id=0, pad_token_id=1, dropout=0.0,
                                 attn_implementation="eager")
    yield "gptj", transformers.GPTJForCausalLM(gptj)
    yield "opt", transformers.OPTForCausalLM(opt)


def shake(torch, model):
    """Replaces the initial biases (0) and norms (1) by random values, so that errors in them are visible."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in model.parameters():
            spread = 0.1 if parameter.ndim == 1 else parameter.shape[-1] ** -0.5 - 0.02
            parameter.add_(torch.randn(parameter.shape, generator=generator) * max(spread, 0.02))


def tabled(gelu, torch):
    """GELU as ggml's CPU backend computes it: an f16 table of f16 values."""
    rounded = lambda x: torch.where(x <= -10, torch.zeros_like(x), torch.where(x >= 10, x, gelu(x.half().float()).half().float()))
    return type("Tabled", (torch.nn.Module,), {"forward": lambda self, x: rounded(x)})()


def logits(torch, model, tokens, path):
    with torch.no_grad():
        model(tokens).logits[0].float().contiguous().numpy().astype("<f4").tofile(path)


def tokenizer_files(folder):
    """All bytes, a few merges, and an end token: vocab.json and merges.txt in GPT-2's format."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    letters = [chr(b) for b in printable] + [chr(256 + i) for i in range(len(others))]
    merges = ["\u0120 t", "h e", "\u0120 a", "\u0120t he", "i n", "r e", "o n", "e r", "\u0120 w", "\u0120 c"]
    words = ["<|endoftext|>", "<pad>", *letters, *(m.replace(" ", "") for m in merges)]
    (folder / "vocab.json").write_text(json.dumps({w: i for i, w in enumerate(words)}))
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n")
    (folder / "special_tokens_map.json").write_text(json.dumps({"eos_token": "<|endoftext|>", "bos_token": "<|endoftext|>", "pad_token": "<pad>"}))


def tokenized(transformers, folder):
    tokenizer = transformers.GPT2Tokenizer(str(folder / "vocab.json"), str(folder / "merges.txt"))
    return [{"text": text, "tokens": tokenizer.encode(text, add_special_tokens=False)} for text in WORDS]


def make(out):
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.manual_seed(1)
    for name, model in models(transformers):
        for weights in ("safetensors", "bin"):
            folder = out / f"{name}-{weights}"
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            if weights == "safetensors":
                shake(torch, model)
                model = model.eval().float()
                model.save_pretrained(folder, max_shard_size="300KB")
            else:
                model.config.save_pretrained(folder)
                torch.save(model.state_dict(), folder / "pytorch_model.bin")
            tokenizer_files(folder)
            texts = tokenized(transformers, folder)
            if weights == "safetensors":  # the other format of the same weights
                transformers.GPT2TokenizerFast(str(folder / "vocab.json"), str(folder / "merges.txt")).save_pretrained(folder)
                (folder / "vocab.json").unlink()
                (folder / "merges.txt").unlink(missing_ok=True)
            tokens = torch.randint(2, model.config.vocab_size, (1, TOKENS), generator=torch.Generator().manual_seed(3))
            logits(torch, model, tokens, folder / "logits.f32")
            golden = {"architecture": name, "tokens": tokens[0].tolist(), "texts": texts,
                      "logits": [{"file": "logits.f32", "median": 1e-5, "max": 1e-5}]}
            # transformers' logits differ by the rounding of ggml's GELU table. With that table, one token in ten still has a
            # value so close to the middle of two f16 numbers that it is rounded to the other one.
            if name == "gptj":
                exact = [layer.mlp.act for layer in model.transformer.h]
                for layer in model.transformer.h:
                    layer.mlp.act = tabled(layer.mlp.act, torch)
                logits(torch, model, tokens, folder / "tabled.f32")
                for layer, act in zip(model.transformer.h, exact):
                    layer.mlp.act = act
                golden["logits"] = [{"file": "logits.f32", "median": 1e-3, "max": 1e-3},
                                    {"file": "tabled.f32", "median": 1e-5, "max": 1e-3}]
            (folder / "golden.json").write_text(json.dumps(golden))
            print(folder, flush=True)


def refused():
    """Unsupported models are refused with a reason before anything is written."""
    from families import family_of
    from refused import Refused

    opt = {"model_type": "opt", "hidden_size": 1024, "num_hidden_layers": 24, "vocab_size": 50272, "max_position_embeddings": 2048, "ffn_dim": 4096,
           "num_attention_heads": 16}
    for config, word in [({**opt, "do_layer_norm_before": False}, "opt-350m"), ({**opt, "word_embed_proj_dim": 512}, "opt-350m"),
                         ({**opt, "activation_function": "gelu"}, "activation_function"), ({"model_type": "bert"}, "gptj and opt")]:
        try:
            family_of(config)
        except Refused as error:
            assert word in str(error), error
        else:
            sys.exit(f"convert-check: {config} should have been refused")


def main():
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("--out", type=pathlib.Path, default=REPO / "out" / "convert")
    parse.add_argument("--make", action="store_true", help="only creates the models and their logits")
    given = parse.parse_args()
    if given.make:
        try:
            environment.enter(f"torch-{environment.TORCH}", PACKAGES, "about a minute, 5 GB")
        except environment.Unavailable as error:
            sys.exit(f"convert-check: {error}")
        make(given.out)
        return
    refused()
    made = subprocess.run([sys.executable, __file__, "--make", "--out", given.out], stdout=subprocess.PIPE, text=True)
    if made.returncode != 0:
        sys.exit(made.returncode)
    folders = made.stdout.split()
    for folder in folders:
        done = subprocess.run([sys.executable, HERE / "hf_to_gguf.py", folder, "-o", pathlib.Path(folder) / "model.gguf", "--type", "f32"])
        if done.returncode != 0:
            sys.exit(done.returncode)
    os.environ["PALIMPSEST_CONVERTED"] = ":".join(folders)
    sys.exit(subprocess.run([REPO / "tools" / "env", REPO / "build" / "test_model", "--gtest_filter=Converted.*"]).returncode)


if __name__ == "__main__":
    main()
