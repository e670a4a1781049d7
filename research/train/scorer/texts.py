"""Training texts of the default model's scorer: texts.py FOLDER [--count 9] writes 0.txt, 1.txt, ...

Two thirds have facts, stories and questions, the others stories only. The seeds are used neither by the model's training
nor by the held-out questions.
"""
import argparse
import pathlib
import random
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from documents import quiz, saga  # noqa: E402

CHARACTERS = 10000  # more than 2,048 tokens


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("folder", type=pathlib.Path)
    a.add_argument("--count", type=int, default=9)
    o = a.parse_args()
    o.folder.mkdir(parents=True, exist_ok=True)
    for i in range(o.count):
        kind = saga if i % 3 == 2 else quiz
        text = kind(random.Random(f"scorer {i}"), CHARACTERS).replace("\x01", "").replace("\x02", "")
        (o.folder / f"{i}.txt").write_text(text)


if __name__ == "__main__":
    main()
