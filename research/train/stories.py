"""Renders a plot with a cast. `story` returns a title and paragraphs."""
import interludes
from grammar import fill
from lexicon import FOODS, OUTSIDE, PETS, PET_NAMES, SMALL, TIMES, TREES, WEATHER, WILD
from plots import PLOTS


OPENINGS = [
    "{Once upon a time|Long ago|Many years ago}, {in the town of $town|in a village called $town|near $town}, there lived {$h.a named $h|$h, who was $h.trait but a little $h.flaw}. {$h.His best friend was $f|$h.He had a friend whose name was $f}, and {they lived in the same street|they saw each other every day}.",
    "$h lived in $town, {not far from the $p|in a small house near the $p|with $h.his $h.parent}. {$h.He was $h.trait, and $h.he liked $h.hobby.|$h.He liked nothing so much as $h.hobby.} {Next door lived $f|$f was $h.his friend}, {who was $f.trait|who liked $f.hobby}.",
    "This is a story about $h, {$h.a|a $h.trait $h.kind} {from $town|who lived in $town}. {It happened when $h was $age years old.|People there still tell it.}",
    "",
]
CLOSINGS = ["", "", "", "That is the end of the story of $h{| and $f}.", "And {if you go to $town, you can still hear the story|that is how it was}.", "And they lived {happily|in peace} for many years."]


def setting(w, hero=None):
    rng = w.rng
    young, grown = w.people[:2], w.people[2:]
    cast = rng.sample(young, 2) if hero is None else [hero] + [p for p in young if p is not hero][:1]
    cast.append(rng.choice([p for p in grown if p is not hero]))
    pet, made = rng.choice(PETS), rng.choice(["boat", "bridge", "cart", "tower", "raft"])
    time = rng.choice(TIMES)
    return dict(h=cast[0], f=cast[1], g=cast[2], o=w.thing(), u=w.thing(), p=w.place(), q=w.place(), r=w.place(), out=rng.choice(OUTSIDE),
                town=w.town, weather=rng.choice(WEATHER), time=time, when=time[0].lower() + time[1:], n=rng.choice(SMALL), wild=rng.choice(WILD),
                tree=rng.choice(TREES), food=rng.choice(FOODS), fruit=rng.choice(["plums", "apples", "cherries", "nuts", "pears"]),
                pet=pet, petname=rng.choice(PET_NAMES), Pet=pet.capitalize(), made=made, Made=made.capitalize(), age=rng.choice(SMALL[3:]),
                instrument=rng.choice(["drum", "flute", "fiddle", "horn"]))


def interlude(w, env, text):
    rng = w.rng
    fresh = dict(env, weather=rng.choice(WEATHER), tree=rng.choice(TREES), wild=rng.choice(WILD), food=rng.choice(FOODS), pet=rng.choice(PETS), n=rng.choice(SMALL))
    return fill(rng, text, fresh)


def story(w, hero=None):
    """(title, paragraphs) with the cast of world `w`, which can be reused."""
    rng = w.rng
    env = setting(w, hero)
    title, beats = rng.choice([p for p in PLOTS if p[0] not in w.told[-20:]])
    w.told.append(title)
    title = fill(rng, title, dict(env, o=_Titled(env["o"])))
    title = title[0].upper() + title[1:]
    told, scenes = [fill(rng, rng.choice(OPENINGS), env)], set()
    for beat in beats:
        if beat[0] == "?":
            if rng.random() < 0.5:
                continue
            beat = beat[1:]
        if beat[0] in "~^":
            kinds = interludes.TOGETHER if beat[0] == "~" else interludes.ALONE
            beat = beat[1:]
            for text in rng.sample([k for k in kinds if k not in scenes], rng.choice([0, 0, 1, 1, 2])):
                scenes.add(text)  # once in a story
                told.append(interlude(w, env, text))
        env["weather"] = rng.choice(WEATHER)
        told.append(_tidy(fill(rng, beat, env)))
    told.append(fill(rng, rng.choice(CLOSINGS), env))
    return title, _paragraphs(rng, [t for t in told if t])


class _Titled:
    def __init__(self, thing):
        self.n = thing.n.capitalize()

    def __str__(self):
        return self.n


def _tidy(text):
    text = " ".join(text.split())
    return text[0].upper() + text[1:]


def _paragraphs(rng, told):
    """Joins some beats, so that paragraphs and beats differ."""
    out = []
    for t in told:
        if out and rng.random() < 0.25:
            out[-1] += " " + t
        else:
            out.append(t)
    return out
