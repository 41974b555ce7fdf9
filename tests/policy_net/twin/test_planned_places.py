"""Equality of the twin and the reference where plans say themselves where tasks go."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from twin_cases import (
    DRAWN_TYPES,
    KNOWN_TYPES,
    THOROUGH,
    TOLERANCE,
    assert_equal,
    drawn_speeds,
    environments,
    goes_the_same,
    kind_of,
    workloads,
)

from policy_net.domain import Allocation, CapacityMode, Progress, Resources, SpeedModel
from policy_net.exchange.spec import PRICE_COUNT, PRICES, SESSION_COUNT, SESSIONS, SetSpec
from policy_net.laboratory.simulation.environment import DecideOn, Environment, PlacementStrategy
from policy_net.laboratory.simulation.replay import replay, run_compiled, uncovered
from policy_net.laboratory.speeds.placement_effect import FittedPlacementEffect, default_placement_effect
from policy_net.laboratory.workloads.workload import Workload, WorkloadJob
from policy_net.set_policy.policy import SetPolicy, default_set_file
from policy_net.throughput.place_effects import PlaceBeliefs
from policy_net.twin.believed import knows_gpu_types
from policy_net.twin.library import notice

pytestmark = [pytest.mark.heavy, pytest.mark.skipif(notice() is not None, reason=str(notice()))]

EFFECT = default_placement_effect()
ALLREDUCE_TYPES = ("vgg16-256-allreduce", "bert-64-allreduce")
PS_TYPES = ("vgg-16", "resnet-50", "seq2seq", "vgg-16-async")


@st.composite
def policies(draw: st.DrawFn, speeds: SpeedModel) -> tuple[SetPolicy, SetPolicy]:
    """A policy twice that plans places, on what it learns of them or, as some do of speeds, on the truth."""
    content = default_set_file()
    spec, weights = content.spec, content.weights
    assert isinstance(spec, SetSpec)
    if draw(st.booleans()):
        spec = SetSpec(hidden=draw(st.sampled_from(((), (5,)))), bound=spec.bound)
        generator = np.random.default_rng(draw(st.integers(0, 9)))
        weights = draw(st.sampled_from((0.0, 0.3, 3.0))) * generator.normal(size=spec.parameter_count)
        for name, count in draw(st.sampled_from(((), ((PRICES, PRICE_COUNT),), ((SESSIONS, SESSION_COUNT),)))):
            spec = spec.model_copy(update={name: 1})
            weights = np.append(weights, draw(st.lists(st.floats(-1.0, 1.0), min_size=count, max_size=count)))
    knows_speeds = draw(st.integers(0, 5)) == 0
    knows_effect = knows_speeds or draw(st.integers(0, 5)) == 0
    options: dict[str, Any] = {"speeds": speeds} if knows_speeds else {}
    options |= {"effect": FittedPlacementEffect()} if knows_effect else {}
    priors = content.priors if draw(st.booleans()) else ()
    first, second = (SetPolicy(spec, weights.astype(np.float32), priors, **options) for _ in range(2))
    return first, second


def assert_alike(one: Any, other: Any) -> None:
    """The same but for the last digits: effects of places follow from speeds that were summed in another order."""
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key, value in one.items():
            assert_alike(value, other[key])
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other)
        for first, second in zip(one, other, strict=True):
            assert_alike(first, second)
    elif isinstance(one, float):
        assert one == pytest.approx(other, rel=TOLERANCE, abs=TOLERANCE)
    else:
        assert one == other


def assert_believe_alike(one: SetPolicy, other: SetPolicy) -> None:
    assert one.decision_index == other.decision_index
    if one.beliefs is not None and other.beliefs is not None:
        assert_alike(one.beliefs.checkpoint(), other.beliefs.checkpoint())


def compare(data: st.DataObject, job_types: tuple[str, ...]) -> None:
    speeds = drawn_speeds(data.draw(st.integers(0, 3)))
    workload = data.draw(workloads(job_types))
    environment = replace(data.draw(environments()), capacity_mode=CapacityMode.NODES)
    there, here = data.draw(policies(speeds))
    if not goes_the_same(there, here, workload, environment, speeds, EFFECT):
        return
    assert_believe_alike(here, there)


@THOROUGH
@given(data=st.data())
def test_all_reduce_jobs_lie_where_they_lie_in_the_reference(data: st.DataObject) -> None:
    compare(data, ALLREDUCE_TYPES)


@THOROUGH
@given(data=st.data())
def test_jobs_with_servers_lie_where_they_lie_in_the_reference(data: st.DataObject) -> None:
    compare(data, PS_TYPES)


@THOROUGH
@given(data=st.data())
def test_jobs_of_all_kinds_lie_where_they_lie_in_the_reference(data: st.DataObject) -> None:
    compare(data, KNOWN_TYPES)


@THOROUGH
@given(data=st.data())
def test_jobs_of_types_that_nobody_has_seen_lie_where_they_lie_in_the_reference(data: st.DataObject) -> None:
    compare(data, DRAWN_TYPES + ALLREDUCE_TYPES)


def fresh(**options: Any) -> SetPolicy:
    content = default_set_file()
    assert isinstance(content.spec, SetSpec)
    return SetPolicy(content.spec, content.weights, content.priors, **options)


def crowded(job_types: tuple[str, ...], count: int = 40) -> Workload:
    """More jobs than have room, of few and many workers, known, wrong and unknown work in turn."""
    return Workload(
        "crowded",
        tuple(
            WorkloadJob(
                *(f"job-{number}", name, 200.0 * number, 60.0 + 7.0 * (number % 11), 2560.0),
                *(Resources(2000, 1), Resources(2000, 0), Allocation(4, 4 if kind_of(name).uses_ps else 0)),
                *((2, 4, 8, 16)[number % 4], 4 if kind_of(name).uses_ps else 0),
                declared_epochs=50.0 if number % 5 == 0 else None,
                kind=kind_of(name),
                min_ps=1 if kind_of(name).uses_ps else 0,
                work_known=number % 3 > 0,
            )
            for number, name in ((number, job_types[number % len(job_types)]) for number in range(count))
        ),
    )


@pytest.mark.parametrize("stall_seconds", [0.0, 120.0])
@pytest.mark.parametrize("placement", list(PlacementStrategy))
def test_a_policy_that_has_learned_of_places_goes_on_from_there(
    stall_seconds: float, placement: PlacementStrategy
) -> None:
    speeds, (there, here) = drawn_speeds(0), (fresh(), fresh())
    pauses = {"resize_seconds": stall_seconds, "resume_seconds": stall_seconds}
    environment = Environment(*(6, 4, 16), decide_on=DecideOn.EVENT, speed_noise=0.273, placement=placement, **pauses)
    for job_types in (("bert-64-allreduce", "vgg-16"), ("vgg16-256-allreduce",), ("vgg-16", "bert-64-allreduce")):
        workload = crowded(job_types)
        assert uncovered(workload, environment, here, speeds, EFFECT) is None
        assert_equal(
            replay(workload, environment, there, speeds, placement_effect=EFFECT, compiled=False),
            run_compiled(workload, environment, here, speeds, EFFECT),
        )
        assert_believe_alike(here, there)
    assert here.beliefs is not None
    means = {tuple(key): mean for key, _, mean in here.beliefs.places.snapshot()["means"]}
    assert means["span", "allreduce", "bert-64-allreduce"] < -0.3
    assert ("span", "allreduce", "vgg16-256-allreduce") in means


def test_what_it_does_not_keep_the_policy_does_not_believe() -> None:
    speeds, policy = drawn_speeds(0), fresh()
    environment = Environment(6, 4, 16, decide_on=DecideOn.EVENT)
    run_compiled(crowded(("bert-64-allreduce",)), environment, policy, speeds, EFFECT, keep_beliefs=False)
    assert policy.beliefs is not None
    assert policy.beliefs.places.reports == 0


def test_where_tasks_go_makes_the_difference_that_it_makes_in_the_reference() -> None:
    """Another result than without places in the plan, or the equality above would show little."""
    speeds, workload = drawn_speeds(0), crowded(("bert-64-allreduce",))
    environment = Environment(6, 4, 16, decide_on=DecideOn.EVENT, resize_seconds=60.0)
    planned, apart = (
        run_compiled(workload, environment, fresh(places=places), speeds, EFFECT) for places in (True, False)
    )
    ends = [[outcome.end_seconds or 0.0 for outcome in run.outcomes] for run in (planned, apart)]
    assert sum(ends[0]) < sum(ends[1])


def test_beliefs_of_gpu_types_are_for_the_reference() -> None:
    policy, places = fresh(), PlaceBeliefs()
    assert policy.beliefs is not None
    for gpu_type in ("v100", "k80"):
        progress = Progress("job", "vgg-16", Allocation(1, 1), 60.0, 600.0, 1.0, 1.0, places=((gpu_type, 1),))
        places.observe(progress, 5.0)
    assert knows_gpu_types(places)
    policy.beliefs.places = places
    workload, speeds = crowded(("vgg-16",)), drawn_speeds(0)
    assert uncovered(workload, Environment(6), policy, speeds, EFFECT) == "the policy's beliefs are of GPU types"
    assert uncovered(workload, Environment(6), policy, speeds) is None


class Unfitted:
    def relative_speed(self, job_type: str, workers_by_node: object) -> float:
        del job_type, workers_by_node
        return 1.0


def test_an_effect_that_is_not_the_fitted_one_is_for_the_reference() -> None:
    workload, speeds, said = crowded(("vgg-16",)), drawn_speeds(0), "the effect of places is not the fitted one"
    assert uncovered(workload, Environment(6), fresh(), speeds, Unfitted()) == said
    assert uncovered(workload, Environment(6), fresh(effect=Unfitted()), speeds, EFFECT) == said
