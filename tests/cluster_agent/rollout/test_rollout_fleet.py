"""A version that a fleet has made reaches it by a rollout: a real learner, real agents, and policyctl."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from process_rollouts import PUBLISH, Asked, acting, begin, operator, plan, stage, start
from processes import Fleet, made_again, wait_until

pytestmark = pytest.mark.heavy


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path)
    yield fleet
    fleet.close()


@pytest.fixture
def asked(fleet: Fleet, capsys: pytest.CaptureFixture[str]) -> Asked:
    return operator(fleet, capsys)


def test_a_version_goes_by_shadow_and_canaries_to_the_fleet_and_every_decision_is_made_again(
    fleet: Fleet, asked: Asked
) -> None:
    learner, agent, *_ = begin(fleet, asked)
    stages = ({"kind": "shadow", "hours": 0.0003}, {"kind": "canary", "count": 2}, {"kind": "fleet"})
    asked("rollout", "start", "v2", "--plan", plan(fleet, *stages))
    wait_until(lambda: stage(asked) != "shadow", "the shadow stage passes")
    learner.kill()
    fleet.start_learner(**PUBLISH)
    wait_until(lambda: asked("rollout", "status")["phase"] == "done", "the rollout is done")
    wait_until(lambda: set(acting(asked).values()) == {2}, "v2 acts everywhere")
    members = asked("rollout", "status")["clusters"]
    assert {member["role"] for member in members} == {"candidate"}
    assert all(member["shadow_decisions"] >= 5 for member in members)
    assert all(member["blocks"] >= 2 for member in members)
    assert asked("audit", "verify")["sound"] is True
    agent.stop()
    made = made_again(fleet.folder / "alpha")
    assert (made["different"], made["beside"]["different"]) == (0, 0)
    assert made["beside"]["equal"] >= 5


def test_a_rollout_that_is_aborted_leaves_nobody_on_its_version_also_who_was_away(fleet: Fleet, asked: Asked) -> None:
    _, _, beta, _ = begin(fleet, asked)
    stages = ({"kind": "canary", "clusters": ["alpha", "beta"], "days": 30}, {"kind": "fleet"})
    asked("rollout", "start", "v2", "--plan", plan(fleet, *stages))
    wait_until(lambda: 2 in acting(asked).values(), "the candidate acts in a block")
    beta.kill()
    asked("rollout", "abort")
    start(fleet, "beta")
    wait_until(lambda: asked("rollout", "status")["phase"] == "rolled-back", "it is rolled back")
    wait_until(lambda: set(acting(asked).values()) == {1}, "v1 acts everywhere")
