"""PyTorch's times (measured by torch_baselines.py) beside those of our baselines."""
import json

from report import geometric_mean, median, ratios, table, times

from common import REPO
from parts import Skip

FILE = REPO / "out" / "papers" / "torch.json"


def measured(what):
    """What torch_baselines.py wrote under this name; None: nothing."""
    return json.loads(FILE.read_text()).get(what) if FILE.exists() else None


def gains():
    """Speed-up of a whole step over PyTorch, computed as in `baselines`: one line; empty if not measured."""
    if not measured("step"):
        return []
    found = {name: [] for name in ("streaming", "h2o")}
    for row in measured("step"):
        s = row["seconds"]
        for name, values in found.items():
            rest = median(s[f"rest, {name}"])
            values.append((rest + median(s[name])) / (rest + median(s[f"in place, {name}"])))
    means = [geometric_mean(values) for values in found.values()]
    return [f"Relative to PyTorch's shift + recompute and gather + recompute, with our matrix products on both sides: {means[0]:.1f}x and {means[1]:.1f}x "
            "(geometric means; see [PyTorch against our baselines](#pytorch-against-our-baselines)). Our baselines are faster than the paper's.", ""]


def baselines(o):
    """PyTorch against our baselines"""
    if not measured("step"):
        raise Skip("research/papers/torch_baselines.py has not run: PyTorch is not available, or the part was not selected")
    got = json.loads(FILE.read_text())
    updates, steps, worst, worst_step, whole = [], [], [], [], {"streaming": [], "h2o": []}
    for row in got["update"]:
        s = row["seconds"]
        best = {"shift": min((s[w] for w in ("shift", "shift_at_once")), key=median),
                "gather": min((s[w] for w in ("mask_gather", "gather", "index_select")), key=median)}
        both = {k: ratios(s[{"shift": "shift", "gather": "mask_gather"}[k]], s[f"ours, {k}"]) for k in best}
        worst += [median(r) for r in both.values()]
        updates.append(["x".join(map(str, row["row"])), row["type"], *(f"{1e6 * median(s[k]):,.0f}" for k in ("shift", "shift_at_once", "ours, shift")), times(both["shift"]),
                        *(f"{1e6 * median(s[k]):,.0f}" for k in ("mask_gather", "gather", "index_select", "ours, gather")), times(both["gather"])])
    for row in got["step"]:
        s = row["seconds"]
        cells = []
        for name in ("streaming", "h2o"):
            r = ratios(s[name], s[f"ours, {name}"])
            worst_step.append(median(r))
            cells += [f"{1e3 * median(s[name]):.2f}", f"{1e3 * median(s[f'ours, {name}']):.2f}", times(r),
                      times(ratios(s[name], s[f"in place, {name}"]))]
            rest = median(s[f"rest, {name}"])
            whole[name].append((rest + median(s[name])) / (rest + median(s[f"in place, {name}"])))
            cells.append(f"{whole[name][-1]:.2f}x")
        steps.append([row["batch"], row["n"], *cells])
    return [
        f"PyTorch {got['torch']} from PyPI, {got['threads']} threads, interleaved with our C++. The other sections compare with our own C++ baselines. This section checks that they are not "
        f"slower than the papers' code in PyTorch (ratios PyTorch / ours of at least 1): min ratio in a layer's decode step **{min(worst_step):.2f}x** "
        f"({'yes' if min(worst_step) >= 1 else '**no**'}), in the cache update alone **{min(worst):.2f}x** ({'yes' if min(worst) >= 1 else '**no**, see below'}).", "",
        "The cache update alone, 64 of 1,024 tokens, microseconds (batch x heads x size). shift: two torch.cat; mask: H2O's boolean mask, then torch.cat; ours: the same two "
        "copies into new memory. Tensors of less than 32 MiB come from malloc's heap, which may keep its pages or return them to the system at "
        "each step; there the ratio measures malloc (table 5 also has a variant with a reused second buffer).", "",
        *table(["shape", "type", "PyTorch, shift", "one torch.cat", "our shift", "PyTorch / ours", "PyTorch, mask", "gather", "index_select", "our gather",
                "PyTorch / ours"], updates),
        "A layer's decode step after the projections, ms: one token is evicted and one inserted, all keys are rotated again, one query attends "
        "(llama-2-7b: 32 heads of 128 dimensions, bf16 cache). Ours: `ms_evict` + `ms_attention` of `palimpsest bench decode`. *End to end*: speed-up of a whole step over the papers' code: our matrix products plus "
        "PyTorch's step, relative to our matrix products plus our in-place step. Geometric means: "
        f"**{geometric_mean(whole['streaming']):.2f}x** (streaming; target 1.62x, over our faster baseline) and **{geometric_mean(whole['h2o']):.2f}x** (h2o; target 4.48x).", "",
        *table(["batch", "cache", "PyTorch, shift + recompute", "ours", "PyTorch / ours", "PyTorch / in place", "end to end",
                "PyTorch, gather + recompute, h2o", "ours", "PyTorch / ours", "PyTorch / in place", "end to end"],
               steps)], "research/papers/torch_baselines.py"
