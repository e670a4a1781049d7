"""What is trained on when: stages by share of all tokens, each a row length, a mixture, and tokens in a step.

Induction needs many small steps on short rows with dense questions; long rows come when it is there.
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


EARLY = mixture(.32, .28, .08, .06, .08, .18)
MIDDLE = mixture(.42, .26, .05, .09, .12, .06)
LATE = mixture(.48, .22, .04, .10, .14, .02)

CPU = [
    Stage(.20, 256, 2048, EARLY),
    Stage(.60, 256, 2048, MIDDLE),
    Stage(.82, 512, 4096, MIDDLE),
    Stage(.93, 1024, 4096, LATE),
    Stage(1.0, 2047, 4094, LATE),
]
GPU = [
    Stage(.05, 256, 16384, EARLY),
    Stage(.30, 256, 32768, MIDDLE),
    Stage(.55, 512, 65536, MIDDLE),
    Stage(.75, 1024, 65536, LATE),
    Stage(1.0, 2047, 65504, LATE),
]
CURRICULA = {"cpu": CPU, "gpu": GPU}


def stage_at(stages, share):
    for i, s in enumerate(stages):
        if share < s.until:
            return i, s
    return len(stages) - 1, stages[-1]
