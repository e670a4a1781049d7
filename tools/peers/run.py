#!/usr/bin/env python3
"""Palimpsest beside its peers: the same weights, the same prompts, the same threads, equal budgets, in one run.

  make peers                                   -> docs/results/peers.md
  make peers PEERS_ARGS='--parts quality --questions 20 --peers palimpsest openvino'

Peers: llama.cpp (in the build environment), OpenVINO GenAI, and transformers with kvpress (from PyPI, into the cache
folder, pinned). One that cannot be had is left out, and the page says so. Speed: random weights in Llama 3.2 1B's shape, four
layers, so that every peer holds them in memory; each job is a process of its own, whose peak memory is counted; the
peers take turns. Quality: the default model answers held-out questions (tools/train/questions.py) whose facts lie 512
tokens back, greedily, in all engines from the same tokens.
"""
import json
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
REPO = HERE.parent.parent
sys.path[:0] = [str(REPO / folder) for folder in ("bench", "tools/train", "tools/setup")]
import common  # noqa: E402
import environment  # noqa: E402
import parts  # noqa: E402
from bpe import BOS, Tokenizer  # noqa: E402
from grammar import World  # noqa: E402
from questions import HELD, filler, question  # noqa: E402

MODEL = REPO / "models" / "palimpsest-stories.gguf"
ENVIRONMENTS = {  # peer: name, packages, size
    "openvino": ("openvino", ["openvino-genai==2026.4.1.0"], "about 300 MB"),
    "transformers": (f"torch-{environment.TORCH}", [f"torch=={environment.TORCH}", "numpy", "kvpress==0.5.5",
                                                    "gguf==0.19.0"], "some minutes, 6 GB")}
PEERS = ["palimpsest", "llama_cpp", "openvino", "transformers"]
PAGE = parts.Page("peers", "Beside its peers", "Made by `make peers` (tools/peers/run.py says what makes it fair), part by part.", ["speed", "quality"])


def speed_rows(budget):
    """Peer, what is kept, method: of a row of the speed table. 0: all."""
    half = budget // 4
    return [
        ("palimpsest", 0, "full"), ("llama_cpp", 0, "full"), ("openvino", 0, {}), ("transformers", 0, {}),
        ("palimpsest", budget, f"streaming:budget={budget}"),
        ("palimpsest", budget, f"h2o:budget={budget}"),
        ("palimpsest", budget, f"snapkv:budget={budget}"),
        ("llama_cpp", budget, "shift"),
        ("openvino", budget, {"start": 32, "recent": half, "most": budget}),
        ("transformers", budget, {"press": "SnapKVPress", "budget": budget}),
    ]


def quality_rows(budget):
    """Name, and the peers that have it. Everybody sees the whole prompt, question included, before anything leaves."""
    press = lambda name, **more: ("transformers", {"press": name, "budget": budget, **more})
    return [
        ("full", [("palimpsest", "full"), ("llama_cpp", "full"), ("openvino", {}), ("transformers", {})]),
        ("streaming", [("palimpsest", f"streaming:budget={budget}"), press("StreamingLLMPress", n_sink=4)]),
        ("snapkv", [("palimpsest", f"snapkv:budget={budget}"), press("SnapKVPress", window_size=32, kernel_size=7),
                    ("openvino", {"start": 32, "recent": 64, "most": budget})]),  # of a prompt it scores the last 8 queries
        ("pyramidkv", [("palimpsest", f"pyramidkv:budget={budget}"), press("PyramidKVPress", window_size=32, kernel_size=7)]),
        ("expected-attention", [("palimpsest", f"expected-attention:budget={budget},schedule=prompt"), press("ExpectedAttentionPress")]),
        ("tova", [("palimpsest", f"tova:budget={budget},schedule=prompt"), press("TOVAPress")]),
        ("h2o", [("palimpsest", f"h2o:budget={budget},schedule=prompt")]),
        ("ems", [("palimpsest", f"ems:budget={budget}")]),
        ("knorm", [("palimpsest", f"knorm:budget={budget},schedule=prompt"), press("KnormPress")]),
        ("keydiff", [("palimpsest", f"keydiff:budget={budget},schedule=prompt"), press("KeyDiffPress")]),
        ("lagkv", [("palimpsest", f"lagkv:budget={budget},schedule=prompt"), press("LagKVPress", n_sink=4, lag_size=128)]),
    ]


class Peers:
    def __init__(self, names, folder):
        self.folder, self.python, self.missing, self.versions = folder, {}, {}, {}
        for name in names:
            try:
                self.python[name] = self.find(name)
            except environment.Unavailable as error:
                self.missing[name] = str(error)
                common.say(f"{name} is left out: {error}")

    @staticmethod
    def find(name):
        """The words that run its script."""
        if name in ENVIRONMENTS:
            return [environment.python(*ENVIRONMENTS[name])]
        if name == "llama_cpp":
            inside = [REPO / "tools" / "env"]
            if subprocess.run([*inside, "sh", "-c", "command -v llama-bench llama-server llama-completion"],
                              capture_output=True).returncode != 0:
                raise environment.Unavailable("llama-bench, llama-server and llama-completion are not installed")
            return [*inside, "python3"]
        return [sys.executable]

    def ask(self, peer, **asked):
        """The answer, and the peak memory of the process and of those that it started, in bytes."""
        with tempfile.NamedTemporaryFile("w", suffix=".json", dir=self.folder) as file:
            json.dump(asked, file)
            file.flush()
            words = [*map(str, self.python[peer]), str(HERE / f"with_{peer}.py"), file.name]
            with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as log:
                process = subprocess.Popen([sys.executable, str(HERE / "peak.py"), *words], stdout=out, stderr=log)
                code = process.wait(timeout=3600)
                out.seek(0)
                log.seek(0)
                lines = out.read().splitlines()
                if code != 0 or len(lines) < 2:
                    raise common.Failed(f"{peer}: exit code {code}: {(log.read().splitlines() or ['no word'])[-1]}")
        answer = json.loads(lines[-2])
        self.versions[peer] = answer["version"]
        return answer, int(lines[-1])


def hf_folder(peers, source):
    """transformers' own form of a GGUF file."""
    folder = peers.folder / (pathlib.Path(source).stem + "-hf")
    if not (folder / "config.json").exists():
        subprocess.run([*peers.python["transformers"], HERE / "hf_model.py", source, folder], check=True)
    return folder


def model_for(peers, peer, source):
    return str(hf_folder(peers, source) if peer == "transformers" else source)


def measure_speed(peers, options, tokenizer):
    source = peers.folder / f"random-{options.layers}.gguf"
    if not source.exists():
        python = environment.python("gguf", ["gguf==0.19.0"], "about 10 seconds")
        subprocess.run([python, HERE / "random_model.py", MODEL, str(options.layers), source], check=True)
    rng = random.Random(1)
    text = tokenizer.decode(filler(rng, tokenizer, World(rng, 8), options.prompt))
    prompt = [BOS, *tokenizer.encode(text)[0]]
    rows = [row for row in speed_rows(options.budget) if row[0] in peers.python]
    samples = [[] for _ in rows]
    for round_ in range(options.rounds):
        for n, (peer, kept, method) in enumerate(rows):
            common.say(f"round {round_ + 1}: {peer}, {kept or 'all'} kept")
            try:
                samples[n].append(peers.ask(peer, kind="speed", model=model_for(peers, peer, source), method=method, kept=kept,
                                            prompts=[prompt], tokens=options.tokens, threads=options.threads))
            except common.Failed as error:
                common.say(str(error))
    lines = [f"| peer | kept | method | prompt of {len(prompt):,}, tokens/s | decode, tokens/s | peak memory, MiB |",
             "|---|---|---|---|---|---|"]
    for (peer, kept, method), taken in zip(rows, samples):
        if not taken:
            lines.append(f"| {peer} | {kept or 'all'} | {spell(method)} | failed | | |")
            continue
        first = [len(prompt) / a["ttft_s"] for a, _ in taken if a["ttft_s"]]
        decode = [1 / a["tpot_s"] for a, _ in taken]
        memory = statistics.median(m for _, m in taken) / 2**20
        lines.append(f"| {peer} | {kept or 'all'} | {spell(method)} | {common.spread(first) if first else ''} | "
                     f"{common.spread(decode)} | {memory:,.0f} |")
    return lines


def spell(method):
    if isinstance(method, str):
        return f"`{method}`"
    return f"`{json.dumps(method)}`" if method else "`full`"


def questions(options, tokenizer):
    """Prompts that end with `answer:`, and the facts. Only those whose answer says something before the value: the first
    token of an answer comes out of the prompt's own pass, which some read with everything still in the cache."""
    rng, asked = random.Random(f"{HELD} peers"), []
    while len(asked) < options.questions:
        ids, start, _, fact = question(rng, tokenizer, options.distance)
        if len(fact.answer_form.split("@")[0].split()) < 2:
            continue
        text = tokenizer.decode(ids[1:start])
        asked.append(([BOS, *tokenizer.encode(text[: text.rindex("answer:") + len("answer:")])[0]], fact))
    return asked


def measure_quality(peers, options, tokenizer):
    asked = questions(options, tokenizer)
    lines = [f"| method | peer | its words | answered, of {len(asked)} | as the full cache answers |", "|---|---|---|---|---|"]
    full = None
    for name, row in quality_rows(options.quality_budget):
        for peer, method in row:
            if peer not in peers.python:
                continue
            common.say(f"quality: {name}, {peer}")
            try:
                answer, _ = peers.ask(peer, kind="answers", model=model_for(peers, peer, MODEL), method=method,
                                      prompts=[p for p, _ in asked], tokens=20, threads=options.threads)
            except common.Failed as error:
                common.say(str(error))
                lines.append(f"| {name} | {peer} | {spell(method)} | failed | |")
                continue
            said = [tokenizer.decode(tokens).split("\n")[0] for tokens in answer["tokens"]]
            full = full or said
            right = sum(bool(re.search(rf" {fact.value}(?!\w)", text)) for text, (_, fact) in zip(said, asked))
            same = sum(text == other for text, other in zip(said, full))
            lines.append(f"| {name} | {peer} | {spell(method)} | {100 * right / len(asked):.1f}% | {100 * same / len(asked):.0f}% |")
    return lines


def main():
    parse = parts.parser(__doc__)
    parse.add_argument("--parts", nargs="+", default=["speed", "quality"], choices=["speed", "quality"])
    parse.add_argument("--peers", nargs="+", default=PEERS, choices=PEERS)
    parse.add_argument("--rounds", type=int, default=3)
    parse.add_argument("--layers", type=int, default=4)
    parse.add_argument("--prompt", type=int, default=1024)
    parse.add_argument("--tokens", type=int, default=64)
    parse.add_argument("--budget", type=int, default=512, help="of the speed rows")
    parse.add_argument("--questions", type=int, default=100)
    parse.add_argument("--distance", type=int, default=512)
    parse.add_argument("--quality-budget", type=int, default=256)
    parts.add(parse, "--threads", default=2)
    options = parse.parse_args()
    folder = REPO / "out" / "peers"
    folder.mkdir(parents=True, exist_ok=True)
    peers = Peers(options.peers, folder)
    tokenizer = Tokenizer.load(str(REPO / "tools" / "train" / "tokenizer.json"))
    tables = {"speed": measure_speed, "quality": measure_quality}
    titles = {"speed": f"Speed: Llama 3.2 1B's shape, {options.layers} layers, Q8_0 (transformers: bf16), {options.threads} threads",
              "quality": f"Quality: the default model, a fact {options.distance} tokens before its question, a budget of {options.quality_budget}"}
    for part in options.parts:
        peers.versions.clear()
        lines = tables[part](peers, options, tokenizer)
        about = "; ".join(f"{name}: {version}" for name, version in peers.versions.items())
        left_out = [f"{name} is left out: {why}." for name, why in peers.missing.items()]
        PAGE.put(part, titles[part], [*lines, "", about + ".", *left_out, ""], "make peers")
    common.say(f"wrote {os.path.relpath(PAGE.path, REPO)}")


if __name__ == "__main__":
    main()
