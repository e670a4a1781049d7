"""Tables 5 and 6 of EQUIP: the cache update alone, and rotation at unordered ranks."""
from engine import bench
from report import bar_plot, geometric_mean, median, ratios, span, table, times, verdict

# Speed-ups on the paper's CPU (60 cores, Sapphire Rapids): batch, heads, head size -> relative to H2O, to StreamingLLM.
TABLE_5 = {(1, 64, 64): (11.62, 26.54), (1, 64, 128): (27.32, 36.04), (1, 128, 64): (19.36, 27.65), (8, 64, 64): (35.73, 47.94),
           (8, 64, 128): (38.12, 46.67), (8, 128, 64): (39.90, 45.04), (32, 64, 64): (39.75, 50.58), (32, 64, 128): (31.43, 47.34)}

# Batch, heads, tokens -> time of random ranks in each sequence, of random shared ranks; contiguous ranks are 1.
TABLE_6 = {(1, 32, 4096): (0.91, 0.96), (1, 32, 16384): (1.01, 0.99), (1, 64, 4096): (1.02, 0.99), (1, 64, 16384): (1.01, 0.99),
           (32, 32, 4096): (1.00, 1.00), (32, 32, 16384): (0.99, 1.00), (32, 64, 4096): (1.00, 1.01), (32, 64, 16384): (0.96, 0.97),
           (128, 32, 4096): (1.04, 1.00), (128, 32, 16384): (1.00, 1.04), (128, 64, 4096): (1.01, 1.00),
           (128, 64, 16384): (1.02, 1.10)}


def rows_of(keys):
    return ",".join("x".join(map(str, key)) for key in keys)


# Rows moved per head for one tensor of n = 1,024 with 64 evictions. A write also reads its cache line first, unless the
# whole line is written with non-temporal stores; the system writes new pages once more, with zeros.
N, OUT = 1024, 64
KEPT = N - OUT
BOUNDS = {
    "evict then append, new memory": KEPT * 3 + KEPT + N * 2 + (KEPT + N) + OUT,
    "evict then append": KEPT * 3 + KEPT + N * 2 + OUT,
    "one copy": KEPT + N * 2 + OUT,
    "one copy, non-temporal stores": KEPT + N + OUT,
    "in place": OUT * 3,
}


def table_5(o):
    """Table 5: cache update alone, 64 evictions of 1,024 tokens"""
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
            best_shift = ratios(list(map(min, s["shift, at once, second buffer"], s["shift, at once, second buffer, streamed"],
                                          s["shift inside the buffer"])), ring)
            best_gather = ratios(list(map(min, s["gather, at once, second buffer"],
                                           s["gather, at once, second buffer, streamed"])), scattered)
            paper = TABLE_5[key]
            rows.append([*key, f"{1e6 * median(ring):,.0f}", f"{1e6 * median(s['shift, evict then append, fresh']):,.0f}", times(shift),
                         times(best_shift), f"{paper[1]:.2f}x", f"{1e6 * median(scattered):,.0f}",
                         f"{1e6 * median(s['gather, evict then append, fresh']):,.0f}", times(gather), times(best_gather),
                         f"{paper[0]:.2f}x", times(ratios(s["gather, evict then append, fresh"], ring))])
            if kind == "f32" and threads == o.threads:
                groups["x".join(map(str, key))] = {"relative to shift": median(shift), "paper, relative to shift": paper[1],
                                                   "relative to gather": median(gather), "paper, relative to gather": paper[0]}
                worst["shift"].append(median(shift))
                worst["gather"].append(median(gather))
        lines += [f"**{kind}, {threads} thread{'s' if threads > 1 else ''}**; copy bandwidth of this machine: {got['copy_bytes_per_second'] / 1e9:.1f} GB/s "
                  f"(memcpy between large buffers; bytes read = bytes written), {got['streamed_copy_bytes_per_second'] / 1e9:.1f} GB/s "
                  f"with non-temporal stores.", "",
                  *table(["batch", "heads", "size", "in place, oldest, us", "shift, us", "relative to shift", "relative to the fastest shift", "paper",
                          "in place, scattered, us", "gather, us", "relative to gather", "relative to the fastest gather", "paper",
                          "gather / in place, oldest"], rows)]
    bound = [[what, f"{moved:,}", f"{moved / BOUNDS['in place']:.1f}x"] for what, moved in BOUNDS.items()]
    lines = [
        "One layer's K and V, all heads; 64 tokens are evicted and 64 inserted. *Shift*, *gather*: as the papers' code, on tensors [batch, "
        "heads, n, size]: the kept tokens are copied into a new tensor (evict), then with the new rows into another (append), each newly "
        "allocated. *Fastest*: kept and new rows are copied once into a reused second buffer, with ordinary or non-temporal stores, or moved inside the "
        "buffer (shift), whichever is faster; no copying method does less. In place: slot tables and the kernel "
        "that writes rows into pages; *oldest*: the ring of StreamingLLM; *scattered*: 64 random slots per head, as in H2O. "
        "The evicted tokens are given in all cases.", "",
        verdict("Min relative to shift, in place at the oldest slots", min(worst["shift"]), 50),
        verdict("Min relative to gather, in place at scattered slots", min(worst["gather"]), 40), "",
        "Bound of the ratio: rows transferred over the memory bus, per tensor and head (a write reads its cache line first; the system "
        "writes new pages once with zeros; page faults, one per 4 KiB, are additional):", "",
        *table(["method", "rows", "relative to in place"], bound),
        "If the tensors are larger than the CPU caches, bandwidth limits the ratio to about 30 relative to two new tensors and to 16 relative to one copy; larger ratios are due to page faults. "
        "Scattered slots cost more than these rows: a page stores the keys of 16 slots interleaved, "
        "[size][16], so that attention computes 16 scores in one register. One key therefore touches `size` cache lines (whole or half), "
        "and 64 random slots of 1,024 touch 41 of 64 tiles, so most of K is read and written (limit relative to gather: about 6). "
        "A decode step evicts one token and reads all these lines for attention anyway; there the cost of the update is not "
        "measurable (see [evict-cost.md](../../docs/results/evict-cost.md)).", "", *lines]
    lines += bar_plot("equip-table5", "Cache update alone, f32", "speed-up of in place", groups)
    return lines, command


def appendix_d5(o):
    """Appendix D.5: several evictions and insertions in one step"""
    counts = o.effort.pick([1, 64], [1, 4, 16, 64, 256])
    rows, command = [], ""
    for shape in o.effort.pick([(1, 32, 128)], [(1, 32, 128), (8, 32, 128)]):
        for count in counts:
            got, command = bench(o, "update_bench", "--rows", rows_of([shape]), "--type", "f16", "--threads", o.threads, "--rounds", o.effort.pick(2, 5), "--ms",
                                 o.effort.pick(10, 40), "--victims", count)
            s = got["rows"][0]["seconds"]
            for method, ours, copy, fastest in (("streaming", "in place, oldest", "shift", ["second buffer", "second buffer, streamed", None]),
                                                ("h2o", "in place, scattered", "gather", ["second buffer", "second buffer, streamed"])):
                best = list(map(min, *(s["shift inside the buffer" if kind is None else f"{copy}, at once, {kind}"] for kind in fastest)))
                rows.append([*shape, method, count, f"{1e6 * median(s[ours]):,.1f}", f"{1e6 * median(s[ours]) / count:,.2f}", copy,
                             times(ratios(s[f"{copy}, evict then append, fresh"], s[ours])), times(ratios(best, s[ours]))])
    return ["One layer's K and V of 1,024 tokens, f16, all heads. As in table 5, which has the paper's shapes at 64 tokens, the only number of the paper. A step that reads drafts, and "
            "an edit, evict and insert several tokens at once.", "",
            *table(["batch", "heads", "size", "method", "evicted and inserted", "in place, us", "us per token", "copies", "relative to the copies", "relative to the fastest copies"], rows)], command


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
        "Attention of one layer with keys rotated at their ranks inside the kernel (head size 128, f16, no grouping of heads): time at random "
        "ranks relative to time at contiguous ranks. The paper times the rotation separately; ours is part of "
        "attention, and the last column has its share: relative to attention without rotation. Batches of 32 and 128 are scaled "
        "to 8 and 16.", "",
        f"Geometric means: **{means[0]:.2f}** (random per sequence; paper 1.00), **{means[1]:.2f}** (random, shared; paper 0.99).", "",
        *table(["batch", "heads", "tokens", "batch here", "contiguous, ms", "random per sequence / contiguous", "random shared / contiguous",
                "paper, per sequence", "paper, shared", "contiguous / not rotated"], rows)], command
