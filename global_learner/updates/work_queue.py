"""Queue of work that follows from updates but holds nobody up: versions, snapshots, cutting the log.

One task at a time, in the order in which it fell due: a version is in the registry before a snapshot makes the log
records that it could be rebuilt from unnecessary. Each waits until the updates that it contains are on disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

_BACKLOG = 8
"""Tasks that may wait; each holds a copy of the weights. Beyond it, updates wait for room."""

Work = Callable[[], Awaitable[None]]


class WorkQueue:
    """A queue with one worker; a task that fails ends it and `failed` is called once.

    Args:
        moved: is called whenever a task is taken from the queue, and when there will be no more.
    """

    def __init__(self, failed: Callable[[BaseException], None], moved: Callable[[], None] = lambda: None) -> None:
        self._failed = failed
        self._moved = moved
        self._queue: asyncio.Queue[Work | None] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None
        self._ended = False

    @property
    def has_room(self) -> bool:
        """Whether the backlog is short enough for more; after a failure nothing is held up any more."""
        return self._ended or self._queue.qsize() < _BACKLOG

    def start(self) -> None:
        """Begin to work."""
        self._task = asyncio.create_task(self._work(), name="maintenance")

    def add(self, work: Work) -> None:
        """Queue a task."""
        self._queue.put_nowait(work)

    async def close(self) -> None:
        """Finish what is queued."""
        self._queue.put_nowait(None)
        if self._task is not None:
            await self._task

    async def _work(self) -> None:
        while (work := await self._queue.get()) is not None:
            self._moved()
            try:
                await work()
            except Exception as error:  # whatever it was, nothing may follow it: the caller stops the learner
                self._ended = True
                self._failed(error)
                self._moved()
                return
        self._moved()
