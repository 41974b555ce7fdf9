"""A flood of refused calls fills a line now and then; who else is refused is heard meanwhile."""

from pathlib import Path
from typing import Any

from folding_clock import FoldingClock
from hypothesis import given
from hypothesis import strategies as st
from learner_in_process import serving
from structlog.testing import capture_logs

from foundation.refusal_log import MOST_KEYS, QUIET_SECONDS
from global_learner.errors import CallRefusal
from global_learner.folded_lines import OTHERS, CallRefusalLog
from policy_net.exchange.generated import fleet_pb2 as pb


class World:
    """A refusal log on a clock of its own."""

    def __init__(self) -> None:
        self.clock = FoldingClock()
        self.log = CallRefusalLog(self.clock, self.clock.later)

    def refused(self, peer: str = "ipv4:10.0.0.7:51234", reason: CallRefusal = CallRefusal.BAD_REQUEST) -> None:
        self.log.on_refusal(peer, reason, "Push", "INVALID_ARGUMENT", "it cannot be read")


def reported(lines: list[Any]) -> int:
    """Calls that log lines speak of."""
    return sum(line.get("calls", 1) for line in lines)


def test_of_a_flood_the_first_call_is_told_and_then_how_many() -> None:
    world = World()
    with capture_logs() as lines:
        for port in range(500):
            world.refused(f"ipv4:10.0.0.7:{50_000 + port}")
        world.refused("ipv4:10.0.0.8:50000")
        world.refused(reason=CallRefusal.WRONG_IDENTITY)
        assert [line["event"] for line in lines] == ["call-refused"] * 3
        assert lines[0]["reason"] == "it cannot be read"
        world.clock.pass_time(QUIET_SECONDS)
        assert lines[3:] == [
            {
                "event": "calls-refused",
                "log_level": "warning",
                "peer": "ipv4:10.0.0.7",
                "reason": "bad-request",
                "calls": 499,
                "seconds": QUIET_SECONDS,
            }
        ]
        world.refused()
    assert lines[-1]["event"] == "call-refused", "after a while the next is told in full again"


def test_however_many_callers_there_are_the_lines_are_bounded() -> None:
    world = World()
    with capture_logs() as lines:
        for number in range(3 * MOST_KEYS):
            world.refused(f"ipv6:[2001:db8::{number:x}]:443")
        assert len(lines) == MOST_KEYS + 1
        assert lines[-1]["peer"] == OTHERS
        world.clock.pass_time(QUIET_SECONDS)
    assert reported(lines) == 3 * MOST_KEYS


@given(st.lists(st.tuples(st.floats(0.0, 8.0), st.integers(0, 3), st.sampled_from(list(CallRefusal)[:3])), max_size=60))
def test_every_call_is_told_of_once(calls: list[tuple[float, int, CallRefusal]]) -> None:
    world = World()
    with capture_logs() as lines:
        for wait, host, reason in calls:
            world.clock.pass_time(wait)
            world.refused(f"ipv4:10.0.0.{host}:1", reason)
        world.clock.pass_time(2 * QUIET_SECONDS)
    assert reported(lines) == len(calls)


async def test_a_learner_counts_every_call_and_logs_one(tmp_path: Path) -> None:
    async with serving(tmp_path) as caller:
        with capture_logs() as lines:
            for _ in range(20):
                await caller.refused("FetchPolicy", pb.FetchPolicyRequest(version=99))
        counted = caller.learner.beliefs._telemetry.registry.get_sample_value(
            "fedl2_learner_refusals_total", {"method": "FetchPolicy", "reason": "not-found"}
        )
    assert [line["event"] for line in lines if "refused" in line["event"]] == ["call-refused"]
    assert counted == 20
