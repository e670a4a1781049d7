"""PyTorch's figures (measured by torch_baselines.py) beside ours of the same work."""
import json

from report import geometric_mean, median, ratios, table, times

from common import REPO
from parts import Skip

FILE = REPO / "out" / "papers" / "torch.json"


def gains():
    """What a whole step gains over PyTorch's, as composed by `baselines`: one line; nothing if it was not measured."""
    if not FILE.exists():
        return []
    found = {name: [] for name in ("streaming", "h2o")}
    for row in json.loads(FILE.read_text())["step"]:
        s = row["seconds"]
        for name, values in found.items():
            rest = median(s[f"rest, {name}"])
            values.append((rest + median(s[name])) / (rest + median(s[f"in place, {name}"])))
    means = [geometric_mean(values) for values in found.values()]
    return [f"Over PyTorch's own shift + recompute and gather + recompute, with our matrices on both sides: {means[0]:.1f}x and {means[1]:.1f}x "
            "(geometric means; [PyTorch beside our baselines](#pytorch-beside-our-baselines)): our baselines are that much faster than the paper's.", ""]


def baselines(o):
    """PyTorch beside our baselines"""
    if not FILE.exists():
        raise Skip("bench/papers/torch_baselines.py has not run here: PyTorch could not be had, or was not asked for")
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
        f"PyTorch {got['torch']} from PyPI, {got['threads']} threads, in turn with our C++. What we compare ourselves with in the other parts is our own C++. It is no "
        f"slower than the papers' code in PyTorch: in a layer's decode step the least ratio is **{min(worst_step):.2f}x** "
        f"({'yes' if min(worst_step) >= 1 else '**no**'}), in the update alone **{min(worst):.2f}x** ({'yes' if min(worst) >= 1 else '**no**, see there'}).", "",
        "The update alone, 64 of 1,024 tokens, microseconds (batch x heads x size). shift: cat, then cat; mask: H2O's boolean mask, then cat; ours: the same two "
        "copies into new memory. Tensors of less than 32 MiB come from malloc's heap, whose pages a process may happen to keep or to give back at "
        "each step: there the ratio is malloc's (table 5 has a second buffer that is kept, too).", "",
        *table(["shape", "type", "PyTorch, shift", "in one cat", "our shift", "PyTorch / ours", "PyTorch, mask", "gather", "index_select", "our gather",
                "PyTorch / ours"], updates),
        "A layer's decode step after the projections, ms: one token leaves and one comes, all keys are rotated anew, one query attends "
        "(llama-2-7b: 32 heads of 128, bf16 cache); ours is `ms_evict` + `ms_attention` of `palimpsest bench decode`. *end to end*: what a whole step would gain over the papers' code itself: our matrices' time plus "
        "PyTorch's, over our matrices' plus ours in place; geometric means "
        f"**{geometric_mean(whole['streaming']):.2f}x** (streaming; asked over our own baseline, which is faster: 1.62x) and **{geometric_mean(whole['h2o']):.2f}x** (h2o; 4.48x).", "",
        *table(["batch", "cache", "PyTorch, shift + recompute", "ours", "PyTorch / ours", "PyTorch / in place", "end to end",
                "PyTorch, gather + recompute, h2o", "ours", "PyTorch / ours", "PyTorch / in place", "end to end"],
               steps)], "bench/papers/torch_baselines.py"
