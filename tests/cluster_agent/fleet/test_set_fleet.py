"""A learner and three clusters whose policy is `set`, taught live: real processes, in every mode of aggregation."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from processes import PATIENCE_SECONDS, Fleet, made_again, wait_until

from cluster_agent.recording.log_reading import CURRENT
from global_learner.storage.receipts import audit, read_receipts
from policy_net.exchange.policy_file import PolicyFile, parse_policy_file, read_policy_file
from policy_net.set_policy.policy import DEFAULT_SET_FILE

CLUSTERS = ("north", "south", "east")
SPEC = read_policy_file(DEFAULT_SET_FILE).spec
PUBLISH = {"every_steps": 4, "auto_assign": True}
LIVE = {"units": "weights"}
"""Counted so, a learner takes what clusters learn of what happened."""
PATIENT = {"max_staleness_steps": 100_000}
"""A cluster that is slow for a while is not what these tests are about."""


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    made = Fleet(tmp_path)
    shutil.copy(DEFAULT_SET_FILE, made.policy)
    yield made
    made.close()


def agent(fleet: Fleet, name: str, acting: str = "assigned", source: str = "live", **policy: object) -> None:
    """An agent that goes on until it is told to stop."""
    backend = {
        "workloads": [{"source": "dl2:jobs=20,arrivals=google,sizes=varied,seed=3"}],
        "episodes": 1000,
        "environment": {"nodes": 8},
        "pace": {"kind": "lockstep", "patience_seconds": 0.5},
        "baseline": False,
    }
    changes: dict[str, Any] = fleet.learning() | {
        "backend": backend,
        "policy": {"acting": acting, "mode": "sample", "exploration": 0.1} | policy,
        "learning": {"source": source, "residual": {"segment_decisions": 5, "minimum_effective_samples": 4}},
    }
    fleet.start_agent(name, **changes)


def run_until(
    fleet: Fleet, steps: int, learning: tuple[str, ...], acted: Callable[[], bool] = lambda: True
) -> tuple[PolicyFile, PolicyFile]:
    """Let the fleet reach a step and a version that moved, to which all of these clusters contributed more than once,
    and what else is waited for; end it in good order, and return the first version and the newest."""
    watch = fleet.watch()
    begin = fleet.policy.read_bytes()

    def reached() -> bool:
        now = watch.now()
        if now is None or now.head_step < steps:
            return False
        accepted = {view.cluster: view.updates_accepted for view in watch.fleet().clusters}
        if any(accepted.get(name, 0) < 2 for name in learning):
            return False  # on a loaded machine the others are there before the last has begun
        newest = watch.policy(now.latest_version)
        return newest.weights.tobytes() != parse_policy_file(begin, "first").weights.tobytes()

    try:
        wait_until(reached, "updates", PATIENCE_SECONDS)
        wait_until(acted, "decisions", PATIENCE_SECONDS)
        numbers = (1, watch.versions()[-1].version)
        first, last = map(watch.policy, numbers)
    finally:
        watch.close()
    learner, *agents = fleet.programs
    for program in [*agents, learner]:
        assert program.stop() == 0, program.output.read_text()[-2000:]
    return first, last


@pytest.mark.heavy
@pytest.mark.parametrize("acting", ["assigned", "head"])
def test_three_clusters_learn_one_residual_from_the_shipped_policy_on(fleet: Fleet, acting: str) -> None:
    fleet.start_learner(publish=PUBLISH, ingest=PATIENT, optimizer=LIVE)
    for name in CLUSTERS:
        agent(fleet, name, acting)

    def acted() -> bool:
        """All clusters, with what the fleet has learned."""
        key, most = ("version", 1) if acting == "assigned" else ("head_step", 2)
        return all(any(line[key] > most for line in fleet.decisions(name)) for name in CLUSTERS)

    first, last = run_until(fleet, steps=12, learning=CLUSTERS, acted=acted)

    assert first.weights.tobytes() == read_policy_file(DEFAULT_SET_FILE).weights.tobytes()
    assert last.weights.tobytes() != first.weights.tobytes()
    assert np.abs(last.weights - first.weights).max() <= 0.1 + 1e-6, "versions stay in the trust region"
    assert {entry.job_type for entry in last.priors} >= {entry.job_type for entry in first.priors}
    applied = audit(read_receipts(fleet.folder / "learner", SPEC.digest))
    assert {cluster for cluster, _ in applied} == set(CLUSTERS)
    for name in CLUSTERS:
        summary, decisions = fleet.summary(name), fleet.decisions(name)
        assert summary["updates"]["rejected"] == {}
        assert summary["guard_interventions"] == {}
        chosen = [line for line in decisions if any(value < 1.0 for value in line["behaviour"])]
        assert len(chosen) > len(decisions) / 4
        assert all(0.0 < value <= 1.0 for line in decisions for value in line["behaviour"])
        assert {line["exploration"] for line in decisions} == {0.1}
        if acting == "assigned":
            assert made_again(fleet.folder / name / CURRENT)["different"] == 0


@pytest.mark.heavy
@pytest.mark.parametrize(
    "aggregation",
    [
        {"mode": "buffered", "strategy": "FedMedian", "buffer": 3},
        {"mode": "rounds", "strategy": "FedMedian", "min_clusters": 3, "round_seconds": 60.0},
    ],
    ids=lambda settings: settings["mode"],
)
def test_cohorts_and_rounds_train_it_too(fleet: Fleet, aggregation: dict[str, object]) -> None:
    # Rounds are answered from what happened, and steps counted in weights, without being told.
    in_rounds = aggregation["mode"] == "rounds"
    optimizer = {} if in_rounds else LIVE
    fleet.start_learner(publish=PUBLISH, ingest=PATIENT, aggregation=aggregation, optimizer=optimizer)
    for name in CLUSTERS:
        agent(fleet, name, source="auto" if in_rounds else "live")
    first, last = run_until(fleet, steps=12, learning=CLUSTERS)
    assert last.weights.tobytes() != first.weights.tobytes()
    assert np.isfinite(last.weights).all()
    counts = audit(read_receipts(fleet.folder / "learner", SPEC.digest))
    assert {cluster for cluster, _ in counts} == set(CLUSTERS)


@pytest.mark.heavy
def test_a_cluster_in_production_learns_from_what_it_explores_and_nothing_where_it_does_not(fleet: Fleet) -> None:
    fleet.start_learner(publish=PUBLISH, ingest=PATIENT, optimizer=LIVE)
    agent(fleet, "north", mode="greedy", exploration=0.2)
    agent(fleet, "south", mode="greedy", exploration=0.0)

    def explored() -> set[float]:
        return {round(value, 6) for line in fleet.decisions("north") for value in line["behaviour"]}

    # The other one may be slower to begin, and what is explored is drawn.
    both = {0.2, 0.8, 1.0}
    run_until(
        fleet, steps=4, learning=("north",), acted=lambda: len(fleet.decisions("south")) >= 5 and explored() >= both
    )
    assert fleet.summary("north")["updates"]["acknowledged"] >= 4
    assert fleet.summary("south")["updates"]["pushed"] == 0
    assert all(value == 1.0 for line in fleet.decisions("south") for value in line["behaviour"])
    assert explored() == both
