#!/usr/bin/env python3
"""Server test: the curl and Python examples of docs/server.md, and the official `openai` client (models, streams, disconnects,
JSON schemas, errors).

  make serve-check        (downloads the client from PyPI once; skipped with a message if PyPI is not reachable)
"""
import argparse
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE.parent.parent / "tools" / "setup"))
import environment  # noqa: E402
from server import REPO, Server, free_port  # noqa: E402

PACKAGES = ["openai==3.52.0", "ollama==0.6.1"]
EXAMPLES_PORT = 8080


def example_blocks(language):
    section = (REPO / "docs" / "server.md").read_text().split("## Examples\n")[1].split("\n## ")[0]
    return re.findall(rf"```{language}\n(.*?)```", section, re.S)


def post(server, path, fields):
    return json.load(urllib.request.urlopen(urllib.request.Request(server.url + path, json.dumps(fields).encode())))


def curl_examples(server):
    if shutil.which("curl") is None:
        print("curl examples: skipped, curl is not installed")
        return
    blocks = example_blocks("sh")
    assert len(blocks) == 4, blocks
    answers = []
    for block in blocks:
        command = block.replace(f"http://127.0.0.1:{EXAMPLES_PORT}", server.url)
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        answers.append(done.stdout)
    completion = json.loads(answers[0])
    assert completion["usage"]["completion_tokens"] == 60 or completion["choices"][0]["finish_reason"] == "stop", completion
    assert completion["choices"][0]["text"], completion
    events = answers[1].strip().split("\n\n")
    assert events[-1] == "data: [DONE]", events[-1]
    assert json.loads(events[-2][6:])["usage"]["completion_tokens"] > 0, events[-2]
    saved, end = json.JSONDecoder().raw_decode(answers[2])
    restored = json.loads(answers[2][end:])
    assert saved["session"]["id"] == "story" and saved["session"]["bytes"] > 0, saved
    whole = post(server, "/v1/completions", {"prompt": "Once upon a time", "max_tokens": 120, "seed": 1,
                                             "ignore_eos": True})["choices"][0]["text"]
    both = saved["choices"][0]["text"] + restored["choices"][0]["text"]
    assert whole.startswith(both) and len(both) > len(saved["choices"][0]["text"]), (whole, both)
    assert "palimpsest_generation_tokens_total" in answers[3]
    print(f"curl examples: {len(blocks)} passed")


def python_example(server):
    for block in example_blocks("python"):
        text = block.replace(f"http://127.0.0.1:{EXAMPLES_PORT}", server.url)
        done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        whole = post(server, "/v1/chat/completions", {
            "messages": [{"role": "user", "content": "Tell me a story."}], "max_tokens": 100, "seed": 1,
            "cache": {"method": "streaming", "budget": 256}})["choices"][0]["message"]["content"]
        assert done.stdout and done.stdout == whole, (done.stdout, whole)
    print("python example: passed")


def openai_client(server):
    import openai
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)
    model = client.models.list().data[0].id
    assert client.models.retrieve(model).id == model
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Tell me a story."}]
    request_fields = dict(model=model, messages=messages, max_completion_tokens=80, seed=4, temperature=0.7, n=2)

    whole = client.chat.completions.create(**request_fields, logprobs=True, top_logprobs=3)
    assert [c.index for c in whole.choices] == [0, 1]
    assert all(c.finish_reason in ("stop", "length") for c in whole.choices)
    assert "".join(t.token for t in whole.choices[0].logprobs.content) == whole.choices[0].message.content
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
    texts = ["", ""]
    for piece in client.chat.completions.create(**request_fields, stream=True, stream_options={"include_usage": True}):
        for choice in piece.choices:
            texts[choice.index] += choice.delta.content or ""
        usage = piece.usage
    assert texts == [c.message.content for c in whole.choices], (texts, whole)
    # The same request again: its prompt is not read again.
    assert usage.prompt_tokens_details.cached_tokens == usage.prompt_tokens, usage
    assert (usage.prompt_tokens, usage.completion_tokens) == (whole.usage.prompt_tokens, whole.usage.completion_tokens)

    text = client.completions.create(model=model, prompt=["One day", "The cat"], max_tokens=70, seed=2, logprobs=2,
                                     extra_body={"cache": {"method": "h2o", "budget": 48}, "ignore_eos": True})
    assert len(text.choices) == 2 and len(text.choices[0].logprobs.tokens) == 70
    assert text.usage.model_extra["evicted_tokens"] > 0, text.usage

    # A disconnect releases the pages.
    with client.completions.create(model=model, prompt="Once", max_tokens=10**6, stream=True,
                                   extra_body={"ignore_eos": True}) as stream:
        for _, _ in zip(range(20), stream):
            pass
    server.wait_until_idle()

    schema = {"type": "object", "additionalProperties": False, "required": ["name", "mood", "legs"],
              "properties": {"name": {"type": "string", "maxLength": 10}, "mood": {"enum": ["glad", "sad"]},
                             "legs": {"type": "integer"}}}
    answer = client.chat.completions.create(
        model=model, messages=messages, max_tokens=200, seed=1,
        response_format={"type": "json_schema", "json_schema": {"name": "animal", "strict": True, "schema": schema}})
    animal = json.loads(answer.choices[0].message.content)
    assert list(animal) == ["name", "mood", "legs"] and animal["mood"] in ("glad", "sad"), animal

    def refused(kind, **fields):
        try:
            client.chat.completions.create(**{**request_fields, **fields})
        except kind as error:
            return error
        raise AssertionError(f"{fields} was not refused")
    refused(openai.NotFoundError, model="gpt-4")
    assert refused(openai.BadRequestError, extra_body={"cache": {"budget": 1}}).body["type"] == "invalid_request_error"
    assert refused(openai.BadRequestError, tools=[{"type": "web_search"}]).param == "tools[0].type"
    server.wait_until_idle()
    print(f"openai {openai.__version__}: models, whole, stream, n, logprobs, cache, disconnect, schema, errors: passed")
    tools_of_openai(client, model)
    server.wait_until_idle()
    print(f"openai {openai.__version__}: tools, required and named, parallel, streamed, results: passed")


def tools_of_openai(client, model):
    parameters = {"type": "object", "required": ["city", "days"], "additionalProperties": False,
                  "properties": {"city": {"type": "string", "enum": ["Rome", "Oslo"]},
                                 "days": {"type": "integer", "minimum": 1, "maximum": 7}}}
    tools = [{"type": "function", "function": {"name": "get_weather", "description": "Weather", "parameters": parameters,
                                               "strict": True}},
             {"type": "function", "function": {"name": "set_alarm", "parameters": {
                 "type": "object", "required": ["on"], "properties": {"on": {"type": "boolean"}}}}}]
    messages = [{"role": "user", "content": "What is the weather in Rome?"}]
    fields = dict(model=model, messages=messages, tools=tools, max_tokens=300, seed=1)

    def valid(name, arguments):
        arguments = json.loads(arguments)
        if name == "get_weather":
            return arguments["city"] in ("Rome", "Oslo") and 1 <= arguments["days"] <= 7
        return name == "set_alarm" and isinstance(arguments["on"], bool)

    named = {"type": "function", "function": {"name": "get_weather"}}
    for choice in ("required", named):
        answer = client.chat.completions.create(**fields, tool_choice=choice, parallel_tool_calls=False).choices[0]
        (call,) = answer.message.tool_calls
        assert answer.finish_reason == "tool_calls" and answer.message.content is None, answer
        assert valid(call.function.name, call.function.arguments), call
    names, texts, ids = {}, {}, {}
    for piece in client.chat.completions.create(**fields, tool_choice=named, parallel_tool_calls=False, stream=True):
        for step in piece.choices[0].delta.tool_calls or []:
            names[step.index] = names.get(step.index, "") + (step.function.name or "")
            texts[step.index] = texts.get(step.index, "") + step.function.arguments
            ids[step.index] = step.id or ids[step.index]
    assert names == {0: "get_weather"} and texts[0] == call.function.arguments, (names, texts, call)
    messages += [answer.message, {"role": "tool", "tool_call_id": call.id, "content": "It rains."}]
    last = client.chat.completions.create(**fields, tool_choice="none").choices[0]
    assert last.message.content and not last.message.tool_calls, last


def responses_of_openai(server):
    import openai
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)
    model = client.models.list().data[0].id
    fields = dict(model=model, input="Tell me a story.", instructions="Be brief.", max_output_tokens=50,
                  extra_body={"seed": 3})
    whole = client.responses.create(**fields)
    assert whole.output_text and whole.status in ("completed", "incomplete"), whole
    text = ""
    with client.responses.stream(**fields) as stream:
        for event in stream:
            if event.type == "response.output_text.delta":
                text += event.delta
    assert text == whole.output_text, (text, whole)
    tool = {"type": "function", "name": "get_weather", "strict": True, "parameters": {
        "type": "object", "properties": {"city": {"type": "string", "enum": ["Rome", "Oslo"]}}, "required": ["city"],
        "additionalProperties": False}}
    fields = dict(model=model, tools=[tool], max_output_tokens=300, extra_body={"seed": 3}, parallel_tool_calls=False)
    called = client.responses.create(**fields, input="Weather?", tool_choice="required")
    (call,) = [item for item in called.output if item.type == "function_call"]
    assert json.loads(call.arguments)["city"] in ("Rome", "Oslo"), call
    items = [{"role": "user", "content": "Weather?"}, *called.output,
             {"type": "function_call_output", "call_id": call.call_id, "output": "It rains."}]
    assert client.responses.create(**fields, input=items, tool_choice="none").output_text
    print(f"openai {openai.__version__}: responses, streamed, function calls and results: passed")


def ollama_client(server):
    import ollama
    client = ollama.Client(host=server.url)
    model = client.list().models[0].model
    messages = [{"role": "user", "content": "Tell me a story."}]
    options = {"seed": 3, "num_predict": 40}
    whole = client.chat(model=model, messages=messages, options=options)
    assert whole.message.content and whole.done and whole.eval_count, whole
    pieces = client.chat(model=model, messages=messages, options=options, stream=True)
    assert "".join(piece.message.content for piece in pieces) == whole.message.content
    assert client.generate(model=model, prompt="Tell me a story.", options=options).response == whole.message.content
    shape = {"type": "object", "properties": {"mood": {"enum": ["glad", "sad"]}}, "required": ["mood"]}
    answer = client.chat(model=model, messages=messages, format=shape, options={"num_predict": 200})
    assert json.loads(answer.message.content)["mood"] in ("glad", "sad"), answer
    print("ollama client: list, chat, stream, generate, format: passed")


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--program", default=REPO / "build" / "palimpsest")
    arguments = arguments.parse_args()
    try:
        environment.enter("openai", PACKAGES, "about 10 seconds")
        client = True
    except environment.Unavailable as error:
        print(f"openai client: skipped, {error}", file=sys.stderr)
        client = False
    folder = tempfile.TemporaryDirectory()
    server = Server(arguments.program, "--port", free_port(EXAMPLES_PORT), "--strict-model", "--chat-template", "chatml",
                    "--session-path", folder.name)
    try:
        curl_examples(server)
        if client:
            python_example(server)
            openai_client(server)
            responses_of_openai(server)
            ollama_client(server)
    finally:
        log = server.end()
    streams = [line for line in log if line.get("stream")]
    assert streams and all(line["tokens"] > 0 and line["finish"] for line in streams if line["finish"] != "abort"), streams
    statuses = sorted({line["status"] for line in log if line["event"] == "request"})
    print(f"log: {len(log)} lines, statuses {statuses}")


if __name__ == "__main__":
    main()
