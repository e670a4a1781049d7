"""Facts and haystack of `palimpsest eval needle`, in the format the default model was trained on.

    python3 research/train/needles.py           regenerates src/palimpsest/eval/data/facts.json and haystack.txt
    python3 research/train/needles.py --check   exits with 1 if they differ
The seed of the stories is not used in training.
"""
import json
import pathlib
import random
import sys

import facts
from grammar import World
from lexicon import BOYS, COLOURS, GIRLS, GOODS, PETS, SIZES, THINGS
from stories import story

DATA = pathlib.Path(__file__).resolve().parents[2] / "src/palimpsest/eval/data"
HAYSTACK_BYTES = 120_000


class Recorder:
    """Replaces the random generator: every choice becomes a placeholder, and its alternatives are recorded."""

    def __init__(self, kind):
        self.words = {}
        self.named = {id(PETS): "animal", id(GOODS): "name"} if kind in (facts.pet, facts.stock) else {}

    def choice(self, among):
        name = self.named.get(id(among), "value")
        self.words[name] = list(among)
        return "{" + name + "}"

    def randint(self, low, high):
        self.words["value"] = f"{low}-{high}"
        return "{value}"


class Somebody:
    name, he = "{name}", "he"

    def __init__(self, female):
        self.female = female


class Something:
    n = "{thing}"

    def __str__(self):
        return "{adjective} {thing}"


def variants():
    for kind in dict.fromkeys(facts.KINDS):
        for female in ([True, False] if kind is facts.work else [False]):
            recorder = Recorder(kind)
            fact = kind(recorder, Somebody(female), Something())
            said = fact.says[0].replace("@", " {value}")
            names = GIRLS if female else BOYS if kind is facts.work else GIRLS + BOYS
            words = {"name": names, "thing": THINGS, "adjective": COLOURS + SIZES, **recorder.words}
            yield {"needle": f"note: {said}\n", "question": f"question: {fact.asks[0]}\nanswer:",
                   "words": {k: v for k, v in words.items() if "{" + k + "}" in said}}


def haystack():
    rng, out, length, world = random.Random("held-out haystack"), [], 0, None
    while length < HAYSTACK_BYTES:
        world = World(rng, before=world)
        for paragraph in story(world)[1]:
            out.append(paragraph + "\n\n")
            length += len(out[-1])
    return "".join(out)


def files():
    kind = {"about": "a fact among five others, asked for in the form that the default model was trained on", "unit": "story: {text}\n",
            "same": 2, "other": 3, "tokens": 24}
    rows = ",\n".join(json.dumps(v) for v in variants())
    return {"facts.json": '{"fact": ' + json.dumps(kind)[:-1] + ', "variants": [\n' + rows + "\n]}}\n", "haystack.txt": haystack()}


if __name__ == "__main__":
    for name, text in files().items():
        if "--check" not in sys.argv:
            (DATA / name).write_text(text)
        elif (DATA / name).read_text() != text:
            sys.exit(f"{name} differs from the output of research/train/needles.py")
