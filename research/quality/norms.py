#!/usr/bin/env python3
"""Do norms of keys and values tell which tokens are attended to? For research/results/small-model.md.

    python3 research/quality/norms.py [--program build/palimpsest] [--questions 12]

Each method compresses a prompt to a quarter, once, at its end, with 4 sinks and the newest 16 tokens protected; `eval retention`
says which tokens each head holds then. Compared are norm-based policies with the attention that the prompt's last 32 queries pay
(snapkv) and all queries (h2o): the mean share of their tokens, without the protected ones, that are also kept by the norms; chance
is the budget's share. On the default model also the share of the tokens of the fact that the prompt asks for.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

REPO = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO / "research/train"))
import recall as asking  # noqa: E402
from bpe import Tokenizer  # noqa: E402

SINKS, RECENT = 4, 16
KEPT = "schedule=prompt,mechanism=in-place"
HIGHEST = "highest key norm"  # what knorm evicts of a quarter's complement
METHODS = {
    "knorm": f"knorm:{KEPT}",
    HIGHEST: "",
    "paged-eviction (by token)": f"paged-eviction:{KEPT}",
    "keydiff": f"keydiff:{KEPT}",
    "random": f"random:{KEPT}",
}
LAST = "the last 32 queries"
ATTENDED = {LAST: "snapkv", "all queries": f"h2o:{KEPT}"}


def kept(program, model, text, budget, methods):
    """[method][layer.head] -> set of positions; and the number of tokens."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(text)
        file.flush()
        words = [program, "eval", "retention", "-f", file.name, "-t", "1", "--bins", "4096", "--json", *model]
        for m in methods:
            words += ["--method", f"{m}{',' if ':' in m else ':'}budget={budget},sinks={SINKS},recent={RECENT}"]
        got = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    return [{(h["layer"], h["head"]): {i for i, s in enumerate(h["share"]) if s > 0} for h in r["heads"]} for r in got["runs"]], got["tokens"]


def compare(program, model, prompts):
    """prompts: (text, positions of the fact or None)."""
    names = list(METHODS)
    sums, facts, heads = {}, {n: {} for n in [*names, *ATTENDED]}, {}
    for text, fact in prompts:
        tokens = kept(program, model, text, 64, ["random"])[1]
        budget = tokens // 4
        sets, _ = kept(program, model, text, budget, [METHODS[n] for n in METHODS if n != HIGHEST] + list(ATTENDED.values()))
        sets = dict(zip([n for n in [*names, *ATTENDED] if n != HIGHEST], sets, strict=True))
        inside = set(range(SINKS, tokens - RECENT))
        low = kept(program, model, text, tokens - budget + SINKS + RECENT, [METHODS["knorm"]])[0][0]
        sets[HIGHEST] = {head: inside - keeps for head, keeps in low.items()}
        for a in ATTENDED:
            for n in names:
                for head, attended in sets[a].items():
                    attended = attended & inside
                    share = len(attended & sets[n][head]) / len(attended)
                    sums.setdefault((n, a), []).append(share)
                    heads.setdefault((n, a, head), []).append(share)
        for n in facts if fact else ():
            for head, keeps in sets[n].items():
                facts[n].setdefault(head, []).append(len(keeps & fact) / len(fact))
    mean = lambda values: sum(values) / len(values)  # noqa: E731
    asked = facts[LAST] and sorted(facts[LAST], key=lambda h: -mean(facts[LAST][h]))[:2]  # the heads that retrieve the fact

    def of_fact(n):
        return f"{mean([mean(v) for v in facts[n].values()]):.0%} | {mean([mean(facts[n][h]) for h in asked]):.0%}" if asked else " | "

    for n in names:
        cells = []
        for a in ATTENDED:
            each = [mean(v) for (m, b, _), v in heads.items() if (m, b) == (n, a)]
            cells.append(f"{mean(sums[n, a]):.0%} ({min(each):.0%}–{max(each):.0%})")
        print(f"| {n} | " + " | ".join(cells) + f" | {of_fact(n)} |")
    for a in ATTENDED if asked else ():
        print(f"| attention of {a} | | | {of_fact(a)} |")
    if asked:
        print(f"\nThe two heads (layer, KV head): {asked}")


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--program", default=str(REPO / "build/palimpsest"))
    a.add_argument("--questions", type=int, default=12)
    o = a.parse_args()
    tokenizer = Tokenizer.load(str(REPO / "research/train/tokenizer.json"))
    prompts = []
    for text, fact in asking.questions(tokenizer, 900, o.questions):
        at = text.index(fact.value)  # where the fact is stated
        first, last = (len(tokenizer.encode(text[:end])[0]) for end in (at, at + len(fact.value)))
        prompts.append((text, set(range(first, last + 1))))  # a token before them, if the text begins with a BOS
    header = "| kept by | of the tokens that the last 32 queries attend to most | that all queries do | of the fact, all heads | two heads |\n|---|---|---|---|---|"
    print("**The default model**\n\n" + header)
    compare(o.program, [], prompts)
    print("\n**stories260K**\n\n" + header)
    stories = [t[:1400] for t, _ in prompts]
    compare(o.program, ["-m", str(REPO.parent / "shared/models/stories260K/stories260K.gguf")], [(t, None) for t in stories])


if __name__ == "__main__":
    main()
