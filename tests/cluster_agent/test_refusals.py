"""A learner that refuses an agent for ever is said to, and does not fill the log."""

import structlog
from agent_fakes import Clock

from cluster_agent.errors import LearnerRefused
from cluster_agent.fleet.session import Refusals

REVOKED = "PERMISSION_DENIED: certificate of north was revoked"


def said_in(seconds: float, every: float = 5.0) -> list[str]:
    """What is said while all three callers are refused again and again."""
    clock = Clock()
    refusals = Refusals(clock)
    with structlog.testing.capture_logs() as lines:
        for _ in range(int(seconds / every)):
            for caller, call in (("heartbeat", "Register"), ("update", "Register"), ("round", "Poll")):
                refusals.refused(caller, LearnerRefused(f"{call}: {REVOKED}"))
            clock.now += every
    return [line["event"] for line in lines]


def test_a_refusal_is_one_line_when_it_begins_whoever_meets_it() -> None:
    assert said_in(60.0) == ["learner-refused"]


def test_afterwards_it_is_said_less_and_less_often() -> None:
    # After 1, 3, 7, 15, 31 and 63 minutes, and once an hour from then on.
    assert said_in(24 * 3600.0) == ["learner-refused", *["learner-refuses-still"] * 28]


def test_a_refusal_that_ended_for_all_is_new_when_it_comes_back() -> None:
    refusals = Refusals(Clock())
    error = LearnerRefused(f"Register: {REVOKED}")
    with structlog.testing.capture_logs() as lines:
        refusals.refused("heartbeat", error)
        refusals.refused("update", error)
        refusals.answered("heartbeat")
        refusals.refused("heartbeat", error)
        assert len(lines) == 1
        refusals.answered("heartbeat")
        refusals.answered("update")
        refusals.refused("heartbeat", error)
        assert len(lines) == 2


def test_an_answered_heartbeat_does_not_make_a_refused_update_new_each_time() -> None:
    refusals = Refusals(Clock())
    with structlog.testing.capture_logs() as lines:
        for _ in range(10):
            refusals.refused("update", LearnerRefused("PushUpdate: INVALID_ARGUMENT: a gradient of another length"))
            refusals.answered("heartbeat")
    assert [line["event"] for line in lines] == ["learner-refused"]


def test_words_that_change_each_time_are_not_kept_for_ever() -> None:
    refusals = Refusals(Clock())
    for number in range(1000):
        refusals.refused("update", LearnerRefused(f"Push: refused {number}"))
    assert len(refusals._known) <= 16
