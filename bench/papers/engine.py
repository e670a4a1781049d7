"""`palimpsest bench decode`: several methods in interleaved rounds of one process, on random weights of a real shape."""
import json
import os

from report import ratios

from common import REPO, run, shown

# Methods as the papers have them, and ours. `rerotate=recompute`: all kept keys are rotated anew in every step.
STREAMING = "streaming:budget={n}"
STREAMING_PAPER = "streaming:budget={n},mechanism=shift,rerotate=recompute"
H2O = "h2o:budget={n},positions=cache"
H2O_PAPER = "h2o:budget={n},positions=cache,mechanism=gather,rerotate=recompute"


class Row(dict):
    """One method at one depth, as `bench decode --json` gives it."""

    @property
    def step_ms(self):
        return [1e3 * self["batch"] / rate for rate in self["samples"]]


class Engine:
    def __init__(self, program, threads, effort, prefix=""):
        self.program, self.threads, self.effort, self.prefix = program, threads, effort, prefix
        self.command = ""  # the last one, as a reader would type it

    def words(self, shape, methods, depths, batch, tokens, reps, threads=None, cache_type=None, fill=None, page_size=None):
        words = [self.program, "bench", "decode", "--synthetic", shape, "-t", threads or self.threads, "--batch", batch,
                 "--depth", ",".join(map(str, depths)), "--tokens", tokens, "--reps", reps, "--json"]
        if cache_type:
            words += ["--cache-type", cache_type]
        if fill:
            words += ["--fill", fill]
        if page_size:
            words += ["--page-size", page_size]
        for method in methods:
            words += ["--method", method]
        return words

    def decode(self, shape, methods, depths, batch=1, tokens=None, reps=None, **more):
        """{(label, depth): Row}; methods: {label: method}."""
        words = self.words(shape, methods.values(), depths, batch, tokens or self.effort.tokens, reps or self.effort.rounds,
                           **more)
        self.command = shown(words)
        rows = json.loads(run(words, prefix=self.prefix)[1])
        keys = [(label, depth) for label in methods for depth in depths]
        return {key: Row(row) for key, row in zip(keys, rows, strict=True)}

    def pair(self, shape, ours, theirs, depth, batch, **more):
        """Ratios theirs / ours of the time of a step, round by round."""
        rows = self.decode(shape, {"ours": ours, "theirs": theirs}, [depth], batch, **more)
        return ratios(rows["theirs", depth].step_ms, rows["ours", depth].step_ms)


class Effort:
    """How much is measured: the full form takes up to 25 minutes on 2 cores, the quick one a few."""

    def __init__(self, quick):
        self.quick = quick
        self.tokens = 6 if quick else 8
        self.rounds = 2 if quick else 3

    def pick(self, quick, full):
        return quick if self.quick else full


def scaled(name, layers, full_layers, vocabulary, weights="q4_0"):
    """The share of the output matrix stays what it is in the whole model: the vocabulary shrinks with the layers."""
    return f"{name}@layers={layers}@vocab={max(512, vocabulary * layers // full_layers // 64 * 64)}@type={weights}"


LLAMA_7B = scaled("llama-2-7b", 2, 32, 32000)
LLAMA_13B = scaled("llama-2-13b", 2, 40, 32000)
LLAMA_30B = scaled("llama-30b", 1, 60, 32000)
GPT_J = scaled("gpt-j-6b", 2, 28, 50400)
OPT = scaled("opt-6.7b", 2, 32, 50272) + "@context=8192"  # its own is 2,048


def program():
    return os.environ.get("PALIMPSEST_PROGRAM", str(REPO / "build" / "palimpsest"))
