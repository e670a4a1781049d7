#!/usr/bin/env python3
"""llama-server's command line as one of `palimpsest serve`: only flags are translated, requests are not.

  LLAMA_SERVER_BIN_PATH=launcher.py   PALIMPSEST_PROGRAM, PALIMPSEST_STORIES: the program and stories260K.gguf
"""
import os
import sys

# All models are stories260K: the tests are of the API. Those that need another one are in misses.txt.
STORIES = {"ggml-org/test-model-stories260K", "ggml-org/test-model-stories260K-infill", "bert-bge-small",
           "jina-reranker"}
# Flags with a value that mean the same here.
SAME = {"--port", "--host", "--temp", "--seed", "--n-predict", "--threads", "-ctk", "-ctv", "--api-key",
        "--chat-template", "--pooling", "--lora", "--ctx-size", "--alias", "--parallel",
        "--reasoning", "--reasoning-format"}
# Those without an effect on answers here, or whose effect every server here has.
IGNORED_VALUES = {"--ubatch-size", "--n-gpu-layers", "-fa", "--cache-ram"}
SWITCHES = {"--no-ui"}
IGNORED = {"--offline", "--cont-batching", "--metrics", "--slots", "--no-slots", "--embedding", "--jinja",
           "--no-jinja", "--kv-unified", "--swa-full", "--verbose", "--no-mmproj", "--no-cache-idle-slots",
           "--reranking"}
RENAMED = {"--batch-size": "--prefill-chunk", "--slot-save-path": "--session-path",
           "--chat-template-file": "--chat-template", "--cors-origins": "--cors-origin"}


def translated(arguments):
    out, model, template = [], None, False
    divided = "--parallel" in arguments and "--kv-unified" not in arguments
    slots = int(arguments[arguments.index("--parallel") + 1]) if divided else 1
    rest = iter(arguments)
    for flag in rest:
        if flag == "--hf-repo":
            model = next(rest)
        elif flag in IGNORED_VALUES:
            next(rest)
        elif flag == "--hf-file":
            model = next(rest).split("/")[0].removesuffix("-v1-tiny-en")
        elif flag in IGNORED:
            pass
        elif flag in SWITCHES:
            out.append(flag)
        elif flag in SAME or flag in RENAMED:
            name = RENAMED.get(flag, flag)
            template = template or name == "--chat-template"
            value = next(rest)  # the context of llama-server is divided among its slots
            out += [name, str(int(value) // slots) if name == "--ctx-size" else value]
        else:
            sys.exit(f"launcher: not here: {flag}")
    if model not in STORIES:
        sys.exit(f"launcher: not here: the model {model}")
    out += ["--model", os.environ["PALIMPSEST_STORIES"], "--method", "full"]
    if not template:
        out += ["--chat-template", "chatml"]  # llama-server's default for models without one
    if model.endswith("-infill"):  # the same weights, and three tokens
        for name, token in (("prefix", 509), ("suffix", 510), ("middle", 511)):
            out += ["--override-kv", f"tokenizer.ggml.{name}_token_id=int:{token}"]
    return out


if __name__ == "__main__":
    program = os.environ["PALIMPSEST_PROGRAM"]
    os.execv(program, [program, "serve", *translated(sys.argv[1:])])
