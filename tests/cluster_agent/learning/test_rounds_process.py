"""An unmodified Flower strategy runs its rounds over a real learner process and three real agents."""

import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from processes import PATIENCE_SECONDS, SPEC, Fleet, wait_until

from deploy.demonstration.frame import LearnerWatch
from global_learner.storage.receipts import audit, read_receipts
from policy_net.exchange.policy_file import read_policy_file

CLUSTERS = ("north", "south", "east")


@pytest.fixture
def fleet(tmp_path: Path):
    made = Fleet(tmp_path)
    yield made
    made.close()


def steps(watch: LearnerWatch) -> int:
    now = watch.now()
    return 0 if now is None else now.head_step


@pytest.mark.heavy
def test_fedmedian_trains_three_clusters_round_by_round_and_goes_on_after_kill_9(fleet: Fleet) -> None:
    aggregation = {"mode": "rounds", "strategy": "FedMedian", "min_clusters": 3, "round_seconds": 60.0}
    publish = {"every_steps": 6, "auto_assign": True}
    learner = fleet.start_learner(aggregation=aggregation, publish=publish)
    backend = {
        "workloads": [{"source": "dl2:jobs=12,seed=3"}],
        "episodes": 1000,
        "environment": {"nodes": 12},
        "pace": {"kind": "scaled", "speedup": 1200.0 / 0.05},
        "baseline": False,
    }
    agents = [fleet.start_agent(name, backend=backend, **fleet.learning()) for name in CLUSTERS]
    watch = fleet.watch()
    try:
        wait_until(lambda: steps(watch) >= 6, "two rounds", PATIENCE_SECONDS)
        learner.kill()
        fleet.start_learner(aggregation=aggregation, publish=publish)
        wait_until(lambda: steps(watch) > 0, "the learner is back")
        again = steps(watch)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while steps(watch) < again + 9:
            assert time.monotonic() < deadline, fleet.programs[-1].output.read_text()[-2000:]
            time.sleep(0.05)
        wait_until(lambda: len(watch.versions()) > 1, "a version")
        card = watch.versions()[-1]
        weights = watch.policy(card.version).weights
    finally:
        watch.close()
    for program in [*agents, fleet.programs[-1]]:
        assert program.stop() == 0, program.output.read_text()[-2000:]
    receipts = list(read_receipts(fleet.folder / "learner", SPEC.digest))
    counts = audit(iter(receipts))
    assert {cluster for cluster, _ in counts} == set(CLUSTERS)
    # Whoever began late had nothing to say in the first rounds, and all of them in those after the kill.
    late = Counter(receipt.cluster for receipt in receipts if receipt.step > again)
    assert set(late) == set(CLUSTERS)
    assert max(late.values()) - min(late.values()) <= 1
    assert np.isfinite(weights).all()
    assert weights.tobytes() != read_policy_file(fleet.policy).weights.tobytes()
