"""`palimpsest bench decode`: several methods in interleaved rounds of one process, on random weights in the shape of a real model."""
import collections
import hashlib
import json
import os
import pathlib

from report import ratios

from common import REPO, run, shown
from parts import Skip

# Methods as in the papers, and ours. `rerotate=recompute`: all kept keys are rotated again at every step.
STREAMING = "streaming:budget={n}"
STREAMING_CACHED = "streaming:budget={n},rerotate=cached-half"  # EQUIP's way: K cos + RK sin, with the rotated half RK cached
STREAMING_PAPER = "streaming:budget={n},mechanism=shift,rerotate=recompute"
H2O = "h2o:budget={n},positions=cache"
H2O_CACHED = "h2o:budget={n},positions=cache,rerotate=cached-half"
H2O_PAPER = "h2o:budget={n},positions=cache,mechanism=gather,rerotate=recompute"


class Row(dict):
    """One method at one depth, as printed by `bench decode --json`."""

    @property
    def step_ms(self):
        return [1e3 * self["batch"] / rate for rate in self["samples"]]


class Engine:
    def __init__(self, program, threads, effort, prefix="", keep=None):
        self.program, self.threads, self.effort, self.prefix, self.keep = program, threads, effort, prefix, keep
        self.times_run = collections.Counter()
        self.command = ""  # the last command, as typed in the clone

    def words(self, test, shape, methods, threads=None, **flags):
        """Flags that are None are left out; page_size=16 is --page-size 16."""
        words = [self.program, "bench", test, "--synthetic", shape, "-t", threads or self.threads, "--json"]
        for name, value in flags.items():
            if value is not None:
                words += ["--" + name.replace("_", "-"), value]
        for method in methods:
            words += ["--method", method]
        return words

    def rows(self, words):
        """The command's output. With --keep, a command that an interrupted run has measured is not run again."""
        self.command = shown(words)
        if not self.keep:
            return json.loads(run(words, prefix=self.prefix)[1])
        what = shown(words[1:])
        self.times_run[what] += 1
        name = hashlib.sha1(f"{what} {self.times_run[what]}".encode()).hexdigest()
        kept = pathlib.Path(self.keep) / f"{name}.json"
        if not kept.exists():
            out = run(words, prefix=self.prefix)[1]
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_text(out)
        return json.loads(kept.read_text())

    def decode(self, shape, methods, depths, batch=1, tokens=None, reps=None, **more):
        """{(label, depth): Row}; methods: {label: method}."""
        rows = self.rows(self.words("decode", shape, methods.values(), batch=batch, depth=",".join(map(str, depths)),
                                    tokens=tokens or self.effort.tokens, reps=reps or self.effort.rounds, **more))
        keys = [(label, depth) for label in methods for depth in depths]
        return {key: Row(row) for key, row in zip(keys, rows, strict=True)}

    def prefill(self, shape, methods, tokens, reps=None, **more):
        """{label: row}: prefill of one prompt by each method."""
        words = self.words("prefill", shape, methods.values(), tokens=tokens, reps=reps or self.effort.rounds, **more)
        return dict(zip(methods, self.rows(words), strict=True))

    def serve(self, shape, methods, requests, read, written, pool_mib, reps=1, **more):
        """{label: row}: simultaneous requests with one page pool."""
        words = self.words("serve", shape, methods.values(), num_prompts=requests, random_input_len=read, random_output_len=written,
                           cache_memory=pool_mib, reps=reps, **more)
        return dict(zip(methods, self.rows(words), strict=True))

    def pair(self, shape, ours, theirs, depth, batch, **more):
        """Ratios theirs / ours of the step time, per round."""
        rows = self.decode(shape, {"ours": ours, "theirs": theirs}, [depth], batch, **more)
        return ratios(rows["theirs", depth].step_ms, rows["ours", depth].step_ms)


class Effort:
    """Amount of measurement: full takes 50 minutes on 2 cores."""

    def __init__(self, quick):
        self.quick = quick
        self.tokens = 6 if quick else 8
        self.rounds = 2 if quick else 3

    def pick(self, quick, full):
        return quick if self.quick else full


def scaled(name, layers, full_layers, vocabulary, weights="q4_0"):
    """A shape with fewer layers. The vocabulary is scaled too, so that the output matrix keeps its share of the time."""
    return f"{name}@layers={layers}@vocab={max(512, vocabulary * layers // full_layers // 64 * 64)}@type={weights}"


LLAMA_7B = scaled("llama-2-7b", 2, 32, 32000)
LLAMA_7B_ONE = scaled("llama-2-7b", 1, 32, 32000)
LLAMA_13B = scaled("llama-2-13b", 2, 40, 32000)
LLAMA_30B = scaled("llama-30b", 1, 60, 32000)
NEOX = scaled("gpt-neox-20b", 1, 44, 50432)
GPT_J = scaled("gpt-j-6b", 2, 28, 50400)
OPT = scaled("opt-6.7b", 2, 32, 50272) + "@context=8192"  # its own is 2,048


def program():
    return os.environ.get("PALIMPSEST_PROGRAM", str(REPO / "build" / "palimpsest"))


def bench(o, name, *words):
    """The JSON of a benchmark program, and the command as typed in the clone."""
    path = REPO / o.build / name
    if not path.exists():
        raise Skip(f"needs {shown([path])}: make build")
    command = [path, *words]
    return json.loads(run(command, prefix=o.engine.prefix)[1]), shown(command)
