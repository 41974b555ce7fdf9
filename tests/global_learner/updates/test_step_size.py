"""Updates step by their staleness and their samples; no cluster gains more than a limited part by what it claims."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from learner_in_process import serving
from learner_makers import SPEC, applied

from global_learner.aggregation.settings import AggregationSettings
from global_learner.storage.receipts import read_receipts
from global_learner.updates.ingest import excess_staleness, sample_weight, staleness_scale
from global_learner.updates.ledger import Ledger, usual_samples

RATE = 1e-3


@pytest.mark.parametrize(
    ("staleness", "active", "scale"),
    [(0, 1, 1.0), (1, 1, 0.5), (2, 3, 1.0), (5, 3, 0.5), (8, 3, 1 / 3), (99, 100, 1.0), (0, 0, 1.0)],
)
def test_a_round_of_the_fleet_beyond_the_usual_halves_the_step(staleness: int, active: int, scale: float) -> None:
    assert staleness_scale(staleness, active) == pytest.approx(scale)


@given(st.integers(0, 10_000), st.integers(1, 1000))
def test_more_staleness_never_steps_further_and_more_clusters_never_shorter(staleness: int, active: int) -> None:
    scale = staleness_scale(staleness, active)
    assert 0.0 < scale <= 1.0
    assert staleness_scale(staleness + 1, active) <= scale <= staleness_scale(staleness, active + 1)
    assert excess_staleness(staleness, active) <= staleness


@pytest.mark.parametrize(
    ("samples", "usual", "largest", "weight"),
    [
        (100, 100.0, 2.0, 1.0),
        (50, 100.0, 2.0, 0.5),
        (150, 100.0, 2.0, 1.5),
        (10**9, 100.0, 2.0, 2.0),
        (7, 0.0, 2.0, 1.0),
        (1, 100.0, 0.0, 1.0),
        (150, 100.0, 1.0, 1.0),
    ],
)
def test_half_the_samples_take_half_the_step(samples: int, usual: float, largest: float, weight: float) -> None:
    assert sample_weight(samples, usual, largest) == pytest.approx(weight)


@given(
    honest=st.lists(st.integers(50, 1000), min_size=3, max_size=9),
    claims=st.lists(st.integers(1, 2**53), min_size=1, max_size=2),
)
def test_a_minority_that_lies_moves_what_is_usual_no_further_than_an_honest_cluster(honest, claims) -> None:
    usual = usual_samples([*map(float, honest), *map(float, claims)])
    assert min(honest) <= usual <= max(honest)
    assert all(sample_weight(claim, usual, 2.0) <= 2.0 for claim in claims)
    # Nor can it take the step from the others: theirs are as long as their samples are, within the honest range.
    assert all(sample_weight(n, usual, 2.0) >= min(2.0, n / max(honest)) for n in honest)


def test_between_two_clusters_the_smaller_claim_counts() -> None:
    assert usual_samples([100.0, 1e9]) == 100.0
    assert usual_samples([]) == 0.0


def test_a_cluster_counts_once_however_often_it_pushes() -> None:
    ledger = Ledger(64)
    step = 0
    for cluster, samples, updates in (("fast", 1000, 30), ("north", 100, 1), ("south", 120, 1)):
        for _ in range(updates):
            step += 1
            ledger.record(applied(step, cluster=cluster, sequence=step, samples=samples))
    assert ledger.usual_samples() == 120.0


def test_what_is_usual_follows_a_cluster_slowly_and_survives_a_snapshot() -> None:
    ledger = Ledger(64)
    ledger.record(applied(1, samples=80))
    ledger.record(applied(2, samples=160))
    assert ledger.usual_samples() == 90.0
    again = Ledger.from_json(json.loads(json.dumps(ledger.to_json())), 64)
    assert again.usual_samples() == 90.0
    older = ledger.to_json()
    for record in older["clusters"].values():
        del record["mean_samples"]
    assert Ledger.from_json(older, 64).usual_samples() == 0.0


async def test_the_step_is_logged_as_taken_and_a_restart_steps_on_alike(tmp_path) -> None:
    samples = [100, 100, 50, 400, 100, 10**6, 20]
    optimizer = {"learning_rate": RATE}

    def pushes(caller, first: int, last: int):
        return [
            caller.push(n, cluster=name, base_step=n - 1, samples=samples[n - 1])
            for n in range(first, last + 1)
            for name in [("north", "south")[n % 2]]
        ]

    for folder, restarts in ((tmp_path / "one", ()), (tmp_path / "two", (3, 5))):
        folder.mkdir()
        ends = [*restarts, len(samples)]
        for first, last in zip([1, *(end + 1 for end in restarts)], ends, strict=True):
            async with serving(folder, optimizer=optimizer) as caller:
                if first == 1:
                    await caller.register("north")
                    await caller.register("south")
                for push in pushes(caller, first, last):
                    await push
                weights = caller.learner.head.weights.tobytes()
        receipts = list(read_receipts(folder / "state", SPEC.digest))
        rates = [receipt.learning_rate / RATE for receipt in receipts]
        if not restarts:
            expected, whole = rates, weights
    assert rates == expected
    assert weights == whole
    assert rates[:4] == pytest.approx([1.0, 1.0, 0.5, 2.0])
    assert max(rates) == pytest.approx(2.0)
    assert 0.0 < rates[-1] < 0.5


async def test_weights_by_samples_can_be_turned_off_and_never_shorten_all(tmp_path) -> None:
    async with serving(tmp_path, optimizer={"learning_rate": RATE}, aggregation={"largest_sample_weight": 0}) as caller:
        await caller.register()
        for number, samples in enumerate((100, 1, 5000), start=1):
            await caller.push(number, base_step=number - 1, samples=samples)
    receipts = read_receipts(tmp_path / "state", SPEC.digest)
    assert [receipt.learning_rate for receipt in receipts] == [RATE] * 3
    with pytest.raises(ValueError, match="largest_sample_weight"):
        AggregationSettings(largest_sample_weight=0.5)
