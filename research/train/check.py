"""Checks an exported file against the checkpoint: the same token ids, the same logits, the same greedy text in llama.cpp
and in Palimpsest.

    python check.py --data DATA --run RUN --gguf model.gguf --program ./check_llama [--palimpsest build/palimpsest]
"""
import argparse
import json
import os
import random
import shlex
import subprocess
import sys
import tempfile

import gguf
import numpy as np
import torch

import documents
from bpe import BOS, Tokenizer
from model import Config, Llama


def load(run):
    data = torch.load(os.path.join(run, "checkpoint.pt"), map_location="cpu", weights_only=False)
    model = Llama(Config(**data["config"]))
    model.load_state_dict(data["model"])
    return model.eval(), data


def llama(o, text):
    """check_llama's lines of tokens (those of the text, the greedy ones) and its logits."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [os.path.join(folder, n) for n in ("text", "logits")]
        with open(paths[0], "w") as f:
            f.write(text)
        done = subprocess.run(shlex.split(o.program) + [o.gguf] + paths + [str(o.greedy)], capture_output=True, text=True, check=True)
        return [[int(t) for t in line.split()] for line in done.stdout.splitlines()], np.fromfile(paths[1], np.float32)


def check_palimpsest(o, tokenizer):
    text = documents.saga(random.Random(78), 1500)[:1500].rsplit(" ", 1)[0]
    words = [*shlex.split(o.palimpsest), "run", "-m", o.gguf, "-f", "-", "-n", str(o.greedy), "--temp", "0", "--method", "full",
             "--cache-type", "f32", "--ignore-eos", "--json"]
    done = subprocess.run(words, input=text, capture_output=True, text=True, check=True)
    ours, theirs = json.loads(done.stdout)["text"], tokenizer.decode(llama(o, text)[0][1])
    same = len(os.path.commonprefix([ours, theirs]))
    print(f"Palimpsest: {same} of {len(theirs)} characters of llama.cpp's greedy text")


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--data", required=True)
    a.add_argument("--run", required=True)
    a.add_argument("--gguf", required=True)
    a.add_argument("--program", required=True, help="check_llama, with a launcher before it if needed")
    a.add_argument("--palimpsest", help="the program, to compare its greedy text with llama.cpp's on a plain story")
    a.add_argument("--greedy", type=int, default=200)
    o = a.parse_args()
    torch.set_num_threads(1)
    model, data = load(o.run)
    seen = int(gguf.GGUFReader(o.gguf).get_field("palimpsest.training.tokens").contents())
    if seen != data["seen"]:
        sys.exit(f"{o.gguf} was exported after {seen} tokens, the checkpoint has {data['seen']}: export it again")
    tokenizer = Tokenizer.load(os.path.join(o.data, "tokenizer.json"))
    rng = random.Random(77)
    text = "".join(documents.KINDS[k](rng, 900) for k in ["saga", "quiz", "chat"])
    text = text.replace("\x01", "").replace("\x02", "") + "It's 1,234.50 \"odd\" -- text;\n\n  with   spaces\t(and tabs)!\n\n\nI'll we've he'd\n"
    lines, theirs = llama(o, text)
    ids = [BOS] + tokenizer.encode(text)[0]
    bad = lines[0] != ids
    print(f"tokens: {len(ids)} here, {len(lines[0])} in llama.cpp, {'DIFFERENT' if bad else 'equal'}")
    if bad:
        sys.exit(1)

    with torch.no_grad():
        ours = model(torch.tensor([ids]))[0].float().numpy()
        theirs = theirs.reshape(ours.shape)
        p = torch.log_softmax(torch.from_numpy(ours), -1)
        q = torch.log_softmax(torch.from_numpy(theirs), -1)
        kl = (p.exp() * (p - q)).sum(-1).mean().item()
        greedy = list(ids)
        for _ in range(o.greedy):
            greedy.append(int(model(torch.tensor([greedy[-model.c.context:]]))[0, -1].argmax()))
    difference = np.linalg.norm(ours - theirs) / np.linalg.norm(ours)
    same = (ours.argmax(-1) == theirs.argmax(-1)).mean()
    agree = next((i for i, (x, y) in enumerate(zip(greedy[len(ids):], lines[1])) if x != y), o.greedy)
    print(f"logits: relative L2 difference {difference:.2e}, same top token {100*same:.2f}%, KL {kl:.2e} nats")
    print(f"greedy: the first {agree} of {o.greedy} tokens equal")
    print("llama.cpp's text:", repr(tokenizer.decode(lines[1])[:400]))
    if o.palimpsest:
        check_palimpsest(o, tokenizer)
    if same < 0.98 or kl > 5e-3:
        sys.exit("the exported file differs from the checkpoint")


if __name__ == "__main__":
    main()
