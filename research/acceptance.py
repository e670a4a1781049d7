#!/usr/bin/env python3
"""Acceptance runs: the results that every release must show, each with its command.

  make acceptance                                       all parts
  make acceptance ACCEPTANCE_ARGS='stream book'         these parts; other sections of the page are unchanged
  make acceptance ACCEPTANCE_ARGS='--limit 120 book'    time limit in seconds for the command of a part

Writes research/results/acceptance.md, one section per part. Parts that need ../shared are skipped by name without it.
"""
import os
import pathlib
import re
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "bench"))
from common import REPO, SHARED, Failed, run, run_json, shown  # noqa: E402
from parts import ResearchPage, Skip, add, parsed, parser, work_through  # noqa: E402
from plot import DATA, link  # noqa: E402

MODEL = SHARED / "models/stories260K/stories260K.gguf"
BOOK = SHARED / "text/pg19-test/10146.txt"


def need(*paths):
    for path in paths:
        if not path.exists():
            raise Skip(f"needs {shown([path])}")


def block(command, text):
    """A command and its output, without this machine's paths. Markdown tables stay tables."""
    text = text.replace(f"{REPO}/", "").replace(str(SHARED), "../shared").rstrip()
    lines = text.splitlines()
    table = [line for line in lines if line.startswith("|")]
    return ["```", "$ " + shown(command), *[line for line in lines if not line.startswith("|")], "```", "", *table,
            *([""] if table else [])]


def yes(good):
    return "yes" if good else "**NO**"


class Parts:
    """Each method is a part: its docstring is the section title, it returns lines of Markdown."""

    def __init__(self, options):
        self.o = options

    def program(self, *words):
        return [self.o.program, *words]

    def threads(self):
        return ["-t", str(self.o.threads)]

    def golden(self):
        """Greedy text against the published text"""
        need(MODEL)
        golden = (MODEL.parent / "golden-greedy.txt").read_text().strip()
        command = self.program("run", "-m", MODEL, "-p", "", "--temp", "0", "--method", "full", "-n", "300", "--json")
        text = run_json(command)["text"].strip()
        lines = [f"stories260K, greedy decoding from the empty prompt: the output begins with the {len(golden)} characters of "
                 f"`golden-greedy.txt`: {yes(text.startswith(golden))}.", ""]
        return lines + block(command, text[:120] + " ...")

    def logits(self):
        """Logits against libllama"""
        need(MODEL)
        test = REPO / self.o.build / "test_graph"
        if not test.exists():
            raise Skip(f"needs {shown([test])}: make build")
        command = ["env", "PALIMPSEST_LONG=1", test, "--gtest_filter=LogitsTest.*"]
        code, out, err = run(command, timeout=self.o.limit, check=False)
        kept = [line for line in (out + err).splitlines() if not re.match(r"(\[[-= ]|load_backend|ggml_|Running|Note)", line)]
        return [f"Teacher-forced over 400 tokens, same file, same threads; all errors within the test's bounds: {yes(code == 0)}.", "",
                *block(command, "\n".join(line for line in kept if line.strip()))]

    def stream(self):
        """100,000 tokens with a budget of 256"""
        need(MODEL)
        tokens, plot = self.o.stream_tokens, DATA / "stream.json"
        command = self.program("eval", "stream", "-m", MODEL, "--method", "streaming", "--budget", "256", "--tokens", tokens,
                               "--temp", "0.8", "--seed", "1", "-t", "1", "--plot", plot)
        # All runs are reported: on a shared machine, means depend on the load of the moment.
        outs = [run(command, prefix=self.o.prefix, timeout=self.o.limit)[1] for _ in range(self.o.stream_runs)]
        growth = [int(re.search(r"growth (-?[\d,]+) KiB", out)[1].replace(",", "")) for out in outs]
        ratios = [re.search(r"last tenth over first: ([\d.]+) \(means\), ([\d.]+) \(medians\)", out).groups() for out in outs]
        means, medians = ([float(r[i]) for r in ratios] for i in (0, 1))
        held = lambda values: f"{sum(abs(v - 1) <= 0.05 for v in values)} of {len(values)} runs"
        listed = lambda values: ", ".join(f"{v:.3f}" for v in values)
        lines = [f"{len(outs)} repetitions of one run; the plot and the output are of the last one.", "",
                 f"- resident memory after the first 2,000 tokens grows by {', '.join(map(str, growth))} KiB (target: less than 1,024): "
                 f"{yes(max(growth) < 1024)}",
                 f"- median time per token, last tenth over first: {listed(medians)} (target: within 5%): {held(medians)}",
                 f"- mean time per token, last tenth over first (affected by other programs on the machine): {listed(means)}: {held(means)}",
                 "- text quality: perplexity of each token when it was sampled; perplexity of the beginning of each thousand tokens, evaluated "
                 "with an empty full cache; share of distinct 4-grams (repetition lowers it)", "",
                 link("stream", "100,000 tokens"), ""]
        out = outs[-1]
        return lines + block(command, out)

    def book(self):
        """Perplexity of a book"""
        need(MODEL, BOOK)
        methods = ["full", "streaming:budget=256", "streaming:budget=256,sinks=0"]
        lines = ["Perplexity does not depend on the machine's load; tokens/s does.", ""]
        for tokens, some, name, why in [
                (self.o.full_tokens, methods, "book-perplexity", "the beginning of the book, since the time of the full cache grows with the square of the length"),
                (-1, methods[1:], "book-perplexity-whole", "the whole book")]:
            plot = DATA / f"{name}.json"
            command = self.program("eval", "perplexity", "-m", MODEL, "-f", BOOK, "--gutenberg", "--tokens", tokens,
                                   *[w for m in some for w in ("--method", m)], *self.threads(), "--plot", plot)
            out = run(command, timeout=self.o.limit)[1]
            values = {m: float(re.search(rf"^{re.escape(m)} +([\d.e+]+)", out, re.M)[1]) for m in some}
            facts = [f"`{m}` has {values[m] / values[methods[1]]:.3f}x the perplexity of `{methods[1]}`" for m in some if m != methods[1]]
            lines += [f"{why[0].upper()}{why[1:]}: {'; '.join(facts)}.", "", *block(command, out), link(name, f"perplexity, {why}"), ""]
        return lines

    def exactness(self):
        """In-place eviction against shift"""
        need(MODEL, BOOK)
        groups = [[f"streaming:budget=256,positions=original,mechanism={m}" for m in ("in-place", "shift")],
                  [f"streaming:budget=256,positions=cache,mechanism={m},rerotate={r}"
                   for r in ("two-query", "fused") for m in ("in-place", "shift")]]
        lines, good = [], True
        for group in groups:
            command = self.program("eval", "compare", "-m", MODEL, "-f", BOOK, "--gutenberg", "--tokens", self.o.exact_tokens,
                                   "--cache-type", "f32", "--check", *[w for m in group for w in ("--method", m)], "-t", "1")
            code, out, err = run(command, timeout=self.o.limit, check=False)
            if code not in (0, 1):
                raise Failed(err.strip())
            good = good and code == 0
            lines += block(command, out)
        return [f"All logits within 1e-5 of the reference (relative to the step's largest logit), and the same top token wherever the "
                f"two highest logits differ by more than that: {yes(good)}.", "", *lines]

    def versus(self):
        """Against llama-bench"""
        command = ["python3", REPO / "research/speed/versus_llama_bench.py", "--program", self.o.program, "--threads", self.o.threads]
        run(command + ["--prefix", self.o.prefix], timeout=self.o.limit)
        return ["[versus-llama-bench.md](versus-llama-bench.md)", ""]

    def bad_input(self):
        """Invalid input"""
        with tempfile.TemporaryDirectory() as folder:
            def file(name, content):
                path = os.path.join(folder, name)
                with open(path, "wb") as out:
                    out.write(content)
                return path

            tiny = os.path.join(folder, "tiny.gguf")
            run(self.program("bench", "make-model", "--synthetic", "tiny", "-o", tiny))
            with open(tiny, "rb") as whole:
                content = whole.read()
            flipped = bytearray(content)
            flipped[len("GGUF") + 4 + 1] ^= 0x80  # the number of tensors
            key = b"general.architecture"
            at = content.index(key) + len(key) + 4 + 8
            at_shape = content.index(b"blk.0.attn_q.weight") + len(b"blk.0.attn_q.weight") + 4  # past the number of dimensions
            wider = content[:at_shape] + (128).to_bytes(8, "little") + (512).to_bytes(8, "little") + content[at_shape + 16:]
            cases = [
                ("truncated", "run", "-m", file("truncated.gguf", content[:len(content) // 2])),
                ("a flipped bit", "run", "-m", file("flipped.gguf", bytes(flipped))),
                ("zero length", "run", "-m", file("empty.gguf", b"")),
                ("not GGUF", "run", "-m", file("text.gguf", b"This is no model.\n" * 9)),
                ("unknown architecture", "run", "-m", file("foreign.gguf", content[:at] + b"xlama" + content[at + 5:])),
                ("missing tensor", "run", "-m", file("missing.gguf", content.replace(b"blk.1.ffn_up.weight", b"blk.1.ffn_xx.weight"))),
                ("tensor of the wrong shape", "run", "-m", file("shape.gguf", wider)),
                ("no such file", "run", "-m", os.path.join(folder, "none.gguf")),
                ("budget < sinks + 1", "run", "-m", tiny, "--method", "streaming:budget=4,sinks=4"),
                ("budget 0", "run", "-m", tiny, "--method", "streaming", "--budget", "0"),
                ("impossible method", "run", "-m", tiny, "--method", "streaming:colour=blue"),
                ("unknown method", "run", "-m", tiny, "--method", "strewing"),
                ("unreadable prompt", "run", "-m", tiny, "-f", os.path.join(folder, "none.txt")),
                ("invalid UTF-8", "run", "-m", tiny, "-f", file("latin.txt", b"caf\xe9")),
            ]
            lines = ["| input | exit code | error message |", "|---|---|---|"]
            good = True
            for what, *words in cases:
                code, out, err = run(self.program(*words), check=False, timeout=60)
                said = err.strip().replace(folder + "/", "")
                good = good and code == 2 and out == "" and "\n" not in said
                cell = said.replace("|", "\\|").replace("\n", " / ")
                lines.append(f"| {what} | {code} | {cell} |")
        return [f"Exit code 2, one line on standard error, nothing on standard output, for all inputs: {yes(good)}.", "", *lines, ""]

    def fuzz(self):
        """Fuzzing of model files"""
        fuzz = REPO / "build-asan" / "fuzz_gguf"
        if not fuzz.exists():
            raise Skip(f"needs {shown([fuzz])}: make test-asan builds it")
        command = [fuzz, "--runs", self.o.fuzz_runs]
        start = time.monotonic()
        code, out, err = run(command, timeout=self.o.limit, check=False)
        return [f"Under AddressSanitizer, {self.o.fuzz_runs:,} inputs in {time.monotonic() - start:.0f} s, clean: {yes(code == 0)}.", "",
                *block(command, "\n".join((out + err).strip().splitlines()[-14:]))]


PARTS = ["golden", "logits", "stream", "book", "exactness", "versus", "bad_input", "fuzz"]


PAGE = ResearchPage("acceptance", "Acceptance runs", "Generated by `make acceptance` (research/acceptance.py), one section per part.", PARTS)


def main():
    parse = parser(__doc__, PARTS)
    add(parse, "--program")
    parse.add_argument("--build", default="build", help="folder of the test programs")
    add(parse, "--threads")
    parse.add_argument("--limit", type=float, help="time limit in seconds for the command of a part")
    add(parse, "--prefix")
    parse.add_argument("--stream-tokens", type=int, default=100000)
    parse.add_argument("--stream-runs", type=int, default=3)
    parse.add_argument("--full-tokens", type=int, default=32768, help="tokens of the book with the full cache")
    parse.add_argument("--exact-tokens", type=int, default=5000)
    parse.add_argument("--fuzz-runs", type=int, default=1000000)
    options = parsed(parse, PARTS)
    parts = Parts(options)

    def work(name):
        part = getattr(parts, name)
        PAGE.put(name, part.__doc__, part())

    code = work_through(options.parts, work)
    print(PAGE.path)
    sys.exit(code)


if __name__ == "__main__":
    main()
