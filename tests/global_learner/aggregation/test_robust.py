"""The aggregation of learners that others can reach: who is outvoted, who is waited for, and who weighs what."""

import gc
import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from learner_in_process import serving
from learner_makers import SPEC, settings, update, vector

from global_learner.aggregation.modes import build_aggregator
from global_learner.aggregation.settings import (
    AGGREGATION_NAME,
    AggregationMode,
    AggregationSettings,
    OptimizerSettings,
    write_settings,
)
from global_learner.aggregation.settings import read_settings as read_log_settings
from global_learner.errors import BadLearnerConfig
from global_learner.fleet import Fleet
from global_learner.registry.assignments import ClusterRegistration
from global_learner.settings import read_settings
from global_learner.storage.snapshot import AdamState
from global_learner.storage.update_records import AppliedUpdate, UpdateKind
from policy_net.exchange.generated import fleet_pb2 as pb
from policy_net.exchange.spec import SCALARS_PER_JOB, PolicySpec, Weights, split_weights

NAMES = ("north", "south", "east", "west", "coast")
TRUE = np.ones(SPEC.parameter_count, np.float32)
ROUNDS = 100
CERTIFICATES = {"identity": {"names": ["learner.example"]}}


def gradients(seed: int) -> Iterator[Weights]:
    """Mostly noise, as policy gradients are: half of a single one's components point the wrong way or nearly."""
    rng = np.random.default_rng(seed)
    while True:
        yield (0.3 * TRUE + rng.normal(size=SPEC.parameter_count)).astype(np.float32)


def descent(sends: Mapping[str, float], rounds: int, times: Mapping[str, int] | None = None, **changes) -> float:
    """How far along the true slope a fleet goes down; every cluster sends its gradient times a factor.

    Args:
        sends: that factor, by cluster.
        times: how often each pushes a round; once unless said.
    """
    aggregator = build_aggregator(
        AggregationSettings.model_validate({"mode": "robust", **changes}), OptimizerSettings(), SPEC
    )
    state = AdamState.start(np.zeros(SPEC.parameter_count, np.float32))
    own = {name: gradients(number) for number, name in enumerate(sends)}
    for _ in range(rounds):
        for name, factor in sends.items():
            for _ in range((times or {}).get(name, 1)):
                kind = aggregator.kind_of_next(name, list(sends))
                sent = update(1, cluster=name, gradient=next(own[name]) * np.float32(factor), samples=20)
                aggregator.apply(state, AppliedUpdate(state.step + 1, 1e-2, len(sends), 0.0, sent, kind))
    return -float(state.weights.mean()) / 1e-2 / rounds


@cache
def clean(clusters: int) -> float:
    """Where nobody is bad."""
    return descent(dict.fromkeys(NAMES[:clusters], 1.0), ROUNDS)


@pytest.mark.heavy
@pytest.mark.parametrize("clusters", [3, 4, 5])
@pytest.mark.parametrize("factor", [-1.0, -100.0, 100.0])
def test_from_three_clusters_on_one_bad_one_is_outvoted(clusters: int, factor: float) -> None:
    attacked = descent({**dict.fromkeys(NAMES[:clusters], 1.0), NAMES[clusters - 1]: factor}, ROUNDS)
    assert clean(clusters) > 0.2
    assert attacked > 0.75 * clean(clusters)


@pytest.mark.parametrize("clusters", [1, 2])
def test_fleets_of_one_and_two_learn_though_nobody_can_be_outvoted(clusters: int) -> None:
    assert clean(clusters) > 0.2


@pytest.mark.heavy
def test_who_pushes_fifty_times_as_often_or_claims_any_samples_weighs_no_more() -> None:
    sends = {**dict.fromkeys(NAMES, 1.0), "coast": -1.0}
    once = descent(sends, ROUNDS)
    often = descent(sends, ROUNDS, times={"coast": 50})
    assert often > 0.9 * once


@pytest.mark.parametrize("count", [1, 2, 3, 5, 7])
def test_a_cohort_is_all_that_take_part_and_at_most_the_buffer(count: int) -> None:
    present = [f"cluster{number}" for number in range(count)]
    aggregator = build_aggregator(AggregationSettings(mode=AggregationMode.ROBUST), OptimizerSettings(), SPEC)
    state = AdamState.start(vector(0))
    kinds = []
    for step in range(1, 2 * min(count, 5) + 1):
        name = present[(step - 1) % count]
        kinds.append(aggregator.kind_of_next(name, present))
        sent = update(step, cluster=name)
        aggregator.apply(state, AppliedUpdate(step, 1e-3, count, 0.0, sent, kinds[-1]))
    closing = min(count, 5)
    assert [number for number, kind in enumerate(kinds, 1) if kind is UpdateKind.CLOSING] == [closing, 2 * closing]


def test_a_cluster_that_is_gone_or_has_nothing_to_do_is_waited_for_no_longer_than_it_should() -> None:
    now = [0.0]
    fleet = Fleet([ClusterRegistration("old", 1, 1)], {}, lambda: now[0])
    fleet.on_registered(ClusterRegistration("new", 1, 1))
    assert fleet.present() == ["old"], "who took part before a restart is waited for"
    entry = fleet.on_heard("new", 1)
    assert entry is not None
    fleet.on_applied(entry)
    assert fleet.present() == ["old", "new"]
    now[0] = 61.0
    fleet.on_heard("new", 1)
    assert fleet.present() == ["new"], "the other one was not heard for a minute"
    now[0] = 3601.0
    fleet.on_heard("new", 1)
    assert fleet.present() == []


def test_it_is_the_default_where_others_can_reach_the_learner_and_nowhere_else(tmp_path: Path) -> None:
    assert settings(tmp_path).aggregation == AggregationSettings()
    for listen in ("0.0.0.0:7070", "10.0.0.1:7070", "learner.example:7070"):
        robust = settings(tmp_path, listen=listen, **CERTIFICATES).aggregation
        assert (robust.mode, robust.strategy, robust.vote_momentum) == (AggregationMode.ROBUST, "MultiKrum", 0.9)
        assert AggregationSettings.model_validate(robust.model_dump(mode="json")) == robust
        for chosen in ({}, {"mode": "async"}):
            said = settings(tmp_path, listen=listen, aggregation=chosen, **CERTIFICATES).aggregation
            assert said.mode is AggregationMode.ASYNC, "who says something of aggregation is taken at their word"


def test_its_strategy_is_not_for_choosing(tmp_path: Path) -> None:
    (tmp_path / "learner.yaml").write_text(
        "state_dir: state\ninitial_policy: set\naggregation: {mode: robust, strategy: FedAvg}\n"
    )
    with pytest.raises(BadLearnerConfig, match="mode robust has a strategy"):
        read_settings(tmp_path / "learner.yaml")


async def test_a_learner_closes_cohorts_of_those_that_are_there(tmp_path: Path) -> None:
    async with serving(tmp_path, aggregation={"mode": "robust"}) as caller:
        head = caller.learner.head

        async def moved_by(cluster: str, number: int) -> bool:
            before = head.weights.tobytes()
            reply = await caller.push(number, cluster=cluster, base_step=head.step)
            assert reply.outcome == pb.PushReply.APPLIED
            return head.weights.tobytes() != before

        await caller.register("north")
        assert [await moved_by("north", number) for number in (1, 2)] == [True, True]
        await caller.register("south")
        assert await moved_by("south", 1) is False, "north takes part and is waited for"
        assert await moved_by("north", 3) is True
        assert await moved_by("north", 4) is False
        assert await moved_by("north", 5) is False
        assert await moved_by("south", 2) is True


def test_in_a_fleet_of_five_it_does_what_was_measured() -> None:
    """The row of docs/results/robustness.md: MultiKrum of the nearest four of five, with a memory of 0.9."""
    measured = {
        "mode": "buffered",
        "buffer": 5,
        "strategy": "MultiKrum",
        "parameters": {"num_malicious_nodes": 1, "num_nodes_to_select": 4},
        "vote_momentum": 0.9,
    }
    ended = []
    for chosen, optimizer in ((measured, OptimizerSettings(beta1=0.0)), ({"mode": "robust"}, OptimizerSettings())):
        aggregator = build_aggregator(AggregationSettings.model_validate(chosen), optimizer, SPEC)
        state = AdamState.start(vector(0))
        own = {name: gradients(number) for number, name in enumerate(NAMES)}
        for step in range(1, 201):
            name = NAMES[(step - 1) % 5]
            sent = update(step, cluster=name, gradient=next(own[name]))
            aggregator.apply(state, AppliedUpdate(step, 1e-3, 5, 0.0, sent, aggregator.kind_of_next(name)))
        ended.append(state.weights)
    np.testing.assert_allclose(ended[0], ended[1], rtol=1e-5, atol=1e-6)


def test_neither_cohorts_nor_what_was_garbage_before_them_stay_in_memory() -> None:
    class Call:
        """Refers to itself, as a served call does."""

        alive = 0

        def __init__(self) -> None:
            self.own = self
            Call.alive += 1

        def __del__(self) -> None:
            Call.alive -= 1

    aggregator = build_aggregator(AggregationSettings.model_validate({"mode": "robust"}), OptimizerSettings(), SPEC)
    state = AdamState.start(np.zeros(SPEC.parameter_count, np.float32))
    for _ in range(30):
        for name in NAMES:
            Call()
            kind = aggregator.kind_of_next(name, NAMES)
            sent = update(1, cluster=name, gradient=TRUE, samples=20)
            aggregator.apply(state, AppliedUpdate(state.step + 1, 1e-2, len(NAMES), 0.0, sent, kind))
    assert Call.alive <= len(NAMES)
    assert not [each for each in gc.get_objects() if type(each).__name__ == "ArrayRecord"]


def closings(order: list[str], present: list[str]) -> list[int]:
    """After which of these updates, in this order, a step was made."""
    aggregator = build_aggregator(AggregationSettings.model_validate({"mode": "robust"}), OptimizerSettings(), SPEC)
    state = AdamState.start(np.zeros(SPEC.parameter_count, np.float32))
    closed = []
    for number, name in enumerate(order):
        kind = aggregator.kind_of_next(name, present)
        sent = update(1, cluster=name, gradient=TRUE, samples=20)
        aggregator.apply(state, AppliedUpdate(state.step + 1, 1e-2, len(present), 0.0, sent, kind))
        if kind is UpdateKind.CLOSING:
            closed.append(number)
    return closed


def test_one_that_is_slow_does_not_set_the_pace_of_three() -> None:
    fast = ["north", "south", "east"]
    assert closings(fast * 4, [*fast, "west"]) == [4, 9]
    assert closings([*fast, "west", *fast, "west"], [*fast, "west"]) == [3, 7], (
        "but it is waited for as long as it keeps up"
    )
    assert closings([*fast[:2]] * 4, fast) == [], "two cannot outvote a third"
    assert closings(fast * 4, [*fast, "west", "coast"]) == [], "nor are two left out where one may be bad"


def test_one_that_never_pauses_closes_nothing_by_that() -> None:
    assert closings(["north", "south", "east", *["east"] * 50], list(NAMES[:4])) == []


TYPED = PolicySpec(jobs_per_batch=2, type_columns=3, job_types=("other", "vgg-16", "bert"), hidden=(4,), critic=False)


def seen_type(vector: Weights, column: int) -> np.ndarray:
    """The weights of a type's inputs; a view."""
    layer = split_weights(vector, TYPED)["actor.0.weight"]
    return layer.reshape(4, 2, TYPED.type_columns + SCALARS_PER_JOB)[:, :, column]


def types_learned(bad: str, *, types_of_one: bool) -> list[float]:
    """How far down its slope each type has come; of `other` all have jobs, of vgg-16 the coast, of bert two."""
    aggregation = AggregationSettings.model_validate({"mode": "robust", "types_of_one": types_of_one})
    aggregator = build_aggregator(aggregation, OptimizerSettings(), TYPED)
    state = AdamState.start(np.zeros(TYPED.parameter_count, np.float32))
    slope = np.ones(TYPED.parameter_count, np.float32)
    rng = np.random.default_rng(3)
    for _ in range(20):
        for name in NAMES:
            gradient = (slope + 0.1 * rng.normal(size=slope.size)).astype(np.float32)
            seen_type(gradient, 1)[:] *= np.float32(3.0 if name == "coast" else 0.0)
            seen_type(gradient, 2)[:] *= np.float32(name in ("north", "west"))
            if name == bad:
                gradient *= np.float32(-1.0)
            kind = aggregator.kind_of_next(name, list(NAMES))
            sent = update(1, cluster=name, gradient=gradient, spec_digest=TYPED.digest)
            aggregator.apply(state, AppliedUpdate(state.step + 1, 1e-2, len(NAMES), 0.0, sent, kind))
    return [-float(seen_type(state.weights, column).max()) for column in range(3)]


def test_the_only_cluster_with_a_type_has_its_say_on_it_though_it_is_least_like_the_others() -> None:
    assert types_learned("", types_of_one=False)[1] == 0.0, "outvoted, cohort after cohort"
    assert min(types_learned("", types_of_one=True)) > 0.1


def test_one_that_sends_the_opposite_has_no_say_where_another_cluster_has_one() -> None:
    assert min(types_learned("north", types_of_one=True)) > 0.1


def test_settings_of_a_log_from_before_mean_what_they_meant(tmp_path: Path) -> None:
    robust = AggregationSettings.model_validate({"mode": "robust"})
    assert robust.types_of_one
    write_settings(tmp_path, robust, OptimizerSettings())
    content = json.loads((tmp_path / AGGREGATION_NAME).read_text())
    del content["aggregation"]["types_of_one"], content["checksum"]
    (tmp_path / AGGREGATION_NAME).write_text(json.dumps(content))
    before = read_log_settings(tmp_path)
    assert before is not None
    assert before[0] == robust.model_copy(update={"types_of_one": False})
