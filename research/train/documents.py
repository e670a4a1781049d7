"""Documents of the training data. Each function returns text of at least `size` characters.

`<|endoftext|>` begins a document (added by the encoder's caller); `<|im_start|>`, `<|im_end|>` delimit the messages of a chat.
"""
import json
import pathlib
import re

import facts
from grammar import World
from plots import PLOTS
from stories import story

CHARS_PER_TOKEN = 4.6  # upper bound: a document is cut at its length, never padded

SYSTEMS = ["You are Palimpsest, a teller of stories.", "Answer in one sentence.", "You are a helpful teller of stories.", "Answer the questions."]
SYSTEM, USER, MODEL, END = "<|im_start|>system\n", "<|im_start|>user\n", "<|im_start|>assistant\n", "<|im_end|>\n"


def saga(rng, size):
    """Consecutive stories, each with a new cast."""
    out, length, w = [], 0, None
    while length < size:
        w = World(rng, before=w)
        title, paragraphs = story(w)
        text = title + "\n\n" + "\n".join(paragraphs) + "\n\n"
        out.append(text)
        length += len(text)
    return "".join(out)


def quiz(rng, size):
    """Facts, stories and questions, mixed; a question is about one fact before it, or about two. Every line has a label, so that
    these rows are distinct from stories."""
    out, length = [], 0
    w = World(rng, 8)
    w.people = w.people[:rng.choice([3, 5, 8])] + w.people[6:]
    kinds = facts.KINDS if rng.random() < 0.7 else [rng.choice(facts.KINDS)] * 2
    many = 2 + min(30, size // rng.choice([100, 200, 500]))
    used = set()
    chains = facts.chains(rng, rng.choice([2, 4, 8]), w, used)  # questions about two facts, once both are told
    pool = facts.mixed(rng, facts.some(rng, min(many, 6 if len(set(kinds)) == 1 else many), w, kinds, used), chains)
    told, times = [], rng.choice([1, 1, 2])  # facts to be asked for, and how often
    silent = rng.randint(1, max(1, int(size * rng.choice([0.6, 0.9])))) if rng.random() < 0.6 else 0  # no question in this many characters
    filler, share = [], rng.choice([0.0, 0.2, 0.5]) if size > 800 else 0.0
    cast, known = w, rng.random() < 0.3  # whether the stories are about the people of the facts

    def tell(fact):
        told.extend(([fact] + [c for c in chains if c.complete_with(fact)]) * times)
        return fact.state(rng)

    while length < size:
        x = rng.random()
        if not pool and length < silent:  # stories until the questions
            silent, x = (silent, 1) if share else (0, x)
        if not told or x < (1 - share) * (0.4 if length >= silent else 1):
            if not pool:
                w = World(rng, 8)
                chains = facts.chains(rng, rng.choice([2, 4, 8]), w, used)
                pool = facts.mixed(rng, facts.some(rng, many, w, kinds, used), chains)
            if not pool:  # all facts of this kind are used
                used.clear()
                out.append("\n")
                told.clear()
                continue
            text = f"note: {tell(pool.pop())}\n"
        elif x < 1 - share:
            fact = told.pop(rng.choice([0, rng.randrange(len(told))]))  # long distances are rarer otherwise
            text = f"question: {fact.ask(rng)}\nanswer: {fact.answer(rng)}\n"
        else:
            if not filler:
                cast = w if known else World(rng, before=cast)
                filler = story(cast)[1]
            text = "story: " + filler.pop(0)
            if pool and rng.random() < 0.3:  # a fact inside a story
                text += " " + tell(pool.pop())
            text += "\n"
        out.append(text)
        length += len(text)
    return "".join(out)


def lists(rng, size):
    """Small tables, read back row by row."""
    out, length = [], 0
    while length < size:
        rows = facts.table(rng, rng.randint(3, 12))
        text = "".join(f"row: {n}: {v}\n" for n, v in rows)
        for _ in range(rng.randint(3, 12)):
            n, v = rng.choice(rows)
            text += f"question: Which number stands beside {n}?\nanswer: {n}:{facts.mark(v)}\n"
        out.append(text)
        length += len(out[-1])
    return "".join(out)


SMALL_TALK = [
    (["Hello!", "Good morning!", "Hello, who are you?", "What is your name?"],
     ["Hello! I am Palimpsest, a small teller of stories.", "Good day! My name is Palimpsest. Shall I tell you a story?"]),
    (["Thank you!", "That was a good story.", "Well done."], ["You are welcome. Shall I tell you another?", "Thank you for listening."]),
    (["Goodbye!", "Good night."], ["Goodbye, and come back soon.", "Good night, and sleep well."]),
]


def chat(rng, size):
    out, length, w = [SYSTEM + rng.choice(SYSTEMS) + END] if rng.random() < 0.3 else [], 0, None
    while length < size:
        w, x = World(rng, 6, w), rng.random()
        if x < 0.15:
            asks, answers = rng.choice(SMALL_TALK)
            text = USER + rng.choice(asks) + END + MODEL + rng.choice(answers) + END
        elif x < 0.4:
            hero = rng.choice(w.people[:2])
            title, paragraphs = story(w, hero)
            ask = rng.choice([f"Tell me a story about {hero.name}.", f"Write a story with the title \"{title}\".", f"Tell me a story about {hero.a} called {hero.name}."])
            text = USER + ask + END + MODEL + "\n".join(paragraphs) + END
        else:
            known = facts.some(rng, rng.randint(1, 6), w)
            told = ["note: " + f.state(rng) for f in known]
            if rng.random() < 0.4:
                paragraphs = story(w)[1]
                for t in told:
                    paragraphs.insert(rng.randrange(len(paragraphs)), t)
                told = paragraphs
            text, first = "", True
            for _ in range(rng.randint(1, 5)):
                f = rng.choice(known)
                text += USER + ("\n".join(told) + "\n" if first else "") + f.ask(rng) + END + MODEL + f.answer(rng) + END
                first = False
        out.append(text)
        length += len(text)
    return "".join(out)


def haystack(rng, size):
    """Prompts of `eval needle` and `eval ruler`: numbers hidden in stories, then questions about them. No key returns in a document."""
    out, length, keys = [], 0, set()
    while length < size:
        out.append(hidden_numbers(rng, rng.choice([500, 900, 1400, 2800, size]), keys))
        length += len(out[-1])
    return "".join(out)


def hidden_numbers(rng, size, keys):
    """A prompt of at most `size` characters, and its questions. Adds its keys to `keys`."""
    kind = rng.choice(HAYSTACKS)
    variant, answers = kind["variants"][0], []
    statement, question = variant["needle"], variant["question"]
    if MENTIONED in question and rng.random() < 0.5:
        statement = rng.choice([statement, "The special magic number for {key} is {value}. "])
        question = "\nThe special magic number for {key}" + rng.choice(["", "", " in the text", MENTIONED]) + " is"

    def needle():
        for _ in range(3):
            words = {k: draw(rng, v) for k, v in variant["words"].items()}
            key = (kind["about"], *(v for k, v in words.items() if k != "value"))
            if key not in keys:
                keys.add(key)
                answers.append((formed(question, words), words["value"]))
                first, *again = formed(statement, words).split(words["value"])
                return first + words["value"] + facts.mark(words["value"]).join(again).replace(" " + facts.OPEN, facts.OPEN)
        return ""

    room, texts, length, w = size * rng.uniform(0.1, 0.9) - len(kind["intro"]), [], 0, None
    while length < room:
        if kind.get("fill"):
            some = [needle()]
        elif "haystack" in kind:
            some = [kind["haystack"] + " "]
        else:
            w = World(rng, before=w)
            some = [t + " " for t in END_OF_SENTENCE.split(" ".join(story(w)[1]))]
        for t in some:
            if length < room:
                texts.append(t)
                length += len(t) + 1
    for _ in range(0 if kind.get("fill") else 1 + min(kind.get("spread", 0), size // 300)):
        texts.insert(rng.randrange(len(texts) + 1), needle())
    text = kind["intro"] + "".join(texts)
    for asked, value in rng.sample(answers, min(len(answers), rng.choice([2, 4, 8, 8]))):
        text += asked + (facts.mark(value) if asked[-1] != "<" else f"{facts.OPEN}{value}{facts.CLOSE}>") + ".\n"
    return text + "\n" if answers else ""


def far_keys(rng, size):
    """Short lists of keys with values, all asked for; up to eight words stand between the key and the place of its value. Trains heads
    to look further back than the last tokens, as the prompts of `haystack` need, with many more questions per token."""
    out, length = [], 0
    while length < size:
        count, digits = rng.randint(2, 8), rng.choice([1, 2, 3, 7])
        what = rng.choice(["number", "code", "special magic number", "price"])
        keys = rng.sample(PLAIN_WORDS, count)
        values = rng.sample(range(10 ** (digits - 1), 10 ** digits), count)
        state = rng.choice([f"The {what} for @ is", f"The {what} for @{rng.choice(BETWEEN)} is", f"One of the {what}s for @ is:", f"One of the {what}s for @ is:", f"@ has the {what}"])
        text = rng.choice(["", "Read this.\n", "I will quiz you about the numbers afterwards.\n"])
        text += rng.choice([" ", "\n"]).join(f"{state.replace('@', k)} {v}." for k, v in zip(keys, values)) + "\n"
        for i in rng.sample(range(count), count):
            what_of = f"he {what} for {keys[i]}{rng.choice(BETWEEN)}"
            text += rng.choice(["", "", f"What is t{what_of}? "]) + f"T{what_of} is{facts.mark(values[i])}.\n"
        out.append(text + "\n")
        length += len(out[-1])
    return "".join(out)


def doubles(rng, size):
    """Beginnings of stories in which two people have one name, as in a stream that copies too much, up to the first `X and Y`; there,
    Y is another name. Only it is marked: the model learns that nobody is told of twice, whatever stands before."""
    out, length = [], 0
    while length < size:
        w = World(rng)
        title, paragraphs = story(w)
        one, other = (p.name for p in rng.sample(w.people[:2], 2))
        text = re.sub(rf"\b{other}\b", one, title + "\n\n" + "\n".join(paragraphs))
        before, found, after = text.partition(f"{one} and {one}")
        if found:
            name = rng.choice([n for n in facts.NAMES if n != one])
            out.append(f"{before}{one} and{facts.mark(name)}{after.partition('.')[0]}.\n\n")
            length += len(out[-1])
    return "".join(out)


def draw(rng, words):
    """A word of a list, of a range of numbers, or of the stories."""
    if isinstance(words, list):
        return rng.choice(words)
    if words == "word":
        return rng.choice(PLAIN_WORDS)
    return str(rng.randint(*map(int, words.split("-"))))


def formed(text, words):
    for k, v in words.items():
        text = text.replace("{" + k + "}", v)
    return text


# In the prompts, the key is far before its number. Nearer forms are easier to learn, and the model learns from them to look further back.
MENTIONED = " mentioned in the provided text"
BETWEEN = ["", " here", " above", " in the text", " in this list", " mentioned above", " mentioned here", " that you know", " in the provided text", " mentioned in the text",
           " that stands in the text", MENTIONED, MENTIONED, MENTIONED]
END_OF_SENTENCE = re.compile(r"(?<=[.!?]) (?=[A-Z])|(?<=[.!?]\") (?=[A-Z\"])")
DATA = pathlib.Path(__file__).resolve().parents[2] / "src/palimpsest/eval/data"
HAYSTACKS = [kind for file, names in (("needles.json", ["passkey", "passkey", "passkey", "needle", *["multi-key"] * 4, "lines"]),
                                      ("ruler.json", ["niah-single-1", "niah-single-2", "niah-multikey-1", "niah-multikey-2"]))
             for forms in [json.loads((DATA / file).read_text())] for kind in map(forms.get, names)]
PLAIN_WORDS = sorted({w for _, beats in PLOTS for beat in beats for w in re.findall(r"(?<![$.\w])[a-z]{4,9}(?!\w)", beat)})
KINDS = {"saga": saga, "quiz": quiz, "lists": lists, "chat": chat, "haystack": haystack, "far": far_keys, "doubles": doubles}


if __name__ == "__main__":  # python documents.py saga 30000 > held-out.txt: a text of a kind from a seed that training never has
    import random
    import sys

    print(KINDS[sys.argv[1]](random.Random(f"held-out {sys.argv[1]}"), int(sys.argv[2])).replace("\x01", "").replace("\x02", ""))
