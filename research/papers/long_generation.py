#!/usr/bin/env python3
"""Methods of paged caches over a long generation with the default model's own keys and values -> research/results/paged-eviction.md.

  research/papers/long_generation.py                   1,024 tokens of a held-out story, then 8,192 generated ones, budget 256
  research/papers/long_generation.py --budget 512 --rounds 3
  research/papers/long_generation.py --rounds 1 --no-times --stream 0      slots and bytes only: on a busy machine

The other parts of the page measure throughput on random weights, whose keys are alike; which slots stay free, and so the time of
attention, depends on which tokens go. All methods generate with the same seed; rounds are interleaved.
"""
import math
import os
import pathlib
import random
import statistics
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import parts as script  # noqa: E402
from common import REPO, run_json, say, spread  # noqa: E402

sys.path.insert(0, str(REPO / "research" / "train"))
from bpe import Tokenizer  # noqa: E402
from documents import saga  # noqa: E402

PAGE = script.ResearchPage("paged-eviction", "PagedEviction: reproduction", "", ["paged3", "paged4", "long"])
IN_PAGES = ",sinks=0,recent=0,schedule=prompt+step,mechanism=append"


def methods(budget):
    return [("full cache", "full"), ("streaming, in pages", f"streaming:budget={budget}{IN_PAGES}"),
            ("inverse key norm, in pages", f"knorm:budget={budget}{IN_PAGES}"), ("KeyDiff, in pages", f"keydiff:budget={budget}{IN_PAGES}"),
            ("inverse key norm, in place", f"knorm:budget={budget},sinks=0,recent=0,schedule=prompt+step"),
            ("KeyDiff, in place", f"keydiff:budget={budget},sinks=0,recent=0,schedule=prompt+step"),
            *((f"paged-eviction, pages of {page}", f"paged-eviction:budget={budget},page={page}") for page in (8, 16, 32)),
            ("paged-eviction, the newest page may go", f"paged-eviction:budget={budget},recent=0"),
            ("paged-eviction, norms of a page", f"paged-eviction:budget={budget},page-score=norms")]


def main():
    parse = script.parser(__doc__)
    script.add(parse, "--program")
    script.add(parse, "--threads", default=1)  # as the program chooses for the default model
    parse.add_argument("--budget", type=int, default=256)
    parse.add_argument("--prompt", type=int, default=1024)
    parse.add_argument("--tokens", type=int, default=8192)
    parse.add_argument("--rounds", type=int, default=2)
    parse.add_argument("--no-times", action="store_true", help="leave the columns of times out")
    parse.add_argument("--stream", type=int, default=4000, help="tokens of the perplexity; 0: leave it out")
    o = parse.parse_args()
    tokenizer = Tokenizer.load(REPO / "research" / "train" / "tokenizer.json")
    ids = tokenizer.encode(saga(random.Random("held-out long generation"), 40 * o.prompt))[0]
    rows = methods(o.budget)
    runs, loss = {label: [] for label, _ in rows}, {}
    with tempfile.TemporaryDirectory() as folder:
        prompt, text = os.path.join(folder, "prompt.txt"), os.path.join(folder, "story.txt")
        pathlib.Path(prompt).write_text(tokenizer.decode(ids[: o.prompt - 1]))
        pathlib.Path(text).write_text(tokenizer.decode(ids))
        for round_ in range(o.rounds):
            for label, method in rows:
                say(f"round {round_ + 1}: {label}")
                size = 32 if "page=32" in method else 16
                runs[label].append(run_json([o.program, "run", "-f", prompt, "-n", o.tokens, "--ignore-eos", "--seed", 1, "--json", "-t", o.threads,
                                             "--page-size", size, "--method", method]))
        for label, method in rows if o.stream else []:
            say(f"perplexity: {label}")
            size = 32 if "page=32" in method else 16
            method = method.replace("schedule=prompt+step", "schedule=step").replace("paged-eviction:", "paged-eviction:schedule=step,")
            run = run_json([o.program, "eval", "perplexity", "-f", text, "--tokens", o.stream, "--prefill-chunk", 1, "--page-size", size, "-t",
                            o.threads, "--json", "--method", method])["runs"][0]
            loss[label] = math.exp(run["nll"])
    full = [r["tpot_ms"]["mean"] for r in runs["full cache"]]
    columns = {"method": lambda label: label}
    if not o.no_times:
        columns |= {"ms per token": lambda label: spread([r["tpot_ms"]["mean"] for r in runs[label]]),
                    "relative to the full cache": lambda label: f"{statistics.median(a / r['tpot_ms']['mean'] for a, r in zip(full, runs[label])):.2f}x",
                    "eviction, ms": lambda label: f"{statistics.median(r['tpot_ms']['update'] for r in runs[label]):.3f}"}
    columns |= {"evictions": lambda label: f"{runs[label][-1]['evictions']:,}", "slots per token": lambda label: f"{runs[label][-1]['cache_slots_per_token']:.2f}",
                "KiB at the end, peak": lambda label: f"{runs[label][-1]['cache_bytes'] / 1024:.0f}, {runs[label][-1]['cache_bytes_peak'] / 1024:.0f}"}
    if o.stream:
        columns["perplexity of a stream"] = lambda label: f"{loss[label]:.3f}"
    lines = ["| " + " | ".join(columns) + " |", "|---" * len(columns) + "|", *("| " + " | ".join(of(label) for of in columns.values()) + " |" for label, _ in rows)]
    PAGE.put("long", "A long generation with real keys", [
        f"The default model; {o.prompt:,} tokens of a held-out story, then {o.tokens:,} generated ones; budget {o.budget}, pages of 16 slots (32 for pages of 32). *In "
        "pages*: `mechanism=append`, a page is freed when its last token goes. *Slots per token*: allocated over kept, at the end."
        + (f" Perplexity: {o.stream:,} tokens of a held-out story, token by token, the budget kept from the first token on." if o.stream else ""), "", *lines, ""],
        "research/papers/long_generation.py" + (" --no-times" if o.no_times else ""))
    print(PAGE.path)


if __name__ == "__main__":
    main()
