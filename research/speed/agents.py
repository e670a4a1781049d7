"""Recorded sessions of a coding agent, replayed on SmolLM2 against this server and llama.cpp's, with the same bytes.

`palimpsest bench serve --trace` sends the sessions of ../shared/traces/agents.jsonl.xz, --concurrent at a time, their
lengths scaled so that they fit into the trained context, without pauses. *Read over new*: prompt tokens that were read
over those that no earlier prompt of the session begins with. llama-server has a slot for each session, and no cache in
host memory besides (--cache-ram 0).

    tools/env python3 research/speed/agents.py          # research/results/agents.md
"""

import json
import lzma
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import common  # noqa: E402
import parts  # noqa: E402
from versus_server import free_port, serving  # noqa: E402

TRACES = common.SHARED / "traces/agents.jsonl.xz"
TOKEN_BYTES = 30 * 3 * 64 * 2 * 2  # of SmolLM2's keys and values, f16


def trace(o):
    """A file of the sessions whose prompts fit, and the tokens of the longest prompts of --concurrent of them."""
    lines, longest = [], []
    for line in lzma.open(TRACES, "rt"):
        prompts = [r["in"] + r["out"] for r in json.loads(line)["requests"] if "in" in r]
        if max(prompts) * o.scale <= o.slot - 100 and len(lines) < o.sessions:
            lines.append(line)
            longest.append(max(prompts) * o.scale)
    path = pathlib.Path(tempfile.mkdtemp()) / "sessions.jsonl"
    path.write_text("".join(lines))
    return path, sum(sorted(longest)[-o.concurrent :])


def main():
    parse = parts.parser(__doc__)
    parts.add(parse, "--program", "--threads", "--smollm2")
    parse.add_argument("--llama-server", default="llama-server")
    parse.add_argument("--scale", type=float, default=1 / 32)
    parse.add_argument("--sessions", type=int, default=8)
    parse.add_argument("--concurrent", type=int, default=4)
    parse.add_argument("--slot", type=int, default=4864, help="max tokens of a prompt with its answer")
    parse.add_argument("--shares", type=float, nargs="+", default=[1, 0.5, 0.25, 0.125])
    parse.add_argument("--peer-shares", type=float, nargs="*", help="llama-server's, which is slow; default: --shares; none: its section stays")
    parse.add_argument("--methods", nargs="+", default=["full", "auto"])
    o = parse.parse_args()
    model = common.model_file(o.program, o.smollm2)
    path, tokens = trace(o)
    needed = tokens * TOKEN_BYTES
    rows = {"llama-server": [], "palimpsest": []}

    def replay(side, name, share, command):
        port = free_port()
        with serving(command(port), port) as url:
            row = common.run_json(
                [
                    o.program,
                    "bench",
                    "serve",
                    "--base-url",
                    url,
                    "--trace",
                    path,
                    "--scale",
                    o.scale,
                    "--think-scale",
                    0,
                    "--max-concurrency",
                    o.concurrent,
                    "--json",
                ]
            )[0]
        read = row["prompt_tokens"] - row["cached_tokens"]
        rows[side].append(
            f"| {name} | {share:g} | {share * needed / 2**20:,.0f} | {row['completed']} | {row['failed']} | "
            f"{100 * row['hit_rate']:.1f}% | {read:,} | {row['read_over_new']:.2f} | "
            f"{row['ttft_ms']['p50']:,.0f} | {row['evicted_tokens']:,} |"
        )
        common.say(rows[side][-1])
        return row

    for share in o.shares:
        if share in (o.shares if o.peer_shares is None else o.peer_shares):
            row = replay(
                "llama-server",
                "llama-server",
                share,
                lambda port: [
                    o.llama_server,
                    "-m",
                    model,
                    "--port",
                    port,
                    "-t",
                    o.threads,
                    "-tb",
                    o.threads,
                    "-np",
                    o.concurrent,
                    "-c",
                    int(share * tokens) // 256 * 256 or 256,
                    "--kv-unified",
                    "--cache-ram",
                    0,
                    "--no-webui",
                ],
            )
        for method in o.methods:
            budget = int(share * tokens / o.concurrent / 2)
            mib = max(32, round(share * needed / 2**20))
            row = replay(
                "palimpsest",
                method if method == "full" else f"{method}:budget={budget}",
                share,
                lambda port: [
                    o.program,
                    "serve",
                    "-m",
                    model,
                    "--port",
                    port,
                    "-t",
                    o.threads,
                    "--cache-memory",
                    mib,
                    "--prefix-cache-memory",
                    mib,
                    "--method",
                    method if method == "full" else f"{method}:budget={budget}",
                ],
            )
    page = parts.ResearchPage(
        "agents",
        "Recorded sessions of agents",
        "Generated by `tools/env python3 research/speed/agents.py`, which describes the method.",
    )
    for side, of_side in rows.items():
        if not of_side:
            continue  # its section stays
        page.put(
            side,
            f"SmolLM2, recorded sessions: {side}",
            [
                f"{o.sessions} sessions, {o.concurrent} at a time, {row['prompt_tokens']:,} prompt tokens, of which "
                f"{row['prompt_tokens'] - row['repeated_tokens']:,} are new; lengths times {o.scale:g}. "
                f"A full cache of the {o.concurrent} longest needs {needed / 2**20:,.0f} MiB (f16).",
                "",
                "| server | share of the bytes | MiB | answered | failed | cached | read | read over new | "
                "TTFT, p50, ms | evicted |",
                "|" + "---|" * 10,
                *of_side,
                "",
            ],
            "research/speed/agents.py",
        )


if __name__ == "__main__":
    main()
