"""Hugging Face transformers, with the cache compressed by a kvpress press after the prompt. `method`: {} or
{"press": "SnapKVPress", "budget": 256, ...its arguments}; the compression ratio is set so that `budget` tokens of each prompt are kept.
"of": another press, whose scores it takes. "exact": LeverageScorePress without its random matrix. "bits": of the cache, quantised by quanto in groups of 64 after the prompt; answers stay in the weights' type."""
import contextlib
import copy
import importlib.metadata
import pathlib
import sys

import kvpress
import torch
import transformers

REPO = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(REPO / "research" / "train")]
import job  # noqa: E402
from bpe import Tokenizer  # noqa: E402


def press_of(method, prompt):
    arguments = {k: v for k, v in method.items() if k not in ("press", "budget", "counts", "bits", "of", "exact")}
    ratio = max(0.0, 1 - (method["budget"] + 0.5) / len(prompt))  # presses round the number of kept tokens down
    if "of" in method:
        return getattr(kvpress, method["press"])(press=press_of({**method["of"], "budget": method["budget"]}, prompt), **arguments)
    return getattr(kvpress, method["press"])(compression_ratio=ratio, **arguments)


def cache_of(model, method):
    if bits := method.get("bits"):
        return transformers.QuantizedCache(backend="quanto", config=model.config, nbits=bits, axis_key=0, axis_value=0, q_group_size=64, residual_length=32)
    return transformers.DynamicCache(config=model.config)


class PlainTokenizer:
    """A GGUF file's tokenizer, or the default model's, without BOS and chat template: KVzip's instruction to repeat the prompt needs
    one; the folder of hf_model.py has none."""
    chat_template = None

    def __init__(self, gguf=None):
        if gguf:
            path = pathlib.Path(gguf)
            of = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
            self.ids = lambda text: of.encode(text, add_special_tokens=False)
            self.text = of.decode
            self.ends = {of.eos_token_id, of.convert_tokens_to_ids("<|im_end|>")}
        else:
            of = Tokenizer.load(str(REPO / "research" / "train" / "tokenizer.json"))
            self.ids = lambda text: of.encode(text)[0]

    def encode(self, text, **_):
        return torch.tensor([self.ids(text)])


@contextlib.contextmanager
def identity_sketch(press):
    """LeverageScorePress's random projection becomes the identity."""
    randn, press.sketch_dimension = torch.randn, None
    of = press.compute_leverage_scores
    press.compute_leverage_scores = lambda keys, _: of(keys, keys.shape[-1])
    torch.randn = lambda *shape, **more: (torch.eye(*shape[-2:], **more) * shape[-1] ** 0.5).expand(*shape)
    try:
        yield
    finally:
        torch.randn = randn


@torch.inference_mode()
def kept(model, method, prompt, counts, tokenizer):
    """The positions that each head keeps: those whose rows of the full cache are in the compressed one;
    and those whose scores tie with the last one kept, among which `topk` may choose any. `counts`: how many each head keeps, for presses that divide a budget otherwise."""
    scores, press = [], press_of(method, prompt)
    masks = method["press"] in ("KVzipPress", "AdaKVPress")  # heads share a budget; tokens are masked: only its scores
    scorer = press.press if method["press"] == "AdaKVPress" else press
    if hasattr(scorer, "score"):
        score = scorer.score
        scorer.score = lambda *arguments: scores.append(score(*arguments)) or scores[-1].clone()
    caches = [transformers.DynamicCache(config=model.config) for _ in range(2)]
    model(torch.tensor([prompt]), past_key_values=caches[0], logits_to_keep=1)
    kvpress.presses.kvzip_press.AutoTokenizer.from_pretrained = lambda _: tokenizer
    of_heads = iter(counts)
    if method["press"] == "PyramidKVPress":
        press.get_layer_budget = lambda module, _: counts[module.layer_idx * module.config.num_key_value_heads]
    if method["press"] == "KVzipPress":
        press.compress_post = lambda _: scores.extend(press.score_val)
    with press(model), identity_sketch(press) if method.get("exact") else contextlib.nullcontext():
        model(torch.tensor([prompt]), past_key_values=caches[1], logits_to_keep=1)
    heads, tied = [], []
    for layer, (full, part) in enumerate(zip(caches[0].layers, caches[1].layers)):
        for head in range(full.keys.shape[1]):
            count = next(of_heads)
            if masks:
                score = scores[layer][0, head].clone()
                score[: method.get("n_sink", 0)] = torch.inf
                heads.append(sorted(score.topk(count).indices.tolist()))
                tied.append(torch.nonzero(score == score[heads[-1]].min()).flatten().tolist())
                continue
            rows = {row.numpy().tobytes(): at for at, row in enumerate(full.keys[0, head])}
            heads.append(sorted(rows[row.numpy().tobytes()] for row in part.keys[0, head]))
            if scores:
                of = scores[layer][0, head]
                last = of[heads[-1]].min()
                tied.append(torch.nonzero((of - last).abs() <= 1e-6 * last.abs()).flatten().tolist())
    return heads, tied


@torch.inference_mode()
def write(model, method, prompt, tokens, heard=lambda: None):
    cache = cache_of(model, method)
    with press_of(method, prompt)(model) if "press" in method else contextlib.nullcontext():
        logits = model(torch.tensor([prompt]), past_key_values=cache, logits_to_keep=1).logits
    written = []
    for n in range(tokens):
        written.append(int(logits[0, -1].argmax()))
        heard()
        if n + 1 < tokens:
            logits = model(torch.tensor([written[-1:]]), past_key_values=cache,
                           position_ids=torch.tensor([[len(prompt) + n]])).logits
    return written


@torch.inference_mode()
def ask(model, tokenizer, method, sample, seen, tokens):
    """The answer to each question of a context. seen "after": the compressed context is shared, and a question is read behind it; "before": each question is
    part of its compressed prompt, but for the last tokens, of which `starts` says how many. As palimpsest's eval/asker.h."""
    answers, shared = [], None

    def read(cache, ids, first):
        return model(torch.tensor([ids]), past_key_values=cache, position_ids=torch.arange(first, first + len(ids))[None], logits_to_keep=1).logits

    def compressed(prompt):
        cache = transformers.DynamicCache(config=model.config)
        with press_of(method, prompt)(model) if "press" in method else contextlib.nullcontext():
            read(cache, prompt, 0)
        return cache

    for question, start in zip(sample["questions"], sample["starts"], strict=True):
        if seen == "after":
            shared = shared or compressed(sample["context"])
            cache, prompt, rest = copy.deepcopy(shared), sample["context"], question
        else:
            whole = sample["context"] + question
            prompt, rest = whole[: -max(1, start)], whole[-max(1, start):]
            cache = compressed(prompt)
        logits, at, written = read(cache, rest, len(prompt)), len(prompt) + len(rest), []
        while len(written) < tokens:
            best = int(logits[0, -1].argmax())
            if best in tokenizer.ends:
                break
            written.append(best)
            if "\n" in tokenizer.text(written).lstrip():
                break
            logits, at = read(cache, [best], at), at + 1
        answers.append(tokenizer.text(written).lstrip().split("\n")[0])
    return answers


def main():
    task = job.read()
    torch.set_num_threads(task["threads"])
    if task["kind"] == "tokens":
        tokenizer = PlainTokenizer(task["gguf"])
        return job.answer(tokens=[tokenizer.ids(text) for text in task["texts"]], version="")
    kind = torch.bfloat16 if task["kind"] == "speed" else torch.float32
    observed = task["method"].get("press") == "ObservedAttentionPress"  # reads the weights
    attention = {"attn_implementation": "eager"} if observed else {}
    model = transformers.AutoModelForCausalLM.from_pretrained(task["model"], dtype=kind, **attention).eval()
    version = f"transformers {transformers.__version__}, torch {torch.__version__}, kvpress {importlib.metadata.version('kvpress')}"
    if task["kind"] == "kept":
        tokenizer = PlainTokenizer(task.get("gguf")) if task["method"]["press"] == "KVzipPress" else None
        sets, tied = zip(*(kept(model, task["method"], p, counts, tokenizer) for p, counts in zip(task["prompts"], task["method"]["counts"])))
        return job.answer(kept=sets, tied=tied, version=version)
    if task["kind"] == "questions":
        tokenizer = PlainTokenizer(task["gguf"])
        return job.answer(answers=[ask(model, tokenizer, task["method"], sample, task["seen"], task["tokens"]) for sample in task["samples"]], version=version)
    if task["kind"] == "answers":
        tokens = [write(model, task["method"], p, task["tokens"]) for p in task["prompts"]]
        return job.answer(tokens=tokens, version=version)
    write(model, task["method"], task["prompts"][0], 8)
    watch = job.Watch()
    write(model, task["method"], task["prompts"][0], task["tokens"], watch.token)
    job.answer(**watch.figures(), version=version)


main()
