from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import ENDLESS, SPEC, Fleet, is_rising, same_states, wait_until

from global_learner.storage.receipts import audit, read_receipts

pytestmark = pytest.mark.heavy

SLOWLY_SECONDS = 0.12
"""A slot where a program restarts meanwhile: what waits for the learner does not become more than an agent keeps."""


VERY_SLOWLY_SECONDS = 0.4
"""A slot where a program is ended amid its work: its jobs must not be done before, even on a busy machine."""


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path)
    yield fleet
    fleet.close()


def wait_for_updates(fleet: Fleet, count: int, what: str) -> None:
    """Wait until the learner has taken so many."""
    watch = fleet.watch()

    def are_there() -> bool:
        now = watch.now()
        return now is not None and now.updates_accepted >= count

    try:
        wait_until(are_there, what)
    finally:
        watch.close()


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
    # Killed between a decision's line and its own memory of it, an agent makes it again: the later line counts.
    killed = list({line["number"]: line for line in fleet.decisions("killed")}.values())
    assert is_rising([line["number"] for line in killed])
    assert same_states(killed) == same_states(fleet.decisions("undisturbed"))
    summary = fleet.summary("killed")
    assert summary["finished"]
    assert summary["completed"] == 12
    assert summary["avg_jct_seconds"] == fleet.summary("undisturbed")["avg_jct_seconds"]


def test_a_learner_killed_in_mid_run_is_gone_on_with_and_no_update_is_lost_or_applied_twice(fleet: Fleet) -> None:
    learner = fleet.start_learner()
    agent = fleet.start_agent("alpha", slot_wall_seconds=SLOWLY_SECONDS, episodes=ENDLESS, **fleet.learning())
    wait_until(lambda: len(fleet.decisions("alpha")) >= 25, "decisions with a learner")
    learner.kill()
    before = len(fleet.decisions("alpha"))
    wait_until(lambda: len(fleet.decisions("alpha")) >= before + 15, "decisions without a learner")
    trainable = sum(bool(line["actions"]) for line in fleet.decisions("alpha"))
    learner = fleet.start_learner()
    wait_for_updates(fleet, trainable - 5, "what was decided during the outage is learned from afterwards")
    wait_until(lambda: {line["version"] for line in fleet.decisions("alpha")} > {1}, "new versions act")
    assert agent.stop() == 0
    assert learner.stop() == 0

    applied = audit(read_receipts(fleet.folder / "learner", SPEC.digest))
    summary = fleet.summary("alpha")
    assert set(summary["guard_interventions"]) <= {"idle", "exceptional"}, "so does an untrained policy, and no worse"
    updates = summary["updates"]
    assert (updates["rejected"], updates["dropped_decisions"]) == ({}, 0)
    # All that the agent offered was answered, but perhaps for the last one: there is not much time after a signal.
    assert updates["acknowledged"] <= sum(applied.values()) <= updates["pushed"] <= updates["acknowledged"] + 1


def test_an_agent_killed_in_mid_learning_registers_anew_and_nothing_is_applied_twice(fleet: Fleet) -> None:
    learner = fleet.start_learner()
    agent = fleet.start_agent("alpha", slot_wall_seconds=VERY_SLOWLY_SECONDS, **fleet.learning())
    wait_until(lambda: len(fleet.decisions("alpha")) >= 8, "decisions")
    wait_for_updates(fleet, 1, "it learns")
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
    agent = fleet.start_agent("alpha", slot_wall_seconds=VERY_SLOWLY_SECONDS)
    wait_until(lambda: len(fleet.decisions("alpha")) >= 4, "decisions")
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
