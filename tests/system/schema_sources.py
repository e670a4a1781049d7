"""Schemas to test with: the official test suite, JSONSchemaBench, tools of MCP servers, random ones.

Each is a Case; sources() are the same at every run, for the same checkout.
"""
import dataclasses
import json
import pathlib
import random

DRAFT = "https://json-schema.org/draft/2020-12/schema"


@dataclasses.dataclass
class Case:
    id: str
    schema: str                                       # one line of JSON
    valid: list = dataclasses.field(default_factory=list)    # instances, as texts
    invalid: list = dataclasses.field(default_factory=list)


def one_line(text):
    return " ".join(text.splitlines())


def suite(folder):
    """JSON-Schema-Test-Suite, draft 2020-12, without the optional tests."""
    out = []
    for path in sorted((pathlib.Path(folder) / "tests" / "draft2020-12").glob("*.json")):
        for i, group in enumerate(json.loads(path.read_text())):
            case = Case(f"{path.stem}[{i}] {group['description']}", json.dumps(group["schema"]))
            for test in group["tests"]:
                (case.valid if test["valid"] else case.invalid).append(
                    json.dumps(test["data"], separators=(",", ":"), ensure_ascii=False))
            out.append(case)
    return out


def bench(folder, count=500, seed=1):
    """JSONSchemaBench: `count` of its schemas."""
    root = pathlib.Path(folder) / "data"
    names = sorted(str(path.relative_to(root)) for path in root.glob("*/*.json"))
    chosen = sorted(random.Random(seed).sample(names, min(count, len(names))))
    return [Case(name, one_line((root / name).read_text())) for name in chosen]


def tools(path):
    """A file of lines {"server", "tool", "schema"}, as schema_tools.py writes it."""
    return [Case(f"{line['server']}: {line['tool']}", json.dumps(line["schema"]))
            for line in map(json.loads, pathlib.Path(path).read_text().splitlines())]
