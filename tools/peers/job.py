"""What a peer is asked, and how its script answers: one process a job, so that its peak memory is its own.

    python with_openvino.py job.json   ->   the last line of standard output is the answer, JSON

Two kinds of job, both with `model` (a GGUF file, or the folder that hf_model.py makes of one), `threads`, `method` (in the
peer's own words), `prompts` (lists of token ids, BOS first), `tokens` (to write for each, greedily, past any end of text):

    answers   {"tokens": [[ids], ...], "version"}
    speed     one prompt, read twice; of the second time: {"ttft_s", "tpot_s", "version"}; tpot: (end - first) / (N - 1)
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
    """Seconds from its making to the first token, and between those that follow."""

    def __init__(self):
        self.start, self.heard = time.perf_counter(), []

    def token(self):
        self.heard.append(time.perf_counter())

    def figures(self):
        return {"ttft_s": self.heard[0] - self.start, "tpot_s": (self.heard[-1] - self.heard[0]) / (len(self.heard) - 1)}
