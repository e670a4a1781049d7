"""A small template language: {a|b|c} picks one (nesting allowed), $name.attr reads from the environment.

A story has `Person` and `Thing` objects; an attribute with a capital letter (`$h.He`) capitalises.
Every choice comes from one `random.Random`, so that a seed determines the text.
"""
import re

from lexicon import (BOYS, COLOURS, FLAWS, FOODS, GIRLS, LIKES, MEN, PET_NAMES, PETS, PLACES, SIZES, THINGS, TOWNS, TRAITS, WOMEN)

INNER = re.compile(r"\{([^{}]*)\}")
AN = re.compile(r"\b([Aa])(?= (?:[aeiou]|honest)(?!ne\b|seful|sed\b))")
NAME = re.compile(r"\$(\w+)(?:\.(\w+))?")


def article(word):
    return AN.sub(r"\1n", "a " + word)


class Thing:
    def __init__(self, adjective, noun):
        self.n, self.adj, self.full = noun, adjective, f"{adjective} {noun}"
        self.the, self.a = f"the {self.full}", article(self.full)

    def __str__(self):
        return self.full


class Person:
    def __init__(self, rng, name, female, grown):
        self.name, self.female = name, female
        self.he, self.him, self.his = ("she", "her", "her") if female else ("he", "him", "his")
        self.kind = rng.choice(WOMEN if female else MEN) if grown else ("girl" if female else "boy")
        self.a = article(self.kind)
        self.trait, self.flaw = rng.choice(TRAITS), rng.choice(FLAWS)
        self.food, self.hobby, self.colour = rng.choice(FOODS), rng.choice(LIKES), rng.choice(COLOURS)
        self.pet, self.petname = rng.choice(PETS), rng.choice(PET_NAMES)
        self.parent = rng.choice(["mother", "father", "grandmother", "grandfather", "aunt", "uncle"])

    def __str__(self):
        return self.name


FRESH = 12  # stories in which a name or town does not come back: 3,000 tokens and more


class World:
    """The cast and facts of a story or document; names and things are unique. After the world `before`, everyone is new: a cast that
    stays for several stories teaches the model to copy names into the next story, until all people of a stream have one name."""

    def __init__(self, rng, people=4, before=None):
        self.rng = rng
        self.used = before.used[-FRESH:] if before else []  # names and towns of the stories so far
        used = set().union(*self.used)
        fresh = lambda names: [n for n in names if n not in used]
        girls, boys = rng.sample(fresh(GIRLS), people), rng.sample(fresh(BOYS), people)
        self.people = []
        for i in range(people):
            female = rng.random() < 0.5
            self.people.append(Person(rng, girls[i] if female else boys[i], female, i >= 2))
        self.town = rng.choice(fresh(TOWNS))
        self.used = self.used + [{self.town, *(p.name for p in self.people)}]
        self.told = before.told if before else []  # the titles used so far
        self.nouns = rng.sample(THINGS, len(THINGS))
        self.places = rng.sample(PLACES, len(PLACES))

    def thing(self):
        if not self.nouns:
            self.nouns = self.rng.sample(THINGS, len(THINGS))
        return Thing(self.rng.choice(COLOURS + SIZES), self.nouns.pop())

    def place(self):
        if not self.places:
            self.places = self.rng.sample(PLACES, len(PLACES))
        return self.places.pop()


def fill(rng, text, env):
    """Expands choices from the inside out, then names. An unknown name in a template raises."""
    while True:
        text, n = INNER.subn(lambda m: rng.choice(m.group(1).split("|")), text)
        if not n:
            break

    def value(m):
        item, attr = env[m.group(1)], m.group(2)
        if attr is None:
            return str(item)
        if attr[0].isupper():
            got = getattr(item, attr.lower())
            return got[0].upper() + got[1:]
        return getattr(item, attr)

    return AN.sub(r"\1n", NAME.sub(value, text))
