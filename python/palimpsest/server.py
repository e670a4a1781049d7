"""The HTTP server in a thread."""

from __future__ import annotations

import atexit
import os
import weakref
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from . import _palimpsest
from ._method import method_text
from .model import Model

_running: weakref.WeakSet[Server] = weakref.WeakSet()


class Server:
    """OpenAI's HTTP API over a model, as ``palimpsest serve``, in a thread of this process.

    Policies written in Python are valid in its requests: ``"cache": {"method": "random:policy=mine", "budget": 64}``.

        with palimpsest.Server(model, method="h2o", budget=256) as server:
            client = openai.OpenAI(base_url=server.url + "/v1", api_key="none")
    """

    def __init__(
        self,
        model: Model,
        *,
        method: str | None = None,
        budget: int | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        api_keys: Sequence[str] = (),
        cache_memory: int = 1024,
        max_sequences: int = 64,
        name: str = "",
        chat_template: str = "",
        session_path: str | os.PathLike[str] = "",
        shared_sessions: bool = False,
        special_in_messages: bool = False,
        cache_type: str = "f16",
        cache_type_v: str | None = None,
        chunk: int = 512,
        page_size: int = 64,
        **options: Any,
    ) -> None:
        """Starts the server.

        Args:
            method, budget, options: of requests without "cache"; None: streaming with the trained context as budget, at most
                2,048.
            port: 0: any free port, see `port`.
            api_keys: a request needs one of them; empty: no authentication.
            cache_memory: MiB for the caches of all requests.
            max_sequences: that run at the same time.
            name: the model's name in the API; "": its file's.
            session_path: a folder of saved sessions; "": disabled. Each API key has its own sessions there.
            shared_sessions: clients of all API keys share the sessions.
            special_in_messages: as in `Model.chat`.

        Raises:
            Error: the port is taken, the method is illegal, or there is not enough memory.
        """
        if method is None:
            context = int(model.shape["trained_context"])
            method, budget = "streaming", budget or min(max(context, 64), 2048)
        self._native = _palimpsest.Server(
            model._native, method_text(method, budget=budget, **options), cache_type, cache_type_v or cache_type, chunk,
            page_size, host, port, list(api_keys), cache_memory, max_sequences, name, chat_template,
            os.fspath(session_path), shared_sessions, special_in_messages,
        )  # fmt: skip
        self.host = host
        self.port: int = self._native.port
        """The port in use."""
        _running.add(self)

    @property
    def url(self) -> str:
        """As in "http://127.0.0.1:40123"."""
        return f"http://{self.host}:{self.port}"

    def stop(self) -> None:
        """Refuses new requests, waits up to 10 seconds for running ones, ends the thread."""
        _running.discard(self)
        self._native.stop()

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


@atexit.register
def _stop_all() -> None:
    for server in list(_running):
        server.stop()
