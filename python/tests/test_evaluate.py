import json
import subprocess
import sys

import numpy as np
import pytest
from conftest import STORY, command, command_json

import palimpsest
from palimpsest import evaluate


def test_perplexity_is_the_commands(model, tmp_path):
    (tmp_path / "text.txt").write_text(STORY * 20)
    ours = evaluate.perplexity(model, STORY * 20, "h2o", budget=64)
    theirs = command_json("eval", "perplexity", "-f", tmp_path / "text.txt", "--method", "h2o:budget=64")["runs"][0]
    assert ours["perplexity"] == pytest.approx(theirs["perplexity"], rel=1e-6)
    assert ours["evicted"] == theirs["evicted"] > 0
    assert len(ours["losses"]) == ours["predicted"]


def test_needle_is_the_commands(model):
    arguments = {"lengths": [256, 512], "depths": [0.25, 0.75], "samples": 2}
    ours = evaluate.needle(model, "h2o", budget=128, **arguments)
    theirs = command_json(
        *"eval needle --lengths 256 512 --depths 0.25 0.75 --samples 2 --method h2o:budget=128".split()
    )["runs"][0]
    assert [cell["right"] for cell in ours["cells"]] == [cell["right"] for cell in theirs["cells"]]
    for key in ("questions", "right", "evicted", "score", "cache_bytes_peak", "method"):
        assert ours[key] == theirs[key], key


def test_ruler_is_the_commands(model):
    words = "eval ruler --task niah-single-1 --length 384 --samples 4 --question-seen after --method streaming:budget=128"
    ours = evaluate.ruler(
        model, "streaming", budget=128, task="niah-single-1", length=384, samples=4, question_seen="after"
    )
    theirs = command_json(*words.split())["runs"][0]
    for key in ("evicted", "score", "cache_bytes_peak"):
        assert ours[key] == theirs[key], key
    assert "niah-single-1" in evaluate.ruler_tasks()


def test_sweep_is_the_commands(model, tmp_path):
    plan = {
        "each": {"budget": [64, 128]},
        "runs": [{
            "run": "eval needle --lengths 256 --depths 0.5 --samples 4 --method {method}",
            "each": {"method": ["full", "streaming:budget={budget}", "h2o:budget={budget}"]},
        }],
    }  # fmt: skip
    (tmp_path / "sweep.json").write_text(json.dumps(plan))
    command("sweep", tmp_path / "sweep.json", "-o", tmp_path / "out.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    theirs = {run["name"]: run for line in lines for run in line["result"]["runs"]}
    frame = evaluate.sweep(
        evaluate.facts, model, ["full", "streaming", "h2o"], [64, 128], lengths=[256], depths=[0.5], samples=4, progress=False
    )
    assert len(frame) == 5 == len(theirs)
    for row in frame.to_dict("records"):
        run = theirs[row["name"] if np.isnan(row["budget"]) else f"{row['name']}:budget={row['budget']:.0f}"]
        assert (row["right"], row["questions"], row["evicted"]) == (run["right"], run["questions"], run["evicted"])


def test_frames_print_whole():
    frame_of = pytest.importorskip("palimpsest._frame").Frame
    rows = [
        {"budget": 64 + i, "task": "needle", "method": "streaming:policy=recent," + "x" * 90, "score": i / 70, "score_low": 0.5,
         "score_high": 0.5, "evicted": 10**6 + i, "cache_bytes_peak": 10**9, "losses": np.arange(3), "cells": [{"depth": 0}]}
        for i in range(70)
    ]  # fmt: skip
    frame = frame_of(rows)
    for text in (repr(frame), repr(frame[["score", "method", "evicted"]]), frame._repr_html_()):
        assert "..." not in text
        assert "x" * 90 in text and "1000069" in text and "losses" not in text and "cells" not in text
    assert list(frame.columns) == list(rows[0])
    assert frame["losses"][3].tolist() == [0, 1, 2]


def test_sweep_over_compression_ratios(model):
    rows = evaluate.sweep(
        evaluate.perplexity, model, ["full", "streaming"], compression_ratios=[0.5], text=STORY, frame=False, progress=False
    )
    tokens = len(model.tokenize(STORY, special=False))
    assert [row["compression_ratio"] for row in rows] == [None, 0.5]
    assert rows[1]["perplexity"] == evaluate.perplexity(model, STORY, "streaming", budget=tokens // 2)["perplexity"]
    with pytest.raises(palimpsest.Error, match="two names of one thing"):
        evaluate.sweep(evaluate.perplexity, model, ["full"], [64], compression_ratios=[0.5], text=STORY)


def test_sweep_shows_progress(model, capfd):
    pytest.importorskip("tqdm")
    evaluate.sweep(evaluate.perplexity, model, ["full", "streaming"], [40, 64], text=STORY, frame=False)
    assert "3/3" in capfd.readouterr().err


def test_without_pandas_and_tqdm(model):
    code = """
import sys
sys.modules["pandas"] = sys.modules["tqdm"] = sys.modules["tqdm.auto"] = None
import palimpsest
rows = palimpsest.evaluate.sweep(palimpsest.evaluate.perplexity, palimpsest.Model(), ["full"], [64], text="One day it rained.")
assert isinstance(rows, list) and rows[0]["budget"] is None
"""
    subprocess.run([sys.executable, "-X", "dev", "-W", "error", "-c", code], check=True)


def test_wrong_arguments(model):
    with pytest.raises(palimpsest.Error, match="before or after"):
        evaluate.needle(model, question_seen="never")
    with pytest.raises(palimpsest.Error, match="unknown kind of needle"):
        evaluate.needle(model, kind="straw", lengths=[256], samples=1)
    with pytest.raises(palimpsest.Error, match="attention: only of sessions"):
        evaluate.facts(model, lengths=[256], samples=1, attention=True)
    with pytest.raises(palimpsest.Error, match="two tokens or more"):
        evaluate.perplexity(model, "")


def ages(draw, filler):
    name, age = draw.choice(["Edna", "Flora"]), draw.randint(20, 90)
    return evaluate.Asked(
        context=f"{name} is {age} years old. {filler(200)}",
        questions=[f"\n\nQuestion: How old is {name}?", "\n\nQuestion: What is it?"],
        starts=[f"{name} is", "It is"],
        check=lambda question, answer: float(question == 1 or str(age) in answer),
    )


def test_the_suite_is_the_commands_and_takes_tasks_of_ones_own(model, tmp_path):
    arguments = {"methods": ["h2o", "lagkv"], "length": 256, "samples": 2, "folder": tmp_path, "frame": False}
    rows = evaluate.suite(model, tasks=["passkey", "text"], own=[evaluate.Task("ages", ages)], **arguments)
    assert {row["task"] for row in rows} == {"passkey", "text", "ages"}
    lines = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    for row in rows:
        if row["task"] != "ages":
            assert row in [line.get("suite") for line in lines]
    own = {(row["method"], row["share"]): row for row in rows if row["task"] == "ages"}
    assert set(own) == {("full", 1), ("h2o", 0.25), ("lagkv", 0.25)}
    for (method, _), row in own.items():
        assert row["questions"] == 4 and 0.5 <= row["score"] <= 1 and row["low"] < row["score"]
        if method != "full":
            assert row["budget"] > 0 and row["cache_bytes"] < own["full", 1]["cache_bytes"]
    again = evaluate.suite(model, own=[evaluate.Task("ages", ages)], **arguments)
    assert [row["score"] for row in again] == [row["score"] for row in own.values()]
    assert (tmp_path / "report.md").exists()


def test_the_suite_says_what_is_wrong(model, tmp_path):
    with pytest.raises(palimpsest.Error, match="bench methods ended with code"):
        evaluate.suite(model, tasks=["facs"], folder=tmp_path)
    wrong = evaluate.Task("wrong", lambda draw, filler: evaluate.Asked(filler(50), ["\nWhat?"], lambda question, answer: 2.0))
    with pytest.raises(palimpsest.Error, match="numbers from 0 to 1"):
        evaluate.suite(model, own=[wrong], methods=["h2o"], length=256, samples=1, folder=tmp_path)
