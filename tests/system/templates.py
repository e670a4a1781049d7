#!/usr/bin/env python3
"""Compares rendered prompts with Jinja2's, for the chat templates of ten model families, and checks that required calls
are valid and parsed.

  make templates-check      (installs jinja2 from PyPI once; the templates are part of llama.cpp's chat library)
"""
import argparse
import datetime
import json
import pathlib
import subprocess
import sys
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE.parent.parent / "tools" / "setup"))
import environment  # noqa: E402
from server import REPO, Server  # noqa: E402

PACKAGES = ["jinja2==3.1.6"]
DATE = "26 Jul 2026"
# File, and whether the template has tools of its own: otherwise they are in the system prompt, and prompts differ.
FAMILIES = {
    "meta-llama-Llama-3.1-8B-Instruct": True,
    "meta-llama-Llama-3.2-3B-Instruct": True,
    "meta-llama-Llama-3.3-70B-Instruct": True,
    "Qwen-Qwen2.5-7B-Instruct": True,
    "Qwen-Qwen3-0.6B": True,
    "mistralai-Mistral-Nemo-Instruct-2407": True,
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use": True,
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": False,
    "deepseek-ai-DeepSeek-V3.1": False,
    "openai-gpt-oss-120b": True,
    "google-gemma-2-2b-it": False,
    "google-gemma-4-31B-it": True,
    "microsoft-Phi-3.5-mini-instruct": False,
    "ibm-granite-granite-3.3-2B-Instruct": False,
    "ibm-granite-granite-4.0": True,
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use": True,
}
TOOLS = [{"type": "function", "function": {
    "name": "get_weather", "description": "Current weather of a city", "parameters": {
        "type": "object", "properties": {"city": {"type": "string", "description": "the city"},
                                         "days": {"type": "integer"}}, "required": ["city"]}}}]
CALL = {"id": "abcdefghi", "type": "function",
        "function": {"name": "get_weather", "arguments": {"city": "Rome", "days": 2}}}
CHATS = {
    "one": [{"role": "user", "content": "Hi, what's up?"}],
    "turns": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."},
              {"role": "user", "content": "Caf\u00e9?\nTwo lines."}],
    "system": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}],
    "result": [{"role": "user", "content": "Weather?"},
               {"role": "assistant", "content": "", "tool_calls": [CALL]},
               {"role": "tool", "tool_call_id": "abcdefghi", "name": "get_weather", "content": "{\"sky\": \"blue\"}"}],
}


def by_jinja(source, chat, tools, bos, eos):
    import jinja2
    import jinja2.ext
    import jinja2.sandbox

    def refuse(message):
        raise jinja2.exceptions.TemplateError(message)

    # As transformers renders chat templates.
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                                       extensions=[jinja2.ext.loopcontrols])
    env.filters["tojson"] = lambda value, ensure_ascii=False, indent=None, separators=None, sort_keys=False: json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    env.globals["raise_exception"] = refuse
    env.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    fields = dict(messages=chat, add_generation_prompt=True, bos_token=bos, eos_token=eos, date_string=DATE,
                  enable_thinking=True)
    if tools:
        fields["tools"] = tools
    text = env.from_string(source).render(**fields)
    return text.removeprefix(bos) if bos else text


def post(server, path, fields):
    return json.load(urllib.request.urlopen(urllib.request.Request(server.url + path, json.dumps(fields).encode())))


def compare(program, file, native):
    source = file.read_text()
    server = Server(program, "--chat-template", file)
    same, skipped = [], []
    try:
        props = json.load(urllib.request.urlopen(server.url + "/props"))
        for name, chat in CHATS.items():
            for tools in ([], TOOLS):
                case = name + (" with tools" if tools else "")
                if (tools or name == "result") and not native:
                    skipped.append(case)
                    continue
                try:
                    expected = by_jinja(source, chat, tools, props["bos_token"], props["eos_token"])
                except Exception as error:  # the template refuses such chats, of which ours makes something that it takes
                    skipped.append(f"{case} ({error})")
                    continue
                answer = post(server, "/apply-template", {
                    "messages": chat, "tools": tools, "chat_template_kwargs": {"date_string": DATE}})["prompt"]
                assert answer == expected, f"{file.name}, {case}:\n--- Jinja2\n{expected!r}\n--- palimpsest\n{answer!r}"
                same.append(case)
        call = post(server, "/v1/chat/completions", {
            "messages": CHATS["one"], "tools": TOOLS, "tool_choice": "required", "max_tokens": 600, "seed": 1,
            "parallel_tool_calls": False, "chat_template_kwargs": {"enable_thinking": False}})["choices"][0]
        calls = call["message"].get("tool_calls")
        assert call["finish_reason"] == "length" or (calls and calls[0]["function"]["name"] == "get_weather"), call
        assert not calls or call["finish_reason"] == "length" or json.loads(calls[0]["function"]["arguments"]) is not None
    finally:
        server.end()
    print(f"{file.stem}: {len(same)} prompts equal, {call['finish_reason']}; skipped: {', '.join(skipped) or 'none'}",
          flush=True)
    return len(same)


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--program", default=REPO / "build" / "palimpsest")
    arguments.add_argument("families", nargs="*", help="parts of file names; default: all")
    arguments = arguments.parse_args()
    try:
        environment.enter("jinja2", PACKAGES, "a few seconds")
    except environment.Unavailable as error:
        print(f"chat templates: skipped, {error}", file=sys.stderr)
        return
    common = subprocess.run([REPO / "tools" / "env", "--common"], capture_output=True, text=True, check=True).stdout.strip()
    folder = pathlib.Path(common) / "share" / "llama-common" / "templates"
    if not common or not folder.is_dir():
        print("chat templates: skipped, this route of tools/env has none", file=sys.stderr)
        return
    wrong = []
    for name, native in FAMILIES.items():
        if arguments.families and not any(part in name for part in arguments.families):
            continue
        try:
            assert compare(arguments.program, folder / f"{name}.jinja", native) >= 2, f"{name}: too few prompts"
        except AssertionError as error:
            print(error, flush=True)
            wrong.append(name)
    if wrong:
        sys.exit(f"chat templates: {len(wrong)} differ: {', '.join(wrong)}")
    print("chat templates: passed")


if __name__ == "__main__":
    main()
