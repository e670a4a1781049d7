#!/usr/bin/env python3
"""The papers' tables and figures, at shapes that this machine can run, ours beside theirs in one run.

  make bench-papers                                    everything: about 25 minutes on 2 cores
  make bench-papers PAPERS_ARGS=--quick                smaller and fewer: a few minutes, and rougher
  make bench-papers PAPERS_ARGS='table5 fig7a'         some parts; the others' sections stay as they are


Writes docs/results/equip.md, lazy.md, sparse.md, paged-eviction.md and ems.md, one section a part, and their plots. Every ratio is
of two sides whose rounds alternate in one process; the cell gives its median (least-most). PyTorch's side is measured before by
bench/papers/torch_baselines.py, where it can be had.
"""
import sys

import ems
import equip
import equip_kernels
import lazy
import paged
import sparse
import torch_report
from engine import Effort, Engine, program

import parts as script
from parts import Page

EQUIP = Page("equip", "EQUIP: its figures and tables at our scale",
             "Made by `make bench-papers` (bench/papers), part by part. The baselines are ours, as the paper describes them: the survivors "
             "are shifted (StreamingLLM) or gathered (H2O) in every step and every kept key is rotated anew; in C++, with the same kernels "
             "otherwise. Ratios: median (least–most) of interleaved rounds.",
             ["torch", "table5", "table6", "fig3", "fig4", "fig7a", "fig7b", "fig8a", "fig8b", "table1", "table3", "table4", "full", "d3"])
LAZY = Page("lazy", "Lazy Pruning: its tables at our scale", "Made by `make bench-papers` (bench/papers), part by part.",
            ["lazy1", "lazyA1", "lazyA2", "lazyA3", "lazyOwn"])
SPARSE = Page("sparse", "Sparse eviction: the blog's table in our engine", "Made by `make bench-papers` (bench/papers).", ["blog"])
PAGED = Page("paged-eviction", "PagedEviction: its figures at our scale", "Made by `make bench-papers` (bench/papers), part by part.", ["paged3", "paged4", "pool"])
EMS = Page("ems", "EMS: its table 3 at our scale, and what merging costs", "Made by `make bench-papers` (bench/papers), part by part.", ["ems3", "merged", "score", "upkeep"])

PARTS = {
    "torch": (EQUIP, torch_report.baselines), "table5": (EQUIP, equip_kernels.table_5), "table6": (EQUIP, equip_kernels.table_6),
    "fig3": (EQUIP, equip.figure_3), "fig4": (EQUIP, equip.figure_4), "fig7a": (EQUIP, equip.figure_7a),
    "fig7b": (EQUIP, equip.figure_7b), "fig8a": (EQUIP, equip.figure_8a), "fig8b": (EQUIP, equip.figure_8b),
    "table1": (EQUIP, equip.table_1), "table3": (EQUIP, equip.table_3), "table4": (EQUIP, equip.table_4), "full": (EQUIP, equip.full_cache), "d3": (EQUIP, equip.scaling),
    "lazy1": (LAZY, lazy.table_1), "lazyA1": (LAZY, lazy.table_a1), "lazyA2": (LAZY, lazy.table_a2), "lazyA3": (LAZY, lazy.table_a3),
    "lazyOwn": (LAZY, lazy.own),
    "blog": (SPARSE, sparse.blog), "paged3": (PAGED, paged.figure_3), "paged4": (PAGED, paged.figure_4), "pool": (PAGED, paged.one_pool),
    "ems3": (EMS, ems.table_3), "merged": (EMS, ems.merged), "score": (EMS, ems.global_score), "upkeep": (EMS, ems.upkeep),
}


class Options:
    def __init__(self, given):
        self.threads, self.build = given.threads, given.build
        self.effort = Effort(given.quick)
        self.engine = Engine(given.program, given.threads, self.effort, given.prefix, given.keep)


def main():
    parse = script.parser(__doc__, PARTS)
    parse.add_argument("--quick", action="store_true")
    script.add(parse, "--threads")
    script.add(parse, "--program", default=program())
    parse.add_argument("--build", default="build", help="folder of the benches")
    script.add(parse, "--prefix")
    parse.add_argument("--keep", metavar="FOLDER", help="keep what was measured there, and go on from there: for measuring in pieces")
    given = script.parsed(parse, PARTS)
    options = Options(given)

    def work(name):
        page, part = PARTS[name]
        options.engine.times_run.clear()  # parts share what --keep has of the same command
        lines, command = part(options)
        page.put(name, part.__doc__ + (" (the quick form)" if given.quick else ""), lines, command)

    sys.exit(script.work_through(given.parts, work))


if __name__ == "__main__":
    main()
