"""Shared by the benchmark scripts: arguments, and result pages with one section per part."""
import argparse
import os
import re
import subprocess

from common import REPO, RESEARCH, RESULTS, Failed, commit, machine, say, today

ARGUMENTS = {
    "--program": {"default": str(REPO / "build" / "palimpsest")},
    "--threads": {"type": int, "default": os.cpu_count()},
    "--prefix": {"default": "", "help": "words before every measured command, for example 'chrt -r 1'"},
    "--folder": {"default": str(REPO / "out"), "help": "folder of random weights and samples"},
    "--smollm2": {"default": "smollm2", "metavar": "FILE|NAME", "help": "SmolLM2 135M Instruct, Q4_1: pulled unless it is there; none: left out"},
    "--gemma": {"default": "gemma3-270m", "metavar": "FILE|NAME", "help": "Gemma 3 270M, Q4_K_M, likewise"},
    "--add": {"action": "store_true", "help": "add to the samples of the last run (measure in several runs)"},
}


class Skip(Exception):
    """Names what is missing and how to get it."""


def parser(doc, parts=()):
    """A parser whose help is the script's docstring; `parts`: names that may be selected."""
    parse = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    if parts:
        parse.add_argument("parts", nargs="*", metavar="PART", help="parts to run: " + ", ".join(parts))
    return parse


def add(parse, *names, **changes):
    """Adds arguments that all scripts share."""
    for name in names:
        parse.add_argument(name, **{**ARGUMENTS[name], **changes})


def parsed(parse, parts):
    """The options; options.parts: the selected parts, or all."""
    options = parse.parse_args()
    unknown = [p for p in options.parts if p not in parts]
    if unknown:
        parse.error(f"unknown part {', '.join(unknown)}; parts: {', '.join(parts)}")
    options.parts = options.parts or list(parts)
    return options


def machine_part(name):
    """Part name of a machine's section, in pages with a section per machine."""
    return re.sub("[^a-z0-9]+", "-", name.lower()).strip("-")


class Page:
    """<folder>/<name>.md: one section per part, replaced when the part runs again. Sections are in the given order,
    others follow."""

    folder = RESULTS

    def __init__(self, name, title, intro, order=()):
        self.path, self.title, self.intro, self.order = self.folder / f"{name}.md", title, intro, order

    def put(self, part, title, lines, command=None, foot=None):
        text = self.path.read_text() if self.path.exists() else f"# {self.title}\n\n{self.intro}\n"
        foot = foot or f"*{f'`{command}`; ' if command else ''}{today()}, {machine()}, palimpsest {commit()}.*"
        new = "\n".join([f"<!-- part {part} -->", f"## {title}", "", *lines, foot, f"<!-- end {part} -->", ""])
        found = re.search(rf"<!-- part {part} -->\n.*?<!-- end {part} -->\n", text, re.S)
        if found:
            text = text[:found.start()] + new + text[found.end():]
        else:
            behind = self.order[self.order.index(part) + 1:] if part in self.order else []
            later = [text.find(f"<!-- part {p} -->") for p in behind]
            at = min([i for i in later if i >= 0], default=len(text))
            text = text[:at].rstrip() + "\n\n" + new + ("\n" + text[at:] if at < len(text) else "")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(text)


class ResearchPage(Page):
    """A page of research/results."""

    folder = RESEARCH


def work_through(parts, work, faults=()):
    """Calls work(part) for each part; failures are printed and do not stop the others. Returns the exit code: 1 if any failed."""
    failed = []
    for part in parts:
        say(part)
        try:
            work(part)
        except Skip as skip:
            say(f"{part}: skipped: {skip}")
        except (Failed, subprocess.TimeoutExpired, FileNotFoundError, *faults) as error:
            say(f"{part}: failed: {error!r}" if isinstance(error, faults) else f"{part}: failed: {error}")
            failed.append(part)
    return 1 if failed else 0
