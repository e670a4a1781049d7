"""A byte-level BPE tokenizer like GPT-2's in plain Python: training, saving, encoding.

Digits never merge, so that a number is a sequence of digits. llama.cpp applies the same merges with its
`gpt-2` pre-tokenizer; the texts are ASCII, where its Unicode classes and those below are equal.
"""
import heapq
import json
import re
from collections import Counter, defaultdict

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
BOS, START, EOS = 0, 1, 2
WORD = re.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+")
PIECES = re.compile("(" + "|".join(map(re.escape, SPECIAL)) + "|\x01|\x02)")


def byte_symbols():
    """GPT-2's printable characters for the 256 bytes."""
    plain = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    table, extra = {b: chr(b) for b in plain}, 0
    for b in range(256):
        if b not in table:
            table[b] = chr(256 + extra)
            extra += 1
    return table


SYMBOL = byte_symbols()


def spell(word):
    return [SYMBOL[b] for b in word.encode("utf-8")]


def train(texts, vocab):
    """The merges, most frequent pair first; ties are ordered by the pair, so that the result is deterministic."""
    counts = Counter()
    for text in texts:
        counts.update(WORD.findall(text))
    words = [spell(w) for w in counts]
    weight = list(counts.values())
    pairs, where = Counter(), defaultdict(set)
    for i, w in enumerate(words):
        for pair in zip(w, w[1:]):
            pairs[pair] += weight[i]
            where[pair].add(i)
    heap = [(-n, p) for p, n in pairs.items()]
    heapq.heapify(heap)
    merges = []
    while heap and len(merges) < vocab - 256 - len(SPECIAL):
        n, pair = heapq.heappop(heap)
        if pairs[pair] != -n or pair not in where:  # a stale entry; a newer one is in the heap
            continue
        if any(c.isdigit() for c in pair[0] + pair[1]):
            continue
        merges.append(pair)
        changed = set()
        for i in where.pop(pair):
            old, new, j = words[i], [], 0
            while j < len(old):
                if j + 1 < len(old) and (old[j], old[j + 1]) == pair:
                    new.append(old[j] + old[j + 1])
                    j += 2
                else:
                    new.append(old[j])
                    j += 1
            for p in zip(old, old[1:]):
                pairs[p] -= weight[i]
                changed.add(p)
            for p in zip(new, new[1:]):
                pairs[p] += weight[i]
                where[p].add(i)
                changed.add(p)
            words[i] = new
        for p in changed:
            if pairs[p] > 0:
                heapq.heappush(heap, (-pairs[p], p))
    return merges


class Tokenizer:
    def __init__(self, merges):
        self.merges = [tuple(m) for m in merges]
        self.tokens = SPECIAL + [SYMBOL[b] for b in range(256)] + [a + b for a, b in self.merges]
        self.id = {t: i for i, t in enumerate(self.tokens)}
        self.rank = {m: i for i, m in enumerate(self.merges)}
        self.cache = {}
        self.byte = {s: b for b, s in SYMBOL.items()}

    def word(self, word):
        got = self.cache.get(word)
        if got is None:
            parts = spell(word)
            while len(parts) > 1:
                best = min(range(len(parts) - 1), key=lambda i: self.rank.get((parts[i], parts[i + 1]), 1 << 30))
                if (parts[best], parts[best + 1]) not in self.rank:
                    break
                parts[best:best + 2] = [parts[best] + parts[best + 1]]
            got = self.cache[word] = [self.id[p] for p in parts]
        return got

    def encode(self, text):
        """Ids, and for each whether it is marked as recall (see facts.py). Special tokens are recognised by name."""
        ids, recall, inside = [], [], 0
        for piece in PIECES.split(text):
            if piece in ("\x01", "\x02"):
                inside = int(piece == "\x01")
            elif piece in SPECIAL:
                ids.append(self.id[piece])
                recall.append(0)
            else:
                for w in WORD.findall(piece):
                    got = self.word(w)
                    ids += got
                    recall += [inside] * len(got)
        return ids, recall

    def decode(self, ids):
        out = bytearray()
        for i in ids:
            out += self.tokens[i].encode() if i < len(SPECIAL) else bytes(self.byte[c] for c in self.tokens[i])
        return out.decode("utf-8", "replace")

    def save(self, path):
        with open(path, "w") as f:
            json.dump({"merges": [" ".join(m) for m in self.merges]}, f, ensure_ascii=False, indent=0)

    @staticmethod
    def load(path):
        with open(path) as f:
            return Tokenizer([m.split(" ") for m in json.load(f)["merges"]])
