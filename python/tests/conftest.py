import json
import subprocess
import sys

import pytest

import palimpsest


@pytest.fixture(scope="session")
def model():
    return palimpsest.Model()


def command(*words, code=0):
    """What the command prints; the command is this package's."""
    ended = subprocess.run([sys.executable, "-m", "palimpsest", *map(str, words)], capture_output=True, text=True)
    assert ended.returncode == code, ended.stderr
    return ended.stdout


def command_json(*words):
    return json.loads(command(*words, "--json"))


STORY = """This is a story about Edna, a girl from Selby. After the harvest, Edna looked everywhere for her pretty ribbon.
She had owned it for six years, and she loved it. note: Flora hid the yellow saw in the orchard. Then Edna went home.
"""
