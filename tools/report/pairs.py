"""1,000 pairs of prediction and reference for LongBench's metrics, to compare two scorers.

    python3 tools/report/pairs.py FOLDER                    writes FOLDER/DATASET.jsonl in the format of LongBench's eval.py
    python3 tools/report/pairs.py FOLDER --published DIR    and compares `palimpsest eval longbench --score` with
                                                            LongBench's metrics.py in DIR (not part of this project)
"""
import argparse
import json
import pathlib
import random
import subprocess
import sys

WORDS = """a an the The A of in river stone "quoted" it's don't e.g. U.S. end. stop! why? well, well-known half; colon: 3 14 42 007 1,000 3.5
naïve Ünder ÉTÉ straße Ωmega мир 数字 段落 the-end an_other\tTab Paragraph paragraph lamp Lamp lamps # // ` x=1 return None""".split(" ")
CLASSES = ["Number of something", "Number", "Date", "Person", "Individual person", "City", "Other location", "Location", "Food", "Food and drink"]
COUNTS = {"hotpotqa": 250, "gov_report": 200, "trec": 150, "passage_retrieval_en": 100, "passage_retrieval_zh": 100, "passage_count": 100, "lcc": 100}


def prose(rng, most):
    out = ""
    for _ in range(rng.randint(0, most)):
        out += rng.choice(WORDS) + rng.choice([" "] * 12 + [". ", ".", "\n", "  ", "\u00a0", "\u3000", ", "])
    return out


def near(rng, text):
    """The text with some characters removed, doubled or changed: a similarity between 0 and 1."""
    out = []
    for c in text:
        x = rng.random()
        out.append("" if x < 0.06 else c * 2 if x < 0.1 else rng.choice("etaoin #`/.") if x < 0.16 else c)
    return "".join(out)


def code(rng):
    names = ["value", "index", "self.cache", "tokens", "result", "i", "limit"]
    return rng.choice(["    ", "", "\t"]) + " ".join(rng.choice(names + ["=", "+", "(", ")", "if", "return", "[0]", ":"]) for _ in range(rng.randint(1, 60)))


def pair(rng, dataset):
    if dataset == "trec":
        truth = rng.choice(CLASSES)
        return dict(pred=" ".join(rng.sample(CLASSES, rng.randint(0, 4)) + [prose(rng, 4)]), answers=[truth], all_classes=CLASSES)
    if dataset.startswith("passage_retrieval"):
        word, n = ("段落" if dataset.endswith("zh") else "Paragraph "), rng.randint(1, 30)
        said = " ".join(rng.choice([f"{word}{rng.choice([n, n, rng.randint(1, 30)])}", str(n), prose(rng, 3), f"第{n}段", "２７"]) for _ in range(rng.randint(0, 5)))
        return dict(pred=said, answers=[f"{word}{n}"], all_classes=None)
    if dataset == "passage_count":
        n = rng.randint(1, 20)
        return dict(pred=" ".join(rng.choice([str(n), str(rng.randint(1, 20)), prose(rng, 3), f"0{n}"]) for _ in range(rng.randint(0, 5))), answers=[str(n)], all_classes=None)
    if dataset == "lcc":
        truth = code(rng)
        said = rng.choice([truth, near(rng, truth), code(rng), ""])
        return dict(pred=rng.choice(["", "\n", "\n\n", "# comment\n", "```python\n", "// c\n"]) + said + rng.choice(["", "\nmore"]), answers=[truth], all_classes=None)
    most = 12 if dataset == "hotpotqa" else 90
    truth = prose(rng, most)
    return dict(pred=rng.choice([truth, near(rng, truth), prose(rng, most), near(rng, truth) + prose(rng, most)]), answers=[truth, prose(rng, most)][: rng.randint(1, 2)], all_classes=None)


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("folder", type=pathlib.Path)
    a.add_argument("--published")
    a.add_argument("--program", default="build/palimpsest")
    a.add_argument("--seed", type=int, default=1)
    o = a.parse_args()
    o.folder.mkdir(parents=True, exist_ok=True)
    for dataset, count in COUNTS.items():
        rng = random.Random(f"{o.seed} {dataset}")
        with open(o.folder / f"{dataset}.jsonl", "w") as f:
            for _ in range(count):
                f.write(json.dumps(pair(rng, dataset), ensure_ascii=False) + "\n")
    if not o.published:
        return
    sys.path.insert(0, o.published)
    import metrics
    theirs = {"hotpotqa": metrics.qa_f1_score, "gov_report": metrics.rouge_score, "trec": metrics.classification_score, "passage_count": metrics.count_score,
              "passage_retrieval_en": metrics.retrieval_score, "passage_retrieval_zh": metrics.retrieval_zh_score, "lcc": metrics.code_sim_score}
    total, greatest = 0, 0.0
    for dataset in COUNTS:
        path = o.folder / f"{dataset}.jsonl"
        words = [o.program, "eval", "longbench", "--score", str(path), "--dataset", dataset, "--json"]
        ours = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)["scores"]
        worst = mean = 0.0
        for score, line in zip(ours, path.read_text().split("\n"), strict=False):
            row = json.loads(line)
            pred = row["pred"].lstrip("\n").split("\n")[0] if dataset == "trec" else row["pred"]  # as LongBench's scorer() does
            best = 0.0
            for truth in row["answers"]:
                best = max(best, theirs[dataset](pred, truth, all_classes=row["all_classes"]))
            if abs(best - score) > 1e-9:
                print(f"{dataset}: {score} here, {best} there: {row}", file=sys.stderr)
            worst, mean, total = max(worst, abs(best - score)), mean + best / len(ours), total + 1
        print(f"{dataset:22} {len(ours):4} pairs, mean {mean:.4f}, max difference {worst:.1e}")
        greatest = max(greatest, worst)
    print(f"{total} pairs, max difference {greatest:.1e}")
    sys.exit(greatest > 1e-9)


if __name__ == "__main__":
    main()
