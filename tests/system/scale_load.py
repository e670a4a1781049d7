"""Clients for tests of routers: completions, sessions, chats that resend. Every answer is compared with that of a server alone.

An answer may instead be an error that says "try again" (429, 503, a stream that ends with such an error, or a closed
connection); the client then does. Anything else is wrong.
"""

import asyncio
import collections
import json
import random
import time

import aiohttp

WORDS = "the little dog cat bird girl boy went to a park and saw big red ball in tree she was happy".split()
METHODS = ["h2o:budget=128", "streaming:budget=256", "full", "snapkv:budget=128"]
STORIES, TURNS, DIALOGUES = 6, 24, 12
CLIENTS = {"completions": 0.4, "sessions": 0.25, "own session": 0.1, "chats": 0.25}


class Again(Exception):
    """The router said: try again. `code`: OpenAI's error code, if there was one."""

    def __init__(self, code):
        super().__init__(code)
        self.code = code


def sentence(rng, words=12):
    return " ".join(rng.choices(WORDS, k=words)).capitalize() + "."


class Api:
    def __init__(self, url, http):
        self.url, self.http = url, http

    async def ask(self, path, body, stream=False, headers=None):
        """The text, and the usage of an answer."""
        extra = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
        try:
            async with self.http.post(self.url + path, json={**body, **extra}, headers=headers or {}) as answer:
                if answer.status in (429, 502, 503):
                    error = json.loads(await answer.read())["error"]
                    assert answer.headers["Retry-After"].isdigit(), answer.headers
                    raise Again(error["code"])
                raw = await answer.read()
                assert answer.status == 200, (answer.status, raw[:500])
        except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError) as error:
            raise Again(repr(error)) from None
        if not stream:
            whole = json.loads(raw)
            return self.text_of(whole["choices"][0]), whole["usage"]
        text, usage, done = "", None, False
        for line in raw.decode().splitlines():
            assert not line or line.startswith(("data: ", ":")), line
            if line == "data: [DONE]":
                done = True
            elif line.startswith("data: "):
                event = json.loads(line[6:])
                if "error" in event:
                    raise Again(event["error"]["code"])
                usage = event.get("usage") or usage
                for choice in event["choices"]:
                    text += choice.get("delta", choice).get("content" if "delta" in choice else "text") or ""
        assert done and usage is not None, raw[-500:]
        return text, usage

    @staticmethod
    def text_of(choice):
        return choice["message"]["content"] if "message" in choice else choice["text"]

    async def until_answered(self, *arguments, count=None, **more):
        for attempt in range(200):
            try:
                return await self.ask(*arguments, **more)
            except Again as again:
                if count is not None:
                    count[f"again: {again.code[:40]}"] += 1
                await asyncio.sleep(random.uniform(0.1, 0.3) * min(attempt + 1, 5))
        raise AssertionError(f"no answer after 200 attempts: {arguments[:1]}")


class Alone:
    """What one server, alone, answers."""

    def __init__(self):
        rng = random.Random(7)
        self.requests = [
            {
                "prompt": " ".join(sentence(rng) for _ in range(rng.choice([1, 4, 30]))),
                "seed": i,
                "temperature": 0.8,
                "max_tokens": rng.randrange(8, 64),
                "ignore_eos": True,
                "cache": rng.choice(METHODS),
            }
            for i in range(24)
        ]
        self.stories = [
            {
                "prompt": sentence(rng, 40),
                "seed": i,
                "temperature": 0.8,
                "max_tokens": 16,
                "ignore_eos": True,
                "cache": METHODS[i % len(METHODS)],
            }
            for i in range(STORIES)
        ]
        self.questions = [[sentence(rng) for _ in range(4)] for _ in range(DIALOGUES)]
        self.answers, self.turns, self.said, self.anew = [], [], [], []

    def story(self, number, turn, restore, save):
        """The request of a turn; the first begins the story, later ones go on."""
        body = dict(self.stories[number]) if turn == 0 else {"max_tokens": 16, "ignore_eos": True}
        return {**body, "session": {"save": save} if turn == 0 else {"restore": restore, "save": save}}

    def chat(self, number, turn):
        """All messages up to this turn. The assistant's are those of the server alone, whatever was answered since."""
        messages = [{"role": "system", "content": f"You are narrator {number}. Be brief."}]
        for i in range(turn + 1):
            messages.append({"role": "user", "content": self.questions[number][i]})
            if i < turn:
                messages.append({"role": "assistant", "content": self.said[number][i]})
        return {"messages": messages, "max_tokens": 24, "temperature": 0.7, "seed": number, "cache": "full"}

    async def ask(self, api):
        for body in self.requests:
            self.answers.append((await api.ask("/v1/completions", body))[0])
        for number in range(STORIES):
            turns = [await api.ask("/v1/completions", self.story(number, turn, "alone", "alone")) for turn in range(TURNS)]
            self.turns.append([text for text, _ in turns])
        for number in range(DIALOGUES):
            self.said.append([])
            self.anew.append([])
            for turn in range(4):
                # With what was read before, and read as a whole: tokens of answers may be split differently.
                self.said[number].append((await api.ask("/v1/chat/completions", self.chat(number, turn)))[0])
                body = {**self.chat(number, turn), "cache_prompt": False}
                self.anew[number].append((await api.ask("/v1/chat/completions", body))[0])


class Load:
    def __init__(self, api, alone, seconds, clients, seed=1):
        self.api, self.alone, self.clients, self.seed = api, alone, clients, seed
        self.start = time.monotonic()
        self.end = self.start + seconds
        self.count, self.wrong, self.tokens, self.waits = collections.Counter(), [], 0, []
        self.seconds = seconds

    async def run(self):
        kinds = [kind for kind, share in CLIENTS.items() for _ in range(round(share * self.clients))]
        kinds += ["completions"] * (self.clients - len(kinds))
        await asyncio.gather(*[self._client(i, kind) for i, kind in enumerate(kinds[: self.clients])])

    async def _client(self, number, kind):
        rng = random.Random(self.seed * 1_000_003 + number)
        act = {
            "completions": self._completion,
            "sessions": self._session,
            "own session": self._own_session,
            "chats": self._chat,
        }[kind]
        while time.monotonic() < self.end:
            try:
                await act(rng, number)
            except AssertionError as error:
                self.wrong.append((kind, str(error)[:1000]))
                await asyncio.sleep(0.5)

    async def _ask(self, path, body, **more):
        begin = time.monotonic()
        text, usage = await self.api.until_answered(path, body, count=self.count, **more)
        self.waits.append(time.monotonic() - begin)
        self.tokens += usage["completion_tokens"]
        self.count["answers"] += 1
        return text, usage

    def _equal(self, got, wanted, what):
        if got not in wanted:
            self.wrong.append((what, f"got {got!r}, alone {wanted!r}"))

    async def _completion(self, rng, _):
        i = rng.randrange(len(self.alone.requests))
        text, _ = await self._ask("/v1/completions", self.alone.requests[i], stream=rng.random() < 0.5)
        self._equal(text, [self.alone.answers[i]], "completion")

    async def _session(self, rng, number):
        """Turns with a new name each: a request can always be sent again."""
        story = rng.randrange(STORIES)
        for turn in range(rng.randrange(2, TURNS)):
            names = [f"client-{number}-{(turn + i) % 2}" for i in range(2)]
            text, _ = await self._ask(
                "/v1/completions",
                self.alone.story(story, turn, *names),
                stream=rng.random() < 0.3,
                headers={"x-session-id": f"client-{number}"},
            )
            self._equal(text, [self.alone.turns[story][turn]], f"turn {turn} of story {story}")
            self.count["turns of sessions"] += 1

    async def _own_session(self, rng, number):
        """Turns under one name. If the replica dies it may have saved: the session's length says so."""
        story, name = rng.randrange(STORIES), f"own-{number}"
        for turn in range(rng.randrange(2, TURNS)):
            body = self.alone.story(story, turn, name, name)
            before = await self._length(name) if turn else None
            while True:
                try:
                    text, usage = await self.api.ask("/v1/completions", body)
                    self.tokens += usage["completion_tokens"]
                    self._equal(text, [self.alone.turns[story][turn]], f"turn {turn} of own story {story}")
                    break
                except Again as again:
                    self.count[f"again: {again.code[:40]}"] += 1
                    await asyncio.sleep(0.3)
                    if turn and again.code != "replica_lost" and await self._length(name) != before:
                        self.count["saved, but the answer was lost"] += 1
                        break
            self.count["answers"] += 1
            self.count["turns of sessions"] += 1

    async def _length(self, name):
        for _ in range(200):
            try:
                async with self.api.http.get(f"{self.api.url}/v1/sessions/{name}/memory?max=1") as answer:
                    if answer.status not in (429, 502, 503):
                        whole = await answer.json()
                        assert answer.status == 200, (name, whole)
                        return whole["read"]
            except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError):
                pass
            await asyncio.sleep(0.2)
        raise AssertionError(f"session {name}: no answer")

    async def _chat(self, rng, number):
        dialogue = rng.randrange(DIALOGUES)
        for turn in range(4):
            # By the beginning of the chat, or by a session.
            headers = {"x-session-id": f"chat-{number}"} if number % 2 else {}
            text, usage = await self._ask("/v1/chat/completions", self.alone.chat(dialogue, turn), headers=headers)
            self._equal(
                text, [self.alone.said[dialogue][turn], self.alone.anew[dialogue][turn]], f"chat {dialogue}, turn {turn}"
            )
            if turn:
                self.count["later turns of chats"] += 1
                self.count["later turns that found their cache"] += usage["prompt_tokens_details"]["cached_tokens"] > 0

    def report(self, title):
        c = self.count
        waits = sorted(self.waits) or [0]
        seconds, found = self.seconds, c["later turns that found their cache"]
        print(
            f"{title}: {self.clients} clients, {seconds:g} s: {c['answers']} answers, {self.tokens / seconds:.0f} tokens/s,"
            f" wait p50 {waits[len(waits) // 2]:.2f} s, p99 {waits[len(waits) * 99 // 100]:.2f} s;"
            f" {c['turns of sessions']} turns of sessions;"
            f" {found} of {c['later turns of chats']} later turns of chats found their cache",
            flush=True,
        )
        print("  " + "; ".join(f"{name} {n}" for name, n in sorted(c.items()) if name.startswith(("again", "saved"))))
        for wrong in self.wrong[:5]:
            print("  WRONG:", *wrong)
