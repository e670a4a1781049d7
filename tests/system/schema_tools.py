#!/usr/bin/env python3
"""The tools of MCP servers from PyPI, as lines {"server", "tool", "schema"}: each server is started and asked for its tools.

  python3 tests/system/schema_tools.py --out FILE      (700 MB from PyPI once; no accounts, nothing is called)
"""
import argparse
import json
import os
import pathlib
import select
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "tools" / "setup"))
import environment  # noqa: E402

# Package, words of the command, environment. Servers whose tools need an account get a made-up one: listing uses none.
SERVERS = [
    ("mcp-server-git", ["mcp-server-git"], {}),
    ("mcp-server-fetch", ["mcp-server-fetch"], {}),
    ("mcp-server-time", ["mcp-server-time", "--local-timezone", "UTC"], {}),
    ("mcp-server-sqlite", ["mcp-server-sqlite", "--db-path", "{folder}/test.db"], {}),
    ("duckduckgo-mcp-server", ["duckduckgo-mcp-server"], {}),
    ("arxiv-mcp-server", ["arxiv-mcp-server", "--storage-path", "{folder}"], {}),
    ("excel-mcp-server", ["excel-mcp-server", "stdio"], {}),
    ("office-word-mcp-server", ["word_mcp_server"], {}),
    ("mcp-server-duckdb", ["mcp-server-duckdb", "--db-path", "{folder}/test.duckdb"], {}),
    ("mcp-clickhouse", ["mcp-clickhouse"], {"CLICKHOUSE_HOST": "localhost", "CLICKHOUSE_USER": "a",
                                            "CLICKHOUSE_PASSWORD": "b"}),
    ("awslabs-aws-documentation-mcp-server", ["awslabs.aws-documentation-mcp-server"], {}),
    ("mysql-mcp-server", ["mysql_mcp_server"], {"MYSQL_USER": "a", "MYSQL_PASSWORD": "b", "MYSQL_DATABASE": "c"}),
    ("cli-mcp-server", ["cli-mcp-server"], {"ALLOWED_DIR": "{folder}"}),
    ("mcp-yahoo-finance", ["mcp-yahoo-finance"], {}),
    ("mcp-atlassian", ["mcp-atlassian"], {"JIRA_URL": "http://localhost:1", "JIRA_USERNAME": "a", "JIRA_API_TOKEN": "b",
                                          "CONFLUENCE_URL": "http://localhost:1", "CONFLUENCE_USERNAME": "a",
                                          "CONFLUENCE_API_TOKEN": "b"}),
]


# Made for version 1 of the package mcp.
OLD = ["mcp-server-sqlite", "mysql-mcp-server", "cli-mcp-server", "arxiv-mcp-server"]


def tools_of(words, more, folder, seconds=90):
    process = subprocess.Popen([word.format(folder=folder) for word in words], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                               env={**os.environ, **{name: text.format(folder=folder) for name, text in more.items()}})
    end = time.monotonic() + seconds
    buffer = b""

    def send(message):
        process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        process.stdin.flush()

    def result(number):
        nonlocal buffer
        while time.monotonic() < end:
            line, found, rest = buffer.partition(b"\n")
            if found:
                buffer = rest
                if line.startswith(b"{") and (message := json.loads(line)).get("id") == number:
                    if "error" in message:
                        raise RuntimeError(message["error"])
                    return message["result"]
            elif select.select([process.stdout], [], [], 1)[0]:
                more_bytes = os.read(process.stdout.fileno(), 1 << 16)
                if not more_bytes:
                    raise RuntimeError("the server ended")
                buffer += more_bytes
        raise RuntimeError(f"no answer in {seconds} s")

    try:
        send({"id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18", "capabilities": {},
                                                           "clientInfo": {"name": "schemas", "version": "1"}}})
        result(1)
        send({"method": "notifications/initialized"})
        tools, cursor, number = [], None, 2
        while number == 2 or cursor:
            send({"id": number, "method": "tools/list", "params": {"cursor": cursor} if cursor else {}})
            page = result(number)
            tools += page["tools"]
            cursor, number = page.get("nextCursor"), number + 1
        return tools
    finally:
        process.kill()
        process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, help="file to write")
    parser.add_argument("--python", help="Python of an environment that has the packages (default: one is created)")
    parser.add_argument("--old-python", help="the same, with version 1 of the package mcp")
    arguments = parser.parse_args()
    new = [name for name, _, _ in SERVERS if name not in OLD]
    python = arguments.python or environment.python("mcp-servers", new, "500 MB, minutes")
    old = arguments.old_python or environment.python("mcp-servers-1", ["mcp<2", *OLD], "200 MB, minutes")
    lines, failed = [], []
    with tempfile.TemporaryDirectory() as folder:
        for name, words, more in SERVERS:
            try:
                bin_folder = pathlib.Path(old if name in OLD else python).parent
                tools = tools_of([str(bin_folder / words[0]), *words[1:]], more, folder)
            except Exception as error:
                failed.append(f"{name}: {error}")
                continue
            print(f"{name}: {len(tools)} tools", flush=True)
            lines += [{"server": name, "tool": tool["name"], "schema": tool["inputSchema"]} for tool in tools]
    pathlib.Path(arguments.out).write_text("".join(json.dumps(line) + "\n" for line in lines))
    for each in failed:
        print(f"left out: {each}")


if __name__ == "__main__":
    main()
