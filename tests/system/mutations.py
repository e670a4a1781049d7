#!/usr/bin/env python3
"""Sends mutated JSON to all endpoints: every answer must be JSON with a status below 500, or 503 or 507 with its reason, and the server must go on.

  make serve-mutations                                                        (10,000 requests)
  tests/system/mutations.py --requests 2000 --program build-asan/palimpsest

A request starts from a valid one of its endpoint; one to four of its values are replaced by values of other types, removed,
repeated, nested, or renamed. The same --seed gives the same requests.
"""
import argparse
import collections
import copy
import http.client
import json
import pathlib
import random
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from server import REPO, Server  # noqa: E402

SCHEMA = {"type": "object", "properties": {"a": {"type": "string", "maxLength": 5}, "b": {"enum": [1, "x"]}}, "required": ["a"]}
TOOLS = [{"type": "function", "function": {"name": "f", "description": "d", "parameters": SCHEMA, "strict": False}}]
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{\"a\":\"x\"}"}}
MESSAGES = [{"role": "system", "content": "Be short."}, {"role": "user", "content": [{"type": "text", "text": "Hello"}]},
            {"role": "assistant", "content": None, "tool_calls": [CALL]}, {"role": "tool", "tool_call_id": "c1", "content": "1"}]
SAMPLING = {"max_tokens": 2, "temperature": 0.5, "top_p": 0.9, "top_k": 5, "min_p": 0.1, "seed": 1, "stop": ["x"], "logit_bias": {"5": 1},
            "presence_penalty": 0.1, "frequency_penalty": 0.1, "repetition_penalty": 1.1}
SEEDS = [
    ("/v1/completions", {"prompt": ["Once", "Two"], "n": 2, "echo": True, "cache": {"method": "h2o", "budget": 48}, **SAMPLING}),
    ("/v1/completions", {"prompt": [3, 4, 5], "grammar": "root ::= \"a\"", "stream": True, "stream_options": {"include_usage": True}, "max_tokens": 2}),
    ("/v1/completions", {"prompt": "a", "max_tokens": 1, "session": {"save": "s1"}, "speculative": {"type": "lookup", "max": 2}}),
    ("/v1/chat/completions", {"messages": MESSAGES, "tools": TOOLS, "tool_choice": "auto", "parallel_tool_calls": False, **SAMPLING}),
    ("/v1/chat/completions", {"messages": MESSAGES[:2], "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}},
                              "max_tokens": 2, "logprobs": True, "top_logprobs": 2, "chat_template_kwargs": {"x": 1}}),
    ("/v1/chat/completions", {"messages": MESSAGES[1:2], "max_tokens": 2, "session": {"restore": "s1"}, "stream": True}),
    ("/v1/responses", {"input": [{"role": "user", "content": [{"type": "input_text", "text": "x"}]},
                                 {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
                                 {"type": "function_call_output", "call_id": "c", "output": "1"}], "instructions": "i",
                       "max_output_tokens": 2, "text": {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA}}, "reasoning": {"effort": "low"}}),
    ("/v1/responses", {"input": "x", "max_output_tokens": 1, "store": False, "stream": True, "tool_choice": "auto",
                       "tools": [{"type": "function", "name": "f", "parameters": SCHEMA}]}),
    ("/v1/messages", {"model": "m", "max_tokens": 2, "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
                      "messages": [{"role": "user", "content": [{"type": "text", "text": "x"}]},
                                   {"role": "assistant", "content": [{"type": "thinking", "thinking": "t", "signature": "s"},
                                                                     {"type": "tool_use", "id": "c", "name": "f", "input": {"a": "x"}}]},
                                   {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "1"}],
                                                                 "is_error": True}]}],
                      "tools": [{"name": "f", "description": "d", "input_schema": SCHEMA}], "tool_choice": {"type": "auto"},
                      "thinking": {"type": "enabled", "budget_tokens": 1024}, "stop_sequences": ["x"], "top_k": 5}),
    ("/v1/messages", {"max_tokens": 2, "messages": [{"role": "user", "content": "x"}], "stream": True, "metadata": {"user_id": "u"},
                      "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}, "effort": "low"}}),
    ("/v1/messages/count_tokens", {"messages": [{"role": "user", "content": "x"}], "system": "s", "thinking": {"type": "disabled"}}),
    ("/v1/embeddings", {"input": ["a", "b"], "encoding_format": "float", "dimensions": 256, "cache": "h2o:budget=16"}),
    ("/tokenize", {"content": "x", "add_special": True, "parse_special": True, "with_pieces": True}),
    ("/tokenize", {"messages": MESSAGES}),
    ("/detokenize", {"tokens": [3, 4]}),
    ("/apply-template", {"messages": MESSAGES, "tools": TOOLS}),
    ("/v1/sessions/s1/edit", {"first": 0, "last": 1, "text": "x", "mode": "reuse"}),
    ("/api/chat", {"model": "stories", "messages": [{"role": "user", "content": "x", "images": []},
                                                   {"role": "assistant", "content": "", "thinking": "t", "tool_calls": [{"function": {"name": "f", "arguments": {"a": "x"}}}]},
                                                   {"role": "tool", "content": "1", "tool_name": "f"}],
                   "tools": TOOLS, "options": {"num_predict": 2, "temperature": 0.1, "num_ctx": 5}, "think": False, "stream": False}),
    ("/api/chat", {"messages": [{"role": "user", "content": "x"}], "format": SCHEMA, "options": {"num_predict": 2}}),
    ("/api/generate", {"prompt": "x", "system": "s", "options": {"num_predict": 1}, "raw": False, "stream": True, "keep_alive": "5m"}),
    ("/api/embed", {"input": ["x"], "truncate": True}),
]
GETS = ["/v1/models", "/v1/models/x", "/v1/methods", "/v1/sessions", "/v1/sessions/s1/memory?max=2&layer=0&head=0", "/health", "/metrics", "/props",
        "/slots", "/tokenizer_info", "/", "/api/tags", "/api/version"]
ODD = [None, True, False, 0, 1, -1, 2, 1.5, -0.0, 1e300, 1 << 63, -(1 << 63), 1 << 64, "", "x", "\0", "\ud800", "é" * 50, "{", "[1", "../x", "/etc/passwd", [], {}, [1], [[]],
       [None], {"a": 1}, {"": ""}, [{}], ["x"], "^(a*)*$", {"$ref": "#"}, {"type": 1}, {"type": "function"}, "<|im_end|>", "auto", "none", "text", "resp_1", "s1"]


def places(value, path=()):
    """Paths of all values inside."""
    yield path
    if isinstance(value, dict):
        for key in value:
            yield from places(value[key], path + (key,))
    elif isinstance(value, list):
        for i in range(len(value)):
            yield from places(value[i], path + (i,))


def mutated(value, rng):
    value = copy.deepcopy(value)
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        path = rng.choice(list(places(value)))
        if not path:
            if rng.random() < 0.2:
                return rng.choice(ODD)
            continue
        parent = value
        for step in path[:-1]:
            parent = parent[step]
        key, kind = path[-1], rng.randrange(8)
        if kind == 0:
            del parent[key]
        elif kind == 1 and isinstance(parent, dict):
            parent[rng.choice(["name", "type", "content", "function", "id", "", "x", "arguments", "role"])] = parent.pop(key)
        elif kind == 2:
            parent[key] = [parent[key]] * rng.choice([1, 2, 40])
        elif kind == 3:
            parent[key] = {rng.choice(["type", "x", "name"]): parent[key]}
        elif kind == 4 and isinstance(parent[key], str):
            parent[key] = parent[key] * rng.choice([2, 100]) + rng.choice(["", "\0", "\"", "\\"])
        else:
            parent[key] = copy.deepcopy(rng.choice(ODD))
    return value


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--program", default=str(REPO / "build/palimpsest"))
    options.add_argument("--requests", type=int, default=10_000)
    options.add_argument("--seed", type=int, default=1)
    options = options.parse_args()
    rng = random.Random(options.seed)
    statuses, wrong = collections.Counter(), []
    with tempfile.TemporaryDirectory() as folder:
        server = Server(options.program, "--port", 0, "--session-path", folder, "--chat-template", "chatml", "--cache-memory", 32,
                        "--default-max-tokens", 4, "--timeout", 60, "-t", 1)
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
        for number in range(options.requests):
            if rng.random() < 0.02:
                method, path, body = "GET", rng.choice(GETS), None
                if rng.random() < 0.5:
                    path += rng.choice(["?x=%00", "?max=-1", "/%2e%2e", "?layer=99999999999", "%ff"])
            else:
                method, (path, seed) = "POST", rng.choice(SEEDS)
                body = json.dumps(mutated(seed, rng)).encode()
                if rng.random() < 0.03:  # not JSON
                    at = rng.randrange(len(body) + 1)
                    body = body[:at] + rng.choice([b"\xff", b"", b"}", b"\0"]) + body[at + rng.randrange(3):]
            try:
                connection.request(method, path, body, {"Content-Type": "application/json"})
                answer = connection.getresponse()
                text = answer.read()
            except (OSError, http.client.HTTPException) as error:
                wrong.append(f"{number} {path}: no answer ({error!r}): {body!r}")
                assert server.process.poll() is None, f"the server ended\n{wrong[-1]}\n{server.log_text()[-20000:]}"
                connection.close()
                continue
            if answer.will_close:
                connection.close()
            statuses[answer.status] += 1
            if answer.status >= 500 and answer.status not in (503, 507):
                wrong.append(f"{number} {method} {path}: {answer.status} {text[:300]!r}: {body!r}")
            elif answer.status >= 400 and (b"[json.exception" in text or b"std::" in text or folder.encode() in text):
                wrong.append(f"{number} {method} {path}: text of a library or a path {text[:300]!r}: {body!r}")
            elif answer.status >= 400:
                json.loads(text)["error"]
        connection.close()
        server.wait_until_idle()
        server.end()
    print(f"{options.requests} requests: " + ", ".join(f"{count} with {status}" for status, count in sorted(statuses.items())))
    for each in wrong[:20]:
        print(each[:1500])
    sys.exit(f"{len(wrong)} wrong answers" if wrong else None)


if __name__ == "__main__":
    main()
