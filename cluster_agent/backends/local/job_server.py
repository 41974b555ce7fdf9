"""Server of the jobs' Unix socket, which only the agent's user may open: a line of JSON in, a line of JSON out.

One thread waits for all connections, so that a client that says nothing, sends no end, or does not read what it asked
for, holds nobody else up; it is let go after some seconds. Answers are made in a few threads of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from cluster_agent.errors import BadAgentConfig, BadJobFile, JobRefused, StateDamaged
from cluster_agent.job_messages import ANSWER, CONTENT, END, LARGEST_REQUEST_BYTES, METHOD, REFUSED, decode, encode
from foundation.locks import FileLock, LockHeld
from foundation.text import plain_line

_log = structlog.get_logger()

Answer = Callable[[Mapping[str, Any]], Any]
"""Of one method: from a request's content; it may be called from several threads at once."""
_LONGEST_PATH = 100
"""Bytes; the system takes 107."""
_THREADS = 4
_BACKLOG = 128
_GRACE_SECONDS = 5.0
_SHARED_SECONDS = 0.5
"""As often as jobs are looked at: what is measured of them changes no faster."""
_PRIVATE_FOLDER, _PRIVATE_SOCKET = 0o700, 0o600
_OPEN_TO_OTHERS = 0o077


@dataclass(frozen=True, slots=True)
class ClientPatience:
    """What a client may cost: seconds for its request, and again for its reading, and connections at once."""

    seconds: float = 10.0
    connections: int = 256


class SharedAnswers:
    """Answers that several ask for at once, such as all who watch the jobs: made once, and shared for a moment.

    An answer from before a change of `stamp` is given to nobody.
    """

    def __init__(
        self,
        stamp: Callable[[], object],
        clock: Callable[[], float] = time.monotonic,
        methods: Collection[str] = ("jobs",),
    ) -> None:
        self._stamp = stamp
        self._clock = clock
        self._methods = methods
        self._lock = threading.Lock()
        self._made: dict[bytes, tuple[object, float, bytes]] = {}

    def get(self, method: str, request: bytes, make: Callable[[], bytes]) -> bytes:
        """The answer to a request: one that was made just before, or else a new one."""
        if method not in self._methods:
            return make()
        with self._lock:  # whoever comes while it is made waits for it
            stamp, now = self._stamp(), self._clock()
            known = self._made.get(request)
            if known is not None and known[0] == stamp and now - known[1] < _SHARED_SECONDS:
                return known[2]
            made = make()
            self._made = {other: entry for other, entry in self._made.items() if now - entry[1] < _SHARED_SECONDS} | {
                request: (stamp, now, made)
            }
            return made


class JobServer:
    """Server on a socket until `close`; the socket's folder is made, for nobody else to enter.

    Raises:
        BadConfig: it cannot listen there, or another agent does.
    """

    def __init__(
        self,
        path: Path,
        answers: Mapping[str, Answer],
        patience: ClientPatience | None = None,
        shared: SharedAnswers | None = None,
    ) -> None:
        self._path = path
        self._answers = answers
        self._patience = patience or ClientPatience()
        self._shared = shared
        self._connections = 0
        self._lock, listener = _listen(path)
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="jobs")
        self._loop = asyncio.new_event_loop()
        self._closing = asyncio.Event()
        self._thread = threading.Thread(target=self._run, args=(listener,), name="job-socket", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Take nothing more; answers that are being made are still given."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._closing.set)
            self._thread.join()
        self._pool.shutdown(wait=False, cancel_futures=True)
        with contextlib.suppress(OSError):
            self._path.unlink()
        self._lock.release()

    def _run(self, listener: socket.socket) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve(listener))

    async def _serve(self, listener: socket.socket) -> None:
        server = await asyncio.start_unix_server(
            self._converse, sock=listener, limit=LARGEST_REQUEST_BYTES, backlog=_BACKLOG
        )
        await self._closing.wait()
        server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if others:
            await asyncio.wait(others, timeout=min(_GRACE_SECONDS, self._patience.seconds))

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        writer.transport.set_write_buffer_limits(0)  # what is drained has been taken by the client's side
        try:
            message = await self._heard(reader, writer)
            if message:
                writer.write(message)
                async with asyncio.timeout(self._patience.seconds):
                    await writer.drain()
        except (TimeoutError, OSError):
            writer.transport.abort()  # it does not read, or has gone
        finally:
            self._connections -= 1
            writer.close()

    async def _heard(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        """The answer to what a client sends; nothing for one that leaves without a request.

        Raises:
            TimeoutError: its request does not end.
        """
        if self._connections > self._patience.connections:
            return _refusal("too many requests at once; ask again")
        if not _is_ours(writer.get_extra_info("socket")):
            return _refusal("this agent answers its own user only")
        try:
            async with asyncio.timeout(self._patience.seconds):
                line = await reader.readuntil(END)
        except asyncio.LimitOverrunError:
            return _refusal(f"a request of more than {LARGEST_REQUEST_BYTES:,} bytes; say less")
        except asyncio.IncompleteReadError as error:
            return _refusal("a request without an end; send a line of JSON") if error.partial else b""
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._answered, line)

    def _answered(self, line: bytes) -> bytes:
        try:
            message = decode(line)
            answer = self._answers.get(str(message.get(METHOD)))
            if answer is None:
                return _refusal(
                    plain_line(f"no request of ours: {message.get(METHOD)!r}; is the agent older than you?")
                )

            def make() -> bytes:
                return encode({ANSWER: answer(message[CONTENT])})

            return make() if self._shared is None else self._shared.get(str(message[METHOD]), line, make)
        except (BadJobFile, JobRefused, StateDamaged) as error:
            return _refusal(str(error))
        except OSError as error:
            _log.exception("job-request-failed")
            return _refusal(f"it cannot be kept ({error.strerror}); free space")
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            return _refusal(plain_line(f"no request of ours: {error!r}"))
        except Exception as error:
            _log.exception("job-request-failed")
            return _refusal(plain_line(f"the agent failed over it ({error!r}); its log says more"))


def _refusal(line: str) -> bytes:
    return encode({REFUSED: line})


def _is_ours(connection: Any) -> bool:
    """Whether the other side is this process's user, or root; where the system cannot tell, modes have to do."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return True
    _, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, option, struct.calcsize("3i")))
    return user in (os.getuid(), 0)


def _listen(path: Path) -> tuple[FileLock, socket.socket]:
    """A socket that others can neither open nor replace, and the lock by which its agent is known to live.

    Raises:
        BadConfig: it cannot be had.
    """
    if len(str(path).encode()) > _LONGEST_PATH:
        raise BadAgentConfig(f"setting backend.socket: {path} is longer than {_LONGEST_PATH} bytes; name a shorter one")
    try:
        path.parent.mkdir(mode=_PRIVATE_FOLDER, parents=True, exist_ok=True)
        _check_folder(path.parent)
        if path.exists() and not path.is_socket():
            raise BadAgentConfig(f"setting backend.socket: {path} is a file and no socket; name another one")
        lock = FileLock(path.with_name(f"{path.name}.lock"))
    except LockHeld as error:
        raise BadAgentConfig(
            f"setting backend.socket: {path} is another agent's (process {error.holder or 'unknown'}); end it, or name "
            "another one"
        ) from error
    except OSError as error:
        raise BadAgentConfig(f"setting backend.socket: {path} cannot be used ({error.strerror})") from error
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.unlink(missing_ok=True)
        os.fchmod(listener.fileno(), _PRIVATE_SOCKET)  # before it has a name; Linux gives this mode to the name
        listener.bind(str(path))
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        lock.release()
        raise BadAgentConfig(f"setting backend.socket: {path}: nobody can listen there ({error.strerror})") from error
    return lock, listener


def _check_folder(folder: Path) -> None:
    """A folder that was there before is left as it is: it may be everybody's, such as /tmp.

    Raises:
        BadConfig: others may enter it, or it is another's.
    """
    state = folder.stat()
    if state.st_uid != os.getuid() or state.st_mode & _OPEN_TO_OTHERS:
        raise BadAgentConfig(
            f"setting backend.socket: others may enter {folder}; name a folder that is not there yet, or one of your "
            "own (`chmod 700`)"
        )
