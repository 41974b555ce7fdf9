"""kill -9 of a learner that gathers cohorts: what waited is not lost, what was logged moves the head the same again."""

import random
import threading
from pathlib import Path

import pytest
from learner_makers import SPEC, policy
from learner_process import DEADLINE_SECONDS, LearnerProcess
from test_learner_killed import CLUSTERS, Pusher, gradient_of, head_weights, wait_for_updates

from global_learner.aggregation.modes import build_aggregator
from global_learner.aggregation.settings import read_settings
from global_learner.storage.receipts import audit, read_receipts
from global_learner.storage.snapshot import AdamState
from global_learner.storage.update_records import AppliedUpdate, UpdateKind
from policy_net.exchange.wire import GradientUpdate

KILLS = 3
UPDATES_PER_LIFE = 80


@pytest.mark.heavy
@pytest.mark.parametrize("strategy", ["FedMedian", "FedAdam"])
def test_after_every_kill_the_head_is_what_all_acknowledged_updates_make_of_it(tmp_path: Path, strategy: str) -> None:
    rng = random.Random(7)
    aggregation = {"mode": "buffered", "strategy": strategy, "buffer": 3}
    learner = LearnerProcess(
        tmp_path,
        aggregation=aggregation,
        durability={"snapshot_every_steps": 23},  # between two cohorts as often as within one
        ingest={"max_staleness_steps": 100_000},
        telemetry={"http_listen": None, "log_level": "warning"},
    )
    learner.start()
    stop = threading.Event()
    pushers = [Pusher(learner, cluster, stop) for cluster in CLUSTERS]
    try:
        for pusher in pushers:
            pusher.thread.start()
        for life in range(1, KILLS + 1):
            live_on(pushers, life * UPDATES_PER_LIFE + rng.randrange(20))
            learner.kill()
            learner.start()
        live_on(pushers, (KILLS + 1) * UPDATES_PER_LIFE)
        stop.set()
        for pusher in pushers:
            pusher.thread.join(DEADLINE_SECONDS)
            assert pusher.error is None, pusher.error
        head = head_weights(learner)
        assert learner.end() == 0
    finally:
        stop.set()
        learner.close()

    receipts = list(read_receipts(learner.state_dir, SPEC.digest))
    counts = audit(iter(receipts))
    assert {cluster: count for (cluster, _), count in counts.items()} == {
        pusher.cluster: len(pusher.acknowledged) for pusher in pushers
    }
    kept = read_settings(learner.state_dir)
    assert kept is not None
    aggregator = build_aggregator(*kept, SPEC)
    state = AdamState.start(policy().weights)
    moves = 0
    for one in receipts:
        gradient = gradient_of(one.cluster, one.sequence)
        update = GradientUpdate(
            one.cluster, one.incarnation, one.sequence, one.base_step, SPEC.digest, gradient, one.samples, 8.0
        )
        kind = aggregator.kind_of_next(one.cluster)
        moves += kind is UpdateKind.CLOSING
        aggregator.apply(state, AppliedUpdate(one.step, one.learning_rate, 1, 0.0, update, kind))
    assert head.tobytes() == state.weights.tobytes()
    # How many updates share a cohort is a matter of speed; that every life closes one is not (see `live_on`).
    assert moves > KILLS


@pytest.mark.heavy
def test_other_settings_after_a_kill_replay_the_log_under_the_old_ones(tmp_path: Path) -> None:
    """The cohort that waited is closed under its own strategy, and the new mode begins with the head that gives."""
    learner = LearnerProcess(tmp_path, aggregation={"mode": "buffered", "strategy": "FedAvg", "buffer": 3})
    learner.start()
    stop = threading.Event()
    pusher = Pusher(learner, "north", stop)
    try:
        pusher.thread.start()
        wait_for_updates([pusher], 5)
        stop.set()
        pusher.thread.join(DEADLINE_SECONDS)
        assert head_weights(learner).tobytes() == policy().weights.tobytes()
        learner.kill()
        learner.sections["aggregation"] = {"mode": "async"}
        learner.start()
        moved = head_weights(learner)
        assert moved.tobytes() != policy().weights.tobytes()
        learner.kill()
        learner.start()
        assert head_weights(learner).tobytes() == moved.tobytes()
        assert learner.fleet().head_step == len(pusher.acknowledged)
    finally:
        stop.set()
        learner.close()


def live_on(pushers: list[Pusher], count: int) -> None:
    """Wait for so many updates, and for two from every cluster.

    The first of the two may have been logged before the last kill; the second one is of this life. One from each of
    four clusters closes a cohort of three, whatever order they come in.
    """
    before = [len(pusher.acknowledged) for pusher in pushers]
    wait_for_updates(pushers, count)
    for pusher, acknowledged in zip(pushers, before, strict=True):
        wait_for_updates([pusher], acknowledged + 2)
