"""Answers of a server with random schemas: chats, completions, tools, Responses, Ollama; whole and streamed.

Whole answers validate. Answers that max_tokens cuts off are prefixes of valid ones: the program schema_samples completes them.
A call that was cut off is sent back with its history. Each way is a function: schema texts to (schema, text, whole) triples.
"""
import collections
import concurrent.futures
import json
import random
import threading
import urllib.error
import urllib.request

import schema_random
from schema_judge import Judge, Undecided
from server import Server

ASKED = [{"role": "user", "content": "Tell me a story."}]


class Refused(Exception):
    """HTTP 400."""


def post(server, path, fields):
    data = json.dumps(fields).encode()
    request = urllib.request.Request(server.url + path, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=600) as answer:
            return answer.read().decode()
    except urllib.error.HTTPError as error:
        text = error.read().decode()
        if error.code == 400:
            raise Refused(text) from None
        raise RuntimeError(f"HTTP {error.code}: {text}") from None


def events(text):
    for line in text.splitlines():
        if line.startswith("data: ") and line != "data: [DONE]":
            yield json.loads(line[6:])


def sampling(rng, name="max_tokens"):
    return {"temperature": 2, "top_p": 1, "seed": rng.randrange(1 << 30), name: rng.choice([10, 40, 200, 400])}


def shape(schema):
    return {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": json.loads(schema)}}


def completion(server, rng, schema):
    answer = json.loads(post(server, "/v1/completions", {"prompt": "Once", "response_format": shape(schema), **sampling(rng)}))
    return [(schema, answer["choices"][0]["text"], answer["choices"][0]["finish_reason"] == "stop")]


def chat(server, rng, schema):
    answer = json.loads(post(server, "/v1/chat/completions",
                             {"messages": ASKED, "response_format": shape(schema), **sampling(rng)}))
    return [(schema, answer["choices"][0]["message"]["content"], answer["choices"][0]["finish_reason"] == "stop")]


def chat_streamed(server, rng, schema):
    text, end = "", None
    for piece in events(post(server, "/v1/chat/completions", {"messages": ASKED, "response_format": shape(schema),
                                                              "stream": True, **sampling(rng)})):
        for choice in piece["choices"]:
            text += choice["delta"].get("content") or ""
            end = choice["finish_reason"] or end
    return [(schema, text, end == "stop")]


def tools_of(schemas):
    return [{"type": "function", "function": {"name": f"tool_{i}", "strict": True, "parameters": json.loads(text)}}
            for i, text in enumerate(schemas)]


def calls_of(schemas, calls, whole):
    """Only the last call can be cut off."""
    return [(schemas[int(call["function"]["name"][5:])], call["function"]["arguments"], whole or i + 1 < len(calls))
            for i, call in enumerate(calls) if call["function"]["name"]]


def tools(server, rng, *schemas):
    fields = {"messages": ASKED, "tools": tools_of(schemas), "tool_choice": "required",
              "parallel_tool_calls": rng.random() < 0.5}
    choice = json.loads(post(server, "/v1/chat/completions", {**fields, **sampling(rng)}))["choices"][0]
    calls = choice["message"].get("tool_calls") or []
    if calls:
        results = [{"role": "tool", "tool_call_id": call["id"], "content": "ok"} for call in calls]
        post(server, "/v1/chat/completions", {**fields, "messages": [*ASKED, choice["message"], *results],
                                              "tool_choice": "none", "max_tokens": 4})
    return calls_of(schemas, calls, choice["finish_reason"] == "tool_calls")


def tools_streamed(server, rng, *schemas):
    calls, end = [], None
    for piece in events(post(server, "/v1/chat/completions", {
            "messages": ASKED, "tools": tools_of(schemas), "tool_choice": "required", "stream": True, **sampling(rng)})):
        for choice in piece["choices"]:
            end = choice["finish_reason"] or end
            for step in choice["delta"].get("tool_calls") or []:
                while len(calls) <= step["index"]:
                    calls.append({"function": {"name": "", "arguments": ""}})
                for name in ("name", "arguments"):
                    calls[step["index"]]["function"][name] += step["function"].get(name) or ""
    return calls_of(schemas, calls, end == "tool_calls")


def response(server, rng, schema):
    answer = json.loads(post(server, "/v1/responses", {
        "input": "Tell me a story.", "text": {"format": {"type": "json_schema", "name": "x", "strict": True,
                                                         "schema": json.loads(schema)}},
        **sampling(rng, "max_output_tokens")}))
    text = "".join(part["text"] for item in answer["output"] for part in item.get("content", []))
    return [(schema, text, answer["status"] == "completed")]


def response_tools(server, rng, *schemas):
    made = [{"type": "function", **each["function"]} for each in tools_of(schemas)]
    fields = {"tools": made, "tool_choice": "required"}
    answer = json.loads(post(server, "/v1/responses", {**fields, "input": ASKED, **sampling(rng, "max_output_tokens")}))
    calls = [item for item in answer["output"] if item["type"] == "function_call"]
    results = [{"type": "function_call_output", "call_id": call["call_id"], "output": "ok"} for call in calls]
    if calls:
        post(server, "/v1/responses", {**fields, "tool_choice": "none", "input": [*ASKED, *calls, *results],
                                       "max_output_tokens": 4})
    return calls_of(schemas, [{"function": call} for call in calls], answer["status"] == "completed")


def ollama(server, rng, schema):
    path, asked = rng.choice([("/api/chat", {"messages": ASKED}), ("/api/generate", {"prompt": "Tell me a story."})])
    fields = sampling(rng, "num_predict")
    answer = json.loads(post(server, path, {**asked, "format": json.loads(schema), "stream": False, "options": fields}))
    text = answer["message"]["content"] if "message" in answer else answer["response"]
    return [(schema, text, answer["done_reason"] == "stop")]


WAYS = [completion, chat, chat_streamed, tools, tools_streamed, response, response_tools, ollama]
WITH_TOOLS = (tools, tools_streamed, response_tools)
LENIENT = (ollama,)


def object_schema(text):
    schema = json.loads(text)
    return schema.get("type") == "object"


def run(program, model, samples, count, seed):
    """`count` answers; returns how many were wrong."""
    made = schema_random.schemas(8 * count, seed)
    strict, refused, objects = [], [], []
    for text in made:
        (refused if "refused" in samples.ask(text, strict=True, n=0) else strict).append(text)
        if strict and strict[-1] == text and object_schema(text):
            objects.append(text)
    lock = threading.Lock()
    tally, wrong = collections.Counter(), []

    def judged(way, schema, text, whole):
        enforced = way not in LENIENT or schema in known
        tally["white space before the answer"] += text[:1].isspace()
        if not whole:
            text = text.lstrip(" \t\r\n").rstrip("\ufffd")  # the end may be inside a character
            if not text:
                return None
            with lock:
                found = samples.ask(schema, strict=enforced, prefix=text)
            if not found.get("answers"):
                return f"cut off, and not the beginning of an answer: {json.dumps(found)[:300]}"
            text = found["answers"][0]
        try:
            return Judge(schema if enforced else "{}").fault(text)
        except Undecided:
            tally["undecided"] += 1
            return None

    def one(i):
        rng = random.Random(seed * 1_000_003 + i)
        way = WAYS[i % len(WAYS)]
        refuse = way not in LENIENT and rng.random() < 0.05
        pool = refused if refuse else objects if way in WITH_TOOLS else strict + refused if way in LENIENT else strict
        schemas = [rng.choice(pool) for _ in range(2 if way in WITH_TOOLS else 1)]
        if refuse and way in WITH_TOOLS:
            schemas[0] = rng.choice(objects)
        try:
            answers = way(server, rng, *schemas)
        except Refused as error:
            tally["refused"] += 1
            if not refuse:
                wrong.append((way.__name__, "refused: " + str(error)[:400], "", schemas))
            return
        except Exception as error:
            wrong.append((way.__name__, f"{type(error).__name__}: {error}", "", schemas))
            return
        if refuse:
            wrong.append((way.__name__, "not refused", "", schemas))
        for schema, text, whole in answers:
            tally[f"{way.__name__}: {'whole' if whole else 'cut off'}"] += 1
            fault = judged(way, schema, text, whole)
            if fault is not None:
                wrong.append((way.__name__, fault, text, schema))

    known = set(strict)
    server = Server(program, "-m", model, "--port", 0, "--chat-template", "chatml", "--max-num-seqs", 8)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(one, range(count)))
    try:
        server.end()
    except AssertionError as error:  # its log must be JSON
        wrong.append(("log", str(error)[:600], "", ""))
    print(json.dumps({"part": "server", "requests": count, **dict(sorted(tally.items())), "wrong": len(wrong)}))
    return wrong
