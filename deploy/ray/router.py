"""The router: the application's HTTP side. It finds the request's key, asks a replica, and asks another if that one dies."""

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import ray.exceptions
from ray.serve.handle import DeploymentHandle
from ray.serve.request_router import PendingRequest, ReplicaID, RequestRouter, RunningReplica
from replica import Asked, Head, Lost
from routing import key_of, order, parsed, passed_on, repeatable
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

ATTEMPTS = 5
BUSY = (429, 503)  # of a replica: its queue is full, or it is shutting down


class ByKey(RequestRouter):
    """Ray asks it for replicas; it answers with routing.order()."""

    async def choose_replicas(self, candidate_replicas: list[RunningReplica],
                              pending_request: PendingRequest | None = None) -> list[list[RunningReplica]]:  # fmt: skip
        asked = pending_request.args[0] if pending_request is not None and pending_request.args else None
        if not isinstance(asked, Asked):
            return [candidate_replicas]
        by_name = {replica.replica_id.unique_id: replica for replica in candidate_replicas}
        left = {name: replica for name, replica in by_name.items() if name not in asked.avoid} or by_name
        loads = {name: self._load(replica.replica_id) for name, replica in left.items()}
        return [[left[name] for name in group] for group in order(asked.key, loads)]

    def _load(self, replica: ReplicaID) -> int | None:
        load = self.replica_queue_len_cache.get(replica)
        return None if load is None else int(load)


def failure(message: str, code: str, status: int = 503) -> Response:
    """OpenAI's form; its clients try 503 again."""
    body = {"error": {"message": message, "type": "server_error", "param": None, "code": code}}
    return Response(json.dumps(body), status, {"Retry-After": "1"}, "application/json")


def lost(again: bool) -> Response:
    if again:
        return failure("the replicas that were asked died: try again", "replica_lost")
    return failure("the replica died; it may have saved the session before: GET /v1/sessions/NAME/memory says what the "
                   "session has read; then try again", "replica_lost_session")  # fmt: skip


class Router:
    def __init__(self, replicas: "DeploymentHandle[Any]") -> None:
        self._ask = replicas.options(stream=True, method_name="ask")

    async def __call__(self, request: Request) -> Response:
        body = await request.body()
        path = (request.scope.get("raw_path") or quote(request.url.path).encode()).decode()  # escaped as the client did
        path += f"?{request.url.query}" if request.url.query else ""
        headers = [(name.decode(), value.decode()) for name, value in request.headers.raw]  # Ray refuses others
        fields = parsed(body)
        passed = [(name, value) for name, value in passed_on(headers) if name != "accept-encoding"]  # nothing is compressed
        asked = Asked(request.method, path, passed, body, key_of(path, headers, fields))
        again = repeatable(request.method, path, fields)
        busy: Response | None = None
        for attempt in range(ATTEMPTS):
            await asyncio.sleep(0.1 * max(attempt - 1, 0))  # a server that died is back soon
            answer = Answer(self._ask.remote(asked))
            await answer.begin()
            if answer.head is not None and (answer.head.status not in BUSY or answer.head.replica in asked.avoid):
                return await answer.response()
            if answer.head is not None:
                busy = await answer.response()
            elif answer.sent and not again:
                return lost(again=False)
            asked = dataclasses.replace(asked, avoid=asked.avoid | {answer.replica or ""})
        return busy or lost(again=True)


class Answer:
    """Of one replica. Until begin() returns nothing has been sent to the client, so that another replica can be asked."""

    def __init__(self, parts: Any) -> None:
        self._parts = parts
        self._rest = aiter(parts)
        self._held: list[bytes] = []
        self._whole = False
        self._end = b""  # of an event in a stream; no stream: empty
        self._tail = b""  # the beginning of an event whose end has not come
        self.head: Head | None = None
        self.replica: str | None = None
        self.sent = False  # if there is no head: the replica may have executed the request

    async def begin(self) -> None:
        """Reads a stream up to its first event (comments are no events), anything else to its end."""
        try:
            await self._begin()
        except asyncio.CancelledError:  # the client left
            self._parts.cancel()
            raise

    async def _begin(self) -> None:
        head: Head | None = None
        async for part in self._safely():
            if isinstance(part, Lost):
                self.replica, self.sent = part.replica or self.replica, part.sent
                return
            if isinstance(part, Head):
                head, self.replica, self._end = part, part.replica, self._end_of_events(part)
                continue
            events = self._events(part) if self._end else part
            self._held.append(events)
            if self._end and any(event and not event.startswith(b":") for event in events.split(self._end)):
                self.head = head
                return
        self._held.append(self._tail)
        self.head, self._whole, self.sent = head, True, True

    async def response(self) -> Response:
        assert self.head is not None
        headers = {name: value for name, value in self.head.headers if name.lower() != "content-type"}
        kind = self._kind(self.head)
        if self._whole:
            return Response(b"".join(self._held), self.head.status, headers, kind)
        return StreamingResponse(self._stream(), self.head.status, headers, kind)

    async def _stream(self) -> AsyncIterator[bytes]:
        """Whole events, so that an error can follow any of them. As the server's own errors it is the last, without [DONE]."""
        try:
            for held in self._held:
                yield held
            async for part in self._safely():
                if isinstance(part, Lost):
                    error = bytes(lost(again=True).body)
                    yield error + b"\n" if self._end == b"\n" else b"data: " + error + b"\n\n"
                    return
                if isinstance(part, bytes) and (events := self._events(part)):
                    yield events
            if self._tail:
                yield self._tail
        finally:
            self._parts.cancel()  # no effect at the end; if the client left, the replica stops

    async def _safely(self) -> AsyncIterator[Head | Lost | bytes]:
        try:
            async for part in self._rest:
                yield part
        except (ray.exceptions.RayActorError, ray.exceptions.RaySystemError) as error:
            yield Lost("", True, repr(error))

    def _events(self, part: bytes) -> bytes:
        """What is complete now."""
        events, end, self._tail = (self._tail + part).rpartition(self._end)
        return events + end

    @staticmethod
    def _kind(head: Head) -> str:
        return next((value for name, value in head.headers if name.lower() == "content-type"), "application/octet-stream")

    @classmethod
    def _end_of_events(cls, head: Head) -> bytes:
        kind = cls._kind(head)
        return b"\n\n" if kind.startswith("text/event-stream") else b"\n" if kind.startswith("application/x-ndjson") else b""
