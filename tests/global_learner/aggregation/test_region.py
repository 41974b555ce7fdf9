"""What a region does with updates, pushes and heads; and that a snapshot at any moment changes no bit of it."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from learner_makers import SPEC, update, vector

from global_learner.aggregation.modes import build_aggregator
from global_learner.aggregation.region import RegionAggregator
from global_learner.aggregation.settings import AggregationSettings, OptimizerSettings
from global_learner.errors import BadLearnerConfig, StateUnusable
from global_learner.storage.snapshot import AdamState
from global_learner.storage.update_records import AppliedUpdate, UpdateKind

RATE = 1e-4


def make(**settings: Any) -> RegionAggregator:
    chosen = AggregationSettings.model_validate({"passes_up": True, **settings})
    built = build_aggregator(chosen, OptimizerSettings(), SPEC)
    assert isinstance(built, RegionAggregator)
    return built


class Region:
    """An aggregator and its head, fed record by record."""

    def __init__(self, aggregator: RegionAggregator) -> None:
        self.aggregator = aggregator
        self.state = AdamState.start(vector(0))

    def feed(self, kind: UpdateKind, rate: float = RATE, **changes: Any) -> None:
        step = self.state.step + 1
        moved = self.aggregator.apply(self.state, AppliedUpdate(step, rate, 1, 0.0, update(step, **changes), kind))
        assert not moved
        assert self.state.step == step

    def head(self, above: int, seed: int = 7, *, gives_up: bool = False, incarnation: int = 3) -> None:
        changes = {"cluster": "", "incarnation": incarnation, "sequence": 0, "base_step": above}
        self.feed(UpdateKind.HEAD_ABOVE, gradient=vector(seed), samples=int(gives_up), **changes)

    def push(self, cluster: str, seed: int, samples: int = 10, rate: float = RATE, base: int | None = None) -> None:
        base_step = self.state.step if base is None else base
        kind = self.aggregator.kind_of_next(cluster)
        self.feed(kind, rate, cluster=cluster, gradient=vector(seed), samples=samples, base_step=base_step)

    def pass_up(self, sequence: int = 1, incarnation: int = 3) -> None:
        self.feed(UpdateKind.PASSED_UP, cluster="", incarnation=incarnation, sequence=sequence, samples=0)


def begun(**settings: Any) -> Region:
    region = Region(make(**settings))
    region.head(100, gives_up=True)
    return region


def test_the_head_is_the_one_above_bit_for_bit_whatever_clusters_push() -> None:
    region = begun()
    for number in range(5):
        region.push("a", number)
    assert region.state.weights.tobytes() == vector(7).tobytes()
    region.head(108, seed=8)
    assert region.state.weights.tobytes() == vector(8).tobytes()
    assert region.aggregator.base_step == 108


def test_a_push_stands_for_what_came_since_the_last_one_and_waits_until_it_is_settled() -> None:
    region = begun()
    region.push("a", 1, samples=10)
    region.push("b", 2, samples=30)
    region.pass_up()
    region.push("a", 3)
    pending = region.aggregator.pending
    assert pending is not None
    assert (pending.incarnation, pending.sequence, pending.updates, pending.samples) == (3, 1, 2, 40)
    assert np.allclose(pending.gradient, (vector(1) + 3 * vector(2)) / 4, atol=1e-6)
    assert region.aggregator.gathered == 1
    region.head(101)
    assert region.aggregator.pending is None
    assert region.aggregator.gathered == 1
    assert region.aggregator.sequence == 1


def test_a_push_is_of_the_head_above_that_its_gradients_were_computed_at() -> None:
    region = begun()
    old = region.state.step
    region.head(120)
    region.push("a", 1, samples=10, base=old)
    region.push("b", 2, samples=11)
    region.pass_up()
    assert region.aggregator.pending is not None
    assert region.aggregator.pending.base_step == 120
    region.head(140)
    region.push("a", 1, samples=12, base=old)
    region.push("b", 2, samples=11)
    region.pass_up(2)
    assert region.aggregator.pending.base_step == 100


def test_what_is_late_in_the_region_weighs_less_there() -> None:
    region = begun()
    region.push("a", 1, rate=RATE)
    region.push("b", 2, rate=RATE / 2)
    region.pass_up()
    assert region.aggregator.pending is not None
    assert np.allclose(region.aggregator.pending.gradient, (2 * vector(1) + vector(2)) / 3, atol=1e-6)


def test_a_cluster_that_claims_a_billion_samples_weighs_no_more_than_the_limit() -> None:
    region = begun(samples_limit=20)
    region.push("a", 1, samples=20)
    region.push("b", 2, samples=10**9)
    region.pass_up()
    assert region.aggregator.pending is not None
    assert region.aggregator.pending.samples == 40


def test_a_bad_cluster_is_outvoted_before_anything_goes_up() -> None:
    region = begun(mode="buffered", strategy="FedMedian", buffer=5)
    for number, cluster in enumerate("abcd"):
        region.push(cluster, number)
    assert (region.aggregator.gathered, region.aggregator.waiting) == (0, 4)
    region.feed(UpdateKind.CLOSING, cluster="bad", gradient=-900 * vector(0), base_step=1)
    region.pass_up()
    pending = region.aggregator.pending
    assert pending is not None
    votes = [vector(0), vector(1), vector(2), vector(3), -900 * vector(0)]
    assert np.allclose(pending.gradient, np.median(votes, axis=0), atol=1e-5)
    assert pending.updates == 5


def test_what_was_computed_at_heads_that_are_given_up_is_forgotten() -> None:
    region = begun(mode="buffered", strategy="FedMedian", buffer=2)
    region.push("a", 1)
    region.push("b", 2)
    region.push("a", 3)
    region.pass_up()
    region.push("b", 4)
    region.head(12, gives_up=True, incarnation=4)
    aggregator = region.aggregator
    assert (aggregator.pending, aggregator.waiting, aggregator.gathered) == (None, 0, 0)
    assert (aggregator.incarnation, aggregator.sequence, aggregator.base_step) == (4, 0, 12)


@pytest.mark.parametrize(
    "settings",
    [{"mode": "rounds"}, {"mode": "buffered", "strategy": "FedAdam"}, {"mode": "buffered", "server_step": "strategy"}],
)
def test_what_would_take_steps_here_is_refused(settings: dict[str, str]) -> None:
    with pytest.raises(BadLearnerConfig, match="which takes the steps"):
        make(**settings)


def test_a_record_of_another_mode_is_not_taken() -> None:
    with pytest.raises(StateUnusable, match="kind step"):
        begun().feed(UpdateKind.STEP)


_Event = tuple[str, int]
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(0, 30)),
        st.tuples(st.just("pass-up"), st.just(0)),
        st.tuples(st.just("head"), st.integers(0, 5)),
    ),
    max_size=30,
)


def play(region: Region, events: list[_Event], above: int = 100) -> None:
    for what, number in events:
        if what == "pass-up":
            if region.aggregator.gathered and region.aggregator.pending is None:
                region.pass_up(region.aggregator.sequence + 1)
        elif what == "head":
            region.head((region.aggregator.base_step or above) + number, seed=number)
        else:
            region.push(what, number, samples=1 + number, base=max(1, region.state.step - number))


@pytest.mark.parametrize("settings", [{}, {"mode": "buffered", "buffer": 2}, {"mode": "robust"}])
@given(before=EVENTS, after=EVENTS)
def test_going_on_from_a_snapshot_comes_to_the_same_bits(
    settings: dict[str, Any], before: list[_Event], after: list[_Event]
) -> None:
    lived, restored = begun(**settings), Region(make(**settings))
    play(lived, before)
    kept = lived.aggregator.kept()
    restored.aggregator.restore(kept)
    restored.state = lived.state.copy()
    play(lived, after)
    play(restored, after)
    mine, theirs = lived.aggregator.kept(), restored.aggregator.kept()
    assert mine.facts == theirs.facts
    assert {name: array.tobytes() for name, array in mine.arrays.items()} == {
        name: array.tobytes() for name, array in theirs.arrays.items()
    }
    assert lived.state.weights.tobytes() == restored.state.weights.tobytes()
