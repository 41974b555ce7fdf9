"""Refusals that last are logged less and less often; work is repeated until it is stopped."""

import threading

import structlog
from agent_fakes import Clock

from cluster_agent.fleet.session import Refusals, RepeatedWork
from policy_net.errors import LearnerRefused

DEADLINE_SECONDS = 60.0
REVOKED = "PERMISSION_DENIED: certificate of north was revoked"


def said_in(seconds: float, every: float = 5.0) -> list[str]:
    """What is said while all three callers are refused again and again."""
    clock = Clock()
    refusals = Refusals(clock)
    with structlog.testing.capture_logs() as lines:
        for _ in range(int(seconds / every)):
            for caller, call in (("heartbeat", "Register"), ("update", "Register"), ("round", "Poll")):
                refusals.on_refused(caller, LearnerRefused(f"{call}: {REVOKED}"))
            clock.now += every
    return [line["event"] for line in lines]


def test_a_refusal_is_one_line_when_it_begins_whoever_meets_it() -> None:
    assert said_in(60.0) == ["learner-refused"]


def test_afterwards_it_is_said_less_and_less_often() -> None:
    # After 1, 3, 7, 15, 31 and 63 minutes, and once an hour from then on.
    assert said_in(24 * 3600.0) == ["learner-refused", *["refusal-repeated"] * 28]


def test_a_refusal_that_ended_for_all_is_new_when_it_comes_back() -> None:
    refusals = Refusals(Clock())
    error = LearnerRefused(f"Register: {REVOKED}")
    with structlog.testing.capture_logs() as lines:
        refusals.on_refused("heartbeat", error)
        refusals.on_refused("update", error)
        refusals.on_answered("heartbeat")
        refusals.on_refused("heartbeat", error)
        assert len(lines) == 1
        refusals.on_answered("heartbeat")
        refusals.on_answered("update")
        refusals.on_refused("heartbeat", error)
        assert len(lines) == 2


def test_an_answered_heartbeat_does_not_make_a_refused_update_new_each_time() -> None:
    refusals = Refusals(Clock())
    with structlog.testing.capture_logs() as lines:
        for _ in range(10):
            refusals.on_refused("update", LearnerRefused("PushUpdate: INVALID_ARGUMENT: a gradient of another length"))
            refusals.on_answered("heartbeat")
    assert [line["event"] for line in lines] == ["learner-refused"]


def test_words_that_change_each_time_are_not_kept_for_ever() -> None:
    refusals = Refusals(Clock())
    for number in range(1000):
        refusals.on_refused("update", LearnerRefused(f"Push: refused {number}"))
    assert len(refusals.known) <= 16


class Counting(RepeatedWork):
    """Asks for no wait twice, and then for one that only the stop ends."""

    def __init__(self) -> None:
        super().__init__("counting")
        self.done: list[str] = []
        self.waits = threading.Event()

    def attempt(self) -> float:
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
