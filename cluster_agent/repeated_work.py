"""Work that a thread of its own does again and again, with waits that the work itself asks for, until it is stopped."""

from __future__ import annotations

import threading


class RepeatedWork:
    """Owns the thread; what is done stands in the subclass."""

    def __init__(self, name: str) -> None:
        """`name` is the thread's."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin, in a thread of its own."""
        self._thread.start()

    def finish(self, seconds: float) -> None:
        """Stop, after what is under way and what is done at the end; waits at most so long for it."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(seconds)

    def _attempt(self) -> float:
        """Do it once, and raise nothing; how many seconds to wait before the next time."""
        raise NotImplementedError

    def _at_end(self) -> None:
        """Done once after the last time, if anything."""

    def _run(self) -> None:
        while not self._stop.is_set():
            self._stop.wait(self._attempt())
        self._at_end()
