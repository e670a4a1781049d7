"""The article's 412 runs in kind: every run's text with gaps in the positions ("sparse") beside the text with renumbered ones
("compact and shift"), identical policies and settings, over policies, budgets and prompts."""
import difflib
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

from report import table, times

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
from common import REPO, Failed  # noqa: E402

POLICIES = {"sinks and window": "sparse", "h2o": "h2o", "knorm": "knorm:sinks=0,recent=0", "keydiff": "keydiff:sinks=0,recent=0", "temporal (learned)": "temporal"}
BUDGETS, PROMPTS, TOKENS = [48, 64, 128, 256], 10, 400
SPARSE, COMPACT = "mechanism=in-place,positions=original", "mechanism=shift,positions=cache,rerotate=recompute"


def method(policy, budget, how):
    return f"{policy}{',' if ':' in policy else ':'}budget={budget},{how}"


def prompts():
    """Beginnings of the haystack's stories: 120 to 180 tokens."""
    text = (REPO / "src/palimpsest/eval/data/haystack.txt").read_text()
    return [p[:600] for p in text.split("\n") if len(p) >= 600][:PROMPTS]


def generated(o, prompt, method):
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(prompt)
        file.flush()
        words = [str(o.engine.program), "run", "-f", file.name, "-n", str(TOKENS), "--ignore-eos", "--temp", "0", "-t", "1", "--json", "--method", method]
        done = subprocess.run(words, capture_output=True, text=True, env=dict(os.environ))
    if done.returncode:
        raise Failed(done.stderr.strip())
    out = json.loads(done.stdout)
    return out["text"], out["tokens_per_second"]


def words_of(text):
    return set(re.findall(r"\w+", text.lower()))


def jaccard(a, b):
    return len(words_of(a) & words_of(b)) / max(1, len(words_of(a) | words_of(b)))


def first_difference(a, b):
    """In words."""
    at = os.path.commonprefix([a, b])
    return None if a == b else len(at.split())


def runs(o):
    """412 runs in kind: policy, budget, prompt; with gaps and renumbered"""
    texts = prompts()[:o.effort.pick(3, PROMPTS)]
    full = [generated(o, p, "full") for p in texts]
    lines, count, everything = [], len(full), []
    for label, policy in POLICIES.items():
        for budget in BUDGETS:
            pairs = [(generated(o, p, method(policy, budget, SPARSE)), generated(o, p, method(policy, budget, COMPACT))) for p in texts]
            count += 2 * len(pairs)
            equal = sum(a[0] == b[0] for a, b in pairs)
            firsts = [d for a, b in pairs if (d := first_difference(a[0], b[0])) is not None]
            overlap = [jaccard(a[0], b[0]) for a, b in pairs]
            similar = [difflib.SequenceMatcher(None, a[0].split(), b[0].split(), autojunk=False).ratio() for a, b in pairs]
            everything += overlap
            lines.append([label, budget, f"{equal} of {len(pairs)}", f"{statistics.median(firsts):.0f}" if firsts else "–", f"{statistics.mean(overlap):.2f} ({min(overlap):.2f})",
                          f"{statistics.mean(similar):.2f}", f"{statistics.mean(jaccard(a[0], f[0]) for (a, _), f in zip(pairs, full)):.2f}",
                          f"{statistics.mean(jaccard(b[0], f[0]) for (_, b), f in zip(pairs, full)):.2f}", times([a[1] / b[1] for a, b in pairs])])
    different = [jaccard(a[0], b[0]) for i, a in enumerate(full) for b in full[:i]]
    return [f"{count} runs of the default model: {len(texts)} beginnings of stories (600 characters), {TOKENS} tokens, greedy, one thread, f16 cache. The article reports 412 runs in which both ways "
            "\"produce the same tokens\", verified by word overlap (Jaccard) and by reading. Here they do not: renumbered positions are other distances between query and key, so the two ways "
            f"are two methods. Word overlap of texts of different prompts without eviction: {statistics.mean(different):.2f}. Speeds are of this small model, on which a step is short.", "",
            *table(["policy", "budget", "equal texts", "first different word (median)", "word overlap, mean (least)", "words in the same order", "overlap of sparse with full",
                    "of compact with full", "speed, sparse over compact and shift"], lines)], "research/papers/run.py runs"
