"""An operator moves a running agent to a version and takes the head back; all of it outlives kill -9."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from processes import PATIENCE_SECONDS, Fleet, wait_until

from foundation.command_line import run
from global_learner.policyctl import cli as policyctl

pytestmark = pytest.mark.heavy


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path)
    yield fleet
    fleet.close()


def test_a_running_agent_takes_the_assigned_version_and_learns_on_after_a_reset(fleet: Fleet, capsys) -> None:
    def asked(*words: str) -> Any:
        capsys.readouterr()
        line = [
            *words,
            "--learner",
            f"unix:{fleet.folder}/learner/operator.sock",
            "--timeout",
            str(PATIENCE_SECONDS),
            "-o",
            "json",
        ]
        assert run(policyctl.app, "policyctl", line) == 0
        return json.loads(capsys.readouterr().out)

    def alpha() -> dict[str, Any]:
        (found,) = asked("fleet")["clusters"]
        return dict(found)

    publish: dict[str, object] = {"publish": {"every_steps": 3}}
    learner = fleet.start_learner(**publish)
    endless = {
        "workloads": [{"source": "dl2:jobs=12,seed=3"}],
        "episodes": 1000,
        "environment": {"nodes": 12},
        "pace": {"kind": "scaled", "speedup": 1200.0 / 0.03},
    }
    agent = fleet.start_agent("alpha", backend=endless, **fleet.learning())
    wait_until(lambda: len(asked("version", "list")) >= 3, "versions")
    wait_until(lambda: alpha()["acting_version"] == 1, "the agent acts on v1")
    asked("assign", "v2", "--cluster", "alpha")
    learner.kill()
    fleet.start_learner(**publish)
    wait_until(lambda: alpha()["acting_version"] == 2, "the agent acts on what was assigned before the kill")
    assert (alpha()["assigned_version"], alpha()["held"]) == (2, True)

    known = len(asked("version", "list"))  # v3, a child of v2 too, is among them
    done = asked("head", "reset", "--to", "v2", "--yes")
    assert (done["changed"], done["moments"]) == (True, "kept")
    before = alpha()["updates_accepted"]
    wait_until(lambda: alpha()["updates_accepted"] >= before + 4, "the agent learns on at the new head")
    wait_until(lambda: any(card["parent"] == 2 for card in asked("version", "list")[known:]), "a child of v2")
    assert set(alpha()["updates_rejected"]) <= {"head-reset"}
    agent.kill()
    agent = fleet.start_agent("alpha", backend=endless, **fleet.learning())
    wait_until(lambda: alpha()["incarnation"] == 2 and alpha()["acting_version"] == 2, "v2 acts from the start on")
    asked("unassign", "--cluster", "alpha")
    wait_until(lambda: alpha()["acting_version"] == 1, "back to v1")
    assert agent.stop() == 0
