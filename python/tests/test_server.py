"""The same answers from Python, the command and the server; policies of this process in a server."""

import json
import urllib.error
import urllib.request

import numpy as np
import pytest
from conftest import command_json

import palimpsest

PEOPLE = ["Flora", "Olive", "Edna", "Basil", "Hazel"]
THINGS = ["yellow saw", "red kite", "small drum", "old lamp"]
PLACES = ["orchard", "barn", "cellar", "mill", "garden", "attic", "well", "shed", "tower", "boat"]
QUESTIONS = [
    f"note: {who} hid the {what} in the {where}.\nquestion: Where did {who} hide the {what}?\nanswer:"
    for who in PEOPLE for what in THINGS for where in PLACES
]  # fmt: skip


def post(server, path, body):
    request = urllib.request.Request(server.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as reply:
        return json.load(reply)


@pytest.fixture(scope="module")
def server(model):
    with palimpsest.Server(model) as running:
        yield running


def test_200_questions_have_the_same_answers(model, server):
    assert len(QUESTIONS) == 200
    answers = [model.generate(q, max_tokens=16, temperature=0, method="h2o", budget=128, stop="\n\n").text for q in QUESTIONS]
    served = [
        post(server, "/v1/completions", {
            "prompt": q, "max_tokens": 16, "temperature": 0, "stop": "\n\n", "cache": {"method": "h2o", "budget": 128},
        })["choices"][0]["text"]
        for q in QUESTIONS
    ]  # fmt: skip
    assert served == answers
    printed = [
        command_json(
            "run", "--raw", "-p", q, "-n", 16, "--temp", 0, "--method", "h2o:budget=128", "--stop", "\n\n"
        )["text"]
        for q in QUESTIONS
    ]  # fmt: skip
    assert printed == answers
    assert len(set(answers)) > 100  # the model answers, and does not repeat itself


def test_a_policy_of_this_process(model, server):
    @palimpsest.register("served")
    class Served:
        needs = "attention"

        def score(self, head):
            return np.maximum(head.score, head.attention)

    cache = {"method": "random:policy=served", "budget": 40}
    body = {"prompt": QUESTIONS[0] * 4, "max_tokens": 60, "temperature": 0, "ignore_eos": True, "cache": cache}
    served = post(server, "/v1/completions", body)["choices"][0]["text"]
    ours = model.generate(
        QUESTIONS[0] * 4, max_tokens=60, temperature=0, ignore_eos=True, method="random:policy=served", budget=40
    )
    assert served == ours.text


def test_an_exception_ends_the_request_only(server):
    @palimpsest.register("served-badly")
    class Bad:
        needs = "attention"

        def score(self, head):
            raise RuntimeError("not today")

    cache = {"method": "random:policy=served-badly", "budget": 40}
    with pytest.raises(urllib.error.HTTPError) as caught:
        post(server, "/v1/completions", {"prompt": QUESTIONS[0] * 4, "max_tokens": 60, "ignore_eos": True, "cache": cache})
    assert "policy 'served-badly' failed in score()" in caught.value.read().decode()
    assert post(server, "/v1/completions", {"prompt": "One day", "max_tokens": 4})["choices"]


def test_a_port_that_is_taken(model, server):
    with pytest.raises(palimpsest.Error, match=str(server.port)):
        palimpsest.Server(model, port=server.port)
