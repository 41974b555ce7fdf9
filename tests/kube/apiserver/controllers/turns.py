"""Turns of the controllers on a server's loop: a step of each, again while they write, then when something is due."""

from __future__ import annotations

import asyncio

from apiserver.controllers.stepping import Controller
from apiserver.store import Change, Store

_LONGEST_WAIT_SECONDS = 0.2


class Turns:
    """Runs controllers in the thread of a loop, between its requests."""

    def __init__(self, store: Store, loop: asyncio.AbstractEventLoop) -> None:
        self._store, self._loop = store, loop
        self._controllers: list[Controller] = []
        self._asked = False
        self._timer: asyncio.TimerHandle | None = None
        self.failures: list[Exception] = []
        """Of controllers; none takes another turn after one."""
        store.on_change.append(self._note)

    def attach(self, controller: Controller) -> None:
        self._controllers.append(controller)
        self.wake()

    def detach_all(self) -> None:
        self._controllers.clear()

    def wake(self) -> None:
        """Have a turn soon."""
        if self._controllers and not self._asked and not self.failures and not self._loop.is_closed():
            self._asked = True
            self._loop.call_soon(self._turn)

    def turn(self) -> bool:
        """Take a turn now; whether there is more to do that is due by the store's clock.

        Raises:
            Exception: that of a controller.
        """
        if self.failures:
            raise self.failures[0]
        before = self._store.version
        due = []
        for controller in tuple(self._controllers):
            try:
                at = controller.step()
            except Exception as error:
                self.failures.append(error)
                raise
            if at is not None:
                due.append(at)
        if self._timer is not None:
            self._timer.cancel()
        more = self._store.version != before or any(at <= self._store.seconds() for at in due)
        if more:
            self.wake()
        elif due:
            # The store's clock need not go like that of the loop: a test may set it.
            wait = min(max(min(due) - self._store.seconds(), 0.005), _LONGEST_WAIT_SECONDS)
            self._timer = self._loop.call_later(wait, self.wake)
        return more

    def _turn(self) -> None:
        self._asked = False
        self.turn()

    def _note(self, change: Change) -> None:
        for controller in self._controllers:
            controller.note(change)
        self.wake()
