"""`python -m palimpsest ...` is the command `palimpsest`."""

from __future__ import annotations

import os
import pathlib
import sys


def main() -> None:
    """Replaces this process by the command."""
    program = pathlib.Path(__file__).parent / "bin" / "palimpsest"
    os.execv(program, ["palimpsest", *sys.argv[1:]])


if __name__ == "__main__":
    main()
