#!/usr/bin/env python3
"""The papers' baselines in PyTorch against our C++ baselines: ours must not be slower. And our attention and rotation
after evictions in place against PyTorch's in double precision (EQUIP, appendix D.7).

Creates an environment with PyTorch (from PyPI, pinned) in the cache folder, once; measures; writes out/papers/torch.json,
which research/papers/run.py reports. Without PyTorch the part is skipped with a message.
"""
import argparse
import json
import os
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
from common import REPO, run_json  # noqa: E402

sys.path.insert(0, str(REPO / "tools" / "setup"))
import environment  # noqa: E402

OUT = REPO / "out" / "papers" / "torch.json"

N, OUT_TOKENS, SINKS = 1024, 64, 4


class Update:
    """Evicts 64 of 1,024 tokens and inserts 64; K and V."""

    def __init__(self, torch, batch, heads, size, kind):
        self.torch, self.shape = torch, (batch, heads, size)
        self.cache = [torch.randn(batch, heads, N, size).to(kind) for _ in range(2)]
        self.new = [torch.randn(batch, heads, OUT_TOKENS, size).to(kind) for _ in range(2)]
        kept = torch.stack([torch.randperm(N)[OUT_TOKENS:].sort().values for _ in range(batch * heads)])
        self.mask = torch.zeros(batch * heads, N, dtype=torch.bool).scatter_(1, kept, True).view(batch, heads, N)
        self.index = kept.view(batch, heads, N - OUT_TOKENS, 1).expand(-1, -1, -1, size)
        self.flat = (kept + torch.arange(batch * heads).view(-1, 1) * N).view(-1)

    def shift(self):
        """StreamingLLM: evict_for_space, then the model's own append."""
        cat = self.torch.cat
        self.cache = [cat([x[:, :, :SINKS], x[:, :, SINKS + OUT_TOKENS:]], 2) for x in self.cache]
        self.cache = [cat([x, new], 2) for x, new in zip(self.cache, self.new)]

    def shift_at_once(self):
        cat = self.torch.cat
        self.cache = [cat([x[:, :, :SINKS], x[:, :, SINKS + OUT_TOKENS:], new], 2) for x, new in zip(self.cache, self.new)]

    def mask_gather(self):
        """As H2O's code: boolean mask, then append."""
        batch, heads, size = self.shape
        self.cache = [x[self.mask].view(batch, heads, -1, size) for x in self.cache]
        self.cache = [self.torch.cat([x, new], 2) for x, new in zip(self.cache, self.new)]

    def gather(self):
        self.cache = [x.gather(2, self.index) for x in self.cache]
        self.cache = [self.torch.cat([x, new], 2) for x, new in zip(self.cache, self.new)]

    def index_select(self):
        batch, heads, size = self.shape
        self.cache = [x.view(-1, size).index_select(0, self.flat).view(batch, heads, -1, size) for x in self.cache]
        self.cache = [self.torch.cat([x, new], 2) for x, new in zip(self.cache, self.new)]


class Step:
    """One layer's decode step in PyTorch: evicts and inserts one token, rotates all keys, attends with one query."""

    def __init__(self, torch, batch, heads, n, size, kind):
        self.torch, self.n = torch, n
        self.k, self.v = (torch.randn(batch, heads, n, size).to(kind) for _ in range(2))
        self.row = [torch.randn(batch, heads, 1, size).to(kind) for _ in range(3)]
        angle = torch.outer(torch.arange(n).float(), 10000 ** (-torch.arange(0, size, 2).float() / size))
        self.cos, self.sin = (torch.cat([f(angle)] * 2, -1).to(kind) for f in (torch.cos, torch.sin))
        self.scores = torch.zeros(batch, heads, n)

    def rotate(self, x, cos, sin):
        half = x.shape[-1] // 2
        return x * cos + self.torch.cat([-x[..., half:], x[..., :half]], -1) * sin

    def streaming(self):
        cat, (q, k, v) = self.torch.cat, self.row
        self.k, self.v = (cat([x[:, :, :SINKS], x[:, :, SINKS + 1:]], 2) for x in (self.k, self.v))
        self.k, self.v = cat([self.k, k], 2), cat([self.v, v], 2)
        keys = self.rotate(self.k, self.cos, self.sin)
        query = self.rotate(q, self.cos[-1:], self.sin[-1:])
        return self.torch.nn.functional.scaled_dot_product_attention(query, keys, self.v)

    def h2o(self):
        torch, (q, k, v) = self.torch, self.row
        gone = self.scores[..., :self.n // 2].argmin(-1, keepdim=True)
        kept = torch.arange(self.n - 1).expand(*gone.shape[:2], -1)
        kept = kept + (kept >= gone)
        index = kept.unsqueeze(-1).expand(-1, -1, -1, self.k.shape[-1])
        self.k, self.v = (torch.cat([x.gather(2, index), new], 2) for x, new in ((self.k, k), (self.v, v)))
        self.scores = torch.cat([self.scores.gather(2, kept), torch.zeros(*gone.shape)], 2)
        keys = self.rotate(self.k, self.cos, self.sin)
        query = self.rotate(q, self.cos[-1:], self.sin[-1:])
        weights = (query @ keys.transpose(2, 3) / keys.shape[-1] ** 0.5).float().softmax(-1)
        self.scores += weights.squeeze(2)
        return weights.to(self.v.dtype) @ self.v


def timed(work, ms):
    """Mean seconds per call over `ms` milliseconds."""
    count, start = 0, time.perf_counter()
    while count == 0 or time.perf_counter() - start < ms / 1e3:
        work()
        count += 1
    return (time.perf_counter() - start) / count


def measure(torch, quick, threads):
    rounds, ms = (2, 20) if quick else (3, 60)
    out = {"torch": torch.__version__, "threads": threads, "update": [], "step": []}
    names = {"shift": "shift, evict then append, fresh", "gather": "gather, evict then append, fresh"}
    for row in [(1, 64, 64), (8, 64, 64)] if quick else [(1, 64, 64), (1, 64, 128), (8, 64, 64), (8, 64, 128)]:
        for kind in ("f32", "bf16"):
            update = Update(torch, *row, {"f32": torch.float32, "bf16": torch.bfloat16}[kind])
            ways = ["shift", "shift_at_once", "mask_gather", "gather", "index_select"]
            seconds = {way: [] for way in [*ways, *(f"ours, {n}" for n in names)]}
            for r in range(-1, rounds):
                for way in ways:
                    s = timed(getattr(update, way), ms if r >= 0 else 0)
                    if r >= 0:
                        seconds[way].append(s)
                got = run_json(["build/update_bench", "--rows", "x".join(map(str, row)), "--type", kind, "--threads", threads, "--rounds", 1,
                               "--ms", ms, "--only", ";".join(names.values())])["rows"][0]["seconds"]
                if r >= 0:
                    for short, name in names.items():
                        seconds[f"ours, {short}"] += got[name]
            out["update"].append({"row": row, "type": kind, "seconds": seconds})
            del update
    layers = 2
    for batch, n in [(8, 512)] if quick else [(1, 1024), (8, 256), (8, 1024), (32, 512)]:
        steps = {"streaming": "streaming", "h2o": "h2o"}
        step = {name: Step(torch, batch, 32, n, 128, torch.bfloat16) for name in steps}
        methods = {"ours, streaming": f"streaming:budget={n},mechanism=shift,rerotate=recompute",
                   "ours, h2o": f"h2o:budget={n},positions=cache,mechanism=gather,rerotate=recompute",
                   "in place, streaming": f"streaming:budget={n}", "in place, h2o": f"h2o:budget={n},positions=cache"}
        seconds = {name: [] for name in [*steps, *methods, "rest, streaming", "rest, h2o"]}
        for r in range(-1, rounds):
            for name in steps:
                s = timed(getattr(step[name], name), ms if r >= 0 else 0)
                if r >= 0:
                    seconds[name].append(s)
            if r < 0:
                continue
            words = ["build/palimpsest", "bench", "decode", "--synthetic", f"llama-2-7b@layers={layers}@vocab=1984", "--batch", batch,
                     "--depth", 2 * n, "--tokens", 6, "--reps", 1, "-t", threads, "--cache-type", "bf16", "--json"]
            for method in methods.values():
                words += ["--method", method]
            for name, got in zip(methods, run_json(words)):
                own = got["ms_evict"] + got["ms_attention"]
                seconds[name].append(own / layers / 1e3)
                if name.startswith("in place"):  # matrix products and the rest
                    seconds[name.replace("in place", "rest")].append((1e3 * batch / got["samples"][0] - own) / layers / 1e3)
        out["step"].append({"batch": batch, "n": n, "seconds": seconds})
    return out


def deviations(torch):
    """Max absolute differences to PyTorch in double precision, of build/parity_bench: name -> number."""
    got = run_json(["build/parity_bench"])
    of = lambda name: torch.tensor(got[name], dtype=torch.float64)
    heads, tokens, size = got["heads"], got["tokens"], got["head_size"]
    keys, values = (of(name).view(heads, tokens, size) for name in ("keys", "values"))
    query, simd, reference = (of(name).view(heads, 1, size) for name in ("query", "simd", "reference"))
    rank = of("rank").long()
    attend = torch.nn.functional.scaled_dot_product_attention

    def rotate(x, positions):
        angle = positions.double().unsqueeze(-1) * 10000 ** (-torch.arange(0, size, 2).double() / size)
        cos, sin = (torch.cat([f(angle)] * 2, -1) for f in (torch.cos, torch.sin))
        return x * cos + torch.cat([-x[..., size // 2:], x[..., :size // 2]], -1) * sin

    turned, asked = rotate(keys, rank), rotate(query, torch.full((heads, 1), tokens - 1))
    in_place = attend(asked, turned, values, scale=got["scale"])
    order = rank.argsort(-1).unsqueeze(-1).expand(-1, -1, size)  # as shift and gather leave them
    copied = attend(asked, rotate(keys.gather(1, order), torch.arange(tokens)), values.gather(1, order), scale=got["scale"])
    largest = lambda x: x.abs().max().item()
    return {"copied": largest(in_place - copied), "reference": largest(reference - copied), "simd": largest(simd - copied),
            "rotation": largest(of("rotated").view(heads, tokens, size) - turned), "outputs": largest(copied), "keys": largest(turned),
            "heads": heads, "tokens": tokens, "head_size": size}


def arguments():
    """The arguments of run.py; most are ignored here."""
    parse = argparse.ArgumentParser(description=__doc__)
    parse.add_argument("parts", nargs="*")
    parse.add_argument("--quick", action="store_true")
    parse.add_argument("--prefix", default="")
    return parse.parse_known_args()[0]


def main():
    given = arguments()
    wanted = {"torch", "parity"} & set(given.parts or ("torch", "parity"))
    if not wanted:
        return
    try:
        environment.enter(f"torch-{environment.TORCH}", [f"torch=={environment.TORCH}", "numpy"], "about a minute, 5 GB", given.prefix)
    except environment.Unavailable as error:
        print(f"torch: skipped: {error}", file=sys.stderr)
        return
    import torch
    threads = os.cpu_count()
    torch.set_num_threads(threads)
    out = json.loads(OUT.read_text()) if OUT.exists() else {}
    with torch.no_grad():
        if "torch" in wanted:
            out.update(measure(torch, given.quick, threads))
        if "parity" in wanted:
            out["parity"] = {"torch": torch.__version__, **deviations(torch)}
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps(out))
    print(f"torch: {OUT.relative_to(REPO)}", file=sys.stderr)


if __name__ == "__main__":
    main()
