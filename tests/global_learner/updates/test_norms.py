"""What one gradient may do to everybody's steps, and who says what is usual."""

import dataclasses
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from learner_in_process import serving
from learner_makers import SPEC, policy, update, vector

from global_learner.aggregation.modes import build_aggregator
from global_learner.aggregation.settings import AggregationSettings, OptimizerSettings
from global_learner.recovery import recover
from global_learner.registry.registry import Registry
from global_learner.settings import IngestSettings
from global_learner.storage.snapshot import AdamState
from global_learner.storage.state_dir import StateDir
from global_learner.storage.update_records import AppliedUpdate
from global_learner.updates.head import Head
from global_learner.updates.ingest import Ingest, clipped
from global_learner.updates.ledger import ENOUGH, FIRST_LIMIT, Ledger, UsualNorms, gradient_norm
from policy_net.exchange.generated import fleet_pb2 as pb
from policy_net.exchange.spec import Weights

HONEST = ("north", "south", "east")


def honest_gradients(seed: int, mean: float = 0.1) -> Iterator[Weights]:
    """Norms of about 0.8, with something in common."""
    rng = np.random.default_rng(seed)
    while True:
        yield (mean + 0.1 * rng.normal(size=SPEC.parameter_count)).astype(np.float32)


class Fleet:
    """Ingest and head without a learner around them; every cluster is numbered for itself."""

    def __init__(self, mode: str = "async", **changes) -> None:
        aggregation = AggregationSettings(mode=mode, buffer=3, strategy="FedAvg", largest_sample_weight=0.0)
        aggregator = build_aggregator(aggregation, OptimizerSettings(), SPEC)
        self.head = Head(AdamState.start(vector(0)), Ledger(256), aggregator)
        self.ingest = Ingest(SPEC, IngestSettings(**changes), OptimizerSettings(learning_rate=1e-3), aggregation)
        self.sequences: dict[str, int] = {}
        self.was_clipped: list[str] = []

    def push(self, cluster: str, gradient: Weights, base_step: int | None = None) -> AppliedUpdate:
        self.sequences[cluster] = sequence = self.sequences.get(cluster, 0) + 1
        base = self.head.step if base_step is None else base_step
        sent = update(sequence, cluster=cluster, gradient=gradient, base_step=base)
        applied = self.ingest.judge(sent, self.head)
        if applied.applied_norm is None:
            self.was_clipped.append(cluster)
        self.head.apply(applied)
        return applied

    def rounds(self, count: int, seed: int = 1) -> float:
        """The mean way of the weights in a round of the honest clusters."""
        gradients = honest_gradients(seed)
        ways = [0.0]
        for _ in range(count):
            before = self.head.weights.copy()
            for cluster in HONEST:
                self.push(cluster, next(gradients))
            ways.append(float(np.linalg.norm(self.head.weights - before)))
        return sum(ways) / max(1, count)


def monster(norm: float = 990.0) -> Weights:
    gradient = vector(5)
    return gradient * np.float32(norm / np.linalg.norm(gradient))


@pytest.mark.heavy
@pytest.mark.parametrize("mode", ["async", "buffered"])
@pytest.mark.parametrize("warm_rounds", [0, 20])
def test_one_gradient_of_norm_990_leaves_everybodys_steps_as_long_as_they_were(mode: str, warm_rounds: int) -> None:
    ways = {}
    for factor, norm in ((4.0, 0.8), (4.0, 990.0), (0.0, 990.0)):
        fleet = Fleet(mode, clip_factor=factor)
        fleet.rounds(warm_rounds)
        for cluster in ("west", *HONEST[:2]):
            # In a cohort it comes with others.
            fleet.push(cluster, monster(norm) if cluster == "west" else next(honest_gradients(9)))
        fleet.rounds(5)
        ways[factor, norm] = fleet.rounds(100)
    undisturbed = ways[4.0, 0.8]
    assert ways[0.0, 990.0] < 0.2 * undisturbed, "the attack, where nothing is clipped"
    assert ways[4.0, 990.0] > (0.95 if warm_rounds else 0.5) * undisturbed


def test_an_honest_fleet_is_not_touched_bit_for_bit() -> None:
    clipping, plain = Fleet(), Fleet(clip_factor=0.0)
    clipping.rounds(60)
    plain.rounds(60)
    assert not clipping.was_clipped
    for array in ("weights", "first_moment", "second_moment"):
        assert getattr(clipping.head.state, array).tobytes() == getattr(plain.head.state, array).tobytes()


def test_one_cluster_cannot_raise_what_is_usual_however_often_it_pushes() -> None:
    fleet = Fleet()
    fleet.rounds(ENOUGH)
    before = fleet.head.ledger.norms.limit(4.0)
    for _ in range(500):
        fleet.push("west", monster())
    assert fleet.head.ledger.norms.limit(4.0) <= 1.1 * before
    assert fleet.was_clipped == ["west"] * 500
    fleet.rounds(40)
    assert set(fleet.was_clipped) == {"west"}


def test_nor_can_one_that_sends_next_to_nothing_lower_it() -> None:
    fleet = Fleet()
    fleet.rounds(ENOUGH)
    for _ in range(200):
        fleet.push("west", monster(1e-9))
    fleet.rounds(40)
    assert not fleet.was_clipped


def test_a_fleet_whose_gradients_grow_is_followed() -> None:
    fleet = Fleet()
    for size in np.geomspace(1.0, 300.0, 40):
        for cluster in HONEST:
            for _ in range(4):
                fleet.push(cluster, monster(float(size)))
    assert not fleet.was_clipped


def test_after_a_standstill_gradients_count_again() -> None:
    fleet = Fleet()
    for _ in range(40):
        for cluster in HONEST:
            fleet.push(cluster, np.zeros(SPEC.parameter_count, np.float32))
    assert gradient_norm(fleet.push("north", monster(1.0)).update.gradient) == pytest.approx(1.0, rel=1e-5)


@given(
    st.lists(st.lists(st.floats(0.0, 1e3), min_size=ENOUGH, max_size=40), min_size=3, max_size=9),
    st.lists(st.floats(0.0, 1e3), max_size=60),
)
def test_with_one_liar_the_limit_lies_within_what_the_honest_ones_say(honest, lies) -> None:
    def norms(of_liar: list[float]) -> UsualNorms:
        usual = UsualNorms()
        for number, of_one in enumerate(honest):
            for norm in of_one:
                usual.record(f"honest{number}", norm)
        for norm in of_liar:
            usual.record("liar", norm)
        return usual

    highest = [max(of_one[-32:]) for of_one in honest]
    lowest = [min(of_one[-32:]) for of_one in honest]
    limit = norms(lies).limit(1.0)
    assert 0.99 * min(lowest) <= limit <= 1.01 * max(*highest, FIRST_LIMIT)


@given(st.dictionaries(st.text(min_size=1, max_size=3), st.lists(st.floats(0.0, 1e3), max_size=40), max_size=6))
def test_what_a_snapshot_keeps_comes_to_the_same_limit(said) -> None:
    usual = UsualNorms()
    for name, of_one in said.items():
        for norm in of_one:
            usual.record(name, norm)
    again = UsualNorms(json.loads(json.dumps(usual.to_json())))
    for factor in (0.0, 1.0, 4.0):
        assert again.limit(factor) == usual.limit(factor)
    assert again.to_json() == usual.to_json()


def test_until_three_clusters_are_known_the_limit_is_the_first_one_or_less() -> None:
    usual = UsualNorms()
    assert usual.limit(4.0) == FIRST_LIMIT
    for norm in [1e3] * 50:
        usual.record("north", norm)
        usual.record("south", norm)
    assert usual.limit(4.0) == FIRST_LIMIT
    for norm in [0.5] * 50:
        usual.record("north", norm)
        usual.record("south", norm)
    assert usual.limit(4.0) == pytest.approx(2.0)


def test_a_gradient_within_the_limit_is_the_very_same_array() -> None:
    gradient = vector(1)
    assert clipped(gradient, gradient_norm(gradient), 1e3) is gradient
    assert gradient_norm(clipped(gradient, gradient_norm(gradient), 0.5)) == pytest.approx(0.5, rel=1e-5)


async def test_what_was_clipped_is_logged_as_it_was_applied_and_comes_back_bit_for_bit(tmp_path: Path) -> None:
    async with serving(tmp_path) as caller:
        for cluster in (*HONEST, "west"):
            await caller.register(cluster)
        for number in range(1, ENOUGH + 2):
            for cluster in HONEST:
                head = caller.learner.head.step
                await caller.push(number, cluster=cluster, base_step=head, gradient=monster(0.5 + 0.01 * number))
        head = caller.learner.head.step
        reply = await caller.push(1, cluster="west", base_step=head, gradient=monster())
        assert reply.outcome == pb.PushReply.APPLIED
        value = caller.learner.telemetry.registry.get_sample_value
        assert value("fedl2_learner_clipped_updates_total") == 1
        lost = caller.learner.head
        kept = dataclasses.replace(lost.state.copy())
        config = caller.learner.settings
        copy = tmp_path / "copy"
        # What a crash would leave: the files as they are while the learner runs.
        shutil.copytree(config.state_dir, copy, ignore=shutil.ignore_patterns("lock"))
    with StateDir(copy) as state:
        registry = Registry(copy)
        again = recover(state, registry, config.model_copy(update={"state_dir": copy}), policy(), 0.0).head
        registry.close()
    assert again.step == lost.step
    assert again.state.weights.tobytes() == kept.weights.tobytes()
    assert again.state.second_moment.tobytes() == kept.second_moment.tobytes()
    assert again.ledger.norms.limit(4.0) == lost.ledger.norms.limit(4.0)
    assert again.ledger.to_json() == lost.ledger.to_json()
