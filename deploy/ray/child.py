"""One `palimpsest serve` as a child process, on a Unix socket of its own: started, watched, restarted, ended."""

import asyncio
import contextlib
import ctypes
import os
import pathlib
import signal
import tempfile
import time
from collections.abc import Sequence

import aiohttp

ADDRESS = "http://palimpsest"  # a name for HTTP; the connection is the Unix socket
PR_SET_PDEATHSIG = 1
START_SECONDS = 600  # a large model takes minutes to load
ANSWER_SECONDS = 15  # for /health, which a busy server answers in milliseconds
_LIBC = ctypes.CDLL(None)


def _end_with_parent() -> None:
    """In the child before exec: SIGKILL when this process dies in any way."""
    if hasattr(_LIBC, "prctl"):
        _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Child:
    def __init__(self, program: str, flags: Sequence[str]) -> None:
        self._words = [program, "serve", *flags]
        self._folder = tempfile.TemporaryDirectory(prefix="palimpsest-")
        self.socket = str(pathlib.Path(self._folder.name) / "serve.sock")
        self._process: asyncio.subprocess.Process | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._down_since: float | None = time.monotonic()
        self.restarts = -1
        self.http: aiohttp.ClientSession | None = None

    async def start(self) -> None:
        """Returns when it serves; raises RuntimeError if it ends before."""
        # A connection for each request, without limit: each has a thread there, and the server has a queue of its own.
        # No time limit: the server has one (--timeout).
        self.http = aiohttp.ClientSession(
            connector=aiohttp.UnixConnector(self.socket, limit=0, force_close=True),
            timeout=aiohttp.ClientTimeout(total=None), auto_decompress=False,
            skip_auto_headers=["Accept", "Accept-Encoding", "Content-Type", "User-Agent"])  # fmt: skip
        await self._spawn()
        self._watcher = asyncio.create_task(self._watch())

    async def _spawn(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.socket)
        self._process = await asyncio.create_subprocess_exec(
            *self._words, "--host", f"unix:{self.socket}", stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE, preexec_fn=_end_with_parent)  # fmt: skip
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), START_SECONDS)
        if not line.startswith(b"palimpsest serves "):
            raise RuntimeError(f"{' '.join(self._words)}: did not start: {line!r}; its log is on standard error")
        self._down_since = None
        self.restarts += 1

    async def _watch(self) -> None:
        """Restarts it whenever it ends, at once the first time, then later and later."""
        pause = 0.0
        while True:
            assert self._process is not None
            started = time.monotonic()
            await self._process.wait()
            self._down_since = time.monotonic()
            pause = 0.0 if time.monotonic() - started > 10 else min(2 * pause + 0.5, 10)
            await asyncio.sleep(pause)
            try:
                await self._spawn()
            except (OSError, RuntimeError, asyncio.TimeoutError):
                continue  # check() gives up in the end

    @property
    def up(self) -> bool:
        return self._down_since is None

    async def check(self) -> None:
        """Raises RuntimeError if it does not come up again. Kills it if it serves, but does not answer."""
        if self._down_since is not None:
            if time.monotonic() - self._down_since > START_SECONDS:
                raise RuntimeError(f"{self._words[0]} serve does not come up again: see its log")
            return
        assert self.http is not None and self._process is not None
        try:
            async with self.http.get(f"{ADDRESS}/health", timeout=aiohttp.ClientTimeout(total=ANSWER_SECONDS)) as answer:
                if answer.status < 500:
                    return
        except asyncio.TimeoutError:
            pass
        except (aiohttp.ClientError, OSError):
            return  # it has just ended
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def stop(self, patience: float) -> None:
        """SIGTERM: it refuses new requests and finishes those that run; SIGKILL after `patience` seconds."""
        if self._watcher is not None:
            self._watcher.cancel()
        if self.http is not None:
            await self.http.close()
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()
            try:
                await asyncio.wait_for(self._process.wait(), patience)
            except asyncio.TimeoutError:
                self._process.kill()
        self._folder.cleanup()
