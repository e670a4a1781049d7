"""Hugging Face transformers, with the cache compressed by a kvpress press after the prompt. `method`: {} or
{"press": "SnapKVPress", "budget": 256, ...its arguments}; the compression ratio is set so that `budget` tokens of each prompt are kept."""
import contextlib

import kvpress
import torch
import transformers

import job


def press_of(method, prompt):
    if not method:
        return contextlib.nullcontext
    arguments = {k: v for k, v in method.items() if k not in ("press", "budget")}
    ratio = max(0.0, 1 - method["budget"] / len(prompt))
    return getattr(kvpress, method["press"])(compression_ratio=ratio, **arguments)


@torch.inference_mode()
def write(model, method, prompt, tokens, heard=lambda: None):
    cache = transformers.DynamicCache(config=model.config)
    with press_of(method, prompt)(model) if method else contextlib.nullcontext():
        logits = model(torch.tensor([prompt]), past_key_values=cache, logits_to_keep=1).logits
    written = []
    for n in range(tokens):
        written.append(int(logits[0, -1].argmax()))
        heard()
        if n + 1 < tokens:
            logits = model(torch.tensor([written[-1:]]), past_key_values=cache,
                           position_ids=torch.tensor([[len(prompt) + n]])).logits
    return written


def main():
    task = job.read()
    torch.set_num_threads(task["threads"])
    kind = torch.bfloat16 if task["kind"] == "speed" else torch.float32
    model = transformers.AutoModelForCausalLM.from_pretrained(task["model"], dtype=kind).eval()
    version = f"transformers {transformers.__version__}, torch {torch.__version__}"
    if task["kind"] == "answers":
        tokens = [write(model, task["method"], p, task["tokens"]) for p in task["prompts"]]
        return job.answer(tokens=tokens, version=version)
    write(model, task["method"], task["prompts"][0], 8)
    watch = job.Watch()
    write(model, task["method"], task["prompts"][0], task["tokens"], watch.token)
    job.answer(**watch.figures(), version=version)


main()
