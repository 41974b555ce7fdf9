"""What every aggregator must do, whatever it does with the updates."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from global_learner.aggregation.base import Aggregator
from global_learner.storage.snapshot import AdamState
from global_learner.storage.update_records import AppliedUpdate, UpdateKind
from policy_net.exchange.spec import PolicySpec, Weights
from policy_net.exchange.wire import GradientUpdate

SPEC = PolicySpec(jobs_per_batch=1, type_columns=1, hidden=(2,))
CLUSTERS = ("north", "south", "east", "west", "middle", "coast", "hills")


def vector(seed: int) -> Weights:
    return np.random.default_rng(seed).normal(size=SPEC.parameter_count).astype(np.float32)


def arrival(step: int, cluster: str, kind: UpdateKind, seed: int | None = None, rate: float = 1e-3) -> AppliedUpdate:
    gradient = vector(step if seed is None else seed)
    update = GradientUpdate(cluster, 1, step, step - 1, SPEC.digest, gradient, 10 + step % 7, 9.5)
    return AppliedUpdate(step, rate, len(CLUSTERS), 1e9 + step, update, kind)


def history(aggregator: Aggregator, count: int, rng: np.random.Generator) -> Iterator[AppliedUpdate]:
    """Updates of clusters in a random order, each of the kind that the aggregator asks for when it comes."""
    for step in range(1, count + 1):
        cluster = CLUSTERS[rng.integers(len(CLUSTERS))]
        yield arrival(step, cluster, aggregator.kind_of_next(cluster))


def bits(state: AdamState) -> tuple[bytes, ...]:
    return (state.weights.tobytes(), state.first_moment.tobytes(), state.second_moment.tobytes())


class AggregatorContract:
    """Subclasses say how one is made; `stream` may be replaced where updates are not pushed."""

    make: Callable[[], Aggregator]

    def stream(self, aggregator: Aggregator, count: int, seed: int) -> Iterator[AppliedUpdate]:
        return history(aggregator, count, np.random.default_rng(seed))

    def run(self, count: int = 40, seed: int = 0) -> tuple[AdamState, list[AppliedUpdate], list[bool]]:
        aggregator, state = self.make(), AdamState.start(vector(0))
        log, moved = [], []
        for applied in self.stream(aggregator, count, seed):
            before = state.weights.tobytes()
            moved.append(aggregator.apply(state, applied))
            assert (state.weights.tobytes() != before) == moved[-1], "it moved the weights and did not say so"
            log.append(applied)
        return state, log, moved

    def test_every_update_is_one_step_of_the_head(self) -> None:
        state, log, _ = self.run()
        assert state.step == len(log)

    def test_the_weights_move_and_stay_finite_float32(self) -> None:
        state, _, moved = self.run()
        assert any(moved)
        assert state.weights.dtype == np.float32
        assert np.isfinite(state.weights).all()

    def test_a_replay_gives_the_same_head_bit_for_bit(self) -> None:
        state, log, _ = self.run()
        again, replayed = self.make(), AdamState.start(vector(0))
        for applied in log:
            again.apply(replayed, applied)
        assert bits(replayed) == bits(state)
        assert replayed.idle_steps == state.idle_steps

    @pytest.mark.heavy
    def test_a_snapshot_at_any_step_and_the_rest_of_the_log_give_the_same_head(self) -> None:
        state, log, _ = self.run(count=24)
        for cut in range(len(log) + 1):
            first, snapshot = self.make(), AdamState.start(vector(0))
            for applied in log[:cut]:
                first.apply(snapshot, applied)
            kept, snapshot = first.kept(), snapshot.copy()
            for applied in log[cut:]:  # what was kept shares nothing with what goes on
                first.apply(AdamState.start(vector(0)), applied)
            second = self.make()
            second.restore(kept)
            assert second.waiting == sum(applied.kind is UpdateKind.ARRIVAL for applied in _open_cohort(log[:cut]))
            for applied in log[cut:]:
                second.apply(snapshot, applied)
            assert bits(snapshot) == bits(state), f"snapshot at {cut}"

    def test_updates_are_not_changed(self) -> None:
        _, log, _ = self.run(count=24)
        again = list(self.stream_like(log))
        assert [a.update.gradient.tobytes() for a in again] == [a.update.gradient.tobytes() for a in log]

    def stream_like(self, log: list[AppliedUpdate]) -> Iterator[AppliedUpdate]:
        for applied in log:
            yield arrival(applied.step, applied.update.cluster, applied.kind)

    def test_at_rate_zero_the_weights_stay_bit_for_bit(self) -> None:
        aggregator, state = self.make(), AdamState.start(vector(0))
        for applied in self.stream(aggregator, 24, 0):
            zero = AppliedUpdate(applied.step, 0.0, 1, 0.0, applied.update, applied.kind)
            assert not aggregator.apply(state, zero)
        assert state.weights.tobytes() == vector(0).tobytes()


def _open_cohort(log: list[AppliedUpdate]) -> list[AppliedUpdate]:
    """The updates after the last one that closed a cohort."""
    closed = max((index for index, applied in enumerate(log) if applied.kind is UpdateKind.CLOSING), default=-1)
    return log[closed + 1 :]
