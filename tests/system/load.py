#!/usr/bin/env python3
"""Load test: concurrent clients, with disconnects, slow readers and invalid requests.

  make serve-load                                                            (90 seconds, 256 clients)
  make serve-load LOAD_ARGS=--long                                           (10 minutes)
  tests/system/load.py --clients 64 --seconds 90 --program build-tsan/palimpsest

Completions, chats, tools and schemas: every complete answer must equal the answer to the same request without load, which is
requested first; embeddings must be near it. Chats that resend all their messages must be answered. At the end, no
request runs or waits and no page is in use; memory, threads and open files are those after the warm-up; the server stops
with exit code 0, and its log is valid. The same --seed gives the same requests; their timing is not deterministic.
"""
import argparse
import asyncio
import collections
import json
import math
import os
import pathlib
import random
import statistics
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from server import REPO, Server  # noqa: E402

FLAGS = ["--port", 0, "--chat-template", "chatml", "--max-num-seqs", 32, "--max-queue", 64, "--cache-memory", 16,
         "--page-size", 16, "--prefill-chunk", 64, "--cache-type", "f16"]  # so little memory would be 4 bits, which compact-shift refuses
METHODS = ["streaming:budget=64", "streaming:budget=48,every=8", "h2o:budget=48", "h2o:budget=96,positions=cache",
           "full", "sparse:budget=64", "lazy:budget=64,every=6", "knorm:budget=64,mechanism=append",
           "paged-eviction:budget=64", "keydiff:budget=48", "compact-shift:budget=64", "tova:budget=48",
           "snapkv:budget=64", "lagkv:budget=160", "r-kv:budget=48", "scissorhands:budget=64", "random:budget=48"]
WORDS = "once upon a time the little dog cat bird girl boy went to park and saw big red ball in tree she was happy".split()
WEATHER = {"type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}, "days": {"type": "integer", "minimum": 1, "maximum": 7}},
           "required": ["city", "days"], "additionalProperties": False}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": WEATHER, "strict": True}},
         {"type": "function", "function": {"name": "set_alarm", "parameters": {
             "type": "object", "properties": {"on": {"type": "boolean"}}, "required": ["on"]}}}]
SCHEMA = {"type": "json_schema", "json_schema": {"name": "weather", "schema": WEATHER}}
IMAGE = [{"type": "image_url", "image_url": {"url": "data:image/png;base64," + "iVBORw0KGgo" * 2000}}]
PATIENCE = 120  # timeout in seconds without a byte
SLOW_READERS = 2


def draw_request(rng):
    """A random completion or chat request with a deterministic answer."""
    body = {"max_tokens": rng.choice([1, 8, 40, 100, 200]), "temperature": rng.choice([0, 0.7, 1]),
            "seed": rng.randrange(1 << 30), "cache": rng.choice(METHODS)}
    text = " ".join(rng.choices(WORDS, k=rng.choice([1, 5, 30, 300]))).capitalize()
    chat = rng.random() < 0.3
    if chat:
        body["messages"] = [{"role": "user", "content": text}]
    else:
        body["prompt"] = [text, text[: len(text) // 2 + 1]] if rng.random() < 0.1 else text
    if chat and rng.random() < 0.3:
        return "/v1/chat/completions", body | {"tools": TOOLS, "tool_choice": rng.choice(["auto", "required"]),
                                               "parallel_tool_calls": False, "max_tokens": 100}
    if rng.random() < 0.2:
        body["n"] = 2
    if rng.random() < 0.2:
        body["stop"] = rng.choice([".", "dog", "the "])
    if rng.random() < 0.1:
        body["ignore_eos"] = True
    elif rng.random() < 0.1:
        body["response_format"] = rng.choice([{"type": "json_object"}, SCHEMA])
    if rng.random() < 0.1:
        body["repetition_penalty"] = 1.2
    return ("/v1/chat/completions" if chat else "/v1/completions"), body


def draw_session(rng):
    """A request that saves a session, and one that continues it."""
    body = {"prompt": " ".join(rng.choices(WORDS, k=20)), "max_tokens": 40, "seed": rng.randrange(1 << 30),
            "ignore_eos": True, "cache": rng.choice(METHODS), "session": {"save": f"begun-{rng.randrange(1 << 30)}"}}
    more = {"max_tokens": rng.choice([1, 60]), "session": {"restore": body["session"]["save"]}}
    if rng.random() < 0.5:
        more |= {"prompt": " The cat", "seed": 7}
    if rng.random() < 0.5:
        more["session"]["save"] = f"again-{rng.randrange(4)}"  # several clients write the same session
    return body, more


def http(method, path, body=b"", headers=()):
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *headers]
    if body:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def post(path, body, **more):
    return http("POST", path, json.dumps({**body, **more}).encode())


async def read_head(reader):
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE)
    status, *lines = head.decode("latin-1").split("\r\n")
    return int(status.split()[1]), {k.strip().lower(): v.strip() for k, _, v in (line.partition(":") for line in lines)}


async def read_pieces(reader, headers):
    if headers.get("transfer-encoding") != "chunked":
        yield await asyncio.wait_for(reader.readexactly(int(headers.get("content-length", 0))), PATIENCE)
        return
    while size := int(await asyncio.wait_for(reader.readuntil(b"\r\n"), PATIENCE), 16):
        yield (await asyncio.wait_for(reader.readexactly(size + 2), PATIENCE))[:-2]
    await reader.readexactly(2)


def answer_of(body):
    """The compared parts of an answer: texts, finish reasons, token counts."""
    if not body.startswith(b"data: "):
        whole = json.loads(body)
        texts = [c["text"] if "text" in c else text_of(c["message"]) for c in whole["choices"]]
        return texts, [c["finish_reason"] for c in whole["choices"]], counts_of(whole["usage"])
    lines = [line[6:] for line in body.decode().split("\n\n") if line]
    assert lines[-1] == "[DONE]", lines[-1]
    texts, ends, usage = collections.defaultdict(str), {}, None
    for event in map(json.loads, lines[:-1]):
        usage = event.get("usage") or usage
        for choice in event["choices"]:
            texts[choice["index"]] += choice.get("text") or text_of(choice.get("delta", {}))
            ends[choice["index"]] = choice["finish_reason"]
    return [texts[i] for i in sorted(ends)], [ends[i] for i in sorted(ends)], counts_of(usage)


def text_of(message):
    """Content and calls of a message, or of a part of it in a stream; ids differ each time."""
    calls = [call["function"] for call in message.get("tool_calls") or []]
    return (message.get("content") or "") + "".join(c.get("name", "") + c.get("arguments", "") for c in calls)


def counts_of(usage):
    return [usage[name] for name in ("prompt_tokens", "completion_tokens", "evicted_tokens")]


class Load:
    def __init__(self, server, options):
        self.server, self.options = server, options
        self.count = collections.Counter()
        self.wrong = []
        self.health, self.samples = [], []
        self.started = self.end = 0.0
        rng = random.Random(options.seed)
        self.requests = [draw_request(rng) for _ in range(options.requests)]
        self.begun, goes_on = zip(*[draw_session(rng) for _ in range(options.requests // 8)])
        self.requests += [("/v1/completions", body) for body in goes_on]
        self.answers = []
        self.texts = [" ".join(rng.choices(WORDS, k=rng.choice([2, 40, 200]))) for _ in range(8)]
        self.vectors = []
        self.long = [{"prompt": "Once upon a time", "max_tokens": 1000, "seed": i, "ignore_eos": True,
                      "cache": METHODS[i]} for i in range(SLOW_READERS)]
        self.long_answers = []

    def connect(self, **more):
        return asyncio.open_connection("127.0.0.1", self.server.port, **more)

    async def ask(self, reader, writer, data):
        writer.write(data)
        await writer.drain()
        status, headers = await read_head(reader)
        return status, headers, b"".join([piece async for piece in read_pieces(reader, headers)])

    async def alone(self):
        reader, writer = await self.connect()
        for body in self.begun:
            status, _, text = await self.ask(reader, writer, post("/v1/completions", body))
            assert status == 200 and json.loads(text)["session"]["bytes"] > 0, text
        for path, body in self.requests:
            status, _, text = await self.ask(reader, writer, post(path, body))
            assert status == 200, (body, text)
            self.answers.append(answer_of(text))
        status, _, text = await self.ask(reader, writer, post("/v1/embeddings", {"input": self.texts}))
        assert status == 200, text
        self.vectors = [one["embedding"] for one in json.loads(text)["data"]]
        for body in self.long:
            self.long_answers.append(answer_of((await self.ask(reader, writer, post("/v1/completions", body)))[2]))
        writer.close()

    # Client behaviours.

    async def survive(self, rng, connection):
        """Sends a request and compares its answer with the one without load. Returns the connection if it can be reused."""
        i = rng.randrange(len(self.requests))
        path, body = self.requests[i]
        stream = {"stream": True, "stream_options": {"include_usage": True}} if rng.random() < 0.6 else {}
        reader, writer = connection or await self.connect()
        status, headers, text = await self.ask(reader, writer, post(path, body, **stream))
        if status == 429:
            self.count["429"] += 1
            wait = int(headers["retry-after"])
            assert 1 <= wait <= 60, headers
            writer.close()
            await asyncio.sleep(wait * rng.uniform(0.2, 1))
            return None
        assert status == 200, (status, text[:300])
        self.count["answers"] += 1
        self.count["went on from a session"] += "restore" in body.get("session", {})
        if (got := answer_of(text)) != self.answers[i]:
            self.wrong.append((body, got, self.answers[i]))
        if headers.get("connection") == "close" or rng.random() < 0.5:
            writer.close()
            return None
        return reader, writer

    async def answer(self, path, body):
        """Asks until the queue has room; None: the load ends."""
        while time.monotonic() < self.end:
            reader, writer = await self.connect()
            status, headers, text = await self.ask(reader, writer, post(path, body))
            writer.close()
            if status != 429:
                assert status == 200, (status, text[:300])
                return json.loads(text)
            self.count["429"] += 1
            await asyncio.sleep(int(headers["retry-after"]) * random.uniform(0.2, 1))
        return None

    async def resend(self, rng):
        """A chat that resends all its messages. Its answers depend on whether its history is still kept."""
        messages, method = [{"role": "system", "content": "Be brief."}], rng.choice(METHODS[:4])
        for _ in range(rng.randrange(2, 6)):
            messages.append({"role": "user", "content": " ".join(rng.choices(WORDS, k=12))})
            body = {"messages": messages, "max_tokens": 40, "temperature": 0.7, "cache": method}
            got = await self.answer("/v1/chat/completions", body)
            if got is None:
                return
            messages.append({"role": "assistant", "content": got["choices"][0]["message"]["content"]})
            self.count["resent chats"] += 1
            self.count["resent chats, cached"] += got["usage"]["prompt_tokens_details"]["cached_tokens"] > 0

    async def embed(self, rng):
        i = rng.randrange(len(self.texts))
        got = await self.answer("/v1/embeddings", {"input": [self.texts[i]] * rng.choice([1, 5])})
        if got is None:
            return
        self.count["embeddings"] += 1
        for one in got["data"]:
            if sum(a * b for a, b in zip(one["embedding"], self.vectors[i])) < 0.999:
                self.wrong.append(("another embedding", self.texts[i]))

    async def leave(self, rng):
        """Disconnects: during the request, before the answer, or during the answer."""
        path, body = rng.choice(self.requests)
        data = post(path, {**body, "max_tokens": 2000, "ignore_eos": "response_format" not in body},
                    stream=rng.random() < 0.7)
        reader, writer = await self.connect()
        where = rng.choice(["request", "at once", "answer", "answer"])
        writer.write(data[: rng.randrange(len(data))] if where == "request" else data)
        await writer.drain()
        if where == "answer":
            try:
                await asyncio.wait_for(reader.readexactly(rng.randrange(1, 30000)), rng.uniform(0.01, 3))
            except (asyncio.TimeoutError, asyncio.IncompleteReadError):
                pass
        self.count["left"] += 1
        writer.transport.abort() if rng.random() < 0.5 else writer.close()

    async def send_garbage(self, rng):
        body = json.dumps({"prompt": "x" * rng.randrange(200)}).encode()
        readable = [  # valid HTTP, must be refused with 4xx
            http("POST", "/v1/completions", body[: rng.randrange(1, len(body))]),
            http("POST", "/v1/completions", rng.randbytes(rng.randrange(1, 5000))),
            http("POST", "/v1/completions", b"[" * rng.randrange(1, 100000)),
            http("POST", "/v1/chat/completions", body),
            http("GET", "/" + "a" * rng.randrange(1, 4000)),
            http("GET", "/health", headers=[f"X-{i}: {'y' * 3000}" for i in range(300)]),
            http("GET", "/health", headers=["X-Long: " + "y" * 200000]),
            post("/v1/completions", {"prompt": rng.choice([3, {}, [[]], [None], ["a", 1], [-1]])}),
            post("/v1/completions", {"prompt": "x", "cache": rng.choice(["lru", 7, {"budget": -5}, {"budget": 1e300}])}),
            post("/v1/completions", {"prompt": "x", "max_tokens": rng.choice([0, -2, 1e30, "all", [], 1 << 41])}),
            post("/v1/completions", {"prompt": "x", "stop": rng.choice([{}, [""], ["a"] * 99]), "n": 1000}),
            post("/v1/completions", {"prompt": "x", "grammar": "root ::= " + "(" * rng.randrange(1, 5000)}),
            post("/v1/completions", {"prompt": "x", "session": rng.choice(["x", {"save": "../x"}, {"restore": "none"}])}),
            post("/detokenize", {"tokens": [1 << 40]}),
            post("/v1/chat/completions", {"messages": [{"role": "user", "content": IMAGE}]}),
            post("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "tools": rng.choice(
                [{}, [{}], [{"type": "image"}], [TOOLS[0], TOOLS[0]]])}),
            post("/v1/chat/completions", {"messages": [{"role": "tool", "content": {}}], "tools": TOOLS}),
            post("/v1/responses", {"input": "x", "previous_response_id": "resp_" + "0" * rng.randrange(100)}),
            post("/v1/embeddings", {"input": rng.choice([[], 3, [[]], [None], [[1 << 40]]])}),
            post("/v1/embeddings", {"input": "x", "dimensions": 3}),
        ]
        broken = [  # invalid HTTP: any answer, or none, is allowed
            rng.randbytes(rng.randrange(1, 20000)),
            b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n" + body,
            b"POST /v1/completions HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
            b"POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n" + body,
            b"GET /health HTTP/1.1\r\nX-Half: ",
            b"\r\n\r\n\r\n",
        ]
        reader, writer = await self.connect()
        self.count["garbage"] += 1
        if rng.random() < 0.7:
            status, _, text = await self.ask(reader, writer, rng.choice(readable))
            assert 400 <= status < 500, (status, text[:300])
        else:
            writer.write(rng.choice(broken))
            await writer.drain()
            if writer.can_write_eof() and rng.random() < 0.5:
                writer.write_eof()
            try:
                await asyncio.wait_for(reader.read(1000), rng.uniform(0.1, 3))
            except asyncio.TimeoutError:
                pass
        writer.close()

    async def client(self, number):
        rng = random.Random(self.options.seed * 1_000_003 + number)
        await asyncio.sleep(rng.uniform(0, 1))
        connection = kept = None
        while time.monotonic() < self.end:
            what = rng.random()
            try:
                if what < self.options.garbage:
                    await self.send_garbage(rng)
                elif what < self.options.garbage + self.options.leave:
                    await self.leave(rng)
                elif what > 0.97:
                    await self.resend(rng)
                elif what > 0.94:
                    await self.embed(rng)
                else:
                    kept, connection = connection, None
                    connection = await self.survive(rng, kept)
                    if connection and rng.random() < 0.2:
                        await asyncio.sleep(rng.uniform(0, 1))
            except (ConnectionError, asyncio.IncompleteReadError, asyncio.TimeoutError) as error:
                if what < self.options.garbage + self.options.leave:
                    continue  # the server may close such connections
                # HTTP allows the server to close an idle kept connection, but not to refuse a new one.
                if what <= 0.94 and kept is not None:
                    self.count["kept connections closed"] += 1
                else:
                    self.wrong.append(("no answer", repr(error), time.monotonic() - self.started))
            except AssertionError as error:
                self.wrong.append(("refused wrongly", str(error)))
        if connection:
            connection[1].close()

    async def slow_reader(self, number):
        """Reads slowly; its answer must be complete and equal to the others."""
        body, expected = self.long[number], self.long_answers[number]
        while time.monotonic() < self.end:
            reader, writer = await self.connect(limit=4096)
            writer.write(post("/v1/completions", body, stream=True, stream_options={"include_usage": True}))
            status, headers = await read_head(reader)
            if status == 200:
                text = b""
                async for piece in read_pieces(reader, headers):
                    text += piece
                    if time.monotonic() < self.end:
                        await asyncio.sleep(0.01)
                self.count["slow answers"] += 1
                if answer_of(text) != expected:
                    self.wrong.append((body, answer_of(text), expected))
            writer.close()
            await asyncio.sleep(1)

    async def watch(self):
        process = pathlib.Path("/proc") / str(self.server.process.pid)
        last = 0.0
        while time.monotonic() < self.end:
            begin = time.monotonic()
            reader, writer = await self.connect()
            status, _, _ = await self.ask(reader, writer, http("GET", "/health"))
            writer.close()
            assert status == 200, status
            self.health.append(time.monotonic() - begin)
            if begin - last >= 1:
                last = begin
                memory = int((process / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
                self.samples.append((begin - self.started, memory, len(list((process / "task").iterdir())),
                                     len(list((process / "fd").iterdir()))))
            await asyncio.sleep(0.1)

    async def run(self):
        await self.alone()
        alone = time.monotonic()
        self.started, self.end = alone, alone + self.options.seconds
        await asyncio.gather(*[self.client(i) for i in range(self.options.clients)],
                             *[self.slow_reader(i) for i in range(SLOW_READERS)], self.watch())

    def report(self):
        c = self.count
        p99 = sorted(self.health)[math.ceil(0.99 * len(self.health)) - 1]
        seconds = self.options.seconds
        # Without the warm-up (a fifth): first half against second half.
        steady = [s for s in self.samples if s[0] > seconds / 5]
        half = len(steady) // 2
        medians = [[statistics.median(s[k] for s in part) for k in (1, 2, 3)] for part in (steady[:half], steady[half:])]
        (early, threads, files), (late, threads2, files2) = medians
        print(f"{self.options.clients} clients, {seconds:g} s: {c['answers'] + c['slow answers']} answers equal to those without load"
              f" ({c['slow answers']} read slowly, {c['went on from a session']} from a session), {c['left']} disconnected,"
              f" {c['garbage']} invalid requests, {c['429']} status 429; {c['resent chats']} turns of resent chats"
              f" ({c['resent chats, cached']} found their cache), {c['embeddings']} embeddings")
        print(f"/health: p50 {statistics.median(self.health) * 1e3:.1f} ms, p99 {p99 * 1e3:.1f} ms,"
              f" max {max(self.health) * 1e3:.1f} ms")
        print(f"resident memory: {early / 2**20:.1f} MiB, then {late / 2**20:.1f}; max"
              f" {max(s[1] for s in self.samples) / 2**20:.1f}; threads {threads:g}, {threads2:g};"
              f" open files {files:g}, {files2:g}")
        for wrong in self.wrong[:5]:
            print("WRONG:", *wrong, sep="\n  ")
        assert not self.wrong, f"{len(self.wrong)} wrong answers"
        rare = ("resent chats", "embeddings") if seconds >= 30 else ()
        assert all(c[name] > 0 for name in ("answers", "left", "garbage", *rare)), c
        if self.options.clients > 100:
            assert c["429"] > 0, "no request was refused with 429: the queue was never full"
        if self.options.steady:
            assert late <= early * 1.05 + 8 * 2**20, "resident memory grows"
            assert p99 < 1, "/health is slow"
        return p99


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--program", default=REPO / "build" / "palimpsest")
    arguments.add_argument("--clients", type=int, default=256)
    arguments.add_argument("--seconds", type=float, default=90)
    arguments.add_argument("--long", action="store_true", help="10 minutes")
    arguments.add_argument("--leave", type=float, default=0.30, help="fraction of requests whose client disconnects")
    arguments.add_argument("--garbage", type=float, default=0.05, help="fraction of invalid requests")
    arguments.add_argument("--requests", type=int, default=64, help="number of different requests, each also sent without load")
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--steady", action="store_true", help="require constant memory and a fast /health (runs of at least a minute)")
    options = arguments.parse_args()
    options.seconds = 600 if options.long else options.seconds
    sessions = tempfile.TemporaryDirectory()
    server = Server(options.program, *FLAGS, "--session-path", sessions.name)
    load = Load(server, options)
    try:
        asyncio.run(load.run())
        server.wait_until_idle(30)
        load.report()
    finally:
        log = server.end()
    statuses = collections.Counter(line["status"] for line in log if line["event"] == "request")
    assert not any(line["event"] == "failed" for line in log)
    assert not any(status >= 500 for status in statuses), statuses
    print(f"log: {len(log)} lines, statuses {dict(sorted(statuses.items()))}")


if __name__ == "__main__":
    main()
