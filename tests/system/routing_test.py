#!/usr/bin/env python3
"""deploy/ray/routing.py: which replica answers. Needs neither Ray nor the program: python3 tests/system/routing_test.py"""

import json
import pathlib
import random
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "deploy" / "ray"))
import routing  # noqa: E402

REPLICAS = [f"replica{i}" for i in range(10)]
CHAT = "/v1/chat/completions"


def user(text):
    return {"role": "user", "content": text}


def key(fields, path=CHAT, headers=()):
    return routing.key_of(path, list(headers), fields)


class Keys(unittest.TestCase):
    def test_a_session_comes_before_the_prompt(self):
        fields = {"messages": [user("x")]}
        self.assertEqual(
            key(fields, headers=[("X-Session-ID", " a ")]), key({"messages": [user("y")]}, headers=[("x-session-id", "a")])
        )
        self.assertNotEqual(key(fields, headers=[("x-session-id", "a")]), key(fields, headers=[("x-session-id", "b")]))
        self.assertEqual(key(fields, headers=[("x-session-id", "  ")]), key(fields))
        saved = key({**fields, "session": {"restore": "tale"}})
        self.assertEqual(saved, key({"session": {"save": "tale"}}))
        self.assertEqual(saved, key({}, "/v1/sessions/tale/memory?layer=1"))
        self.assertEqual(key({"prompt_cache_key": "a"}), key({}, headers=[("x-session-id", "a")]))

    def test_turns_of_a_chat_have_one_key(self):
        first = {"messages": [{"role": "system", "content": "s"}, user("hello")]}
        turns = {"messages": [*first["messages"], {"role": "assistant", "content": "hi"}, user("more")], "temperature": 0}
        self.assertEqual(key(first), key(turns))
        self.assertNotEqual(key(first), key({"messages": [{"role": "system", "content": "s"}, user("hallo")]}))
        self.assertNotEqual(key(first), key({**first, "tools": [{"type": "function"}]}))
        self.assertEqual(
            key({"input": [user("hello")]}, "/v1/responses"), key({"input": [user("hello")], "stream": True}, "/v1/responses")
        )

    def test_prompts_have_one_if_they_are_long(self):
        long = "once " * 1000
        self.assertEqual(key({"prompt": long + "a"}), key({"prompt": long + "b"}))
        self.assertNotEqual(key({"prompt": "a" + long}), key({"prompt": "b" + long}))
        self.assertEqual(key({"prompt": list(range(2000))}), key({"prompt": [list(range(3000))]}))
        self.assertIsNone(key({"prompt": "once"}))

    def test_nonsense_has_no_key(self):
        odd = [
            {},
            {"prompt": None},
            {"prompt": []},
            {"prompt": {}},
            {"messages": "x"},
            {"messages": [1, 2]},
            {"messages": {}},
            {"session": []},
            {"session": {"restore": 7}},
            {"prompt_cache_key": 3},
            {"input": 5},
        ]
        for fields in odd:
            self.assertIsNone(key(fields), fields)
        self.assertIsNone(key({}, "/v1/sessions/"))
        for body in [b"", b"x", b"[1]", b"3", b"[" * 100_000, b"\xff\xfe", b'{"a": ' * 50_000, b"nul\0"]:
            self.assertEqual(routing.parsed(body), {})
        self.assertIsInstance(routing.rank(key({"messages": [user("\ud800")]}), "r"), int)
        self.assertIsInstance(routing.rank(key({}, headers=[("x-session-id", "\xff" * 9000)]), "r"), int)

    def test_random_fields_never_fail(self):
        rng = random.Random(1)
        values = [
            None,
            1,
            "x" * 400,
            [],
            {},
            [[]],
            ["a" * 300],
            {"restore": "a"},
            {"save": ""},
            [user("x")],
            [{"role": []}],
            True,
        ]
        names = ["messages", "prompt", "session", "input", "prompt_cache_key", "tools", "instructions"]
        for _ in range(3000):
            fields = {name: rng.choice(values) for name in rng.sample(names, 3)}
            found = key(fields, rng.choice([CHAT, "/v1/sessions/a/edit", "/", ""]))
            self.assertIsInstance(routing.repeatable("POST", CHAT, fields), bool)
            if found is not None:
                routing.rank(found, "r")


class Order(unittest.TestCase):
    def best(self, key, replicas):
        return routing.order(key, dict.fromkeys(replicas, 0))[0][0]

    def test_keys_spread_evenly_and_stay(self):
        keys = [f"session {i}" for i in range(5000)]
        before = {key: self.best(key, REPLICAS) for key in keys}
        for replica in REPLICAS:
            self.assertLess(abs(list(before.values()).count(replica) - 500), 120)
        moved = {key: self.best(key, REPLICAS[1:]) for key in keys if self.best(key, REPLICAS[1:]) != before[key]}
        self.assertEqual(set(moved), {key for key in keys if before[key] == REPLICAS[0]})
        back = {key: self.best(key, [*REPLICAS, "new"]) for key in keys}
        self.assertTrue(all(back[key] in (before[key], "new") for key in keys))

    def test_load_bounds_a_key(self):
        best = self.best("hot", REPLICAS)
        loads = dict.fromkeys(REPLICAS, 0)
        for _ in range(1000):
            loads[routing.order("hot", loads)[0][0]] += 1
        self.assertLessEqual(loads[best], 4 + 1.5 * 100 + 1)
        self.assertEqual(sum(loads.values()), 1000)
        self.assertGreater(loads[best], 100)

    def test_every_replica_is_tried_once(self):
        rng = random.Random(2)
        for _ in range(500):
            loads = {replica: rng.choice([None, 0, 3, 200]) for replica in REPLICAS}
            groups = routing.order(rng.choice([None, "a", "b"]), loads)
            self.assertEqual(sorted(replica for group in groups for replica in group), REPLICAS)
        self.assertEqual(routing.order(None, dict.fromkeys(REPLICAS)), [REPLICAS])
        self.assertEqual(routing.order("a", {}), [])


class Requests(unittest.TestCase):
    def test_what_may_be_sent_again(self):
        self.assertTrue(routing.repeatable("POST", CHAT, {}))
        self.assertTrue(routing.repeatable("POST", CHAT, {"session": {"restore": "a", "save": "b"}}))
        self.assertTrue(routing.repeatable("POST", CHAT, {"session": {"save": "b"}}))
        self.assertFalse(routing.repeatable("POST", CHAT, {"session": {"restore": "a", "save": "a"}}))
        self.assertFalse(routing.repeatable("POST", "/v1/sessions/a/edit", {}))
        self.assertTrue(routing.repeatable("POST", "/v1/sessions/a/edit", {"save": "b"}))
        self.assertFalse(routing.repeatable("DELETE", "/v1/sessions/a", {}))
        self.assertTrue(routing.repeatable("GET", "/v1/sessions/a/memory", {}))

    def test_headers_of_the_connection_end_here(self):
        given = [
            ("Host", "x"),
            ("Connection", "keep-alive, X-Hop"),
            ("X-Hop", "1"),
            ("Authorization", "Bearer k"),
            ("Expect", "100-continue"),
            ("Transfer-Encoding", "chunked"),
            ("Content-Length", "3"),
            ("X-Forwarded-For", "1.2.3.4"),
            ("Content-Type", "application/json"),
        ]
        self.assertEqual([name for name, _ in routing.passed_on(given)], ["Authorization", "X-Forwarded-For", "Content-Type"])

    def test_a_json_key_is_stable(self):
        self.assertEqual(
            routing.rank(key(json.loads('{"messages": [{"role": "user", "content": "a"}]}')), "r"), 2120780272239384045
        )


if __name__ == "__main__":
    unittest.main()
