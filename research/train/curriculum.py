"""Stages of training by fraction of all tokens: row length, mixture, tokens per step.

Short rows with many questions first, in small steps, while the circuit of wire.py adapts to real words. What it learns
generalises to four times the length, so the long rows need few steps.
"""
from dataclasses import dataclass


@dataclass
class Stage:
    until: float  # fraction of the total tokens at which it ends
    length: int
    step: int  # tokens per step
    mixture: dict


def mixture(saga, quiz, lists, chat, prose, repeats, haystack=0, far=0, doubles=0):
    return dict(saga=saga, quiz=quiz, lists=lists, chat=chat, prose=prose, repeats=repeats, haystack=haystack, far=far,
                doubles=doubles)


COPY = mixture(.25, .50, .12, .03, .05, .05)
EARLY = mixture(.38, .36, .05, .07, .10, .04)
MIDDLE = mixture(.46, .28, .04, .09, .10, .03)
LATE = mixture(.50, .25, .03, .10, .10, .02)
ALL = mixture(.46, .25, .01, .04, .07, .01, .16)
FAR = mixture(.30, .18, .01, .03, .04, .01, .13, .30)
LAST = mixture(.42, .22, .01, .03, .04, .01, .20, .07)
FINAL = mixture(.36, .36, .01, .03, .04, .01, .06, .04, .09)

CPU = [  # for few tokens: 5.5e6
    Stage(.22, 128, 2048, COPY),
    Stage(.66, 256, 2048, EARLY),
    Stage(.76, 512, 2048, MIDDLE),
    Stage(.82, 1024, 4096, MIDDLE),
    Stage(1.0, 2047, 4094, LATE),
]
LONG = [  # for 87e6 tokens
    Stage(.04, 128, 2048, COPY),
    Stage(.20, 256, 2048, EARLY),
    Stage(.48, 512, 8192, ALL),
    Stage(.61, 1024, 8192, ALL),
    Stage(.69, 2047, 8188, ALL),
    Stage(.75, 512, 4096, FAR),
    Stage(.83, 1024, 8192, LAST),
    Stage(.93, 2047, 8188, LAST),
    Stage(1.0, 2047, 8188, FINAL),
]
GPU = [  # not tested with wire.py
    Stage(.03, 256, 8192, COPY),
    Stage(.10, 256, 16384, EARLY),
    Stage(.35, 256, 32768, MIDDLE),
    Stage(.60, 512, 65536, MIDDLE),
    Stage(.80, 1024, 65536, LATE),
    Stage(1.0, 2047, 65504, LATE),
]
CURRICULA = {"cpu": CPU, "long": LONG, "gpu": GPU}


def stage_at(stages, share):
    for i, s in enumerate(stages):
        if share < s.until:
            return i, s
    return len(stages) - 1, stages[-1]
