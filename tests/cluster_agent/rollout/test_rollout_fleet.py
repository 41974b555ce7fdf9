"""A version that a fleet has made reaches it by a rollout: a real learner, real agents, and policyctl."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from processes import PATIENCE_SECONDS, Fleet, Program, made_again, wait_until

from foundation.command_line import run
from global_learner.policyctl import cli as policyctl

pytestmark = pytest.mark.heavy

CLUSTERS = ("alpha", "beta", "gamma")
PUBLISH: dict[str, object] = {
    "publish": {"every_steps": 3},
    "rollouts": {"period_seconds": 0.5, "away_seconds": PATIENCE_SECONDS},
}
# Two versions of one head hardly differ, and seconds are all that there is: anything passes, but by evidence.
LENIENT = {
    "margin_percent": 100,
    "false_pass_percent": 50,
    "held_loss_percent": 100,
    "guard_tolerance_percent": 100,
    "latency_tolerance_seconds": 60,
    "least_pairs": 1,
    "shadow_decisions": 5,
    "shadow_failed_percent": 100,
    "shadow_guard_percent": 100,
}


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path)
    yield fleet
    fleet.close()


Asked = Callable[..., Any]


@pytest.fixture
def asked(fleet: Fleet, capsys: pytest.CaptureFixture[str]) -> Asked:
    def ask(*words: str, codes: tuple[int, ...] = (0,)) -> Any:
        capsys.readouterr()
        where = ["--learner", f"unix:{fleet.folder}/learner/operator.sock", "--timeout", str(PATIENCE_SECONDS)]
        code = run(policyctl.app, "policyctl", [*words, *where, "-o", "json"])
        said = capsys.readouterr()
        assert code in codes, said.err
        return json.loads(said.out) if said.out else None

    return ask


def start(fleet: Fleet, cluster: str) -> Program:
    endless = {
        "workloads": [{"source": f"dl2:jobs=12,seed={CLUSTERS.index(cluster) + 3}"}],
        "episodes": 1000,
        "environment": {"nodes": 12},
        "pace": {"kind": "scaled", "speedup": 1200.0 / 0.03},
    }
    changes = fleet.learning()
    learner = {**changes["learner"], "twin_cpu_percent": 0}  # type: ignore[dict-item]
    return fleet.start_agent(cluster, backend=endless, **{**changes, "learner": learner})


def begin(fleet: Fleet, asked: Asked) -> tuple[Program, list[Program]]:
    """The learner, and the agents."""
    learner = fleet.start_learner(**PUBLISH)
    agents = [start(fleet, cluster) for cluster in CLUSTERS]
    wait_until(lambda: len(asked("version", "list")) >= 2, "a version that the fleet has made")
    wait_until(lambda: acting(asked) == {1}, "all act on v1")
    return learner, agents


def acting(asked: Asked) -> set[int]:
    return {cluster["acting_version"] for cluster in asked("fleet")["clusters"]}


def plan(fleet: Fleet, *stages: dict[str, Any]) -> str:
    path = fleet.folder / "plan.yaml"
    path.write_text(yaml.safe_dump({"stages": list(stages), "verdict": LENIENT}))
    return str(path)


def test_a_version_goes_by_shadow_and_canaries_to_the_fleet_and_every_decision_is_made_again(
    fleet: Fleet, asked: Asked
) -> None:
    learner, (agent, *_) = begin(fleet, asked)
    stages = ({"kind": "shadow", "hours": 0.0003}, {"kind": "canary", "count": 2}, {"kind": "fleet"})
    asked("rollout", "start", "v2", "--plan", plan(fleet, *stages))
    wait_until(lambda: stage(asked) != "shadow", "the shadow stage passes")
    learner.kill()
    fleet.start_learner(**PUBLISH)
    wait_until(lambda: asked("rollout", "status")["phase"] == "done", "the rollout is done")
    wait_until(lambda: acting(asked) == {2}, "v2 acts everywhere")
    members = asked("rollout", "status")["clusters"]
    assert {member["role"] for member in members} == {"candidate"}
    assert all(member["shadow_decisions"] >= 5 for member in members)
    assert all(member["blocks"] >= 2 for member in members)
    assert asked("audit", "verify")["sound"] is True
    agent.stop()
    made = made_again(fleet.folder / "alpha")
    assert (made["different"], made["beside"]["different"]) == (0, 0)
    assert made["beside"]["equal"] >= 5


def stage(asked: Asked) -> str:
    found = asked("rollout", "status")
    return str(found["stages"][found["stage"]] if isinstance(found["stage"], int) else found["stage"])


def test_a_rollout_that_is_aborted_leaves_nobody_on_its_version_also_who_was_away(fleet: Fleet, asked: Asked) -> None:
    _, (_, beta, _) = begin(fleet, asked)
    stages = ({"kind": "canary", "clusters": ["alpha", "beta"], "days": 30}, {"kind": "fleet"})
    asked("rollout", "start", "v2", "--plan", plan(fleet, *stages))
    wait_until(lambda: 2 in acting(asked), "the candidate acts in a block")
    beta.kill()
    asked("rollout", "abort")
    start(fleet, "beta")
    wait_until(lambda: asked("rollout", "status")["phase"] == "rolled-back", "it is rolled back")
    wait_until(lambda: acting(asked) == {1}, "v1 acts everywhere")
