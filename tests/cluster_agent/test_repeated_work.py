from __future__ import annotations

import threading

from cluster_agent.fleet.session import RepeatedWork

DEADLINE_SECONDS = 60.0


class Counting(RepeatedWork):
    """Asks for no wait twice, and then for one that only the stop ends."""

    def __init__(self) -> None:
        super().__init__("counting")
        self.done: list[str] = []
        self.waits = threading.Event()

    def _attempt(self) -> float:
        self.done.append("work")
        if len(self.done) < 3:
            return 0.0
        self.waits.set()
        return 3600.0

    def _at_end(self) -> None:
        self.done.append("end")


def test_work_is_repeated_until_it_is_stopped_amid_a_wait_and_then_ended_once() -> None:
    work = Counting()
    work.start()
    assert work.waits.wait(DEADLINE_SECONDS)
    work.finish(DEADLINE_SECONDS)
    assert work.done == ["work", "work", "work", "end"]


def test_what_was_never_begun_can_be_finished() -> None:
    work = Counting()
    work.finish(DEADLINE_SECONDS)
    assert work.done == []
