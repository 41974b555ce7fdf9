"""Two learners amid a rollout: the active one frozen until the other leads, or the database gone for a while."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from disturbed_fleet import SECTIONS, disturbed_fleet, until
from learner_process import LearnerProcess
from places import Place
from postgres_server import PostgresServer, own_server

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.long,
    pytest.mark.skipif(sys.platform != "linux", reason="freezes processes by a signal"),
]

LEASE_SECONDS = 3.0
DISTURBED = ("canary", "fleet")


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    own = own_server()
    yield own
    own.close()


def pair(folder: Path, url: str) -> list[LearnerProcess]:
    learners = []
    for name in ("first", "second"):
        (folder / name).mkdir()
        shared = {"state_dir": str(folder / "shared"), "database": url, "lease_seconds": LEASE_SECONDS}
        learner = LearnerProcess(folder / name, **shared, **SECTIONS)
        learner.state_dir = folder / "shared"
        learners.append(learner)
    return learners


def test_a_leader_that_was_frozen_amid_a_rollout_decides_nothing_when_it_wakes(
    tmp_path: Path, server: PostgresServer
) -> None:
    url = server.new_database()
    with disturbed_fleet(pair(tmp_path, url)) as fleet:
        active, standby = fleet.learners
        fences = 1

        def freeze(where: Place) -> None:
            nonlocal active, standby, fences
            if where[1] not in DISTURBED or where[0] != "running":
                return
            os.kill(active.pid, signal.SIGSTOP)
            standby.wait()
            fences += 1
            fleet.agents[0].hear()
            # It ends, its driver with it: whoever leads again is a new process, with a driver of its own.
            assert active.end(signal.SIGCONT) == 1
            assert "another learner took the lease" in active.log.read_text()
            assert server.sql(url, "SELECT fence FROM learner_lease.lease") == str(fences)
            active.begin()
            active, standby = standby, active

        fleet.start()
        assert fleet.live(freeze, abort_in="canary") == ("rolled-back", "canary")
        fleet.start()
        assert fleet.live(freeze) == ("done", "fleet")
        assert fences == 4


def test_without_its_database_a_rollout_stands_still_and_then_goes_on(tmp_path: Path, server: PostgresServer) -> None:
    with disturbed_fleet(pair(tmp_path, server.new_database())) as fleet:

        def away(where: Place) -> None:
            if where[1] not in DISTURBED or where[0] != "running":
                return
            fleet.hear()
            reported = [agent.now() for agent in fleet.agents]
            server.stop()
            until(lambda: not fleet.agents[0].is_answered(), "no learner answers without its database")
            server.start()
            fleet.hear()
            assert [agent.now() for agent in fleet.agents] == reported

        fleet.start()
        assert fleet.live(away, abort_in="canary") == ("rolled-back", "canary")
        fleet.start()
        assert fleet.live(away) == ("done", "fleet")
