#!/usr/bin/env python3
"""Chats on 1 to 1,000 replicas: waiting times and what they cost, by simulation from measured service times.

  python3 bench/scale/service_times.py -o build/service.json -- --synthetic llama-3.2-1b@type=q4_0
  python3 bench/scale/simulate.py build/service.json      (bench/scale/epyc-2-cores.json: figures of docs/results)

A replica steps: each running sequence gets a token (a + b x sequences), and one chunk of the shortest waiting prompt is
read. Chats begin as a Poisson process; a turn resends the chat. A replica that answered the chat's last turn reads only what
is new, unless it has served `--kept` other chats since. Routers: `random`; `load` (the less loaded of two); `key`
(deploy/ray/routing.py: the chat's replica, unless its load is above 4 + 1.5 x the mean). The load is given as a share of
what the replicas can do if every turn finds its cache.
A replica dies every `--mtbf` seconds and is empty afterwards; its requests start again elsewhere.
"""

import argparse
import dataclasses
import heapq
import itertools
import json
import pathlib
import random
from collections import OrderedDict

CHUNK = 512
SEATS = 64  # --max-num-seqs
WARM = 300.0  # seconds: chats last some minutes


@dataclasses.dataclass
class Turn:
    chat: int
    number: int
    born: float
    history: int  # tokens of earlier turns
    new: int
    answer: int
    more: int  # turns that follow
    left: int = 0  # tokens of the prompt to read, then tokens to write
    first: float = 0.0


class Replica:
    def __init__(self, service, kept):
        self.a, self.b, self.p = service["step_seconds"], service["seconds_per_sequence"], service["seconds_per_prompt_token"]
        self.kept, self.clock, self.version, self.up = kept, 0.0, 0, 0.0
        self.waiting, self.running, self.chats = [], [], OrderedDict()

    @property
    def load(self):
        return len(self.waiting) + len(self.running)

    def add(self, turn, now):
        self.clock = max(self.clock, now, self.up) if not self.load else self.clock
        hit = self.chats.pop(turn.chat, None) is not None
        turn.left = turn.new + (0 if hit else turn.history)
        self.chats[turn.chat] = True
        if len(self.chats) > self.kept:
            self.chats.popitem(last=False)
        self.waiting.append(turn)
        return hit

    def step(self):
        """One step, or many of the same kind. Returns the turns that ended; `clock` is its end."""
        reading = None
        if self.waiting and len(self.running) < SEATS:
            reading = min(self.waiting, key=lambda turn: turn.left)
        chunk = min(CHUNK, reading.left) if reading else 0
        steps = 1 if reading else min(turn.left for turn in self.running)
        # Other requests may arrive between: at most 16 steps at a time.
        steps = min(steps, 16)
        self.clock += steps * (self.a + self.b * len(self.running)) + self.p * chunk
        for turn in self.running:
            turn.left -= steps
        ended = [turn for turn in self.running if turn.left <= 0]
        self.running = [turn for turn in self.running if turn.left > 0]
        if reading:
            reading.left -= chunk
            if reading.left <= 0:
                self.waiting.remove(reading)
                reading.first, reading.left = self.clock, reading.answer
                self.running.append(reading)
        return ended


class Chats:
    """Lengths of turns: exponential, the means below."""

    SYSTEM, NEW, ANSWER, TURNS, THINK = 300, 60, 120, 5, 20.0

    def __init__(self, rng):
        self.rng = rng

    def first(self, chat, now):
        turns = 1
        while self.rng.random() > 1 / self.TURNS:
            turns += 1
        return Turn(chat, 0, now, self.SYSTEM, self.length(self.NEW), self.length(self.ANSWER), turns - 1)

    def next(self, turn, now):
        born, history = now + self.rng.expovariate(1 / self.THINK), turn.history + turn.new + turn.answer
        return Turn(turn.chat, turn.number + 1, born, history, self.length(self.NEW), self.length(self.ANSWER), turn.more - 1)

    def length(self, mean):
        return 1 + int(self.rng.expovariate(1 / mean))


def seconds_per_turn(service):
    """Of a replica's time, if every turn finds its cache and the replica is full."""
    step = service["step_seconds"] / SEATS + service["seconds_per_sequence"]
    system = Chats.SYSTEM / Chats.TURNS  # the first turn reads it
    return Chats.ANSWER * step + (Chats.NEW + system) * service["seconds_per_prompt_token"]


def choose(router, turn, replicas, total, now, rng):
    """A replica that is up, if one of the first eight is."""
    count = len(replicas)
    if count == 1:
        return 0
    limit = 4 + 1.5 * total / count
    order = random.Random(turn.chat) if router == "key" else rng  # a key has an order of its own, as in rendezvous hashing
    for _ in range(8):
        best = order.randrange(count)
        if router == "load":
            best = min(best, order.randrange(count), key=lambda i: replicas[i].load)
        if replicas[best].up <= now and (router != "key" or replicas[best].load <= limit):
            return best
    return best


def simulate(service, count, router, load, options):
    rng = random.Random(options.seed)
    chats, replicas = Chats(rng), [Replica(service, options.kept) for _ in range(count)]
    rate = load * count / seconds_per_turn(service) / Chats.TURNS  # chats a second
    end = WARM + max(options.seconds, options.turns / (rate * Chats.TURNS))
    ticket, events, now, total, later, hits, firsts, tokens = itertools.count(), [], 0.0, 0, 0, 0, [], 0
    chatting = 0.0  # seconds of all chats, their users' included

    def push(when, what, value):
        heapq.heappush(events, (when, next(ticket), what, value))

    def wake(i):
        replicas[i].version += 1
        push(replicas[i].clock, "step", (i, replicas[i].version))

    push(0.0, "chat", 0)
    if options.mtbf and count > 1:
        push(rng.expovariate(count / options.mtbf), "death", None)
    while now < end:
        now, _, what, value = heapq.heappop(events)
        if what == "chat":
            push(now, "turn", chats.first(value, now))
            push(now + rng.expovariate(rate), "chat", value + 1)
        elif what == "turn":
            i = choose(router, value, replicas, total, now, rng)
            idle = not replicas[i].load
            hit = replicas[i].add(value, now)
            total += 1
            if value.number and now > WARM:
                later, hits = later + 1, hits + hit
            if idle:
                wake(i)
        elif what == "death":
            i = rng.randrange(count)
            turns = replicas[i].waiting + replicas[i].running
            version = replicas[i].version
            replicas[i] = Replica(service, options.kept)
            replicas[i].version, replicas[i].up = version + 1, now + options.restart
            total -= len(turns)
            for turn in turns:
                push(now, "turn", turn)
            push(now + rng.expovariate(count / options.mtbf), "death", None)
        elif value[1] == replicas[value[0]].version:
            for turn in replicas[value[0]].step():
                total -= 1
                if now > WARM:
                    chatting += replicas[value[0]].clock - turn.born + Chats.THINK
                    firsts.append(turn.first - turn.born)
                    tokens += turn.answer
                if turn.more:
                    following = chats.next(turn, replicas[value[0]].clock)
                    push(following.born, "turn", following)
            if replicas[value[0]].load:
                wake(value[0])
        if total > 200 * count:
            return None  # the queue grows without end
    firsts.sort()
    firsts = firsts or [0.0]
    measured = now - WARM
    return {
        "p50": firsts[len(firsts) // 2],
        "p99": firsts[len(firsts) * 99 // 100],
        "hits": hits / max(later, 1),
        "tokens": tokens / measured,
        "turns": len(firsts) / measured,
        "chats": chatting / measured,
    }


def row(*cells):
    print("| " + " | ".join(cells) + " |", flush=True)


def waits(service, options):
    row("replicas", "load", "router", "TTFT p50, s", "p99, s", "turns that found their cache", "turns/s", "tokens/s")
    row(*["---"] * 8)
    for count, load, router in itertools.product(options.replicas, options.load, options.routers):
        if count == 1 and router != options.routers[-1]:
            continue
        name = [f"{count:,}", f"{load:.0%}", "-" if count == 1 else router]
        got = simulate(service, count, router, load, options)
        if got is None:
            row(*name, "without end", "", "", "", "")
            continue
        row(
            *name,
            f"{got['p50']:.2f}",
            f"{got['p99']:.2f}",
            f"{got['hits']:.0%}",
            f"{got['turns']:,.1f}",
            f"{got['tokens']:,.0f}",
        )


def most(service, count, router, options):
    """The highest load, in steps of 5%, with which p99 is within the limit, and its figures."""
    low, high, best = 0, 20, None  # steps; 20 are never served
    while high - low > 1:
        middle = (low + high) // 2
        got = simulate(service, count, router, middle / 20, options)
        if got is not None and got["p99"] <= options.within:
            low, best = middle, got
        else:
            high = middle
    return low / 20, best


def costs(service, options):
    print(f"TTFT p99 within {options.within:g} s:\n")
    row("replicas", "router", "load", "turns/s", "tokens/s", "chats at once", "replicas for 1,000 chats")
    row(*["---"] * 7)
    for count, router in itertools.product(options.replicas, options.routers):
        if count == 1 and router != options.routers[-1]:
            continue
        load, got = most(service, count, router, options)
        name = [f"{count:,}", "-" if count == 1 else router, f"{load:.0%}"]
        if got is None:
            row(*name, "", "", "", "")
            continue
        chats = got["chats"]
        row(*name, f"{got['turns']:,.1f}", f"{got['tokens']:,.0f}", f"{chats:,.0f}", f"{1000 * count / chats:,.0f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("service", help="of service_times.py")
    parser.add_argument("--replicas", type=int, nargs="+", default=[1, 3, 10, 100, 1000])
    parser.add_argument("--load", type=float, nargs="+", default=[0.5, 0.7, 0.9])
    parser.add_argument("--routers", nargs="+", default=["random", "load", "key"])
    parser.add_argument("--within", type=float, default=0, help="seconds: find the highest load with this TTFT p99 instead")
    parser.add_argument("--kept", type=int, default=200, help="chats that a replica keeps (--prefix-cache-memory)")
    parser.add_argument("--seconds", type=float, default=300, help="of simulated time, after a warm-up of 300")
    parser.add_argument("--turns", type=int, default=3000, help="at least")
    parser.add_argument("--mtbf", type=float, default=0, help="mean seconds between deaths of one replica; 0: none")
    parser.add_argument("--restart", type=float, default=10, help="seconds until a dead replica serves again")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    service = json.loads(pathlib.Path(options.service).read_text())
    turn = seconds_per_turn(service)
    print(f"one replica at most: {1 / turn:.2f} turns/s, {Chats.ANSWER / turn:.0f} tokens/s\n")
    (costs if options.within else waits)(service, options)


if __name__ == "__main__":
    main()
