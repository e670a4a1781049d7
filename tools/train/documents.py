"""Documents of the training data. Each function returns text of at least `size` characters.

`<|endoftext|>` begins a document (added by the encoder's caller); `<|im_start|>`, `<|im_end|>` delimit the messages of a chat.
"""
import facts
from grammar import World
from stories import story

CHARS_PER_TOKEN = 4.6  # upper bound: a document is cut at its length, never padded

SYSTEMS = ["You are Palimpsest, a teller of stories.", "Answer in one sentence.", "You are a helpful teller of stories.", "Answer the questions."]
SYSTEM, USER, MODEL, END = "<|im_start|>system\n", "<|im_start|>user\n", "<|im_start|>assistant\n", "<|im_end|>\n"


def saga(rng, size):
    """Consecutive stories: the same cast for a few of them, then another."""
    out, length, w = [], 0, None
    while length < size:
        if w is None or rng.random() < 0.3:
            w = World(rng)
        title, paragraphs = story(w)
        text = title + "\n\n" + "\n".join(paragraphs) + "\n\n"
        out.append(text)
        length += len(text)
    return "".join(out)


def quiz(rng, size):
    """Facts, stories and questions, mixed; a question is about some fact before it. Every line has a label, so that
    these rows are distinct from stories."""
    out, length = [], 0
    w = World(rng, 8)
    w.people = w.people[:rng.choice([3, 5, 8])] + w.people[6:]
    kinds = facts.KINDS if rng.random() < 0.7 else [rng.choice(facts.KINDS)] * 2
    many = 2 + min(30, size // rng.choice([100, 200, 500]))
    used = set()
    pool = facts.some(rng, min(many, 6 if len(set(kinds)) == 1 else many), w, kinds, used)
    told, times = [], rng.choice([1, 1, 2])  # facts to be asked for, and how often
    silent = rng.randint(1, max(1, int(size * 0.6))) if rng.random() < 0.6 else 0  # no question in this many characters
    filler, share = [], rng.choice([0.0, 0.2, 0.5]) if size > 800 else 0.0
    while length < size:
        x = rng.random()
        if not told or x < (1 - share) * (0.4 if length >= silent else 1):
            if not pool and length < silent:
                silent = 0
                continue
            if not pool:
                w = World(rng, 8)
                pool = facts.some(rng, many, w, kinds, used)
            if not pool:  # all facts of this kind are used
                used.clear()
                out.append("\n")
                told.clear()
                continue
            told += [pool.pop()] * times
            text = f"note: {told[-1].state(rng)}\n"
        elif x < 1 - share:
            fact = told.pop(rng.choice([0, rng.randrange(len(told))]))  # long distances are rarer otherwise
            text = f"question: {fact.ask(rng)}\nanswer: {fact.answer(rng)}\n"
        else:
            if not filler:
                filler = story(w)[1]
            text = "story: " + filler.pop(0)
            if pool and rng.random() < 0.3:  # a fact inside a story
                told += [pool.pop()] * times
                text += " " + told[-1].state(rng)
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
    out, length = [SYSTEM + rng.choice(SYSTEMS) + END] if rng.random() < 0.3 else [], 0
    while length < size:
        w, x = World(rng, 6), rng.random()
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


KINDS = {"saga": saga, "quiz": quiz, "lists": lists, "chat": chat}


if __name__ == "__main__":  # python documents.py saga 30000 > held-out.txt: a text of a kind from a seed that training never has
    import random
    import sys

    print(KINDS[sys.argv[1]](random.Random(f"held-out {sys.argv[1]}"), int(sys.argv[2])).replace("\x01", "").replace("\x02", ""))
