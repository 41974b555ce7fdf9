"""Work in the background of the learner's event loop, one piece at a time, with an end.

Two pieces beside each other would ask the same store, process or learner for the same thing twice.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any


class BackgroundTask:
    """At most one task at a time, of a name that stands in logs; used on the learner's event loop."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._task: asyncio.Task[None] | None = None

    def begin(self, work: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        """Begin a piece of work, unless the one before is still under way; whether it was begun."""
        if self._task is not None and not self._task.done():
            return False
        self._task = asyncio.create_task(work(), name=self._name)
        return True

    async def finished(self) -> None:
        """Wait until nothing is under way; what the work raised is not raised here."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def close(self) -> None:
        """Give up what is under way, and wait until it has ended."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
