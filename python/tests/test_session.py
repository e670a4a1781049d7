import numpy as np
import pytest
from conftest import STORY, command_json

import palimpsest


def decoded(model, method="full", **options):
    session = model.session(method, **options)
    for token in model.tokenize(STORY):
        session.decode(token)
    return session


def test_steps_and_prefill_agree(model):
    tokens = model.tokenize(STORY)
    rows = model.logits(tokens)
    session = model.session("full")
    np.testing.assert_allclose(session.prefill(tokens[:20]), rows[19], atol=2e-2)
    np.testing.assert_allclose(session.decode(tokens[20]), rows[20], atol=2e-2)
    assert session.position == 21 and session.tokens == tokens[:21]


def test_rewind(model):
    tokens = model.tokenize(STORY)
    session = model.session("full")
    session.prefill(tokens[:30])
    keys = session.keys(5, 1).copy()
    first = session.decode(tokens[30])
    session.rewind(30)
    np.testing.assert_array_equal(session.keys(5, 1), keys)
    # The order of sums may differ, and with it the rounding of activations to 8 bits.
    np.testing.assert_allclose(session.decode(tokens[30]), first, atol=0.02 * np.abs(first).max())
    with pytest.raises(palimpsest.Error, match="not in the text"):
        session.rewind(1000)


def test_edit(model):
    tokens = model.tokenize(STORY)
    new = [5, 6, 7]
    wanted = tokens[:10] + new + tokens[12:30]
    fresh = model.session("full")
    logits = fresh.prefill(wanted)
    for mode in ("exact", "reuse"):
        session = model.session("full")
        session.prefill(tokens[:30])
        read = session.edit(10, 12, new, mode=mode)
        assert session.tokens == wanted and session.position == len(wanted)
        if mode == "exact":
            np.testing.assert_allclose(read, logits, atol=0.02 * np.abs(logits).max())
        np.testing.assert_allclose(session.keys(0, 0), fresh.keys(0, 0), atol=2e-2)  # a layer that sees no context
    session.edit(0, 10)
    assert session.tokens == wanted[10:]
    for first, last in ((5, 4), (0, 1000)):
        with pytest.raises(palimpsest.Error, match="range|beyond|order"):
            session.edit(first, last, [1])
    assert session.tokens == wanted[10:]
    with pytest.raises(palimpsest.Error, match="mode"):
        session.edit(0, 1, mode="fast")


def test_layer_by_layer(model):
    tokens = model.tokenize(STORY)
    rows = [model.session("snapkv", budget=48, layerwise=layerwise).prefill(tokens) for layerwise in (False, True)]
    np.testing.assert_array_equal(*rows)
    with pytest.raises(palimpsest.Error, match="layerwise"):
        model.session("h2o", layerwise=True)


def test_fork(model):
    session = decoded(model, "h2o", budget=32)
    copy = session.fork()
    np.testing.assert_array_equal(session.decode(5), copy.decode(5))
    copy.decode(7)
    assert copy.position == session.position + 1
    assert session.tokens == copy.tokens[:-1]


def test_save_and_restore(model, tmp_path):
    session = decoded(model, "h2o", budget=32)
    session.save(tmp_path / "a.snap")
    other = model.session("h2o", budget=32)
    other.restore(tmp_path / "a.snap")
    np.testing.assert_array_equal(session.decode(5), other.decode(5))
    assert session.tokens == other.tokens
    with pytest.raises(palimpsest.Error, match="method"):
        model.session("h2o", budget=40).restore(tmp_path / "a.snap")


def test_the_command_continues_a_saved_generation(model, tmp_path):
    whole = model.generate("One day", max_tokens=60, seed=4, ignore_eos=True).text
    half = model.generate("One day", max_tokens=30, seed=4, ignore_eos=True)
    assert half.text == whole[: len(half.text)]
    half.save(tmp_path / "half.snap")
    rest = command_json("run", "--restore", tmp_path / "half.snap", "-n", 30, "--ignore-eos", "-p", "", "--method", "streaming")
    assert half.text + rest["text"] == whole


def test_arrays_of_a_step(model):
    session = decoded(model, "h2o", budget=32, attention=True)
    shape = model.shape
    for layer in range(shape["layers"]):
        for head in range(shape["kv_heads"][layer]):
            positions = np.asarray(session.positions(layer, head))
            assert len(positions) == 32 and np.all(np.diff(positions) > 0) and positions[-1] == session.position - 1
            assert session.keys(layer, head).shape == (32, shape["key_width"])
            assert session.values(layer, head).shape == (32, shape["value_width"])
            assert session.scores(layer, head).shape == (32,)
            assert float(np.sum(session.attention(layer, head))) == pytest.approx(1, abs=1e-3)


def test_weights_do_not_change_the_text(model):
    plain = model.generate(STORY, max_tokens=100, seed=1, budget=64)
    kept = model.generate(STORY, max_tokens=100, seed=1, budget=64, attention=True)
    assert plain.text == kept.text


def test_attention_is_softmax_of_keys(model):
    """In a layer without an earlier token there is one weight, 1; with two tokens the weights sum to 1 and differ by head."""
    session = model.session("full", attention=True)
    session.decode(model.tokenize("One")[0])
    assert session.attention(0, 0)[0] == pytest.approx(1)
    session.decode(5)
    assert session.attention(0, 0).shape == (2,)


def test_late_access_is_an_error(model):
    session = decoded(model, attention=True)
    keys, weights = session.keys(0, 0), session.attention(0, 0)
    raw, kept = np.asarray(keys), keys.copy()
    session.decode(3)
    for late in (keys, weights):
        with pytest.raises(palimpsest.StepPassed, match="copy"):
            np.asarray(late)
        with pytest.raises(palimpsest.StepPassed):
            late[0]
    for _ in range(100):
        session.keys(0, 0)  # the memory of `raw` is not reused
    np.testing.assert_array_equal(raw, kept)


def test_there_are_weights_only_if_asked_for(model):
    session = decoded(model)
    with pytest.raises(palimpsest.Error, match="attention=True"):
        session.attention(0, 0)
    with pytest.raises(palimpsest.Error, match="KV heads"):
        session.keys(0, 99)


def test_tokens_are_checked(model):
    session = model.session()
    for tokens, sentence in (([], "no tokens"), ([-1], "not in the vocabulary"), ([10**6], "not in the vocabulary")):
        with pytest.raises(palimpsest.Error, match=sentence):
            session.prefill(tokens)


def test_memory_map(model):
    session = decoded(model, "h2o", budget=32, record_memory=True)
    memory = session.memory_map(layer=1, head=0)
    held = np.zeros(session.position, np.int64)
    for layer in range(model.shape["layers"]):
        for head in range(model.shape["kv_heads"][layer]):
            held[np.asarray(session.positions(layer, head))] += 1
    np.testing.assert_array_equal(memory.kept, held)
    assert memory.ids.tolist() == session.tokens and memory.next == session.position
    assert memory.share.max() == 1 and memory.share.min() == 0
    np.testing.assert_array_equal(memory.evicted_at >= 0, held == 0)
    gone = np.flatnonzero(held == 0)
    assert np.all(memory.evicted_at[gone] > gone) and np.all(memory.evicted_at[gone] <= memory.next)
    np.testing.assert_array_equal(memory.head.positions, session.positions(1, 0))
    np.testing.assert_array_equal(memory.head.scores, session.scores(1, 0))
    assert len(set(memory.head.slots)) == 32 and np.all(memory.head.into == -1)
    assert 0 < memory.cache_bytes <= memory.limit_bytes and memory.full_bytes > 0
    session.decode(3)
    assert len(memory.ids) == session.position - 1  # the map stays

    part = session.memory_map(first=10, count=5)
    assert part.first == 10 and len(part.ids) == 5 and part.head is None
    np.testing.assert_array_equal(part.ids, session.tokens[10:15])
    assert session.fork().memory_map().ids.tolist() == session.tokens
    with pytest.raises(palimpsest.Error, match="layer and head"):
        session.memory_map(layer=1)
    with pytest.raises(palimpsest.Error, match="no layer 99"):
        session.memory_map(99, 0)


def test_memory_map_shows_sinks_and_pins(model):
    memory = decoded(model, "streaming", budget=40, pin="10-19").memory_map()
    assert np.flatnonzero(memory.sink).tolist() == [0, 1, 2, 3] and memory.sink.dtype == bool
    assert np.flatnonzero(memory.pinned).tolist() == list(range(10, 20))
    assert np.all(memory.share[memory.pinned] == 1) and np.all(memory.evicted_at == -1)


def test_the_fading_text(model):
    from palimpsest.notebook import fading_text

    generation = model.generate("<The> Lost & Kite", max_tokens=90, method="h2o", budget=40, seed=1)
    assert generation.text
    page = generation._repr_html_()
    assert page == fading_text(generation.session)._repr_html_()
    assert "&lt;" in page and "&amp;" in page and "opacity:1.00" in page and "opacity:0.15" in page
