"""What the scripts that measure have in common: their arguments, and pages of results that are made part by part."""
import argparse
import os
import re
import subprocess

from common import REPO, RESULTS, Failed, commit, machine, say, today

ARGUMENTS = {
    "--program": {"default": str(REPO / "build" / "palimpsest")},
    "--threads": {"type": int, "default": os.cpu_count()},
    "--prefix": {"default": "", "help": "words before every measured command, as in 'chrt -r 1'"},
    "--folder": {"default": str(REPO / "out"), "help": "where random weights and samples go"},
    "--add": {"action": "store_true", "help": "add to the samples of the last run: rounds in slices"},
}


class Skip(Exception):
    """What is missing, and how to get it."""


def parser(doc, parts=()):
    """Help is the script's own text; `parts` may be named one by one."""
    parse = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    if parts:
        parse.add_argument("parts", nargs="*", metavar="PART", help="of " + ", ".join(parts))
    return parse


def add(parse, *names, **changes):
    """Arguments that mean the same everywhere."""
    for name in names:
        parse.add_argument(name, **{**ARGUMENTS[name], **changes})


def parsed(parse, parts):
    """The options; options.parts: those asked for, or all."""
    options = parse.parse_args()
    unknown = [p for p in options.parts if p not in parts]
    if unknown:
        parse.error(f"no part {', '.join(unknown)}; there are {', '.join(parts)}")
    options.parts = options.parts or list(parts)
    return options


def machine_part(name):
    """The part that holds a machine's section, in a page that has one for each."""
    return re.sub("[^a-z0-9]+", "-", name.lower()).strip("-")


class Page:
    """docs/results/<name>.md: one section a part, each replaced when its part runs again; they lie in the order given, others
    after them."""

    def __init__(self, name, title, intro, order=()):
        self.path, self.title, self.intro, self.order = RESULTS / f"{name}.md", title, intro, order

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
        RESULTS.mkdir(parents=True, exist_ok=True)
        self.path.write_text(text)


def work_through(parts, work, faults=()):
    """work(part) for each; what fails or cannot run is said, the others run. The exit code: 1 if any failed."""
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
