#!/usr/bin/env python3
"""Builds the documentation's site in out/site: pages by MkDocs, C++ reference by Doxygen. Broken links and warnings are errors.

usage: tools/site/build.py [--check]      --check: also spelling, and the commands in the pages (needs build/palimpsest)"""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/setup"))
import environment  # noqa: E402

PACKAGES = ["mkdocs==1.6.1", "mkdocs-material==9.8.2", "codespell==2.4.3"]


def run(*command):
    done = subprocess.run(command, cwd=ROOT, env=dict(os.environ, NO_MKDOCS_2_WARNING="1"), check=False)
    if done.returncode:
        sys.exit(f"site: failed: {' '.join(map(str, command[:4]))}")


def main():
    try:
        environment.enter("site", PACKAGES, "about 30 MB")
    except environment.Unavailable as error:
        sys.exit(f"site: {error}")
    run(sys.executable, "-m", "mkdocs", "build", "--quiet", "--clean", "-f", "tools/site/mkdocs.yml")
    run("tools/env", "--add", "doxygen")
    (ROOT / "out/site/reference").mkdir(parents=True, exist_ok=True)
    run("tools/env", "doxygen", "tools/site/Doxyfile")
    print("out/site/index.html", flush=True)
    if "--check" in sys.argv:
        pages = [p for where in (".", "models", "docs", "docs/decisions") for p in sorted((ROOT / where).glob("*.md"))]
        run(pathlib.Path(sys.executable).with_name("codespell"), "--ignore-words", "tools/site/words.txt", *pages)
        run(sys.executable, "tools/site/commands.py")


if __name__ == "__main__":
    main()
