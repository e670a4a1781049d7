"""Trains the model. A run resumes the last checkpoint in --run, if there is one.

    python train.py --data DATA --run RUN --preset small --curriculum cpu --tokens 5.5e6
    python train.py --data DATA --run RUN --preset base --curriculum gpu --tokens 400e6 --minutes 9 --workers 8   # repeat

Checkpoints are written atomically, every --save seconds, at the end, and on SIGTERM.
"""
import argparse
import json
import math
import os
import signal
import time

import numpy as np
import torch

from bpe import Tokenizer
from curriculum import CURRICULA, stage_at
from feed import Feed
from model import PRESETS, Config, Llama
from muon import Muon
from wire import hold, wire, wired


def arguments():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--data", required=True)
    a.add_argument("--run", required=True)
    a.add_argument("--preset", default="small", choices=PRESETS)
    a.add_argument("--curriculum", default="cpu", choices=CURRICULA)
    a.add_argument("--tokens", type=float, required=True, help="total training tokens, over all runs")
    a.add_argument("--decay", type=float, default=0.3, help="fraction of the tokens, at the end, during which the learning rate decays to 0")
    a.add_argument("--minutes", type=float, default=1e9, help="time limit of this run")
    a.add_argument("--save", type=float, default=120, help="seconds between checkpoints")
    a.add_argument("--lr", type=float, default=0.02, help="learning rate of Muon (matrices)")
    a.add_argument("--lr-rest", type=float, default=0.01, help="learning rate of AdamW (embedding and norms)")
    a.add_argument("--seed", type=int, default=1)
    a.add_argument("--threads", type=int, default=2)
    a.add_argument("--workers", type=int, default=0, help="data processes; 0: one thread (sufficient on a CPU)")
    a.add_argument("--report", type=int, default=100, help="steps between entries of the curve")
    a.add_argument("--no-compile", action="store_true")
    a.add_argument("--no-wire", action="store_true", help="start without the induction circuit of wire.py")
    return a.parse_args()


def optimizers(model, o):
    """Muon for the matrices, AdamW for embedding and norms; `lr` of a group is its fraction of the learning rate."""
    named = dict(model.named_parameters())
    inner = [n for n, p in named.items() if p.dim() == 2 and "embed" not in n]
    slow = [n for n in inner if not o.no_wire and wired(n)]
    pick = lambda names: [named[n] for n in names]
    groups = [dict(params=pick([n for n in inner if n not in slow]), share=1.0), dict(params=pick(slow), share=0.1)]
    rest = [dict(params=[p for p in named.values() if p.dim() != 2], share=0.3), dict(params=[model.embed.weight], share=1.0)]
    return [Muon([g for g in groups if g["params"]], lr=o.lr), torch.optim.AdamW(rest, lr=o.lr_rest, betas=(0.9, 0.95), weight_decay=0.0, fused=True)]


def save(path, data):
    torch.save(data, path + ".part")
    os.replace(path + ".part", path)


def main():
    o = arguments()
    os.makedirs(o.run, exist_ok=True)
    torch.manual_seed(o.seed)
    cuda = torch.cuda.is_available()
    device = "cuda" if cuda else "cpu"
    torch.set_num_threads(o.threads)
    tokenizer = Tokenizer.load(os.path.join(o.data, "tokenizer.json"))
    path, stages = os.path.join(o.run, "checkpoint.pt"), CURRICULA[o.curriculum]
    old = torch.load(path, map_location=device, weights_only=False) if os.path.exists(path) else None
    config = Config(**old["config"]) if old else PRESETS[o.preset]
    config.vocab = len(tokenizer.tokens)
    model = Llama(config)
    if not old and not o.no_wire:
        wire(model, tokenizer)
    model.to(device)
    optims = optimizers(model, o)
    step, seen, seconds, place = 0, 0, 0.0, (0, 0, 0)
    if old:
        model.load_state_dict(old["model"])
        for opt, state in zip(optims, old["optims"] or []):  # none in a packed checkpoint (pack.py)
            opt.load_state_dict(state)
        step, seen, seconds, place = old["step"], old["seen"], old["seconds"], old["place"]
    warm = step if old is None or not old["optims"] else 0  # warm-up of 100 steps for a new optimizer
    feed = Feed(o.data, o.seed, stages, place, o.workers)
    loss_of = model.loss if o.no_compile else torch.compile(model.loss, dynamic=False)
    print(f"{model.count()/1e6:.2f} M parameters on {device}, from step {step}, {seen/1e6:.2f} M tokens", flush=True)

    stop = []
    signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
    begin = saved = last = time.time()
    curve = open(os.path.join(o.run, "curve.jsonl"), "a", buffering=1)
    sums = np.zeros(6)  # text: loss, count; recall: loss, count; gradient norm: sum, count

    def checkpoint():
        save(path, dict(config=config.dict(), model=model.state_dict(), optims=[x.state_dict() for x in optims], step=step,
                        seen=seen, seconds=seconds, place=tuple(feed.place)))

    while seen < o.tokens and not stop and time.time() - begin < o.minutes * 60:
        share = seen / o.tokens
        number, stage = stage_at(stages, share)
        ids, weights, recall = feed.take(number, max(1, stage.step // stage.length))
        ids = torch.from_numpy(ids.astype(np.int64)).to(device, non_blocking=True)
        factor = min(1.0, (step - warm + 1) / 100, max(0.0, (1 - share) / o.decay) if o.decay else 1.0)
        for opt, rate in zip(optims, (o.lr, o.lr_rest)):
            for g in opt.param_groups:
                g["lr"] = rate * factor * g["share"]
        with torch.autocast(device, torch.bfloat16):
            loss, each = loss_of(ids[:, :-1], ids[:, 1:], torch.from_numpy(weights[:, 1:].astype(np.float32)).to(device))
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for opt in optims:
            opt.step()
        model.zero_grad()
        if not o.no_wire:
            hold(model)
        step += 1
        seen += ids.shape[0] * (ids.shape[1] - 1)
        now = time.time()
        seconds, last = seconds + min(now - last, 60), now  # pauses do not count as training time
        if step % 10 == 0:
            each, r, w = each.float().cpu().numpy(), recall[:, 1:] > 0, (weights[:, 1:] > 0) & (recall[:, 1:] == 0)
            sums += (each[w].sum(), w.sum(), each[r].sum(), r.sum(), float(norm), 1)
        if step % o.report == 0:
            entry = dict(step=step, seen=seen, seconds=round(seconds), length=stage.length, loss=round(float(sums[0] / max(1, sums[1])), 4),
                         recall=round(float(sums[2] / max(1, sums[3])), 4), norm=round(float(sums[4] / sums[5]), 3), lr=round(factor, 4))
            if not math.isfinite(entry["loss"]):
                raise SystemExit("the loss is NaN; lower --lr and restart from the checkpoint")
            curve.write(json.dumps(entry) + "\n")
            print(entry, f"{seen / max(1, seconds):.0f} tok/s overall", flush=True)
            sums[:] = 0
        if now - saved > o.save:
            checkpoint()
            saved = now
    checkpoint()
    if seen >= o.tokens:
        open(os.path.join(o.run, "complete"), "w").close()  # run.sh continues with evaluation and export
    print(f"stopped at step {step}, {seen/1e6:.2f} M tokens of {o.tokens/1e6:.0f} M", flush=True)


if __name__ == "__main__":
    main()
