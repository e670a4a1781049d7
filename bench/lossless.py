#!/usr/bin/env python3
"""Lossless mode: drafts by an evicted cache of the same model, verified by the full one (docs/decisions/0054-lossless.md).

    make lossless                                  # short form, about 15 minutes
    make lossless LOSSLESS_ARGS='texts --prompts 200 --written 300'
    make lossless LOSSLESS_ARGS='curve --depths 8000,32000 --reps 11'

texts   SmolLM2, greedy: questions about passages of a book, the small cache a fraction (--share) of the prompt. Whether each text is that of
        method full, the share of drafts accepted (4 drafts in each step), tokens a step of the full cache
speed   SmolLM2 at --context tokens: tokens/s over method full, with as many drafts as the measured price says and with a fixed number of them
curve   8B's shape, random weights (4 layers): times of a step with drafts over a full cache and of a small one's, and tokens/s over the full
        cache that follow for each acceptance, with the best of 1, 3 and 7 drafts

Sides of a ratio are interleaved. Writes this machine's section of docs/results/lossless.md.
"""
import re
import statistics

import common
import parts

PARTS = ["texts", "speed", "curve"]
METHODS = ["streaming:positions=original", "keydiff", "h2o", "snapkv"]
SHAPE = "llama-3.1-8b@layers=4@vocab=16000@type=q4_0"
DRAFTS = [1, 3, 7]
ACCEPTANCE = [0.5, 0.6, 0.7, 0.8, 0.9, 0.95]
QUESTIONS = ["Summarise this passage in a few sentences.", "Who speaks in this passage, and of what?", "Continue this passage in the same style.",
             "Quote the most important sentence of this passage, and say why it matters."]


def words_of_book():
    book = (common.SHARED / "text/books/shelley-frankenstein.txt").read_text(encoding="utf-8")
    return re.split(r"\*\*\* (?:START|END) OF .*\*\*\*\n", book)[1].split()


def prompt(words, index, length):
    start = 2000 + 577 * index % max(1, len(words) - length - 2000)
    return f"{' '.join(words[start:start + length])}\n\n{QUESTIONS[index % len(QUESTIONS)]}"


def with_budget(method, budget, more=""):
    return f"{method}{',' if ':' in method else ':'}budget={budget}{more}"


def run(options, file, text, method, *more):
    command = [options.program, "run", "-m", file, "-p", text, "--temp", 0, "-t", options.threads, "--method", method, "--json", *more]
    return common.run_json(command, prefix=options.prefix)


def texts(options, file):
    words = words_of_book()
    lines = ["| method of the small cache | texts | equal to the full cache's | drafts accepted | tokens a step of the full cache |", "|---|---|---|---|---|"]
    always = ["--draft-max", 4, "--draft-price", 0, "--draft-p-min", 0]
    rows = {method: [] for method in METHODS}
    for index in range(options.prompts):
        text = prompt(words, index, options.words)
        full = run(options, file, text, "full", "-n", options.written)
        for method in METHODS:
            lossless = with_budget(method, int(full["prompt_tokens"] * options.share), ",lossless=true")
            rows[method].append((full, run(options, file, text, lossless, "-n", options.written, *always)))
        common.say(f"text {index + 1}: {full['prompt_tokens']} + {full['tokens']} tokens")
    for method, pairs in rows.items():
        equal = sum(mine["text"] == full["text"] for full, mine in pairs)
        read, accepted = (sum(mine["drafts"][key] for _, mine in pairs) for key in ("read", "accepted"))
        tokens = sum(mine["tokens"] - 1 for _, mine in pairs)
        lines.append(f"| `{method}` | {len(pairs)} | {equal} | {accepted / max(1, read):.0%} | {tokens / max(1, tokens - accepted):.2f} |")
        if equal < len(pairs):
            raise common.Failed(f"{method}: {len(pairs) - equal} of {len(pairs)} texts differ from those of the full cache")
    title = f"Texts of SmolLM2 135M Instruct: {options.words} words of a book and a question, {options.written} tokens, greedy, the small cache {options.share:.3g} of the prompt"
    return title, lines, common.shown(["palimpsest", "run", "-m", "smollm2", "-p", "...", "-n", options.written, "--temp", 0, "--method",
                                       with_budget(METHODS[1], 128, ",lossless=true"), *always])


def speed(options, file):
    text = prompt(words_of_book(), 0, int(options.context / 1.32))
    lines = ["| method of the small cache | drafts | drafts accepted | tokens a step | tokens/s over the full cache | small cache, MiB | full cache, MiB |", "|---" * 7 + "|"]
    sides = {"full": ("full", [])}
    for method in METHODS[:2]:
        lossless = with_budget(method, options.context // 8, ",lossless=true")
        sides[method, "by measured price"] = (lossless, [])
        sides[method, "4 in each step"] = (lossless, ["--draft-max", 4, "--draft-price", 0, "--draft-p-min", 0])
    rounds = [{side: run(options, file, text, method, "-n", options.written, "--ignore-eos", *more) for side, (method, more) in sides.items()} for _ in range(options.reps)]
    for side in list(sides)[1:]:
        one, ratio = rounds[0][side], statistics.median(r[side]["tokens_per_second"] / r["full"]["tokens_per_second"] for r in rounds)
        drafts = one["drafts"]
        lines.append(f"| `{side[0]}` | {side[1]} | {drafts['accepted'] / max(1, drafts['read']):.0%} of {drafts['read']} | {one['lossless']['tokens_per_pass']:.2f} | {ratio:.2f}x | "
                     f"{one['lossless']['cache_bytes'] / 2**20:.1f} | {one['cache_bytes'] / 2**20:.1f} |")
        if one["text"] != rounds[0]["full"]["text"]:
            raise common.Failed(f"{side}: another text than the full cache's")
    tokens = rounds[0]["full"]["prompt_tokens"]
    return (f"Speed on SmolLM2 135M Instruct after {tokens:,} tokens, small cache 1/8", lines,
            common.shown(["palimpsest", "run", "-m", "smollm2", "-f", "prompt.txt", "--ignore-eos", "--method", sides[METHODS[1], "by measured price"][0]]))


def curve(options, _):
    lines = ["| kept | full step, ms | with 1, 3, 7 drafts | small step | " + " | ".join(f"{a:.0%} accepted" for a in ACCEPTANCE) + " |", "|---" * (4 + len(ACCEPTANCE)) + "|"]
    command = None
    for depth in map(int, options.depths.split(",")):
        def decode(method, *more):
            words = [options.program, "bench", "decode", "--synthetic", SHAPE, "-t", options.threads, "--reps", options.reps, "--tokens", options.tokens, "--method", method,
                     "--depth", depth, "--json", *more]
            return common.run_json(words, prefix=options.prefix), words
        rows, command = decode("full", "--draft-max", "0," + ",".join(map(str, DRAFTS)), "--draft-accept", 0)
        step = {row["drafts"]: row["ms_p50"] for row in rows}
        small = decode(f"streaming:positions=original,budget={depth // 8}")[0][0]["ms_p50"]

        def gain(accept, drafts):
            return sum(accept**i for i in range(drafts + 1)) * step[0] / (drafts * small + step[drafts])
        best = [max((gain(a, k), k) for k in DRAFTS) for a in ACCEPTANCE]
        lines.append(f"| {depth:,} | {step[0]:.1f} | " + ", ".join(f"{step[k] / step[0]:.2f}x" for k in DRAFTS) + f" | {small / step[0]:.2f}x | " +
                     " | ".join(f"{g:.2f}x ({k})" for g, k in best) + " |")
    return "Speed over the full cache by acceptance: 8B's shape (4 of 32 layers, q4_0), cache in f16; in brackets the number of drafts", lines, common.shown(command)


def main():
    parse = parts.parser(__doc__, PARTS)
    parts.add(parse, "--program", "--threads", "--prefix", "--smollm2")
    parse.add_argument("--prompts", type=int, default=8, help="texts of the part texts")
    parse.add_argument("--words", type=int, default=600, help="words of a passage")
    parse.add_argument("--written", type=int, default=64, help="tokens of a text")
    parse.add_argument("--share", type=float, default=1 / 8, help="budget of the small cache, of the prompt's tokens")
    parse.add_argument("--context", type=int, default=7500, help="tokens of the part speed")
    parse.add_argument("--depths", default="8000", help="tokens kept in the part curve; 8000,32000 takes longer")
    parse.add_argument("--tokens", type=int, default=8, help="steps of a round of the part curve")
    parse.add_argument("--reps", type=int, default=3)
    parse.add_argument("--note", default="", help="a sentence about the machine, for the page")
    options = parts.parsed(parse, PARTS)
    machine = common.machine()
    section = lambda part: part if part == "texts" else f"{parts.machine_part(machine)}-{part}"
    page = parts.Page("lossless", "Lossless mode",
                      "Generated by `make lossless` (bench/lossless.py describes the method), a section per part. Texts are the same on all machines; speed is of the machine named.",
                      [section(part) for part in PARTS])
    file = None if options.parts == ["curve"] else common.model_file(options.program, options.smollm2)

    def work(part):
        if part != "curve" and file is None:
            raise parts.Skip("--smollm2 none")
        title, lines, command = {"texts": texts, "speed": speed, "curve": curve}[part](options, file)
        page.put(section(part), title if part == "texts" else f"{title} ({machine}, {options.threads} threads)", [*lines, "", *([options.note, ""] if options.note else [])],
                 f"make lossless; for example {command}")
        print("\n".join(lines))

    raise SystemExit(parts.work_through(options.parts, work))


if __name__ == "__main__":
    main()
