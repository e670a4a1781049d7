"""Models by name, from a folder made by hand; the network is tested in C++ (tests/hub)."""

import json
import os

import pytest

import palimpsest


@pytest.fixture
def models(tmp_path, monkeypatch):
    """A folder of models with one: `tales` is a link to the default model."""
    monkeypatch.setenv("PALIMPSEST_MODELS", str(tmp_path))
    folder = tmp_path / "tales"
    folder.mkdir()
    (folder / "tales.gguf").symlink_to(palimpsest.default_model())
    file = {"name": "tales.gguf", "size": os.path.getsize(palimpsest.default_model()), "sha256": ""}
    record = {"name": "tales", "source": "here", "licence": "MIT", "files": [file]}
    (folder / "model.json").write_text(json.dumps(record))
    return tmp_path


def test_a_name_is_a_model(models):
    assert palimpsest.Model("tales").path == str(models / "tales" / "tales.gguf")
    assert [each["name"] for each in palimpsest.pulled()] == ["tales"]
    with pytest.raises(palimpsest.Error, match="did you mean 'tales'"):
        palimpsest.Model("tails")


def test_what_cannot_be_pulled_is_explained(models, monkeypatch):
    assert "smollm2" in palimpsest.catalogue()
    with pytest.raises(palimpsest.Error, match="did you mean 'smollm2'"):
        palimpsest.pull("smolm2")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(palimpsest.Error, match="cannot be reached"):
        palimpsest.pull("hf:some/model")
