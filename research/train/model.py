"""A Llama-architecture language model: RMSNorm, SwiGLU, rotary positions, grouped queries, tied embedding.

The rotary pairs are the interleaved ones (2i, 2i+1), as in GGUF's `llama` architecture, so that the
exporter copies the matrices unchanged.
"""
from dataclasses import dataclass, asdict

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Config:
    vocab: int = 3072
    dim: int = 192
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    ffn: int = 512
    context: int = 2048
    rope_base: float = 500000.0  # low-frequency pairs rotate little within the context and carry content
    eps: float = 1e-5

    def dict(self):
        return asdict(self)


# `tiny` (1.4 M parameters) is for a CPU under heavy load, `small` (2.4 M) and `medium` (5.2 M) for a CPU, `base` for a GPU (22.2 M, 23 MiB
# as Q8_0).
PRESETS = {
    "tiny": Config(dim=128, ffn=384),
    "small": Config(),
    "medium": Config(dim=256, layers=6, ffn=704),
    "base": Config(dim=512, layers=7, heads=8, kv_heads=4, head_dim=64, ffn=1408),
}


def rotary_table(length, head_dim, base, device=None):
    """[length, head_dim/2] cosines and sines; angles in double precision."""
    inverse = base ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    angle = torch.arange(length, dtype=torch.float64)[:, None] * inverse[None]
    return angle.cos().float().to(device), angle.sin().float().to(device)


def rotate(x, cos, sin):
    """x: [batch, heads, length, head_dim]."""
    a, b = x.float().unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2).to(x.dtype)


class Norm(nn.Module):
    def __init__(self, dim, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x):
        y = x.float()
        return y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.attn_norm, self.ffn_norm = Norm(c.dim, c.eps), Norm(c.dim, c.eps)
        self.q = nn.Linear(c.dim, c.heads * c.head_dim, bias=False)
        self.k = nn.Linear(c.dim, c.kv_heads * c.head_dim, bias=False)
        self.v = nn.Linear(c.dim, c.kv_heads * c.head_dim, bias=False)
        self.o = nn.Linear(c.heads * c.head_dim, c.dim, bias=False)
        self.gate = nn.Linear(c.dim, c.ffn, bias=False)
        self.up = nn.Linear(c.dim, c.ffn, bias=False)
        self.down = nn.Linear(c.ffn, c.dim, bias=False)

    def qkv(self, x, cos, sin):
        c, shape = self.c, x.shape[:2]
        h = self.attn_norm(x)
        q = self.q(h).view(*shape, c.heads, c.head_dim).transpose(1, 2)
        k = self.k(h).view(*shape, c.kv_heads, c.head_dim).transpose(1, 2)
        v = self.v(h).view(*shape, c.kv_heads, c.head_dim).transpose(1, 2)
        group = c.heads // c.kv_heads
        return rotate(q, cos, sin), rotate(k, cos, sin).repeat_interleave(group, 1), v.repeat_interleave(group, 1)

    def forward(self, x, cos, sin):
        q, k, v = self.qkv(x, cos, sin)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(a.transpose(1, 2).flatten(2))
        h = self.ffn_norm(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Llama(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.embed = nn.Embedding(c.vocab, c.dim)
        self.blocks = nn.ModuleList(Block(c) for _ in range(c.layers))
        self.norm = Norm(c.dim, c.eps)
        cos, sin = rotary_table(c.context, c.head_dim, c.rope_base)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        for name, p in self.named_parameters():
            if p.dim() == 2:
                out = name.endswith(("o.weight", "down.weight"))  # blocks start as the identity
                nn.init.normal_(p, std=0.05 if "embed" in name else 0.0 if out else 0.5 * p.shape[1] ** -0.5)

    def hidden(self, ids):
        cos, sin = self.cos[: ids.shape[1]], self.sin[: ids.shape[1]]
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x, cos, sin)
        return self.norm(x)

    def forward(self, ids):
        return F.linear(self.hidden(ids), self.embed.weight)

    def loss(self, ids, targets, weights):
        """Mean of the weighted cross-entropies, and the unweighted ones [batch, length] for the curves."""
        logits = self(ids)
        each = F.cross_entropy(logits.float().flatten(0, 1), targets.flatten(), reduction="none").view(targets.shape)
        return (each * weights).sum() / weights.sum(), each.detach()

    def count(self):
        return sum(p.numel() for p in self.parameters())
