"""Rows for the trainer, generated some shards ahead. Its state in a checkpoint is (stage, shard, row)."""
import multiprocessing
import os
from collections import OrderedDict
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np

from batches import shard
from bpe import Tokenizer

SHARD = 262144  # approximate tokens
made_from = {}


def _load(data, seed, stages):
    made_from.update(tokenizer=Tokenizer.load(os.path.join(data, "tokenizer.json")), seed=seed, stages=stages,
                     books=np.load(os.path.join(data, "prose.npy")))


def _make(stage, number):
    m, s = made_from, made_from["stages"][stage]
    return shard(m["seed"], stage, number, m["tokenizer"], m["books"], s.length, max(64, SHARD // s.length), s.mixture)


class Feed:
    def __init__(self, data, seed, stages, place=(0, 0, 0), workers=0):
        self.place, self.now, self.waiting = list(place), None, OrderedDict()
        self.depth = 1 + workers
        if workers:
            self.pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _load, (data, seed, stages))
        else:
            _load(data, seed, stages)
            self.pool = ThreadPoolExecutor(1)

    def _shard(self, stage, number):
        for n in range(number, number + self.depth):
            if (stage, n) not in self.waiting:
                self.waiting[stage, n] = self.pool.submit(_make, stage, n)
        got = self.waiting.pop((stage, number)).result()
        for key in [k for k in self.waiting if k[0] != stage]:
            self.waiting.pop(key).cancel()
        return got

    def take(self, stage, rows):
        """`rows` rows of the stage: ids, weights, recall. A remainder of a shard that is too short is skipped."""
        if stage != self.place[0]:
            self.place, self.now = [stage, 0, 0], None
        if self.now is not None and self.place[2] + rows > len(self.now[0]):
            self.place, self.now = [stage, self.place[1] + 1, 0], None
        if self.now is None:
            self.now = self._shard(*self.place[:2])
        a = self.place[2]
        self.place[2] += rows
        return [x[a: a + rows] for x in self.now]
