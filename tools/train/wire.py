"""First weights that can already copy: an induction circuit wired into the first two layers, trained like all else.

Recall needs two heads that find each other: one that notes which token came before, one that looks for places where what
came before is what stands here now (Olsson et al. 2022). Gradients find that pair by luck, after thousands of steps; here
it is written into the first weights, roughly, and training does the rest:

- layer 0: head h attends h + 1 tokens back, by rotary phase alone, and notes that token's content in a subspace of its own;
- layer 1: a head asks where the last three tokens stood before (KV head 0), or the last one (the other KV heads), and copies
  what came next. Content is compared in slow rotary pairs only, which hardly turn within the context. Where nothing
  matches, the weight goes to the first token: an attention sink.

Two dimensions of the embedding are set apart: CONSTANT is the same in every token, FIRST is not zero in BOS alone.
"""
import torch

from bpe import BOS
from lexicon import BOYS, GIRLS

CONSTANT, FIRST = 0, 1
FAST, SHARPNESS = 6, 10.0  # rotary pairs that say where a token is, and their amplitude
MATCH, SINK = 8.0, 11.0     # nats for one token that matches; for the first token of all
SLOW = 1.2                 # radians that a pair may turn within the context to carry content
LOUD = 4.0                 # CONSTANT, in standard deviations of the embedding
STD = 0.5                  # of the embedding: large beside an optimizer's step; the last norm takes it back


@torch.no_grad()
def hold(model):
    """After each step: embeddings of one length, so that CONSTANT is the same in every token after the norm."""
    embed = model.embed.weight
    size = STD * (embed.shape[1] - 2) ** 0.5
    embed[:, :2] = 0
    embed[1:].mul_(size / embed[1:].norm(dim=1, keepdim=True))
    embed[:, CONSTANT] = LOUD * STD
    embed[BOS, FIRST] = size


def wired(name):
    """Whether a parameter holds the circuit; it learns at a tenth of the rate, or the noise of the first steps destroys it."""
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
    n = len(slow)  # dimensions of a token's content, as far as it is compared

    std, size = STD, STD * (d - 2) ** 0.5  # length of an embedding
    embed[BOS] *= 0.1 * STD / embed.std()
    for name in GIRLS + BOYS:  # with a space before it and without: nearly the same
        a, b = tokenizer.word(name), tokenizer.word(" " + name)
        if len(a) == len(b) == 1:
            embed[a[0]] = embed[b[0]] + 0.3 * (embed[a[0]] - embed[b[0]])
    hold(model)
    model.norm.weight.mul_(0.05 / STD)

    axes = torch.zeros(d - 2, d)
    axes[:, 2:] = basis(d - 2)
    content, copied = axes[:n], axes[:hd]
    note = [axes[n * (h + 1): n * (h + 2)] for h in range(c.heads)]  # where layer 0 writes what it found, [n, d]
    rms = (size ** 2 + (LOUD * std) ** 2) ** 0.5 / d ** 0.5  # of a row that enters layer 0
    later = (size ** 2 * (1 + c.heads * n / d) + (LOUD * std) ** 2) ** 0.5 / d ** 0.5  # and layer 1

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
        first.o.weight[:, h * hd: h * hd + n] += note[h].T * rms  # a noted content is as long as it was
        second.o.weight[:, h * hd: (h + 1) * hd] += copied.T * 2 * later

    gain = (MATCH * hd ** 0.5 / n) ** 0.5 * later / rms
    frames = [basis(n) for _ in range(3)]  # one for each of the last tokens, so that their order counts
    now = [content, *note]
    for kv in range(c.kv_heads):
        reach, g = ((0, 1, 2), gain) if kv == 0 else ((0,), gain * 2 ** 0.5)
        second.k.weight[kv * hd + slow] += g * sum(frames[o] @ now[o + 1] for o in reach)
        anchor = hd - 2  # the slowest pair carries the sink
        second.k.weight[kv * hd + anchor, FIRST] = 4 / d ** 0.5
        for h in range(kv * group, (kv + 1) * group):
            second.q.weight[h * hd + slow] += g * sum(frames[o] @ now[o] for o in reach)
            second.q.weight[h * hd + anchor, CONSTANT] = SINK * hd ** 0.5 / 4 * later / (LOUD * std)
