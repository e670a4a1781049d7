"""Which replica answers a request. Pure functions: no Ray, no network (tests/system/routing_test.py).

A request has a key, if it has one, and each replica has a rank for a key by rendezvous hashing: all routers agree without
talking to each other, and a replica that comes or goes moves only its own share of the keys.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

BEGINNING = 1024  # characters (or tokens) of a prompt that make its key
SHORTEST = 256  # a shorter prompt has no beginning worth finding
HOP_BY_HOP = frozenset(
    "connection content-length expect host keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer"
    " transfer-encoding upgrade".split()
)


def passed_on(headers: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """The headers that belong to the message, not to the connection (RFC 9110, 7.6.1)."""
    named = {name.strip().lower() for key, value in headers if key.lower() == "connection" for name in value.split(",")}
    return [(key, value) for key, value in headers if key.lower() not in HOP_BY_HOP | named]


def parsed(body: bytes) -> dict[str, Any]:
    """The fields of a JSON object; none of anything else, which a replica refuses."""
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


def session_of(path: str, fields: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Names of the saved session that a request reads, and of the one that it writes."""
    part = path.split("?")[0].split("/")
    if path.startswith("/v1/sessions/") and part[3]:
        saved = fields.get("save") or part[3]
        return part[3], saved if isinstance(saved, str) else None
    session = fields.get("session")
    if not isinstance(session, dict):
        return None, None
    restore, save = session.get("restore"), session.get("save")
    return restore if isinstance(restore, str) else None, save if isinstance(save, str) else None


def beginning(fields: Mapping[str, Any]) -> str | None:
    """Of a chat: its messages up to the first answer, which all its turns have in common. Of a prompt: its first part."""
    messages = fields.get("messages", fields.get("input"))
    if isinstance(messages, list) and messages and all(isinstance(message, dict) for message in messages):
        asked = []
        for message in messages:
            if message.get("role") not in ("system", "developer", "user"):
                break
            asked.append([message.get("role"), message.get("content")])
        return json.dumps([fields.get("instructions"), fields.get("tools"), asked], sort_keys=True)
    prompt = fields.get("prompt", messages)
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    if isinstance(prompt, str | list) and len(prompt) >= SHORTEST:
        return json.dumps(prompt[:BEGINNING])
    return None


def key_of(path: str, headers: Sequence[tuple[str, str]], fields: Mapping[str, Any]) -> str | None:
    """By session, else by the prompt's beginning; None: by load alone."""
    for name, value in headers:
        if name.lower() == "x-session-id" and value.strip():
            return "session " + value.strip()
    for session in session_of(path, fields):
        if session:
            return "saved " + session
    cache_key = fields.get("prompt_cache_key")
    if isinstance(cache_key, str) and cache_key:
        return "session " + cache_key
    begins = beginning(fields)
    return None if begins is None else "prompt " + begins


def repeatable(method: str, path: str, fields: Mapping[str, Any]) -> bool:
    """Whether a request that may have been executed can be sent again: it changes nothing that it depends on."""
    read, written = session_of(path, fields)
    if path.startswith("/v1/sessions/"):
        return method in ("GET", "HEAD") or (method == "POST" and read != written)
    return written is None or read != written


def rank(key: str, replica: str) -> int:
    return int.from_bytes(hashlib.blake2b(f"{replica}\0{key}".encode(errors="surrogatepass"), digest_size=8).digest(), "big")


def order(key: str | None, loads: Mapping[str, int | None], slack: int = 4, spread: float = 1.5) -> list[list[str]]:
    """Groups of replicas to try, best first; in a group the least loaded is best. `loads`: requests in progress, None: unknown.

    A key's replica is passed over while it has more than `slack` + `spread` x the mean (bounded loads, arXiv 1608.01350).
    """
    if key is None:
        return [list(loads)]
    known = [load for load in loads.values() if load is not None]
    limit = slack + spread * (sum(known) / len(known) if known else 0)
    ranked = sorted(loads, key=lambda replica: rank(key, replica), reverse=True)
    free = [replica for replica in ranked if (loads[replica] or 0) <= limit]
    return [[replica] for replica in free + [replica for replica in ranked if replica not in free]]
