"""What is trained on when: stages by share of all tokens, each a row length, a mixture, and tokens in a step.

Induction (copying what followed last time) comes first, alone, out of repeated random tokens: stories need it for
their names as much as questions do. It needs many small steps; long rows come when it is there.
"""
from dataclasses import dataclass


@dataclass
class Stage:
    until: float  # share of the total tokens at which it ends
    length: int
    step: int  # tokens in a step
    mixture: dict


def mixture(saga, quiz, lists, chat, prose, repeats):
    return dict(saga=saga, quiz=quiz, lists=lists, chat=chat, prose=prose, repeats=repeats)


INDUCE = mixture(.15, 0, .10, 0, 0, .75)
EARLY = mixture(.34, .32, .08, .06, .08, .12)
MIDDLE = mixture(.44, .28, .05, .09, .10, .04)
LATE = mixture(.50, .24, .04, .10, .10, .02)

CPU = [
    Stage(.15, 256, 2048, INDUCE),
    Stage(.30, 256, 2048, EARLY),
    Stage(.75, 256, 2048, MIDDLE),
    Stage(.92, 512, 4096, MIDDLE),
    Stage(1.0, 2047, 4094, LATE),
]
# For a few million tokens on a machine that others use: the model keeps to 512 positions (export with --context 512).
BUSY = [
    Stage(.25, 256, 2048, INDUCE),
    Stage(.45, 256, 2048, EARLY),
    Stage(1.0, 512, 2048, MIDDLE),
]
GPU = [
    Stage(.03, 256, 8192, INDUCE),
    Stage(.10, 256, 16384, EARLY),
    Stage(.35, 256, 32768, MIDDLE),
    Stage(.60, 512, 65536, MIDDLE),
    Stage(.80, 1024, 65536, LATE),
    Stage(1.0, 2047, 65504, LATE),
]
CURRICULA = {"cpu": CPU, "busy": BUSY, "gpu": GPU}


def stage_at(stages, share):
    for i, s in enumerate(stages):
        if share < s.until:
            return i, s
    return len(stages) - 1, stages[-1]
