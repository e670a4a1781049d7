"""Initial weights with an induction circuit in the first two layers; they are trained like all others.

Recall needs two cooperating heads: one copies information about the previous token, the other attends to positions whose
previous token equals the current one (Olsson et al. 2022). Training finds such a pair by chance, after thousands of steps.
Here the initial weights contain an approximate circuit, which training refines:

- layer 0: head h attends h + 1 tokens back, by rotary phase only, and copies that token's content to a separate subspace;
- layer 1: a head attends to earlier occurrences of the last three tokens (KV head 0) or of the last one (other KV heads) and
  copies the next token. Content is compared in low-frequency rotary pairs only, which rotate little within the context.
  Without a match, it attends to the first token: an attention sink.

Two dimensions of the embedding are reserved: CONSTANT is equal for all tokens, FIRST is non-zero for BOS only.
"""
import torch

from bpe import BOS
from lexicon import BOYS, GIRLS

CONSTANT, FIRST = 0, 1
FAST, SHARPNESS = 6, 10.0  # rotary pairs for position, and their amplitude
MATCH, SINK = 8.0, 11.0     # nats for a matching token; for the first token
SLOW = 1.2                 # max rotation, in radians over the context, of a pair that carries content
LOUD = 4.0                 # CONSTANT, in standard deviations of the embedding
STD = 0.5                  # of the embedding: large relative to an optimizer step; the last norm compensates


@torch.no_grad()
def hold(model):
    """After each step: normalises embeddings to one length, so that CONSTANT is equal for all tokens after the norm."""
    embed = model.embed.weight
    size = STD * (embed.shape[1] - 2) ** 0.5
    embed[:, :2] = 0
    embed[1:].mul_(size / embed[1:].norm(dim=1, keepdim=True))
    embed[:, CONSTANT] = LOUD * STD
    embed[BOS, FIRST] = size


def wired(name):
    """Whether a parameter is part of the circuit, which has a tenth of the learning rate, so that the noise of the first steps does not destroy it."""
    return name.startswith(("blocks.0.", "blocks.1.")) and name.split(".")[2] in "qkvo"


def basis(size):
    return torch.linalg.qr(torch.randn(size, size))[0]


@torch.no_grad()
def wire(model, tokenizer):
    c, embed = model.c, model.embed.weight
    d, hd, group = c.dim, c.head_dim, c.heads // c.kv_heads
    theta = c.rope_base ** (-torch.arange(0, hd, 2).double() / hd)
    slow = [j for i in range(hd // 2 - 1) if theta[i] * c.context < SLOW for j in (2 * i, 2 * i + 1)]
    slow = torch.tensor(slow[-((d - 2) // (c.heads + 1)):])
    n = len(slow)  # compared dimensions of a token's content

    std, size = STD, STD * (d - 2) ** 0.5  # length of an embedding
    embed[BOS] *= 0.1 * STD / embed.std()
    for name in GIRLS + BOYS:  # with and without a preceding space: nearly equal
        a, b = tokenizer.word(name), tokenizer.word(" " + name)
        if len(a) == len(b) == 1:
            embed[a[0]] = embed[b[0]] + 0.3 * (embed[a[0]] - embed[b[0]])
    hold(model)
    model.norm.weight.mul_(0.05 / STD)

    axes = torch.zeros(d - 2, d)
    axes[:, 2:] = basis(d - 2)
    content, copied = axes[:n], axes[:hd]
    note = [axes[n * (h + 1): n * (h + 2)] for h in range(c.heads)]  # subspaces that layer 0 writes to, [n, d]
    rms = (size ** 2 + (LOUD * std) ** 2) ** 0.5 / d ** 0.5  # of an input row of layer 0
    later = (size ** 2 * (1 + c.heads * n / d) + (LOUD * std) ** 2) ** 0.5 / d ** 0.5  # and of layer 1

    first, second = model.blocks[0], model.blocks[1]
    for w in (first.q.weight, first.k.weight, first.v.weight, second.q.weight, second.k.weight, second.v.weight):
        w.mul_(0.1)
    constant = SHARPNESS * rms / (LOUD * std)
    for kv in range(c.kv_heads):
        first.k.weight[kv * hd: kv * hd + 2 * FAST: 2, CONSTANT] = constant
        first.v.weight[kv * hd: kv * hd + n] += content
        second.v.weight[kv * hd: (kv + 1) * hd] += copied
    for h in range(c.heads):
        phase = (-(h + 1) * theta[:FAST]).float()
        first.q.weight[h * hd: h * hd + 2 * FAST: 2, CONSTANT] = constant * phase.cos()
        first.q.weight[h * hd + 1: h * hd + 2 * FAST: 2, CONSTANT] = constant * phase.sin()
        first.o.weight[:, h * hd: h * hd + n] += note[h].T * rms  # keeps the length of the content
        second.o.weight[:, h * hd: (h + 1) * hd] += copied.T * 2 * later

    gain = (MATCH * hd ** 0.5 / n) ** 0.5 * later / rms
    frames = [basis(n) for _ in range(3)]  # one per token, so that their order matters
    now = [content, *note]
    for kv in range(c.kv_heads):
        reach, g = ((0, 1, 2), gain) if kv == 0 else ((0,), gain * 2 ** 0.5)
        second.k.weight[kv * hd + slow] += g * sum(frames[o] @ now[o + 1] for o in reach)
        anchor = hd - 2  # the lowest-frequency pair carries the sink
        second.k.weight[kv * hd + anchor, FIRST] = 4 / d ** 0.5
        for h in range(kv * group, (kv + 1) * group):
            second.q.weight[h * hd + slow] += g * sum(frames[o] @ now[o] for o in reach)
            second.q.weight[h * hd + anchor, CONSTANT] = SINK * hd ** 0.5 / 4 * later / (LOUD * std)
