"""A fleet that learns from twins, as it does unless told otherwise: a real learner, killed once, and agents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from processes import PATIENCE_SECONDS, Fleet, wait_until

from policy_net.exchange.policy_file import PolicyFile, write_policy_file
from policy_net.exchange.spec import SetSpec
from policy_net.set_policy.policy import default_set_file, set_spec_of

SOURCE = "dl2:jobs=40,seed=3"
OFTEN: dict[str, Any] = {"publish": {"every_steps": 4, "auto_assign": True}, "optimizer": {}}


@pytest.fixture
def fleet(tmp_path: Path) -> Any:
    made = Fleet(tmp_path)
    shipped = default_set_file()
    spec = set_spec_of(shipped, "set").model_copy(update={"prices": 1, "sessions": 1})
    weights = np.append(shipped.weights, np.zeros(spec.parameter_count - shipped.weights.size)).astype(np.float32)
    write_policy_file(made.policy, PolicyFile(spec, weights, {}, shipped.priors))
    yield made
    made.close()


def taught(fleet: Fleet, history: list[str]) -> dict[str, Any]:
    twin = {"history": history, "cpu_percent": 100, "window_jobs": 40, "gradient": {"pairs": 2}}
    learner = fleet.learning()["learner"]
    return {
        "learner": learner,
        "policy": {"initial": str(fleet.policy), "mode": "greedy"},
        "learning": {"twin": twin, "flush_seconds": 5.0},
    }


@pytest.mark.heavy
def test_clusters_teach_from_their_past_through_a_kill_of_the_learner_and_act_on_what_came_of_it(fleet: Fleet) -> None:
    learner = fleet.start_learner(**OFTEN)
    agents = [
        fleet.start_agent(name, slot_wall_seconds=0.2, episodes=1000, **taught(fleet, [SOURCE]))
        for name in ("north", "south")
    ]
    watch = fleet.watch()
    try:

        def accepted() -> int:
            now = watch.now()
            return 0 if now is None else now.updates_accepted

        wait_until(lambda: accepted() >= 3, "updates", PATIENCE_SECONDS)
        learner.kill()
        learner = fleet.start_learner(**OFTEN)
        wait_until(lambda: accepted() >= 2, "updates again", PATIENCE_SECONDS)
        wait_until(lambda: len(watch.versions()) > 1, "a version", PATIENCE_SECONDS)
        newest = watch.versions()[-1].version
        made = watch.policy(newest)
        wait_until(
            lambda: any(line["version"] > 1 for name in ("north", "south") for line in fleet.decisions(name)[-1:]),
            "a decision under a version that the fleet has made",
            PATIENCE_SECONDS,
        )
    finally:
        watch.close()
    assert isinstance(made.spec, SetSpec)
    assert made.weights[-9:].any(), "prices and sessions have moved too"
    for program in [*agents, learner]:
        assert program.stop() == 0, program.output.read_text()[-2000:]


@pytest.mark.heavy
def test_a_past_that_is_not_there_is_said_and_the_cluster_is_scheduled_all_the_same(fleet: Fleet) -> None:
    fleet.start_learner(**OFTEN)
    agent = fleet.start_agent("north", episodes=1000, **taught(fleet, ["sacct:/none/month.txt"]))
    wait_until(lambda: "twin-teaches-nothing" in agent.output.read_text(), "the line", PATIENCE_SECONDS)
    assert "/none/month.txt" in agent.output.read_text()
    before = len(fleet.decisions("north"))
    wait_until(lambda: len(fleet.decisions("north")) > before + 3, "decisions", PATIENCE_SECONDS)
    assert agent.stop() == 0
