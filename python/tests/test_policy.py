import json
import os
import pathlib
import subprocess
import time

import numpy as np
import pytest
from conftest import STORY

import palimpsest


@palimpsest.register("fading-max")
class FadingMax:
    """docs/write-a-policy.md's policy: the max weight received, decayed by one percent per query."""

    needs = "attention"

    def score(self, head):
        return np.maximum(head.score * np.float32(0.99) ** np.float32(head.inserted), head.attention)


def kept(model, session):
    heads = [(layer, head) for layer, count in enumerate(model.shape["kv_heads"]) for head in range(count)]
    return [np.asarray(session.positions(*each)).tolist() for each in heads]


def greedy(model, method, prompt, steps):
    session = model.session(method)
    token, written, start = int(session.prefill(prompt).argmax()), [], time.perf_counter()
    for _ in range(steps):
        written.append(token)
        token = int(session.decode(token).argmax())
    return session, written, (time.perf_counter() - start) / steps * 1000


def test_fading_max_keeps_what_the_cpp_one_keeps(model):
    """The program is python/tests/fading_max.cpp with the page's C++ policy; `make python-check` builds it."""
    program = os.environ.get("PALIMPSEST_FADING_MAX")
    if not program:
        pytest.skip("PALIMPSEST_FADING_MAX names no program: run make python-check")
    prompt = model.tokenize(STORY * 4)
    method = "random:policy=fading-max,budget=64"
    libraries = {"LD_LIBRARY_PATH": str(pathlib.Path(palimpsest.__file__).parent / "lib")}  # the package's
    words = [program, model.path, method, "600", *map(str, prompt)]
    out = subprocess.run(words, capture_output=True, check=True, env={**os.environ, **libraries})
    theirs = json.loads(out.stdout)
    session, written, ms = greedy(model, method, prompt, 600)
    assert written == theirs["tokens"]
    assert kept(model, session) == theirs["kept"]
    print(f"a step: {ms:.2f} ms in Python, {theirs['ms']:.2f} ms in C++")


def test_it_is_usable_everywhere(model):
    method = "random:policy=fading-max"
    assert "fading-max" in palimpsest.policies()
    generation = model.generate(STORY, max_tokens=80, method=method, budget=40, seed=1)
    assert generation.text and generation.session.statistics["evicted"] > 0
    story = model.generate("", max_tokens=600, method="full", seed=1, temperature=0.7, ignore_eos=True).text
    rows = palimpsest.evaluate.sweep(
        palimpsest.evaluate.perplexity, model, ["random", method], [64], text=story, frame=False, progress=False, chunk=1
    )
    assert rows[1]["perplexity"] < rows[0]["perplexity"]


def test_needs_are_delivered(model):
    seen = {}

    @palimpsest.register("see-all")
    class SeeAll:
        needs = {"keys": 0, "values": 0, "attention_window": 16, "attention_sum": 0}

        def score(self, head):
            seen.update(
                keys=head.keys, values=head.values, attention=head.attention, sum=head.attention_sum, positions=head.positions
            )
            with pytest.raises(palimpsest.Error, match="query_moments"):
                _ = head.query_mean
            seen["head"] = head
            return -head.positions.astype(np.float64)  # converted to float32

    session = model.session("random:policy=see-all", budget=40)
    session.prefill(model.tokenize(STORY))
    count = len(seen["positions"])
    assert seen["keys"].shape == (count, model.shape["key_width"])
    assert seen["values"].shape == (count, model.shape["value_width"])
    assert seen["attention"].shape == seen["sum"].shape == (count,)
    with pytest.raises(palimpsest.Error, match=r"only during score\(\)"):
        _ = seen["head"].keys


@pytest.mark.parametrize(
    ("result", "sentence"),
    [
        (lambda head: 1 / 0, "ZeroDivisionError"),
        (lambda head: np.zeros(3), "3 scores for"),
        (lambda head: None, "NoneType"),
        (lambda head: head.score + np.nan, "NaN"),
        (lambda head: head.keys, "name 'keys'"),
    ],
)
def test_exceptions_are_python_errors(model, result, sentence):
    class Bad:
        needs = ("attention",)

        def score(self, head):
            return result(head)

    palimpsest.register("bad", Bad)
    session = model.session("random:policy=bad", budget=40)
    with pytest.raises(palimpsest.Error, match=sentence) as caught:
        session.prefill(model.tokenize(STORY))
        for _ in range(3):
            session.decode(5)
    if sentence == "ZeroDivisionError":
        assert isinstance(caught.value, palimpsest.PolicyError)
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
        assert "policy 'bad' failed in score()" in str(caught.value)
    assert model.generate(STORY, max_tokens=10, budget=40).text  # the model goes on


def test_names_and_members_are_checked():
    for name, sentence in (("Bad Name", "lower-case"), ("h2o", "exists already"), ("none", "exists already")):
        with pytest.raises(palimpsest.Error, match=sentence):
            palimpsest.register(name, FadingMax)
    with pytest.raises(palimpsest.Error, match=r"no function score\(head\)"):
        palimpsest.register("no-score", object())


def test_unknown_needs(model):
    class Wrong:
        needs = "hidden"

        def score(self, head):
            return head.score

    with pytest.raises(palimpsest.Error, match="'hidden', which is unknown; there are: attention, "):
        palimpsest.register("wrong-needs", Wrong)
    Wrong.needs = "atention"
    with pytest.raises(palimpsest.Error, match="'atention', which is unknown; did you mean 'attention'?"):
        palimpsest.register("wrong-needs", Wrong)
    assert "wrong-needs" not in palimpsest.policies()

    class WrongInstance(Wrong):
        needs = property(lambda self: "atention")

    palimpsest.register("wrong-instance", WrongInstance)
    with pytest.raises(palimpsest.Error, match="did you mean 'attention'"):
        model.session("random:policy=wrong-instance", budget=40)
