"""What the log tells of pushed updates, and of a flood of such as change nothing."""

from __future__ import annotations

from folding_clock import FoldingClock
from learner_makers import update
from structlog.testing import capture_logs

from foundation.refusal_log import MOST_KEYS, QUIET_SECONDS
from global_learner.errors import Rejection
from global_learner.folded_lines import OTHERS
from global_learner.pushes import PushOutcome, UpdateAnswer
from global_learner.service.fleet_service import PushLines

APPLIED = UpdateAnswer(PushOutcome.APPLIED, 7, None)
DUPLICATE = UpdateAnswer(PushOutcome.DUPLICATE, 7, None)
FLOODED = UpdateAnswer(PushOutcome.DUPLICATE, 7, None, is_beyond_rate=True)
QUARANTINED = UpdateAnswer(PushOutcome.REJECTED, 7, None, reason=Rejection.QUARANTINED, is_beyond_rate=True)


class World:
    """Push lines on a clock of their own."""

    def __init__(self) -> None:
        self.clock = FoldingClock()
        self.lines = PushLines(self.clock, self.clock.later)

    def answered(self, answer: UpdateAnswer, times: int = 1, cluster: str = "north") -> None:
        for _ in range(times):
            self.lines.on_answer(update(1, cluster=cluster), answer, 0.001)


def test_within_its_rate_every_update_has_its_line() -> None:
    world = World()
    with capture_logs() as lines:
        world.answered(APPLIED, 300)
        world.answered(DUPLICATE, 300)
    assert [line["event"] for line in lines] == ["update-answered"] * 600
    assert world.clock.due == []


def test_beyond_it_the_first_has_one_and_the_others_are_told_by_number() -> None:
    world = World()
    with capture_logs() as lines:
        world.answered(FLOODED, 700)
        world.answered(QUARANTINED, 300)
        world.answered(FLOODED, cluster="south")
        world.answered(APPLIED)
        assert [line["outcome"] for line in lines] == ["duplicate", "rejected", "duplicate", "applied"]
        world.clock.pass_time(QUIET_SECONDS)
        reported = [line for line in lines if line["event"] == "updates-answered"]
        assert reported == [
            {
                "event": "updates-answered",
                "log_level": "warning",
                "cluster": "north",
                "outcome": outcome,
                "updates": count,
                "seconds": QUIET_SECONDS,
            }
            for outcome, count in (("duplicate", 699), ("quarantined", 299))
        ]
        world.answered(FLOODED)
    assert lines[-1]["event"] == "update-answered", "after a while the next is told in full again"


def test_however_many_names_a_flood_comes_under_its_lines_are_bounded() -> None:
    world = World()
    with capture_logs() as lines:
        for number in range(3 * MOST_KEYS):
            world.answered(FLOODED, cluster=f"c{number}")
        assert len(lines) == MOST_KEYS + 1
        world.clock.pass_time(QUIET_SECONDS)
    assert lines[-1]["cluster"] == OTHERS
    assert sum(line.get("updates", 1) for line in lines) == 3 * MOST_KEYS
