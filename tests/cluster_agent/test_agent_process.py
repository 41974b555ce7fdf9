from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import SPEC, Fleet, is_rising, same_states, wait_until

from global_learner.receipts import audit, read_receipts

pytestmark = pytest.mark.heavy

SLOWLY_SECONDS = 0.12
"""A slot where a program restarts meanwhile: its jobs must not be done before, even on a busy machine."""


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path)
    yield fleet
    fleet.close()


def test_an_agent_killed_in_mid_run_goes_on_where_its_cluster_stood(fleet: Fleet) -> None:
    free = {"workloads": [{"source": "dl2:jobs=12,seed=3"}], "environment": {"nodes": 12}}
    undisturbed = fleet.start_agent("undisturbed", backend=free)
    agent = fleet.start_agent("killed")
    for decisions in (15, 40):
        wait_until(lambda least=decisions: len(fleet.decisions("killed")) >= least, "decisions")  # type: ignore[misc]
        agent.kill()
        agent = fleet.start_agent("killed")
    assert agent.ended() == 0
    assert undisturbed.ended() == 0
    killed = fleet.decisions("killed")
    assert is_rising([line["number"] for line in killed])
    assert same_states(killed) == same_states(fleet.decisions("undisturbed"))
    summary = fleet.summary("killed")
    assert summary["finished"]
    assert summary["completed"] == 12
    assert summary["avg_jct_seconds"] == fleet.summary("undisturbed")["avg_jct_seconds"]


def test_a_learner_killed_in_mid_run_is_gone_on_with_and_no_update_is_lost_or_applied_twice(fleet: Fleet) -> None:
    learner = fleet.start_learner()
    agent = fleet.start_agent("alpha", slot_wall_seconds=SLOWLY_SECONDS, **fleet.learning())
    wait_until(lambda: len(fleet.decisions("alpha")) >= 25, "decisions with a learner")
    learner.kill()
    before = len(fleet.decisions("alpha"))
    wait_until(lambda: len(fleet.decisions("alpha")) >= before + 15, "decisions without a learner")
    learner = fleet.start_learner()
    assert agent.ended() == 0
    assert learner.stop() == 0

    applied = audit(read_receipts(fleet.folder / "learner", SPEC.digest))
    summary = fleet.summary("alpha")
    assert summary["completed"] == 12
    assert set(summary["guard_interventions"]) <= {"idle"}, "an untrained policy may idle, and does nothing worse"
    updates = summary["updates"]
    # Everything that the agent offered was answered, so the log holds exactly what it was told.
    assert updates["rejected"] == {}
    assert updates["pushed"] == updates["acknowledged"] == sum(applied.values())
    # It caught up: what was decided during the outage was learned from afterwards.
    trainable = sum(bool(line["actions"]) for line in fleet.decisions("alpha"))
    assert updates["pushed"] >= trainable - 5
    assert {line["version"] for line in fleet.decisions("alpha")} > {1}, "new versions acted"


def test_an_agent_killed_in_mid_learning_registers_anew_and_nothing_is_applied_twice(fleet: Fleet) -> None:
    learner = fleet.start_learner()
    agent = fleet.start_agent("alpha", slot_wall_seconds=SLOWLY_SECONDS, **fleet.learning())
    wait_until(lambda: len(fleet.decisions("alpha")) >= 30, "decisions")
    agent.kill()
    agent = fleet.start_agent("alpha", **fleet.learning())  # nobody has to be in time for this life
    assert agent.ended() == 0
    assert learner.stop() == 0
    applied = audit(read_receipts(fleet.folder / "learner", SPEC.digest))
    summary = fleet.summary("alpha")
    assert summary["finished"]
    assert summary["completed"] == 12
    assert set(applied) == {("alpha", 1), ("alpha", 2)}
    assert applied["alpha", 2] == summary["updates"]["acknowledged"]


def test_an_agent_told_to_stop_ends_in_good_order_and_can_go_on_later(fleet: Fleet) -> None:
    agent = fleet.start_agent("alpha")
    wait_until(lambda: len(fleet.decisions("alpha")) >= 10, "decisions")
    assert agent.stop() == 0
    summary = fleet.summary("alpha")
    assert not summary["finished"]
    assert summary["decisions"] == len(fleet.decisions("alpha"))
    assert fleet.start_agent("alpha").ended() == 0
    assert fleet.summary("alpha")["finished"]


def test_an_agent_whose_learner_never_comes_schedules_alone(fleet: Fleet) -> None:
    fleet.port = 9
    alone = fleet.learning() | {"policy": {"initial": str(fleet.policy), "mode": "sample"}}
    agent = fleet.start_agent("alpha", **alone)
    assert agent.ended() == 0
    summary = fleet.summary("alpha")
    assert summary["completed"] == 12
    assert summary["updates"]["pushed"] == 0
