"""EQUIP's tables 5 and 6: the cache's update alone, and rotation at ranks without order."""
import json

from report import bar_plot, geometric_mean, median, ratios, span, table, times, verdict

from common import REPO, run, shown
from parts import Skip

# Speed-ups on the paper's CPU (60 cores, Sapphire Rapids): batch, heads, head size -> over H2O, over StreamingLLM.
TABLE_5 = {(1, 64, 64): (11.62, 26.54), (1, 64, 128): (27.32, 36.04), (1, 128, 64): (19.36, 27.65), (8, 64, 64): (35.73, 47.94),
           (8, 64, 128): (38.12, 46.67), (8, 128, 64): (39.90, 45.04), (32, 64, 64): (39.75, 50.58), (32, 64, 128): (31.43, 47.34)}

# Batch, heads, tokens -> time of random ranks in each sequence, of random shared ranks; contiguous ranks are 1.
TABLE_6 = {(1, 32, 4096): (0.91, 0.96), (1, 32, 16384): (1.01, 0.99), (1, 64, 4096): (1.02, 0.99), (1, 64, 16384): (1.01, 0.99),
           (32, 32, 4096): (1.00, 1.00), (32, 32, 16384): (0.99, 1.00), (32, 64, 4096): (1.00, 1.01), (32, 64, 16384): (0.96, 0.97),
           (128, 32, 4096): (1.04, 1.00), (128, 32, 16384): (1.00, 1.04), (128, 64, 4096): (1.01, 1.00),
           (128, 64, 16384): (1.02, 1.10)}


def bench(o, name, *words):
    path = REPO / o.build / name
    if not path.exists():
        raise Skip(f"needs {shown([path])}: make build")
    command = [path, *words]
    return json.loads(run(command, prefix=o.engine.prefix)[1]), shown(command)


def rows_of(keys):
    return ",".join("x".join(map(str, key)) for key in keys)


# Rows moved a head for one tensor of n = 1,024 with 64 victims. A write also reads its line first, unless the whole
# line is written past the caches; fresh pages are written once more by the system, with zeros.
N, OUT = 1024, 64
KEPT = N - OUT
BOUNDS = {
    "evict then append, fresh": KEPT * 3 + KEPT + N * 2 + (KEPT + N) + OUT,
    "evict then append": KEPT * 3 + KEPT + N * 2 + OUT,
    "at once": KEPT + N * 2 + OUT,
    "at once, past the caches": KEPT + N + OUT,
    "in place": OUT * 3,
}


def table_5(o):
    """Table 5: the update of the cache alone, 64 evictions of 1,024"""
    rounds, ms = o.effort.pick(2, 3), o.effort.pick(10, 40)
    keys = o.effort.pick([(1, 64, 64), (1, 64, 128), (8, 64, 64)], list(TABLE_5))
    lines, groups, command, worst = [], {}, "", {"shift": [], "gather": []}
    small = [k for k in keys if k[0] == 1]
    for kind, threads, some in o.effort.pick([("f32", o.threads, keys)],
                                             [("f16", o.threads, keys), ("f32", 1, small), ("f32", o.threads, keys)]):
        got, command = bench(o, "update_bench", "--rows", rows_of(some), "--type", kind, "--threads", threads, "--rounds",
                             rounds, "--ms", ms)
        rows = []
        for row in got["rows"]:
            key = row["batch"], row["heads"], row["head_size"]
            s = row["seconds"]
            ring, scattered = s["in place, oldest"], s["in place, scattered"]
            shift = ratios(s["shift, evict then append, fresh"], ring)
            gather = ratios(s["gather, evict then append, fresh"], scattered)
            least_shift = ratios(list(map(min, s["shift, at once, second buffer"], s["shift, at once, second buffer, streamed"],
                                          s["shift inside the buffer"])), ring)
            least_gather = ratios(list(map(min, s["gather, at once, second buffer"],
                                           s["gather, at once, second buffer, streamed"])), scattered)
            paper = TABLE_5[key]
            rows.append([*key, f"{1e6 * median(ring):,.0f}", f"{1e6 * median(s['shift, evict then append, fresh']):,.0f}", times(shift),
                         times(least_shift), f"{paper[1]:.2f}x", f"{1e6 * median(scattered):,.0f}",
                         f"{1e6 * median(s['gather, evict then append, fresh']):,.0f}", times(gather), times(least_gather),
                         f"{paper[0]:.2f}x", times(ratios(s["gather, evict then append, fresh"], ring))])
            if kind == "f32" and threads == o.threads:
                groups["x".join(map(str, key))] = {"over shift": median(shift), "paper, over shift": paper[1],
                                                   "over gather": median(gather), "paper, over gather": paper[0]}
                worst["shift"].append(median(shift))
                worst["gather"].append(median(gather))
        lines += [f"**{kind}, {threads} thread{'s' if threads > 1 else ''}**; this machine copies {got['copy_bytes_per_second'] / 1e9:.1f} GB/s "
                  f"(memcpy between large buffers: as many bytes read as written), {got['streamed_copy_bytes_per_second'] / 1e9:.1f} GB/s "
                  f"past the caches.", "",
                  *table(["batch", "heads", "size", "in place, oldest, us", "shift, us", "over shift", "over the best shift", "paper",
                          "in place, scattered, us", "gather, us", "over gather", "over the best gather", "paper",
                          "gather over in place, oldest"], rows)]
    bound = [[what, f"{moved:,}", f"{moved / BOUNDS['in place']:.1f}x"] for what, moved in BOUNDS.items()]
    lines = [
        "One layer's K and V; all heads; 64 tokens leave, 64 come. *shift*, *gather*: what the papers' code does with tensors [batch, "
        "heads, n, size]: the survivors go into a new tensor (evict), then they and the new rows into another (append), each allocated "
        "anew. *best*: survivors and new rows at once into a second buffer that is kept, with ordinary or non-temporal stores, or moved inside the "
        "buffer (shift), whichever is faster: nothing that copies does less. Ours: `Cache::apply`, `Cache::insert` and the kernel "
        "that writes rows into pages, bookkeeping included; *oldest*: the ring of StreamingLLM; *scattered*: each head's own 64 "
        "random slots, as H2O has them. Victims are given in all cases.", "",
        verdict("Least over shift, in place at the oldest slots", min(worst["shift"]), 50),
        verdict("Least over gather, in place at scattered slots", min(worst["gather"]), 40), "",
        "What bounds the ratio: rows that go over the memory bus, a tensor and a head (a write reads its line first; the system "
        "writes fresh pages once with zeros, and a fault for each page of 4 KiB comes on top):", "",
        *table(["way", "rows", "over in place"], bound),
        "So where the tensors are larger than the caches a ratio of about 30 is what bytes allow over two fresh tensors, and anything above is page faults; "
        "16 is what they allow over one copy. Scattered victims cost us more than rows would: in a page the keys of 16 slots lie side by side, "
        "[size][16], so that attention grows 16 scores in a register; one key touches `size` elements in as many half or whole "
        "cache lines, and 64 random slots of 1,024 touch 41 of 64 tiles, so that most of K is read and written (bytes allow about 6 over "
        "gather). A decode step, which lets one token go, reads all these lines for attention anyway: there the update is not to be "
        "measured (see the cost of evicting).", "", *lines]
    lines += bar_plot("equip-table5", "Update of the cache alone, f32", "speed-up of in place", groups)
    return lines, command


def table_6(o):
    """Table 6: rotation at contiguous and at random ranks"""
    full = {(1, 32, 4096): (1, 32, 4096), (1, 32, 16384): (1, 32, 16384), (1, 64, 4096): (1, 64, 4096), (1, 64, 16384): (1, 64, 16384),
            (32, 32, 4096): (8, 32, 4096), (32, 32, 16384): (8, 32, 16384), (32, 64, 4096): (8, 64, 4096), (32, 64, 16384): (8, 64, 16384),
            (128, 32, 4096): (16, 32, 4096), (128, 32, 16384): (16, 32, 16384), (128, 64, 4096): (16, 64, 4096),
            (128, 64, 16384): (16, 64, 16384)}
    some = o.effort.pick({k: v for k, v in full.items() if v[0] * v[1] * v[2] <= 1 << 20}, full)
    got, command = bench(o, "rope_bench", "--rows", rows_of(some.values()), "--threads", o.threads, "--rounds",
                         o.effort.pick(5, 7))
    rows, each, shared = [], [], []
    for key, row in zip(some, got, strict=True):
        s = row["seconds"]
        each.append(ratios(s["random, each sequence"], s["contiguous"]))
        shared.append(ratios(s["random, shared"], s["contiguous"]))
        rows.append([*key, row["batch"], f"{1e3 * median(s['contiguous']):.2f}", span(each[-1]), span(shared[-1]),
                     *(f"{v:.2f}" for v in TABLE_6[key]), span(ratios(s["contiguous"], s["not rotated"]))])
    means = [geometric_mean([median(v) for v in values]) for values in (each, shared)]
    return [
        "Attention of one layer with keys rotated at their ranks inside the kernel (head size 128, f16, no grouping of heads): the time at random "
        "ranks over the time at contiguous ranks. The paper times the rotation as an operation of its own; ours is part of "
        "attention, so its share is in the last column: over attention to keys that need no rotation. Batches of 32 and 128 are scaled "
        "to 8 and 16.", "",
        f"Geometric means: **{means[0]:.2f}** (random in each sequence; paper 1.00), **{means[1]:.2f}** (random, shared; paper 0.99).", "",
        *table(["batch", "heads", "tokens", "batch here", "contiguous, ms", "random each / contiguous", "random shared / contiguous",
                "paper, each", "paper, shared", "contiguous / not rotated"], rows)], command
