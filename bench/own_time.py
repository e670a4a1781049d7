"""Own time of every method: the time of a decode step that a method takes to score, select, evict and merge tokens.

All methods run in one process, interleaved. Methods that decide at the prompt's end only are measured with schedule=step:
at every token. The rows at the budget are random; 128 tokens contain each method's rarer decisions (every 64 or 128
tokens).

    make own-time                        # budgets of 1,024 and 4,096 tokens, about 15 minutes
    make own-time OWN_ARGS='--budgets 1024 --tokens 32'
"""
import common
import parts
from evict_cost import PAGE

TARGET = 0.05  # of the step
LEFT_OUT = {"full": "evicts nothing", "window-recompute": "has no cache", "duo": "needs a list of heads", "learned": "needs a scorer", "temporal": "likewise", "kvzap": "likewise", "triattention": "needs mean queries", "adakv": "decides at the prompt's end only", "kvzip": "likewise"}
COSTS = {  # why a method takes longer than the target
    "compact-shift": "moves all later tokens of each head, as implementations without slots do: the baseline of in-place eviction",
    "keydiff": "reads all keys at every token: each one changes the mean key",
    "expected-attention": "multiplies all keys by its statistics of queries at every token",
    "r-kv": "compares keys with each other",
    "cam": "looks for the next 32 tokens among all slots",
    "ems": "reads all values at every token, to find the most similar one",
}
ABOUT = ["Time of a decode step that a method takes for its own decisions, and for what they change in the cache. It is on top of what attention takes to compute",
         "weights, which the step contains. Not measured: " + "; ".join(f"{name} ({why})" for name, why in LEFT_OUT.items()) + ".", ""]


def methods(program):
    """Name and arguments of --method, for those that decode with evictions."""
    for m in common.run_json([program, "methods", "--json"])["methods"]:
        if m["name"] not in LEFT_OUT:
            yield m["name"], ",schedule=step" if m["acts"] == "prompt" else ""


def main():
    parse = parts.parser(__doc__)
    parts.add(parse, "--program", "--threads", "--prefix")
    parse.add_argument("--model", default="llama-3.1-8b@layers=8@type=q4_0@vocab=32000")
    parse.add_argument("--budgets", type=int, nargs="+", default=[1024, 4096])
    parse.add_argument("--tokens", type=int, default=128)
    parse.add_argument("--reps", type=int, default=2)
    o = parse.parse_args()
    for budget in o.budgets:
        names = [(name, f"{name}:budget={budget}{more}") for name, more in methods(o.program)]
        command = [o.program, "bench", "decode", "--synthetic", o.model, "--tokens", o.tokens, "--reps", o.reps, "--depth", budget + 64, "-t", o.threads, "--json"]
        for _, method in names:
            command += ["--method", method]
        rows = {r["name"]: r for r in common.run_json(command, prefix=o.prefix)}
        streaming = rows[f"streaming:budget={budget}"]["ms_p50"]
        lines = [*ABOUT, "| method | own, ms | of the step | evicted per token | step, ms | of streaming's | |", "|---|---|---|---|---|---|---|"]
        missed = []
        for name, method in sorted(names, key=lambda n: rows[n[1]]["ms_evict"]):
            row = rows[method]
            share = row["ms_evict"] / row["ms_p50"]
            if share > TARGET:
                missed.append(name)
            lines.append(f"| {method.replace(f'budget={budget},', '').removesuffix(f':budget={budget}')} | {row['ms_evict']:.3f} | {share:.1%} | "
                         f"{row['evicted'] / o.tokens:.2f} | {row['ms_p50']:.2f} | {row['ms_p50'] / streaming:.2f}x | {COSTS.get(name, '') if share > TARGET else ''} |")
        lines += ["", f"Above {TARGET:.0%} of the step: {', '.join(missed) or 'none'}.", ""]
        PAGE.put(f"budget-{budget}", f"Own time of the methods: {budget:,} tokens, {o.model}, {o.threads} threads", lines, common.shown(command[:command.index("--method") + 2]) + " ...")
        print("\n".join(lines))


if __name__ == "__main__":
    main()
