"""EQUIP, figure 19 and appendix D.7: the mechanism does not change what a method computes."""
import pathlib
import sys
import tempfile

import torch_report
from report import table

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
from common import REPO, run, run_json, shown  # noqa: E402

BUDGETS = [64, 128, 256]
MODELS = {"stories260K, f32 weights": (REPO.parent / "shared/models/stories260K/stories260K.gguf", 2000),
          "the default model, 4 to 8 bits": (REPO / "models/palimpsest-stories.gguf", 6000)}  # and tokens
METHODS = {  # of a budget; the first of each is the paper's baseline
    "streaming": {"shift, rotated again": "streaming:budget={n},mechanism=shift,rerotate=recompute", "in place": "streaming:budget={n}"},
    "h2o": {"gather": "h2o:budget={n},mechanism=gather", "in place": "h2o:budget={n}"},
    "h2o, cache positions": {"gather, rotated again": "h2o:budget={n},positions=cache,mechanism=gather,rerotate=recompute", "in place": "h2o:budget={n},positions=cache"},
}


def deviations():
    got = torch_report.measured("parity")
    if got is None:
        return ["PyTorch in double precision: not compared (research/papers/torch_baselines.py has not run)", ""]
    rows = [("attention, in place, PyTorch in double precision", got["copied"], got["outputs"], "less than 1e-9"), ("attention, in place, our reference in double precision (angles and outputs in f32)", got["reference"], got["outputs"], ""),
            ("attention, in place, our SIMD path in f32", got["simd"], got["outputs"], ""), ("keys rotated to their ranks, ours in f32", got["rotation"], got["keys"], "less than 1e-5")]
    return [f"Against PyTorch {got['torch']} in double precision, with keys and values in the order that copies leave: {got['heads']} heads, {got['tokens']:,} tokens of {got['head_size']} dimensions in random slots, f32 "
            "cache (`build/parity_bench`). The paper's 1e-9 is about the order of the sums alone, the first row; the others also round to f32.", "",
            *table(["what", "max deviation", "largest number", "paper"], [[what, f"{value:.1e}", f"{largest:.2f}", paper] for what, value, largest, paper in rows])]


def parity(o):
    """Figure 19, D.7: perplexity in place and with copies"""
    rows, command = [], ""
    with tempfile.TemporaryDirectory() as folder:
        text = pathlib.Path(folder) / "stories.txt"
        text.write_text(run([sys.executable, REPO / "research/train/documents.py", "saga", 36000])[1])
        for model, (path, tokens) in MODELS.items():
            for label, ways in METHODS.items() if path.exists() else []:
                for budget in BUDGETS:
                    words = [o.engine.program, "eval", "perplexity", "-m", path, "-f", text, "--tokens", o.effort.pick(1000, tokens), "--prefill-chunk", 1, "-t", 1,
                             "--cache-type", "f32", "--json"]
                    for method in ways.values():
                        words += ["--method", method.format(n=budget)]
                    command = shown(words)
                    runs = run_json(words)["runs"]
                    first = runs[0]["perplexity"]
                    rows.append([model, label, budget, runs[0]["evicted"], *(f"{r['perplexity']:.7f}" for r in runs), f"{abs(runs[1]['perplexity'] - first) / first:.1e}"])
    return ["Held-out stories, token by token, f32 cache. In the paper the perplexities of Llama 2 7B and 13B are equal, and outputs of layers differ by "
            "less than 1e-9 (attention) and 1e-5 (rotation), from the order of sums alone. With quantised weights, activations are rounded to 8 bits: a difference in the last bit of a sum can become one of 1/127 of "
            "an activation, and h2o then keeps other tokens. Kept sets and outputs of every method and mechanism are compared token by token with double "
            "precision by the tests ([exactness.md](../../docs/exactness.md)).", "",
            *table(["model", "method", "budget", "evictions", "copied", "in place", "relative difference"], rows), *deviations()], command
