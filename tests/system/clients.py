#!/usr/bin/env python3
"""Client programs and libraries from PyPI, unpatched, against a server with the default model: openai, litellm, llm,
langchain-openai, instructor, lm-evaluation-harness, ollama, anthropic; requests of the forms that Claude Code, Cline,
Continue and Open WebUI send; and every curl command of the README and the docs.

  make clients-check                                     300 MB from PyPI once; fails if they cannot be installed
  PALIMPSEST_MODEL=model.gguf make clients-check         another model; without lm-eval, which is given this one's BOS
"""
import argparse
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE.parent.parent / "tools" / "setup"))
import check  # noqa: E402
import environment  # noqa: E402
from server import REPO, Server, free_port  # noqa: E402

PACKAGES = ["openai==2.54.0", "litellm==1.110.2", "langchain-openai==1.4.3", "instructor==1.17.0", "lm-eval==0.4.13",
            "ollama==0.6.3", "llm==0.27.1", "anthropic==2.14.0", "requests==2.34.2", "aiohttp==3.14.5", "tenacity==9.2.1"]
CITY = {"type": "object", "properties": {"city": {"type": "string", "enum": ["Rome", "Oslo"]},
                                         "days": {"type": "integer", "minimum": 1, "maximum": 7}},
        "required": ["city", "days"], "additionalProperties": False}
TOOL = {"type": "function", "function": {"name": "get_weather", "description": "Weather", "parameters": CITY,
                                         "strict": True}}
ASKED = [{"role": "user", "content": "What is the weather in Rome?"}]
STORY = [{"role": "user", "content": "Tell me a story."}]


def is_city(fields):
    return fields["city"] in ("Rome", "Oslo") and 1 <= fields["days"] <= 7


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b))


def openai_embeddings(server, model):
    import openai
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)
    texts = ["The cat sat.", "A dog ran home."]
    plain = client.embeddings.create(model=model, input=texts, encoding_format="float")
    packed = client.embeddings.create(model=model, input=texts)  # the client asks for base64
    for a, b in zip(plain.data, packed.data):
        assert abs(cosine(a.embedding, a.embedding) - 1) < 1e-5 and cosine(a.embedding, b.embedding) > 1 - 1e-5
    assert cosine(plain.data[0].embedding, plain.data[1].embedding) < 0.999
    assert plain.usage.prompt_tokens > 4
    try:
        client.embeddings.create(model=model, input="x", dimensions=3)
        raise AssertionError("dimensions were not refused")
    except openai.BadRequestError as error:
        assert error.param == "dimensions"
    print(f"openai {openai.__version__}: embeddings: passed")


def openai_continued_responses(server, model):
    import openai
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)
    fields = dict(model=model, max_output_tokens=30, extra_body={"seed": 3})
    first = client.responses.create(**fields, input="Tell me a story.")
    second = client.responses.create(**fields, input="And then?", previous_response_id=first.id)
    assert second.previous_response_id == first.id and second.usage.input_tokens > first.usage.input_tokens
    assert second.usage.input_tokens_details.cached_tokens > 0, second.usage
    hidden = client.responses.create(**fields, input="Tell me a story.", store=False)
    try:
        client.responses.create(**fields, input="And then?", previous_response_id=hidden.id)
        raise AssertionError("a response that was not stored was continued")
    except openai.NotFoundError as error:
        assert error.code == "previous_response_not_found"
    print(f"openai {openai.__version__}: previous_response_id, store: passed")


def litellm_client(server, model):
    import litellm
    fields = dict(model=f"openai/{model}", api_base=server.url + "/v1", api_key="none", seed=3)
    whole = litellm.completion(**fields, messages=STORY, max_tokens=40)
    assert whole.choices[0].message.content and whole.usage.completion_tokens <= 40
    pieces = litellm.completion(**fields, messages=STORY, max_tokens=40, stream=True)
    assert "".join(piece.choices[0].delta.content or "" for piece in pieces) == whole.choices[0].message.content
    called = litellm.completion(**fields, messages=ASKED, tools=[TOOL], tool_choice="required", max_tokens=300,
                                parallel_tool_calls=False)
    (call,) = called.choices[0].message.tool_calls
    assert is_city(json.loads(call.function.arguments)), call
    del fields["seed"]
    vectors = litellm.embedding(**fields, input=["The cat sat.", "A dog ran home."])
    assert len(vectors.data) == 2 and abs(cosine(*[vectors.data[0]["embedding"]] * 2) - 1) < 1e-5
    print("litellm: chat, stream, tools, embeddings: passed")


def litellm_other_apis(server, model):
    import litellm
    fields = dict(api_base=server.url, messages=STORY, max_tokens=10)
    for kind in ("anthropic", "ollama_chat", "ollama"):
        whole = litellm.completion(model=f"{kind}/{model}", api_key="none", **fields)
        assert whole.choices[0].message.content and whole.usage.completion_tokens <= 10, (kind, whole)
    for kind, path in (("jina_ai", "/v1/rerank"), ("cohere", "/v1/rerank"), ("hosted_vllm", "")):
        ranked = litellm.rerank(model=f"{kind}/{model}", query="A cat.", documents=["A dog ran home.", "A cat."],
                                top_n=1, api_base=server.url + path, api_key="none")
        (best,) = ranked.results
        assert best["index"] == 1 and abs(best["relevance_score"] - 1) < 1e-5, (kind, ranked)
    print("litellm: anthropic, ollama_chat, ollama, rerank of jina_ai, cohere and hosted_vllm: passed")


def llm_program(server, model):
    """The program `llm`, with the server as an additional OpenAI model."""
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "extra-openai-models.yaml").write_text(
            f"- model_id: local\n  model_name: {model}\n  api_base: {server.url}/v1\n")
        for flags in ([], ["--no-stream"]):
            words = [sys.executable, "-m", "llm", "-m", "local", "--key", "none", "-o", "max_tokens", "10", *flags,
                     "Tell me a story."]
            done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, "LLM_USER_PATH": folder})
            assert done.returncode == 0 and done.stdout.strip(), done.stderr
    print("llm: stream, whole: passed")


def post(server, path, body):
    request = urllib.request.Request(server.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    return urllib.request.urlopen(request).read().decode()


def forms_of_programs(server, model):
    """Requests of the forms that programs send which cannot be installed here, as their public sources have them.
    aider sends its own through litellm."""
    parts = [{"type": "text", "text": "Tell me"}, {"type": "text", "text": "a story."}]
    # Cline: src/api/providers/openai.ts.
    stream = post(server, "/v1/chat/completions",
                  {"model": model, "temperature": 0, "stream": True, "stream_options": {"include_usage": True},
                   "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": parts}]})
    assert stream.endswith("data: [DONE]\n\n") and '"prompt_tokens":' in stream
    # Continue: core/llm/llms/Ollama.ts.
    shown = json.loads(post(server, "/api/show", {"name": model}))
    for line in shown["parameters"].split("\n"):
        assert re.match(r'^(\S+)\s+((?:".*")|\S+)$', line), shown["parameters"]
    options = {"temperature": 0.5, "top_p": 0.9, "top_k": 20, "num_predict": 10, "stop": ["\n\n"], "num_ctx": 2048,
               "num_thread": 2, "use_mmap": True, "mirostat": 0, "min_p": 0.1}
    fields = {"model": model, "options": options, "keep_alive": 1800}
    tool = {key: value for key, value in TOOL["function"].items() if key != "strict"}
    lines = post(server, "/api/chat", {**fields, "messages": STORY, "stream": True}).splitlines()
    assert json.loads(lines[-1])["done"] and "".join(json.loads(line)["message"]["content"] for line in lines)
    assert json.loads(post(server, "/api/chat", {**fields, "messages": ASKED, "stream": False,
                                                 "tools": [{"type": "function", "function": tool}]}))["done"]
    raw = {**fields, "prompt": "Once", "raw": True, "stream": False}
    assert json.loads(post(server, "/api/generate", raw))["response"]
    # Open WebUI: backend/open_webui/utils/payload.py.
    body = {"model": model, "messages": STORY, "temperature": 0.7, "top_p": 0.9, "max_tokens": 10,
            "frequency_penalty": 0.0, "seed": 1, "stop": ["</s>"], "stream": False}
    assert json.loads(post(server, "/v1/chat/completions", body))["choices"][0]["message"]["content"]
    ollama = {"temperature": 0.7, "top_p": 0.9, "seed": 1, "num_predict": 10, "repeat_penalty": 1.1,
              "new_topic_penalty": 0, "tfs_z": 1, "use_mlock": False}
    assert json.loads(post(server, "/api/chat", {"model": model, "messages": STORY, "stream": False,
                                                 "options": ollama}))["message"]["content"]
    print("requests of Cline's, Continue's and Open WebUI's forms: passed")


def langchain_client(server, model):
    import typing

    import langchain_openai
    import pydantic

    class Weather(pydantic.BaseModel):
        """Weather"""
        city: typing.Literal["Rome", "Oslo"]
        days: int = pydantic.Field(ge=1, le=7)

    chat = langchain_openai.ChatOpenAI(model=model, base_url=server.url + "/v1", api_key="none", seed=3, max_tokens=300,
                                       max_retries=0)
    assert chat.invoke("Tell me a story.", max_tokens=40).content
    assert "".join(piece.content for piece in chat.stream("Tell me a story.", max_tokens=40))
    (call,) = chat.bind_tools([Weather], tool_choice="Weather", parallel_tool_calls=False).invoke("Rome?").tool_calls
    assert call["name"] == "Weather" and is_city(call["args"]), call
    for method in ("json_schema", "function_calling"):
        answer = chat.with_structured_output(Weather, method=method).invoke("Rome?")
        assert isinstance(answer, Weather), (method, answer)
    vectors = langchain_openai.OpenAIEmbeddings(model=model, base_url=server.url + "/v1", api_key="none",
                                                check_embedding_ctx_length=False)  # True: OpenAI's tokens are sent
    assert len(vectors.embed_documents(["The cat sat.", "A dog ran home."])) == 2
    print("langchain-openai: chat, stream, tools, structured output by schema and by tool, embeddings: passed")


def instructor_client(server, model):
    import typing

    import instructor
    import openai
    import pydantic

    class Weather(pydantic.BaseModel):
        city: typing.Literal["Rome", "Oslo"]
        days: int = pydantic.Field(ge=1, le=7)

    plain = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)
    for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA):
        client = instructor.from_openai(plain, mode=mode)
        answer = client.chat.completions.create(model=model, messages=ASKED, response_model=Weather, max_retries=1,
                                                max_tokens=300, seed=3)
        assert isinstance(answer, Weather), answer
    print("instructor: tools, JSON: passed")


TEXT = """The Lost Kite

This is a story about Edna, a girl from Selby. It happened when Edna was seven years old. After the harvest, Edna looked
everywhere for her pretty ribbon. She had owned it for six years, and she loved it.
"""
FACTS = [("Flora hid the yellow saw in the orchard.", "Where did Flora hide the yellow saw?",
          [f" Flora hid the yellow saw in the {place}." for place in ("orchard", "cellar", "barn", "kitchen")]),
         ("Henry left the blue kite in the barn.", "Where did Henry leave the blue kite?",
          [f" Henry left the blue kite in the {place}." for place in ("cellar", "orchard", "barn", "kitchen")])]
TASKS = {
    "text": """task: text
dataset_path: json
dataset_kwargs: {{data_files: {{test: {folder}/text.jsonl}}}}
test_split: test
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{{{text}}}}"
metric_list:
  - metric: bits_per_byte
""",
    "facts": """task: facts
dataset_path: json
dataset_kwargs: {{data_files: {{test: {folder}/facts.jsonl}}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{prompt}}}}"
doc_to_target: "{{{{answer}}}}"
doc_to_choice: choices
target_delimiter: ""
metric_list:
  - metric: acc
"""}


def lm_eval(server, model, program):
    """local-completions with the server's own tokenizer (/tokenizer_info): nothing else of the model is needed."""
    if os.environ.get("PALIMPSEST_MODEL"):
        print("lm-eval: skipped: its first token is the default model's BOS")
        return
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "text.txt").write_text(TEXT)
        (folder / "text.jsonl").write_text(json.dumps({"text": TEXT}) + "\n")
        (folder / "facts.jsonl").write_text("".join(
            json.dumps({"prompt": f"note: {note}\nquestion: {question}\nanswer:", "choices": choices,
                        "answer": next(i for i, c in enumerate(choices) if c.strip() == note)}) + "\n"
            for note, question, choices in FACTS))
        for name, text in TASKS.items():
            (folder / f"{name}.yaml").write_text(text.format(folder=folder))
        words = [sys.executable, "-m", "lm_eval", "run", "--model", "local-completions", "--tasks", ",".join(TASKS),
                 "--include_path", folder, "--output_path", folder / "out.json", "--log_samples", "--model_args",
                 # The last one: the harness takes token 0, this model's BOS, for none.
                 f"model={model},base_url={server.url}/v1/completions,max_retries=1,custom_prefix_token_id=0"]
        done = subprocess.run(list(map(str, words)), capture_output=True, text=True, cwd=folder,
                              env={**os.environ, "HF_HOME": str(folder / "hf"), "HF_HUB_OFFLINE": "1"})
        assert done.returncode == 0, done.stderr[-4000:]
        (file,) = folder.rglob("out*.json")
        results = json.loads(file.read_text())["results"]
        # The server's method: it rotates keys when they are read, which rounds otherwise.
        ours = subprocess.run([program, "eval", "perplexity", "--file", folder / "text.txt", "--method",
                               "auto:schedule=step", "--json"], capture_output=True, text=True, check=True)
        run = json.loads(ours.stdout)
        bits = run["runs"][0]["nll"] * (run["tokens"] - 1) / math.log(2) / len(TEXT.encode())
        theirs = results["text"]["bits_per_byte,none"]
        assert abs(theirs - bits) < 1e-4, (theirs, bits)
        ours = subprocess.run([program, "eval", "likelihood", "--file", folder / "facts.jsonl", "--method",
                               "auto:schedule=step", "--json"], capture_output=True, text=True, check=True)
        run = json.loads(ours.stdout)["runs"][0]
        (file,) = folder.glob("samples_facts*.jsonl")
        difference = 0.0
        for sample in map(json.loads, file.read_text().splitlines()):
            for theirs_of, ours_of in zip(sample["resps"], run["questions"][sample["doc_id"]]["choices"], strict=True):
                difference = max(difference, abs(float(theirs_of[0][0]) - ours_of["logprob"]))
                assert (str(theirs_of[0][1]) == "True") == ours_of["greedy"], (sample, ours_of)
        assert difference < 1e-2, difference
        assert results["facts"]["acc,none"] == run["acc"] == 1, (results["facts"], run["acc"])
    print(f"lm-eval: local-completions: {theirs:.4f} bits per byte, eval perplexity {bits:.4f}; multiple choice: accuracy "
          f"{run['acc']}, log likelihoods differ from eval likelihood by at most {difference:.1e}: passed")


def ollama_more(server):
    import ollama
    client = ollama.Client(host=server.url)
    model = client.list().models[0].model
    called = client.chat(model=model, messages=ASKED, tools=[TOOL], options={"num_predict": 40, "seed": 3})
    assert called.done
    vectors = client.embed(model=model, input=["The cat sat.", "A dog ran home."]).embeddings
    assert len(vectors) == 2 and abs(cosine(vectors[0], vectors[0]) - 1) < 1e-5
    print("ollama client: tools, embed: passed")


def anthropic_client(server, model):
    import anthropic
    client = anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0)
    assert [each.id for each in client.models.list()] == [model] and client.models.retrieve(model).id == model
    fields = dict(model=model, max_tokens=40, extra_body={"seed": 3})
    whole = client.messages.create(**fields, messages=STORY)
    openai_answer = check.post(server, "/v1/chat/completions", {"messages": STORY, "max_tokens": 40, "seed": 3})
    assert whole.content[0].text == openai_answer["choices"][0]["message"]["content"], (whole, openai_answer)
    assert whole.stop_reason in ("end_turn", "max_tokens") and whole.id.startswith("msg_") and whole._request_id, whole
    counted = client.messages.count_tokens(model=model, messages=STORY).input_tokens
    assert whole.usage.input_tokens + whole.usage.cache_read_input_tokens == counted, (whole, counted)
    with client.messages.stream(**fields, messages=STORY) as stream:
        text = "".join(stream.text_stream)
        last = stream.get_final_message()
    assert text == whole.content[0].text == last.content[0].text and len(last.content) == 1, (text, last)
    assert (last.stop_reason, last.usage.output_tokens) == (whole.stop_reason, whole.usage.output_tokens), (last, whole)

    tool = {"name": "get_weather", "description": "Weather", "input_schema": CITY, "strict": True}
    fields = dict(model=model, max_tokens=300, tools=[tool], extra_body={"seed": 3})
    choice = {"type": "any", "disable_parallel_tool_use": True}
    called = client.messages.create(**fields, messages=ASKED, tool_choice=choice)
    (call,) = called.content
    assert called.stop_reason == "tool_use" and call.type == "tool_use" and is_city(call.input), called
    with client.messages.stream(**fields, messages=ASKED, tool_choice=choice) as stream:
        assert stream.get_final_message().content[0].input == call.input
    results = [{"type": "tool_result", "tool_use_id": call.id, "content": "It rains."}]
    messages = [*ASKED, {"role": "assistant", "content": called.content}, {"role": "user", "content": results}]
    after = client.messages.create(**fields, messages=messages, tool_choice={"type": "none"})
    assert after.content[0].type == "text", after
    shaped = client.messages.create(model=model, max_tokens=300, messages=ASKED,
                                    output_config={"format": {"type": "json_schema", "schema": CITY}})
    assert is_city(json.loads(shaped.content[0].text)), shaped

    def refused(kind, call=client.messages.create, **given):
        try:
            call(**{"model": model, "max_tokens": 5, "messages": STORY, **given})
        except kind as error:
            assert error.body["type"] == "error" and error.body["request_id"] == error.request_id, error.body
            return error.body["error"]
        raise AssertionError(f"{given} was not refused")
    assert refused(anthropic.BadRequestError, extra_body={"top_p": 2})["type"] == "invalid_request_error"
    image = {"type": "image", "source": {"type": "url", "url": "http://127.0.0.1/x.png"}}
    assert "image" in refused(anthropic.BadRequestError, messages=[{"role": "user", "content": [image]}])["message"]
    search = {"type": "web_search_20250305", "name": "web_search"}
    assert "web_search_20250305" in refused(anthropic.BadRequestError, tools=[search])["message"]
    print(f"anthropic {anthropic.__version__}: models, whole, stream, count_tokens, tools, results, schema, errors: passed")


def claude_code(server, model):
    """Requests of Claude Code's form: two turns of a conversation with a tool."""
    import anthropic
    client = anthropic.Anthropic(base_url=server.url, auth_token="none", max_retries=0)
    mark = {"type": "ephemeral"}
    tools = [{"name": name, "description": f"The tool {name}.", "input_schema": {
        "$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object", "properties": properties,
        "required": list(properties), "additionalProperties": False}}
        for name, properties in (("Bash", {"command": {"type": "string", "description": "The command"}}),
                                 ("Read", {"file_path": {"type": "string"}, "limit": {"type": "number"}}))]

    def ask(messages, nonce):
        system = [{"type": "text", "text": f"x-anthropic-billing-header: cc_version=2.1.100; cc_entrypoint=cli; cch={nonce};"},
                  {"type": "text", "text": "You are an agent.", "cache_control": mark},
                  {"type": "text", "text": "Work in the folder /tmp. Be brief.", "cache_control": mark}]
        with client.beta.messages.stream(
                model=model, max_tokens=60, system=system, tools=tools, messages=messages,
                metadata={"user_id": "user_1_account__session_2"}, thinking={"type": "enabled", "budget_tokens": 1024},
                betas=["claude-code-20250219", "interleaved-thinking-2025-05-14"], extra_body={
                    "temperature": 1, "seed": 3,
                    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}}) as stream:
            types = [event.type for event in stream]
            assert types[0] == "message_start" and types[-1] == "message_stop", types
            return stream.get_final_message()

    messages = [{"role": "user", "content": [{"type": "text", "text": "<system-reminder>\nToday.\n</system-reminder>"},
                                             {"type": "text", "text": "List the files.", "cache_control": mark}]}]
    first = ask(messages, "1a2b3")
    messages += [{"role": "assistant", "content": [{"type": "text", "text": "I look."},
                                                   {"type": "tool_use", "id": "toolu_1", "name": "Bash",
                                                    "input": {"command": "ls"}}]},
                 {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "a.txt",
                                               "is_error": False, "cache_control": mark}]}]
    second = ask(messages, "c4d5e")
    assert second.usage.cache_read_input_tokens >= 64, (first, second)
    print(f"requests of Claude Code's form: {second.usage.cache_read_input_tokens} tokens of the first were cached: passed")


def curl_commands(server):
    """All commands of ```sh blocks with curl: the answer is JSON, events, or metrics; and no error."""
    count = 0
    for page in [REPO / "README.md", *sorted((REPO / "docs").rglob("*.md"))]:
        for block in re.findall(r"```sh\n(.*?)```", page.read_text(), re.S):
            if "curl" not in block:
                continue
            assert f"http://127.0.0.1:{check.EXAMPLES_PORT}/" in block, (page, block)
            command = block.replace(f"http://127.0.0.1:{check.EXAMPLES_PORT}", server.url)
            done = subprocess.run(["bash", "-ec", command], capture_output=True, text=True, timeout=120)
            assert done.returncode == 0 and done.stdout and '"error":{' not in done.stdout, (page, block, done)
            count += block.count("curl")
    assert count >= 7, count
    print(f"curl commands of README and docs: {count} passed")


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--program", default=REPO / "build" / "palimpsest")
    arguments.add_argument("--only", help="regular expression of the checks' names")
    arguments = arguments.parse_args()
    environment.enter("clients", PACKAGES, "300 MB, a minute or two")
    with tempfile.TemporaryDirectory() as sessions:
        server = Server(arguments.program, "--port", free_port(check.EXAMPLES_PORT), "--chat-template", "chatml",
                        "--session-path", sessions, "--strict-model")
        try:
            model = json.load(urllib.request.urlopen(server.url + "/v1/models"))["data"][0]["id"]
            checks = {
                "openai": lambda: check.openai_client(server),
                "openai-responses": lambda: check.responses_of_openai(server),
                "openai-continued": lambda: openai_continued_responses(server, model),
                "openai-embeddings": lambda: openai_embeddings(server, model),
                "litellm": lambda: litellm_client(server, model),
                "litellm-more": lambda: litellm_other_apis(server, model),
                "llm": lambda: llm_program(server, model),
                "forms": lambda: forms_of_programs(server, model),
                "langchain": lambda: langchain_client(server, model),
                "instructor": lambda: instructor_client(server, model),
                "lm-eval": lambda: lm_eval(server, model, arguments.program),
                "ollama": lambda: check.ollama_client(server),
                "ollama-more": lambda: ollama_more(server),
                "anthropic": lambda: anthropic_client(server, model),
                "claude-code": lambda: claude_code(server, model),
                "curl": lambda: curl_commands(server),
            }
            for name, run in checks.items():
                if re.search(arguments.only or "", name):
                    run()
        finally:
            server.end()


if __name__ == "__main__":
    main()
