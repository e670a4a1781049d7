"""Measures whether a long stream of stories stays varied: who speaks, repeated word triples, story form.

    python variety.py [--program palimpsest] [--model FILE] [--tokens 20000] [--seeds 1 2 3 4 5] [--check]
All figures are of the second half of each stream (budget 256, temperature 0.7). `--check` exits with 1 if a limit is exceeded; the limits are those of
20,000 tokens. `--short`: limits of 5,000 tokens, whose second half has eight stories and fifty lines of speech; a single 'X and X' is 4 in 10,000.
"""
import argparse
import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass

from lexicon import BOYS, GIRLS

NAME = "(" + "|".join(GIRLS + BOYS) + ")"
SPEECH = "(?:said|asked|answered|cried|called|whispered|shouted|thought|laughed|begged|explained)"
SPEAKER = re.compile(rf"\b{SPEECH} {NAME}\b|\b{NAME} {SPEECH}\b")
DOUBLED = re.compile(rf"\b{NAME} and \1\b")
LABEL = re.compile(r"^(note|story|question|answer|row|system|user|assistant)\b:?|<\|", re.MULTILINE)
MIN_TITLES = 1e-3  # stories have some 300 tokens


@dataclass
class Limits:
    speaker: float  # max share of one speaker
    doubled: float  # max 'X and X' per token
    trigrams: float  # min distinct of all


LONG, SHORT = Limits(0.25, 1e-4, 0.6), Limits(0.4, 8e-4, 0.8)


def stream(program, model, tokens, seed):
    command = [program, "run", "-n", str(tokens), "--ignore-eos", "--temp", "0.7", "--seed", str(seed), "--method", "streaming:budget=256"]
    return subprocess.run(command + (["-m", model] if model else []), capture_output=True, text=True, check=True).stdout


def measure(text, tokens):
    """Figures of the second half of a text of `tokens` tokens."""
    half, tokens = text[len(text) // 2:], tokens / 2
    speakers = Counter(a or b for a, b in SPEAKER.findall(half))
    words = re.findall(r"[A-Za-z']+", half)
    trigrams = list(zip(words, words[1:], words[2:]))
    name, most = speakers.most_common(1)[0] if speakers else ("nobody", 0)
    return dict(speakers=sum(speakers.values()), names=len(speakers), most=f"{name} {most}", share=most / max(1, sum(speakers.values())),
                doubled=len(DOUBLED.findall(half)) / tokens, trigrams=len(set(trigrams)) / max(1, len(trigrams)), labels=len(LABEL.findall(half)),
                titles=len(re.findall(r"\n\n[A-Z][^\n.]*\n\n", half)) / tokens)


def faults(m, limits):
    out = [f"{100 * m['share']:.0f}% of the speakers are one ({m['most']})"] if m["share"] > limits.speaker or not m["speakers"] else []
    out += [f"'X and X' {10000 * m['doubled']:.1f} times in 10,000 tokens"] if m["doubled"] > limits.doubled else []
    out += [f"distinct trigrams: {m['trigrams']:.2f}"] if m["trigrams"] < limits.trigrams else []
    out += [f"{m['labels']} labels or control tokens"] if m["labels"] else []
    return out + ([f"{10000 * m['titles']:.0f} titles in 10,000 tokens"] if m["titles"] < MIN_TITLES else [])


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--program", default="palimpsest")
    a.add_argument("--model")
    a.add_argument("--tokens", type=int, default=20000)
    a.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    a.add_argument("--check", action="store_true")
    a.add_argument("--short", action="store_true")
    o = a.parse_args()
    bad = False
    for seed in o.seeds:
        m = measure(stream(o.program, o.model, o.tokens, seed), o.tokens)
        found = faults(m, SHORT if o.short else LONG)
        bad |= bool(found)
        print(f"seed {seed}: {m['speakers']} lines of speech by {m['names']} people, most by {m['most']} ({100 * m['share']:.0f}%); 'X and X' "
              f"{10000 * m['doubled']:.1f} and titles {10000 * m['titles']:.0f} in 10,000 tokens; distinct trigrams {m['trigrams']:.2f}"
              + ("; " + ", ".join(found) if found else ""))
    sys.exit(o.check and bad)


if __name__ == "__main__":
    main()
