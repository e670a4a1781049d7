#!/usr/bin/env python3
"""Cost of drafts, and what they gain: decode steps of random weights that read a token and k drafts.

    make drafts                                    # all, about 20 minutes
    make drafts DRAFTS_ARGS='verify --reps 3'

verify     time of a step with 1, 3, 7 drafts over one without, each token evicting another (streaming)
accept     time per token (TPOT) without drafts over that with 3 drafts, of which a forced share is accepted; with all of them
           in every step, and with as many as the measured price says (--draft-adaptive)
attention  the attention's part, one layer: drafts in shadow tiles (every=1) over drafts in free slots (every=32, which holds up to 31
           tokens more: up to 3% more work)
smollm2    SmolLM2 135M Instruct, greedy: drafts accepted and tokens a step, with --lookup and with drafts of the same
           model over a cache of 128 tokens (-md, --draft-method); ratios of tokens per second. A fixed --draft-price: the counts
           do not depend on the machine
gemma      Gemma 3 270M, likewise
lookup     --lookup beside llama.cpp's example llama-lookup, on the same files and prompt, greedy: tokens per second and the share of
           drafts accepted (skipped without llama-lookup: tools/env --add llama.cpp-examples)

Sides of a ratio are interleaved in one process; ratios are of the same round, so load on the machine affects both.
Writes this machine's section of docs/results/drafts.md.
"""
import os
import re
import shutil
import statistics
import tempfile

import common
import parts

PARTS = ["verify", "accept", "attention", "smollm2", "gemma", "lookup"]
REAL = {"smollm2": "SmolLM2 135M Instruct (Q4_1)", "gemma": "Gemma 3 270M (base, Q4_K_M)"}  # counts are the same on all machines: one section
SHAPES = {"1B": "llama-3.2-1b@layers=4@vocab=32000", "8B": "llama-3.1-8b@layers=2@vocab=32000"}
TYPES = ["q4_0", "q8_0"]
KEPT = [1024, 8192]
BY_SCORE = ["streaming", "knorm", "h2o"]
WRITTEN = 256
PROMPT = "Once upon a time there was a little dog. The little dog had a red ball. The little dog liked the red ball. " * 4


def decode(options, shape, *words):
    command = [options.program, "bench", "decode", "--synthetic", shape, "-t", options.threads, "--reps", options.reps, *words]
    common.say(common.shown(command))
    return common.run_json([*command, "--json"], prefix=options.prefix), common.shown(command)


def over(rows, base, key=lambda s: s):
    """Median of the ratios of rounds: base over row."""
    rounds = min(len(base["samples"]), len(rows["samples"]))
    return statistics.median(key(base["samples"][i]) / key(rows["samples"][i]) for i in range(rounds))


def verify(options):
    lines = ["| shape | weights | kept | one token, ms | 1 draft | 3 drafts | 7 drafts |", "|---|---|---|---|---|---|---|"]
    for name, shape in SHAPES.items():
        for weights in TYPES:
            for kept in KEPT:
                rows, command = decode(options, f"{shape}@type={weights}", "--method", f"streaming:budget={kept}", "--depth",
                                       kept + 64, "--tokens", options.tokens, "--draft-max", "0,1,3,7", "--draft-accept", 0)
                base = next(r for r in rows if r["drafts"] == 0)
                steps = {r["drafts"]: over(r, base) for r in rows}  # one token a step: none is accepted
                lines.append(f"| {name} | {weights} | {kept:,} | {base['ms_p50']:.2f} | " +
                             " | ".join(f"{steps[k]:.2f}x" for k in (1, 3, 7)) + " |")
    return "Time of a step with drafts, over one without", lines, command


def accept(options):
    lines = ["| shape | weights | drafts | 0% | 60% | 90% |", "|---|---|---|---|---|---|"]
    for name, shape in SHAPES.items():
        for weights in TYPES:
            for how, words in (("3 in every step", []), ("by price, 3 at most", ["--draft-adaptive"])):
                rows, command = decode(options, f"{shape}@type={weights}", "--method", "streaming:budget=1024", "--depth", 1088,
                                       "--tokens", 2 * options.tokens, "--draft-max", "0,3", "--draft-accept", "0,0.6,0.9", *words)
                base = next(r for r in rows if r["drafts"] == 0)
                gain = {r["accept"]: 1 / over(r, base) for r in rows if r["drafts"] > 0}
                lines.append(f"| {name} | {weights} | {how} | " + " | ".join(f"{gain[p]:.2f}x" for p in (0, 0.6, 0.9)) + " |")
    return "Tokens per second with drafts, over none; 1,024 kept", lines, command


def attention(options):
    lines = ["| method | one token, ms | 3 drafts, free slots, ms | shadow tiles | 7 drafts, free slots, ms | shadow tiles |",
             "|---|---|---|---|---|---|"]
    for policy in BY_SCORE:
        each, later = (f"{policy}:budget=1024{more}" for more in ("", ",every=32"))
        rows, command = decode(options, "llama-3.2-1b@layers=1@type=q4_0@vocab=2000", "--method", each, "--method", later, "--depth", 1024,
                               "--tokens", 4 * options.tokens, "--draft-max", "0,3,7", "--draft-accept", 0)
        ms = {(r["name"], r["drafts"]): r["ms_attention"] for r in rows}
        lines.append(f"| {policy} | {ms[each, 0]:.2f} | " +
                     " | ".join(f"{ms[later, k]:.2f} | {ms[each, k] / ms[later, k]:.2f}x" for k in (3, 7)) + " |")
    return "Attention with drafts: shadow tiles over free slots; one layer of 1B's shape, 1,024 kept, up to 31 more with free slots", lines, command


def real_prompts(options, chat):
    """Name and text of each prompt; `chat`: for a model that chats. Code: this script's neighbour."""
    book = (common.SHARED / "text/books/shelley-frankenstein.txt").read_text(encoding="utf-8")
    passage = " ".join(re.split(r"\*\*\* (?:START|END) OF .*\*\*\*\n", book)[1].split()[2000:2150])
    code = (common.REPO / "bench/parts.py").read_text()[:2400]
    if chat:
        yield "a question", "Explain in a few sentences why the sky is blue and the sunset red."
        yield "code to correct", f"Write this Python code again, with the name `script` instead of `parse`:\n\n{code[-1200:]}"
        yield "a summary", f"Summarise this text in its own words:\n\n{passage}"
        yield "a text to repeat", f"Repeat this text word for word:\n\n{passage}"
    else:
        yield "a novel", passage
        yield "code", code
        yield "a text, begun again", f"{passage}\n\nThe same text again:\n\n{passage[:60]}"


def real(options, model):
    file = common.model_file(options.program, getattr(options, model))
    if file is None:
        raise parts.Skip(f"--{model} none")
    lines, chat, shared = ["| text | drafts | read | accepted | tokens a step | tokens/s, over none |", "|---" * 6 + "|"], model == "smollm2", []
    sides = {"none": [], "--lookup": ["--lookup"], "-md, streaming": ["-md", file, "--draft-method", "streaming:budget=128,sinks=4"]}
    if model != "gemma":  # refused: layers with windows drop tokens that are needed again after rejected drafts
        sides["-md, keydiff"] = ["-md", file, "--draft-method", "keydiff:budget=128,sinks=4,recent=16"]
    for name, text in real_prompts(options, chat):
        common.say(f"{model}: {name}")
        shared = ["-n", options.written, "--temp", 0, "--method", "full", "-t", options.threads, "--draft-max", 4, "--draft-price", 0.2, "--json"]
        rounds = []
        for _ in range(options.reps):
            command = lambda words: [options.program, "run", "-m", file, *([] if chat else ["--raw"]), "-p", text, *shared, *words]
            rounds.append({side: common.run_json(command(words), prefix=options.prefix) for side, words in sides.items()})
        for side in list(sides)[1:]:
            d, tokens = rounds[0][side]["drafts"], rounds[0][side]["tokens"]
            if rounds[0][side]["text"] != rounds[0]["none"]["text"]:
                raise common.Failed(f"{model}, {name}, {side}: another text than without drafts")
            speed = statistics.median(r[side]["tokens_per_second"] / r["none"]["tokens_per_second"] for r in rounds)
            lines.append(f"| {name} | `{side}` | {d['read']} | {d['accepted']} ({d['accepted'] / max(1, d['read']):.0%}) | "
                         f"{tokens / max(1, tokens - d['accepted']):.2f} | {speed:.2f}x |")
    return f"Drafts of {REAL[model]}: greedy texts of at most {options.written} tokens", lines, common.shown([options.program, "run", "-m", model, "-p", "...", *shared, "--lookup"])


def ours(options, file, threads, *words):
    """Tokens per second, and the share of drafts accepted."""
    out = common.run_json([options.program, "run", "-m", file, "-p", PROMPT, "-n", WRITTEN, "--temp", 0, "--ignore-eos", "--method", "full", "-t", threads, "--json",
                           *words], prefix=options.prefix)
    return out["tokens_per_second"], out["drafts"]["accepted"] / max(1, out["drafts"]["read"])


def number(pattern, text):
    found = re.search(pattern, text)
    if not found:
        raise common.Failed(f"llama.cpp printed no {pattern!r}: {text[-500:]}")
    return float(found.group(1))


def theirs(options, file, threads, drafts):
    shared = ["-m", file, "-p", PROMPT, "-n", WRITTEN, "--temp", 0, "--ignore-eos", "-t", threads, "-c", 4096]
    if drafts:
        _, _, log = common.run(["llama-lookup", *shared, "--spec-draft-n-max", 8], prefix=options.prefix)
        return number(r"decoded .*speed: +([0-9.]+)", log), number(r"accept += +([0-9.]+)", log) / 100
    _, _, log = common.run(["llama-completion", "-no-cnv", "--no-warmup", *shared], prefix=options.prefix)
    return number(r"(?<!prompt) eval time .* ([0-9.]+) tokens per second", log), 0


def lookup(options):
    if not shutil.which("llama-lookup"):
        raise parts.Skip("needs llama-lookup: tools/env --add llama.cpp-examples")
    folder = os.path.join(tempfile.gettempdir(), "palimpsest-models")
    files = {"default model, 1 thread": (common.REPO / "models/palimpsest-stories.gguf", 1)}
    for weights in TYPES:
        files[f"1B's shape, 4 layers, {weights}"] = (common.random_model(options.program, folder, SHAPES["1B"], weights), options.threads)
    lines = ["| file | llama.cpp | with drafts | accepted | palimpsest | with drafts | accepted | drafts, ours over theirs |", "|---|---|---|---|---|---|---|---|"]
    for title, (file, threads) in files.items():
        sides = {name: [] for name in ("theirs", "theirs, drafts", "ours", "ours, drafts")}
        for _ in range(options.reps):
            sides["theirs"].append(theirs(options, file, threads, False))
            sides["ours"].append(ours(options, file, threads))
            sides["theirs, drafts"].append(theirs(options, file, threads, True))
            sides["ours, drafts"].append(ours(options, file, threads, "--lookup"))
        speed = {name: statistics.median(rate for rate, _ in rows) for name, rows in sides.items()}
        share = {name: rows[0][1] for name, rows in sides.items()}
        lines.append(f"| {title} | {speed['theirs']:.1f} | {speed['theirs, drafts']:.1f} | {share['theirs, drafts']:.0%} | {speed['ours']:.1f} | "
                     f"{speed['ours, drafts']:.1f} | {share['ours, drafts']:.0%} | **{speed['ours, drafts'] / speed['theirs, drafts']:.2f}x** |")
    return (f"Tokens per second of a greedy text of {WRITTEN} tokens, with drafts from its own repetitions: llama-lookup and --lookup", lines,
            common.shown([options.program, "run", "-m", "FILE", "-p", "...", "-n", WRITTEN, "--temp", 0, "--ignore-eos", "--method", "full", "--lookup", "--json"]))


def main():
    parse = parts.parser(__doc__, PARTS)
    parts.add(parse, "--program", "--threads", "--prefix", "--smollm2", "--gemma")
    parse.add_argument("--written", type=int, default=64, help="max tokens of a text of the part real")
    parse.add_argument("--tokens", type=int, default=24)
    parse.add_argument("--reps", type=int, default=5)
    parse.add_argument("--note", default="", help="a sentence about the machine, for the page")
    options = parts.parsed(parse, PARTS)
    machine = common.machine()
    section = lambda part: part if part in REAL else f"{parts.machine_part(machine)}-{part}"
    sections = [section(part) for part in [*REAL, *(part for part in PARTS if part not in REAL)]]
    page = parts.Page("drafts", "Speed of drafts",
                      "Generated by `make drafts` (bench/drafts.py describes the method), a section per part. What is accepted is measured on real models; what a step costs "
                      "on random weights with few layers. The cache's type is f16. Drafts pay where a step waits for weights: there a row more costs little.", sections)

    def work(part):
        others = {"verify": verify, "accept": accept, "attention": attention, "lookup": lookup}
        title, lines, command = real(options, part) if part in REAL else others[part](options)
        page.put(section(part), f"{title} ({machine}, {options.threads} threads)", [*lines, "", *([options.note, ""] if options.note else [])],
                 f"make drafts; for example {command}")
        print("\n".join(lines))

    raise SystemExit(parts.work_through(options.parts, work))


if __name__ == "__main__":
    main()
