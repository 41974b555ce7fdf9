"""How the live page's answers are made: once for all who look, and never by making the learner wait."""

import asyncio
import json
import threading
from collections.abc import Iterator

import pytest
from report_makers import report, three

from global_learner.errors import LearnerError
from global_learner.report.live import LiveReport
from policy_net.exchange.generated import fleet_pb2 as pb

DEADLINE_SECONDS = 60.0


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Told:
    """A learner that counts its answers; `failure` is raised in their place, `hold` lets them wait for ever."""

    def __init__(self) -> None:
        self.answers = 0
        self.failure: Exception | None = None
        self.hold = False

    async def __call__(self) -> pb.GetReportReply:
        self.answers += 1
        if self.hold:
            await asyncio.get_running_loop().create_future()
        if self.failure is not None:
            raise self.failure
        return report(three())


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    running = asyncio.new_event_loop()
    thread = threading.Thread(target=running.run_forever, daemon=True)
    thread.start()
    yield running
    running.call_soon_threadsafe(running.stop)
    thread.join(DEADLINE_SECONDS)
    running.close()


def test_within_a_second_everybody_gets_the_same_answer(loop: asyncio.AbstractEventLoop) -> None:
    reported, clock = Told(), Clock()
    live = LiveReport(reported, loop, clock, DEADLINE_SECONDS)
    first = live.data()
    assert first is not None
    assert [row["cluster"] for row in json.loads(first)["clusters"]] == ["language", "mixed", "vision"]
    clock.now += 0.9
    assert live.data() is first
    clock.now += 0.2
    live.data()
    assert reported.answers == 2


@pytest.mark.parametrize("hold", [False, True])
def test_a_learner_that_does_not_answer_is_not_asked_again_by_everybody(
    loop: asyncio.AbstractEventLoop, hold: bool
) -> None:
    reported, clock = Told(), Clock()
    reported.hold, reported.failure = hold, LearnerError("the disk is gone")
    live = LiveReport(reported, loop, clock, patience_seconds=0.05 if hold else DEADLINE_SECONDS)
    assert live.data() is None
    assert live.data() is None
    assert reported.answers == 1 or (hold and not reported.answers)  # it was busy for longer than the patience
    reported.hold, reported.failure = False, None
    clock.now += 1.5
    live.patience_seconds = DEADLINE_SECONDS
    assert live.data() is not None
