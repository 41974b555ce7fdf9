"""Whose steps make an update stale, and how many of them count."""

import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from learner_makers import SPEC, update, vector

from global_learner.aggregation.modes import build_aggregator
from global_learner.aggregation.settings import AggregationSettings, OptimizerSettings
from global_learner.errors import Rejection, UpdateRejected
from global_learner.settings import IngestSettings
from global_learner.storage.snapshot import AdamState
from global_learner.storage.update_records import AppliedUpdate
from global_learner.updates.head import Head
from global_learner.updates.ingest import Ingest, most_staleness, staleness_scale
from global_learner.updates.ledger import MOST_STEPS_A_CLUSTER, LatestSteps, Ledger

HONEST = ("north", "south", "east")
names = st.sampled_from(["north", "south", "east", "west"])


def counted(clusters: list[str]) -> LatestSteps:
    latest = LatestSteps()
    for step, cluster in enumerate(clusters, start=1):
        latest.record(cluster, step)
    return latest


@given(st.lists(names, max_size=80), st.integers(0, 80))
def test_every_step_counts_up_to_eight_a_cluster(clusters: list[str], base: int) -> None:
    base = min(base, len(clusters))
    since = Counter(clusters[base:])
    fair = counted(clusters).fair_staleness(base, len(clusters))
    assert fair == sum(min(count, MOST_STEPS_A_CLUSTER) for count in since.values())
    if max(since.values(), default=0) <= MOST_STEPS_A_CLUSTER:
        assert fair == len(clusters) - base


@given(st.lists(names, max_size=60), st.integers(0, 60), st.integers(0, 60))
def test_a_snapshot_changes_no_count(clusters: list[str], at: int, base: int) -> None:
    at, base = min(at, len(clusters)), min(base, len(clusters))
    whole = counted(clusters)
    again = LatestSteps(**json.loads(json.dumps(counted(clusters[:at]).to_json())))
    for step in range(at + 1, len(clusters) + 1):
        again.record(clusters[step - 1], step)
    assert again.fair_staleness(base, len(clusters)) == whole.fair_staleness(base, len(clusters))


def test_steps_of_before_a_snapshot_that_does_not_know_them_count_one_by_one() -> None:
    ledger = Ledger(8).to_json()
    del ledger["latest_steps"]
    latest = Ledger.from_json(ledger, 8).latest_steps
    assert latest.fair_staleness(100, 150) == 50
    for step in range(151, 171):
        latest.record("west", step)
    assert latest.fair_staleness(100, 170) == 50 + MOST_STEPS_A_CLUSTER
    assert latest.fair_staleness(160, 170) == MOST_STEPS_A_CLUSTER


def flooded(mode: str, most_steps: int, monkeypatch: pytest.MonkeyPatch) -> tuple[int, float]:
    """Of forty updates of each honest cluster: how many are applied, and their mean share of the usual step."""
    monkeypatch.setattr("global_learner.updates.ledger.MOST_STEPS_A_CLUSTER", most_steps)
    aggregation = AggregationSettings(mode=mode, buffer=3, strategy="FedMedian", largest_sample_weight=0.0)
    head = Head(AdamState.start(vector(0)), Ledger(256), build_aggregator(aggregation, OptimizerSettings(), SPEC))
    ingest = Ingest(SPEC, IngestSettings(), OptimizerSettings(learning_rate=1e-3), aggregation)
    sequences: Counter[str] = Counter()
    tiny = np.full(SPEC.parameter_count, 1e-6, np.float32)

    def push(cluster: str, base_step: int, gradient: np.ndarray) -> float:
        sequences[cluster] += 1
        sent = update(sequences[cluster], cluster=cluster, base_step=base_step, gradient=gradient)
        applied = ingest.judge(sent, head)
        head.apply(applied)
        return applied.learning_rate / 1e-3

    scales: list[float] = []
    reasons: set[Rejection] = set()
    for _ in range(40):
        bases = dict.fromkeys(HONEST, head.step)
        for _ in range(80):
            push("flood", head.step, tiny)
        for cluster, base in bases.items():
            try:
                scales.append(push(cluster, base, vector(sequences[cluster])))
            except UpdateRejected as rejected:
                reasons.add(rejected.reason)
    assert reasons <= {Rejection.TOO_STALE}
    return len(scales), sum(scales) / max(1, len(scales))


def test_a_closed_loop_of_one_cluster_makes_nobody_elses_updates_too_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    before, _ = flooded("async", 10**6, monkeypatch)
    assert before < 12, "the attack, where every step counts"
    applied, scale = flooded("async", MOST_STEPS_A_CLUSTER, monkeypatch)
    assert applied == 3 * 40
    assert scale > 1 / 3


@pytest.mark.parametrize("most_steps", [MOST_STEPS_A_CLUSTER, 10**6])
def test_updates_that_wait_for_their_cohort_make_nobody_stale(most_steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    applied, scale = flooded("buffered", most_steps, monkeypatch)
    assert applied == 3 * 40
    assert scale > 0.9  # 0.4 where what waited counted


@given(st.integers(1, 1000), st.integers(1, 100))
def test_where_every_update_moves_the_head_each_step_counts(moves: int, active_clusters: int) -> None:
    assert most_staleness(moves, active_clusters) >= moves


def test_a_fleet_at_one_pace_is_stale_by_nothing_in_cohorts_and_by_half_a_step_a_cohort_late() -> None:
    scales = [staleness_scale(most_staleness(moves, 5), 5) for moves in (0, 1, 2)]
    assert scales == [1.0, 1.0, 0.5]


def test_the_head_knows_which_steps_only_waited_and_counts_those_of_before_its_start() -> None:
    def begun(state: AdamState) -> Head:
        aggregation = AggregationSettings(mode="buffered", buffer=3, strategy="FedMedian")
        return Head(state, Ledger(256), build_aggregator(aggregation, OptimizerSettings(), SPEC))

    def push(head: Head, cluster: str) -> None:
        kind = head.aggregator.kind_of_next(cluster)
        sent = update(head.step + 1, cluster=cluster, base_step=head.step)
        head.apply(AppliedUpdate(head.step + 1, 1e-3, 3, 0.0, sent, kind))

    head = begun(AdamState.start(vector(0)))
    for cluster in ("north", "north", "south", "east", "north"):
        push(head, cluster)
    assert [head.moves_since(base) for base in range(6)] == [1, 1, 1, 1, 0, 0]
    later = begun(head.state)
    push(later, "north")
    assert [later.moves_since(base) for base in (0, 4, 5)] == [5, 1, 0]
