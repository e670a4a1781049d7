"""EMS, figures 2, 4, 8 and 9: sparsity and redundancy of heads, and which tokens its scores select, from all attention weights, keys
and values of a text (examples/dump_attention.cpp)."""
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

from report import bar_plot, table

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
from common import REPO, Failed  # noqa: E402

TOKENS, WINDOW, KERNEL = 512, 32, 7  # the window and kernel of the paper's LongBench runs
MASS, SIMILAR = 0.95, 0.6            # zeta and tau of figure 4
SELECTED = [32, 64, 128, 256, 384]
STORIES = REPO.parent / "shared/models/stories260K/stories260K.gguf"


def dumped(o, model, text):
    """[heads, queries, tokens], keys and values [heads, tokens, width] of the first TOKENS tokens."""
    with tempfile.TemporaryDirectory() as folder:
        program = REPO / o.build / "example_dump_attention"
        done = subprocess.run([program, model, text, str(TOKENS), folder], capture_output=True, text=True)
        if done.returncode:
            raise Failed(f"{program.name}: {done.stderr.strip()}")
        return [np.load(f"{folder}/{name}.npy") for name in ("attention", "keys", "values")]


def pooled(scores):
    """Mean over KERNEL neighbours; beyond the ends are zeros."""
    wide = np.pad(scores, ((0, 0), (KERNEL // 2, KERNEL // 2)))
    return sum(wide[:, i:i + scores.shape[1]] for i in range(KERNEL)) / KERNEL


def scores_of(attention):
    """Equation 2: global, local, and the larger of both at one scale, [heads, tokens], pooled."""
    everywhere, lately = attention.sum(1), attention[:, -WINDOW:].sum(1)
    scale = lately.mean(1, keepdims=True) / everywhere.mean(1, keepdims=True)
    return {"global": pooled(everywhere), "local": pooled(lately), "both": pooled(np.maximum(everywhere * scale, lately))}


def sparsity(score):
    """Equation 3, by head: 1 - the smallest share of tokens that have MASS of the score."""
    share = np.sort(score, axis=1)[:, ::-1].cumsum(1) / score.sum(1, keepdims=True)
    return 1 - ((share < MASS).sum(1) + 1) / score.shape[1]


def similarities(rows):
    """Cosines of all pairs, [heads, tokens, tokens]; of a token with itself and later ones: -1."""
    unit = rows / np.linalg.norm(rows, axis=2, keepdims=True)
    cosine = unit @ unit.swapaxes(1, 2)
    return np.where(np.tril(np.ones(cosine.shape[1:], bool), -1), cosine, -1)


def redundancy(similar):
    """Equation 4, by head: the share of tokens with an earlier one that is at least SIMILAR."""
    return (similar.max(2) >= SIMILAR).mean(1)


def top(score, count):
    """The tokens with the largest scores, [heads, tokens] of bool."""
    out = np.zeros(score.shape, bool)
    np.put_along_axis(out, np.argsort(-score, axis=1)[:, :count], True, axis=1)
    return out


def of_model(o, label, model, text):
    attention, keys, values = dumped(o, model, text)
    scores = scores_of(attention)
    key, value = similarities(keys), similarities(values)
    sparse, redundant = sparsity(scores["both"]), redundancy(key * np.where(value > 0, value, 0))
    lines = [f"**{label}**, {len(keys)} KV heads", ""]
    pairs = np.tril_indices(keys.shape[1], -1)
    quartiles = lambda rows: " / ".join(f"{q:.2f}" for q in np.percentile(rows, [10, 50, 90]))
    lines += table(["", "10% / 50% / 90% of heads or pairs"], [
        ["sparsity of a head, zeta = 0.95", quartiles(sparse)], ["redundancy of a head, tau = 0.6", quartiles(redundant)],
        ["cosine of two keys", quartiles(key[:, pairs[0], pairs[1]])], ["cosine of two values", quartiles(value[:, pairs[0], pairs[1]])],
        ["tokens with a similar earlier key (0.8)", quartiles((key.max(2) >= 0.8).mean(1))],
        ["tokens with a similar earlier value (0.8)", quartiles((value.max(2) >= 0.8).mean(1))]])
    rows = []
    for count in SELECTED:
        chosen = {name: top(score, count) for name, score in scores.items()}
        both, a, b = chosen["both"], chosen["global"], chosen["local"]
        share = lambda what: f"{100 * (both & what).sum() / both.sum():.0f}%"
        age = lambda what: f"{100 * (np.nonzero(what)[1].mean() / TOKENS):.0f}%"
        rows.append([count, share(a & b), share(a & ~b), share(~a & b), share(~a & ~b), *(age(chosen[n]) for n in ("global", "local", "both"))])
    lines += table(["selected by both scores together", "by each alone", "only by the global", "only by the local", "by neither",
                    "mean place: global", "local", "together"], rows)
    return lines, {f"{i}": {"sparsity": float(sparse[i]), "redundancy": float(redundant[i])} for i in range(len(sparse))}


def heads(o):
    """Figures 2, 4, 8, 9: sparsity and redundancy of heads, tokens that the scores select"""
    with tempfile.TemporaryDirectory() as folder:
        text = pathlib.Path(folder) / "story.txt"
        story = subprocess.run([sys.executable, REPO / "research/train/documents.py", "saga", "4000"], capture_output=True, text=True, check=True)
        text.write_text(story.stdout)
        lines, groups = of_model(o, "The default model", str(REPO / "models/palimpsest-stories.gguf"), str(text))
        others, _ = of_model(o, "stories260K", str(STORIES), str(text)) if STORIES.exists() else ([], None)
    plot = bar_plot("ems-fig4", "Sparsity and redundancy by KV head (default model)", "share of tokens", groups)
    return [f"{TOKENS} tokens of a held-out story; window {WINDOW}, mean over {KERNEL} neighbours, as the paper's LongBench runs. The mean place of the selected tokens: 0% the "
            "first token, 100% the last. The paper shows heads of Llama 2 7B on gov_report as pictures: key similarity is far above value similarity, sparsity and redundancy "
            "differ between heads, and when fewer tokens are selected, global and local ones share them evenly; when more, the global ones prevail.", "",
            *lines, *others, *plot], "research/papers/run.py heads"
