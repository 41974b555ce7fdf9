"""A learner that is stopped for longer than its limits, as when its machine is moved, takes nobody for silent."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from learner_process import LearnerProcess
from rollout_fleet import FakeFleet, living_fleet

pytestmark = pytest.mark.heavy

AWAY_SECONDS = 20.0
STOPPED_SECONDS = 1.5 * AWAY_SECONDS
AT_ONCE_SECONDS = 4.0
"""Within so long of its waking a learner that judged by its own absence had taken all for away."""


def away(fleet: FakeFleet) -> set[str]:
    return {member.cluster for member in fleet.rollout().members if member.away}


def test_a_learner_that_was_stopped_gives_its_clusters_their_time_again(tmp_path: Path) -> None:
    learner = LearnerProcess(
        tmp_path, publish={"every_steps": 1}, rollouts={"away_seconds": AWAY_SECONDS, "period_seconds": 0.2}
    )
    with living_fleet(learner) as fleet:
        fleet.publish()
        fleet.start(2)
        fleet.live_until(lambda rollout: rollout.phase == "asking")
        for agent in fleet.agents:
            agent.beat()
        os.kill(learner.pid, signal.SIGSTOP)
        time.sleep(STOPPED_SECONDS)  # what is stopped sees no other time
        os.kill(learner.pid, signal.SIGCONT)
        woke = time.monotonic()
        # No cluster says anything any more: each is away, but not before its time has passed while the learner ran.
        while len(away(fleet)) < len(fleet.agents):
            if away(fleet):
                assert time.monotonic() - woke > AT_ONCE_SECONDS
            assert time.monotonic() - woke < 120.0
        assert fleet.rollout().phase == "asking"
        # Nothing is lost: whoever is heard again takes part.
        for agent in fleet.agents:
            agent.beat()
        fleet.live_until(lambda _: not away(fleet))
