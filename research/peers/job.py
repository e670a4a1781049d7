"""Jobs of an engine's script and the format of its answers. Each job is a separate process, so that peak memory is per job.

    python with_openvino.py job.json   ->   the last line of standard output is the answer, JSON

Kinds of jobs, with `model` (a GGUF file, or the folder that hf_model.py makes of one), `threads`, `method` (in the
engine's own format), `prompts` (lists of token ids, BOS first), `tokens` (to generate for each, greedily, ignoring end of text):

    answers   {"tokens": [[ids], ...], "version"}
    speed     one prompt, twice; of the second run: {"ttft_s", "tpot_s", "version"}; tpot: (end - first) / (N - 1)
    kept      the positions that each head keeps of each prompt: {"kept": [[[positions] of each head, layer by layer], ...], "version"}; "tied",
              likewise: those whose scores equal that of the last one kept. With "texts" and "gguf": the prompts' texts, and the file of
              the tokenizer, where it is not the default model's
    questions of "samples" (lines of `palimpsest eval needle --log-samples`), "seen" as --question-seen: {"answers": [[texts], ...], "version"} (transformers)
    tokens    of "texts", by the tokenizer of "gguf": {"tokens": [[ids], ...]} (transformers)
"""
import json
import sys
import time


def read():
    with open(sys.argv[1]) as file:
        return json.load(file)


def answer(**fields):
    print(json.dumps(fields), flush=True)


class Watch:
    """Seconds from construction to the first token, and between the following tokens."""

    def __init__(self):
        self.start, self.heard = time.perf_counter(), []

    def token(self):
        self.heard.append(time.perf_counter())

    def figures(self):
        return {"ttft_s": self.heard[0] - self.start, "tpot_s": (self.heard[-1] - self.heard[0]) / (len(self.heard) - 1)}
