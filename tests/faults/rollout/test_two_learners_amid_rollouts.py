"""Two learners amid a rollout: the active one is frozen until the other leads, forth and back, and wakes."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from disturbed_fleet import SECTIONS, disturbed_fleet
from learner_process import LearnerProcess
from places import Place
from postgres_server import PostgresServer, own_server

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.long,
    pytest.mark.skipif(sys.platform != "linux", reason="freezes processes by a signal"),
]

LEASE_SECONDS = 3.0
DISTURBED = ("shadow", "canary", "fleet")


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
            if where[1] not in DISTURBED or where[0] not in ("running", "rolling-back"):
                return
            os.kill(active.pid, signal.SIGSTOP)
            standby.wait()
            fences += 1
            if where[0] == "running":
                fleet.hear()
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
        assert fences > 4
