"""The replica: a Ray actor that owns one `palimpsest serve` and passes requests to it."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator

import aiohttp
import yarl
from child import ADDRESS, Child
from ray import serve
from routing import passed_on


@dataclasses.dataclass(frozen=True)
class Asked:
    """A request of a client. `avoid`: replicas that could not answer it."""

    method: str
    path: str
    headers: list[tuple[str, str]]
    body: bytes
    key: str | None
    avoid: frozenset[str] = frozenset()


@dataclasses.dataclass(frozen=True)
class Head:
    replica: str
    status: int
    headers: list[tuple[str, str]]


@dataclasses.dataclass(frozen=True)
class Lost:
    """The server died, or what it says is no HTTP. `sent`: it may have executed the request."""

    replica: str
    sent: bool
    why: str


class Replica:
    def __init__(self, program: str, flags: list[str], grace: float) -> None:
        self._child = Child(program, flags)
        self._grace = grace
        self._id = serve.get_replica_context().replica_id.unique_id
        self._started = asyncio.Lock()
        self._ready = False

    async def _start(self) -> None:
        async with self._started:
            if not self._ready:
                await self._child.start()
                self._ready = True

    async def check_health(self) -> None:
        """Ray calls it until it returns, before the first request, and every few seconds from then on."""
        await self._start()
        await self._child.check()

    async def ask(self, asked: Asked) -> AsyncIterator[Head | Lost | bytes]:
        """A Head, then the parts of the body as they come; a Lost instead of either ends it."""
        await self._start()
        if not self._child.up:
            yield Lost(self._id, False, "it is being restarted")
            return
        assert self._child.http is not None
        try:
            url = yarl.URL(ADDRESS + asked.path, encoded=True)
            async with self._child.http.request(asked.method, url, headers=asked.headers, data=asked.body or None) as answer:
                yield Head(self._id, answer.status, passed_on(list(answer.headers.items())))
                async for part in answer.content.iter_any():
                    yield part
        except (aiohttp.ClientConnectorError, FileNotFoundError) as error:
            yield Lost(self._id, False, repr(error))
        except (aiohttp.ClientError, OSError, ValueError) as error:
            yield Lost(self._id, True, repr(error))

    async def __del__(self) -> None:
        await self._child.stop(self._grace)
