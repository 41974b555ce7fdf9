"""Following coordinators: those that hang do not keep others from being heard; somebody else is not believed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from typing import Any

import pytest

from cluster_agent.backends.kubernetes.training.coordinators import STALE_SECONDS, CoordinatorConnection, Coordinators
from cluster_agent.backends.kubernetes.training.step import Ask, Ended, Request
from elastic_runtime.control.messages import JobStatus, RequestOutcome, Size
from elastic_runtime.errors import BadInput, CoordinatorUnproven, CoordinatorUnreachable, ElasticError, ResizeFailed
from elastic_runtime.protocol.plan import JobPhase

PATIENCE_SECONDS = 60.0
ASK = Ask(Request.RESIZE, "d1-resize-1x2-0", Size(1, 2))
LINE = CoordinatorConnection("10.0.0.1:7770", "digits-0", "secret", "pem", "uid-1")


class Fake:
    """A coordinator's calls: each answers, or raises."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.outcome: tuple[RequestOutcome, str] = (RequestOutcome.QUEUED, "")
        self.phase, self.polls, self.closed = JobPhase.RUNNING, 0, False

    def status(self) -> JobStatus:
        self.polls += 1
        if self.error is not None:
            raise self.error
        return JobStatus("digits-0", self.phase)

    def resize(self, *_: Any) -> tuple[RequestOutcome, str]:
        if self.error is not None:
            raise self.error
        return self.outcome

    suspend = resume = resize

    def task_ended(self, *_: Any) -> None:
        if self.error is not None:
            raise self.error

    def close(self) -> None:
        self.closed = True


class AtOnce(Executor):
    """Runs what is submitted before it returns."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(fn(*args, **kwargs))
        return done


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def fake() -> Fake:
    return Fake()


@pytest.fixture
def followed(clock: Clock, fake: Fake) -> Iterator[Coordinators]:
    found = Coordinators(clock, lambda: None, lambda line: fake)
    yield found
    found.close()


@pytest.fixture
def answered(clock: Clock, fake: Fake) -> Iterator[Coordinators]:
    """As `followed`, and each poll has its answer when it is asked."""
    found = Coordinators(clock, lambda: None, lambda line: fake, pool=AtOnce())
    yield found
    found.close()


def until(holds: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_what_was_heard_counts_for_some_seconds(followed: Coordinators, clock: Clock) -> None:
    followed.follow({"u": LINE})
    until(lambda: followed.job_report("u"))
    clock.now += STALE_SECONDS + 1
    assert followed.job_report("u") is None
    assert followed.job_report("other") is None


def test_what_one_pod_said_is_not_what_the_next_one_says(followed: Coordinators, fake: Fake) -> None:
    followed.follow({"u": LINE})
    until(lambda: followed.job_report("u"))
    fake.error = CoordinatorUnreachable("not yet")
    followed.follow({"u": CoordinatorConnection(LINE.address, LINE.job, LINE.token, LINE.ca_pem, "uid-2")})
    assert fake.closed
    assert followed.job_report("u") is None


def test_one_that_fails_is_asked_less_often_and_says_why(followed: Coordinators, clock: Clock, fake: Fake) -> None:
    fake.error = CoordinatorUnreachable("no route")
    for _ in range(100):
        before = fake.polls
        followed.follow({"u": LINE})
        until(lambda before=before: fake.polls == before or followed.trouble("u"))  # type: ignore[misc]
        clock.now += 1.0
        time.sleep(0)
    until(lambda: followed.trouble("u") == "no route")
    assert fake.polls < 30
    fake.error = None
    clock.now += 60.0
    followed.follow({"u": LINE})
    until(lambda: followed.job_report("u"))
    assert followed.trouble("u") == ""


def test_a_poll_that_fails_in_a_way_of_its_own_is_told(followed: Coordinators, fake: Fake) -> None:
    fake.error = TypeError("a fault of ours")
    followed.follow({"u": LINE})
    until(lambda: "a fault of ours" in followed.trouble("u"))


@pytest.mark.parametrize(
    ("error", "answer", "knows"),
    [
        (None, "", True),
        (BadInput("below the minimum"), "below the minimum", True),
        (ResizeFailed("disk full"), "disk full", False),
        (CoordinatorUnproven("somebody else"), None, False),
        (CoordinatorUnreachable("nobody"), None, False),
        (ElasticError("odd"), None, False),
    ],
)
def test_who_answers_is_told_from_who_does_not(
    followed: Coordinators, fake: Fake, error: Exception | None, answer: str | None, knows: bool
) -> None:
    followed.follow({"u": LINE})
    fake.error = error
    assert followed.ask("u", ASK) == answer
    assert followed.report("u", Ended("worker-0", 1, "")) is knows
    assert followed.ask("nobody", ASK) is None
    assert not followed.report("nobody", Ended("worker-0", 1, ""))


def test_a_request_that_was_given_up_says_why(followed: Coordinators, fake: Fake) -> None:
    followed.follow({"u": LINE})
    fake.outcome = (RequestOutcome.ABORTED, "no room")
    assert followed.ask("u", ASK) == "no room"
    fake.outcome = (RequestOutcome.ABORTED, "")
    assert followed.ask("u", ASK) == "it was given up"


def asked_within(found: Coordinators, clock: Clock, fakes: list[Fake], seconds: float) -> list[int]:
    """How often each is asked, with looks a tenth of a second apart, each answered at once."""
    before = [fake.polls for fake in fakes]
    for _ in range(round(seconds * 10)):
        clock.now += 0.1
        found.ask_due()
    return [fake.polls - number for fake, number in zip(fakes, before, strict=True)]


@pytest.mark.parametrize(("count", "most", "least"), [(3, 5, 4), (300, 2, 1)])
def test_of_many_each_is_asked_less_often(clock: Clock, count: int, most: int, least: int) -> None:
    fakes = [Fake() for _ in range(count)]
    waiting = iter(fakes)
    found = Coordinators(clock, lambda: None, lambda line: next(waiting), pool=AtOnce())
    found.follow({f"u{number}": LINE for number in range(count)})
    asked = asked_within(found, clock, fakes, 5.0)
    assert least <= min(asked) <= max(asked) <= most
    found.close()


def test_one_that_has_something_under_way_is_asked_more_often(answered: Coordinators, clock: Clock, fake: Fake) -> None:
    answered.follow({"u": LINE})
    fake.phase = JobPhase.STARTING
    clock.now += 1.0
    answered.ask_due()
    assert asked_within(answered, clock, [fake], 5.0)[0] >= 15


def test_one_that_was_asked_for_something_is_heard_at_once(answered: Coordinators, clock: Clock, fake: Fake) -> None:
    answered.follow({"u": LINE})
    clock.now += 0.1
    assert asked_within(answered, clock, [fake], 0.1) == [0]
    answered.ask("u", ASK)
    assert asked_within(answered, clock, [fake], 0.1) == [1]
    answered.report("u", Ended("worker-0", 0, ""))
    assert asked_within(answered, clock, [fake], 0.1) == [1]


def test_nothing_is_begun_once_it_is_closed(clock: Clock, fake: Fake) -> None:
    found = Coordinators(clock, lambda: None, lambda line: fake)
    found.follow({"u": LINE})
    closing = threading.Thread(target=found.close)
    closing.start()
    for _ in range(100):
        found.follow({"u": LINE})
    closing.join(PATIENCE_SECONDS)
    found.follow({"u": LINE})
    assert not closing.is_alive()


def test_secrets_are_not_shown() -> None:
    assert "secret" not in repr(LINE)
    assert "pem" not in repr(LINE)
