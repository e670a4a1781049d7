#!/usr/bin/env python3
"""Recall with even budgets, with shares by head (`palimpsest heads --profile`) and with split=ada, on the default model.

    python3 research/quality/head_profiles.py

Questions are read in chunks of 64 tokens; the fact is 900 tokens before the question, which is unknown until then.
"""
import argparse
import pathlib
import random
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
from common import REPO  # noqa: E402

sys.path.insert(0, str(REPO / "research" / "train"))
import recall as asking  # noqa: E402
from bpe import Tokenizer  # noqa: E402
from documents import quiz  # noqa: E402

POLICIES = ["keydiff", "temporal", "h2o"]


def main():
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("--program", default=str(REPO / "build/palimpsest"))
    parse.add_argument("--questions", type=int, default=60)
    parse.add_argument("--budgets", type=int, nargs="*", default=[116, 58], help="tokens per head")
    o = parse.parse_args()
    rows = asking.questions(Tokenizer.load(REPO / "research/train/tokenizer.json"), 900, o.questions)
    with tempfile.TemporaryDirectory() as folder:
        text, shares = pathlib.Path(folder) / "text.txt", pathlib.Path(folder) / "shares.txt"
        text.write_text("".join(quiz(random.Random(f"scorer {i}"), 10000) for i in range(2)).replace("\x01", "").replace("\x02", ""))
        shares.write_text(subprocess.run([o.program, "heads", "-m", REPO / "models/palimpsest-stories.gguf", "--profile", "-f", text, "--tokens", "1024",
                                          "--keep", "0.0625"], check=True, capture_output=True, text=True).stdout)
        print("| policy | tokens per head | uniform | shares by head | ada |\n|---|---|---|---|---|")
        for policy in POLICIES:
            for budget in o.budgets:
                got = []
                for split in ("uniform", shares, "ada"):
                    method = f"{policy}:budget={budget},sinks=4,recent=16,split={split}"
                    with asking.Server(o.program, ["-t", "1", "--prefill-chunk", "64", "--page-size", "16", "--method", method]) as server:
                        got.append(asking.recall(server.url, rows, method)[0] / len(rows))
                print(f"| {policy} | {budget} | " + " | ".join(f"{100 * share:.0f}%" for share in got) + " |", flush=True)


if __name__ == "__main__":
    main()
