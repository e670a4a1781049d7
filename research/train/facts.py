"""Facts in a text, and questions about them.

An answer repeats the plain statement word for word, and its subject is within four tokens before the value, so that a head
that copies what followed the last few tokens can answer.

A fact has a statement, a question, an answer, and the value inside the answer. The value is marked by \\x01 and \\x02,
which the encoder removes; they mark the recall tokens for loss weights and evaluation.
"""
import random

from grammar import World, article, fill
from lexicon import BOYS, COLOURS, FOODS, GIRLS, GOODS, HIDES, LIKES, MEN, PET_NAMES, PETS, THINGS, TOWNS, WOMEN

OPEN, CLOSE = "\x01", "\x02"


def mark(value):
    """` value` with its leading space inside the mark, because the space is part of the token."""
    return f"{OPEN} {value}{CLOSE}"


class Fact:
    """`says` are ways to state it, `asks` to ask; `answer` has one `@` for ` value`. `key` must be unique."""

    def __init__(self, kind, key, value, says, asks, answer, short):
        self.kind, self.key, self.value = kind, (kind, key), value
        self.says, self.asks, self.answer_form, self.short_form = says, asks, answer, short

    def state(self, rng):
        """Usually the plain statement, so that recall can be learned by copying; sometimes a paraphrase."""
        says = self.says[0] if rng.random() < 0.85 else rng.choice(self.says)
        return says.replace("@", " " + self.value)

    def ask(self, rng):
        return rng.choice(self.asks)

    def answer(self, rng, short=0.0):
        form = self.short_form if rng.random() < short else self.answer_form
        return form.replace("@", mark(self.value))


def hidden(rng, who, thing):
    n, t = who.name, thing
    return Fact("hidden", n + t.n, rng.choice(HIDES),
                [f"{n} hid the {t} in the@.", f"{n} took the {t} and put it in the@.", f"Nobody saw it, but {n} hid the {t} in the@."],
                [f"Where did {n} hide the {t}?", f"Where is the {t} that {n} hid?", f"Where did {n} put the {t}?"],
                f"{n} hid the {t} in the@.", "In the@.")


def likes(rng, who, thing):
    n = who.name
    return Fact("likes", n, rng.choice(FOODS),
                [f"{n} likes@ best of all.", f"Best of all {n} likes@.", f"Everyone knows that {n} likes@ more than anything."],
                [f"What does {n} like best of all?", f"What does {n} like best?"], f"{n} likes@ best of all.", f"{who.he.capitalize()} likes@.")


def number(rng, who, thing):
    n = who.name
    return Fact("number", n, str(rng.randint(100, 999)),
                [f"The secret number of {n} is@.", f"{n} has a secret number:@.", f"Remember this: the secret number of {n} is@."],
                [f"What is the secret number of {n}?", f"Which secret number does {n} have?"], f"The secret number of {n} is@.", "It is@.")


def coloured(rng, who, thing):
    n = who.name
    return Fact("colour", n + thing.n, rng.choice(COLOURS),
                [f"The {thing.n} of {n} is@.", f"{n} has a {thing.n}, and it is@."],
                [f"What colour is the {thing.n} of {n}?", f"Which colour has the {thing.n} of {n}?"], f"The {thing.n} of {n} is@.", "It is@.")


def pet(rng, who, thing):
    n, animal = who.name, rng.choice(PETS)
    return Fact("pet", n, rng.choice(PET_NAMES),
                [f"The {animal} of {n} is called@.", f"{n} has {article(animal)}, and it is called@."],
                [f"What is the name of the {animal} of {n}?", f"What is the {animal} of {n} called?"], f"The {animal} of {n} is called@.", "It is called@.")


def home(rng, who, thing):
    n = who.name
    return Fact("home", n, rng.choice(TOWNS),
                [f"{n} comes from@.", f"The home of {n} is@.", f"{n} was born far away, in@."],
                [f"Where does {n} come from?", f"What is the home of {n}?"], f"{n} comes from@.", "From@.")


def hobby(rng, who, thing):
    n = who.name
    return Fact("hobby", n, rng.choice(LIKES),
                [f"In the evening {n} enjoys@.", f"When the work is done, {n} enjoys@."],
                [f"What does {n} do in the evening?", f"What does {n} enjoy?"], f"In the evening {n} enjoys@.", f"{who.he.capitalize()} enjoys@.")


def work(rng, who, thing):
    n = who.name
    return Fact("work", n, rng.choice(WOMEN if who.female else MEN),
                [f"{n} is our@.", f"In the town {n} is known as the@."],
                [f"What is the work of {n}?", f"What does {n} do for the town?"], f"{n} is our@.", "The@.")


def stock(rng, who, thing):
    good = rng.choice(GOODS)
    return Fact("stock", good, str(rng.randint(11, 99)),
                [f"In the store the number of {good} is@.", f"There are {good} in the store, and their number is@."],
                [f"How many {good} are in the store?", f"What is the number of {good} in the store?"], f"In the store the number of {good} is@.", "There are@.")


def friend(rng, who, thing):
    n = who.name
    return Fact("friend", n, rng.choice([name for name in NAMES if name != n]),
                [f"The friend of {n} is@.", f"{n} has a friend, and the name of this friend is@."],
                [f"Who is the friend of {n}?", f"What is the name of the friend of {n}?"], f"The friend of {n} is@.", "It is@.")


NAMES = GIRLS + BOYS
KINDS = [hidden, hidden, likes, number, coloured, pet, home, hobby, work, stock, friend]


class Chain(Fact):
    """A question that needs two facts: who the friend of somebody is, and something about this friend. The answer says both."""

    def __init__(self, link, last, asks):
        answer = last.answer_form
        super().__init__("friend's " + last.kind, link.key[1], last.value, [], asks,
                         f"{link.answer_form[:-1].replace('@', ' ' + link.value)}, and {answer if answer.startswith(link.value) else answer[0].lower() + answer[1:]}", last.short_form)
        self.parts = [link, last]
        self.untold = [link, last]

    def complete_with(self, fact):
        """Whether both facts are told, now that `fact` is."""
        before = len(self.untold)
        self.untold = [f for f in self.untold if f is not fact]
        return before == 1 and not self.untold


LINKED = [likes, number, home, hobby, pet]  # kinds that a chain may end with


def chain(rng, who, kind, used=()):
    """None if one of the facts has a key in `used`."""
    link = friend(rng, who, None)
    other = Somebody(link.value, link.value in GIRLS)
    seed = rng.random()
    last, asked = (kind(random.Random(seed), p, None) for p in (other, Somebody("the friend of " + who.name, other.female)))
    return None if link.key in used or last.key in used else Chain(link, last, asked.asks)


class Somebody:
    def __init__(self, name, female):
        self.name, self.female, self.he = name, female, "she" if female else "he"


def chains(rng, count, world, used):
    """At most `count` chains; the keys of their facts are added to `used`."""
    out = []
    for who in rng.sample(world.people, min(count, len(world.people))):
        c = chain(rng, who, rng.choice(LINKED), used)
        if c:
            used.update(f.key for f in c.parts)
            out.append(c)
    return out


def mixed(rng, pool, chains):
    """The facts of `pool` and those of `chains` in random order."""
    out = pool + [f for c in chains for f in c.parts]
    rng.shuffle(out)
    return out


def table(rng, rows):
    """A small table `word: number` and one question form that reads a row."""
    names = rng.sample(sorted(set(GOODS + THINGS)), rows)
    return [(n, str(rng.randint(2, 99))) for n in names]


def some(rng, count, world=None, kinds=KINDS, used=None):
    """At most `count` facts with different keys, none of them in `used`, to which they are added. Values may repeat: they are the distractors."""
    w = world or World(rng, 8)
    out, seen = [], set() if used is None else used
    for _ in range(3 * count):
        if len(out) == count:
            break
        f = rng.choice(kinds)(rng, rng.choice(w.people), w.thing())
        if f.key not in seen:
            seen.add(f.key)
            out.append(f)
    return out
