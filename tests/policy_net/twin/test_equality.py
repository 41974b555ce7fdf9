"""Equality of the compiled twin and the reference, on drawn cases of every kind that the twin covers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from twin_cases import (
    DRAWN_TYPES,
    KNOWN_TYPES,
    THOROUGH,
    assert_equal,
    drawn_speeds,
    environments,
    goes_the_same,
    kind_of,
    workloads,
)

from policy_net.domain import Allocation, JobKind, PlacementEffect, Resources, SpeedModel
from policy_net.exchange.spec import PRICE_COUNT, PRICES, SESSION_COUNT, SESSIONS, SetSpec
from policy_net.laboratory.simulation.environment import DecideOn, Environment
from policy_net.laboratory.simulation.replay import replay, run_compiled, uncovered
from policy_net.laboratory.speeds.placement_effect import default_placement_effect
from policy_net.laboratory.workloads.workload import Workload, WorkloadJob
from policy_net.set_policy.policy import SetPolicy, default_set_file
from policy_net.throughput.gaussian_process import GaussianProcessBeliefs
from policy_net.twin.library import notice

pytestmark = [pytest.mark.heavy, pytest.mark.skipif(notice() is not None, reason=str(notice()))]


@st.composite
def policies(draw: st.DrawFn, speeds: SpeedModel) -> tuple[SetPolicy, SetPolicy]:
    """A policy twice, with nothing learned in common: with the shipped weights or any, priors or none, or speeds."""
    content = default_set_file()
    spec, weights = content.spec, content.weights
    assert isinstance(spec, SetSpec)
    if draw(st.booleans()):
        spec = replace_hidden(spec, draw(st.sampled_from(((), (5,), (7, 3)))))
        generator = np.random.default_rng(draw(st.integers(0, 9)))
        scale = draw(st.sampled_from((0.0, 0.3, 3.0)))
        weights = (scale * generator.normal(size=spec.parameter_count)).astype(np.float32)
    priors = content.priors if draw(st.booleans()) else ()
    given_speeds = speeds if draw(st.integers(0, 3)) == 0 else None
    first, second = (SetPolicy(spec, weights, priors, speeds=given_speeds, places=False) for _ in range(2))
    return first, second


@st.composite
def grouped(draw: st.DrawFn, policy: SetPolicy, speeds: SpeedModel) -> tuple[SetPolicy, SetPolicy]:
    """A policy's residual and priors twice, with prices and sessions, or one of them."""
    found = [(PRICES, PRICE_COUNT), (SESSIONS, SESSION_COUNT)][slice(*draw(st.sampled_from(((0, 1), (1, 2), (0, 2)))))]
    spec, weights = policy.spec, policy.residual.flat
    for name, count in found:
        terms = draw(st.lists(st.floats(-1.0, 1.0, width=32), min_size=count, max_size=count))
        spec, weights = spec.model_copy(update={name: 1}), np.append(weights, terms)
    given_speeds = None if policy.speeds is None else speeds
    weights, priors = weights.astype(np.float32), policy.priors
    first, second = (SetPolicy(spec, weights, priors, speeds=given_speeds, places=False) for _ in range(2))
    return first, second


def doubts_of(beliefs: GaussianProcessBeliefs) -> dict[str, int]:
    return {job_type: process.doubted for job_type, process in beliefs.beliefs_by_type().items()}


def replace_hidden(spec: SetSpec, hidden: tuple[int, ...]) -> SetSpec:
    return SetSpec(hidden=hidden, bound=spec.bound)


def compare(
    data: st.DataObject, job_types: tuple[str, ...], effect: PlacementEffect | None = None, *, groups: bool = False
) -> None:
    speeds = drawn_speeds(data.draw(st.integers(0, 3)))
    workload, environment = data.draw(workloads(job_types)), data.draw(environments())
    there, here = data.draw(policies(speeds))
    if groups:
        there, here = data.draw(grouped(there, speeds))
    if not goes_the_same(there, here, workload, environment, speeds, effect):
        return
    assert here.decision_index == there.decision_index
    if here.beliefs is not None and there.beliefs is not None:
        assert here.beliefs.digest() == there.beliefs.digest()
        assert doubts_of(here.beliefs) == doubts_of(there.beliefs)
        for job_type in {job.job_type for job in workload.jobs}:
            np.testing.assert_array_equal(here.beliefs.grid(job_type), there.beliefs.grid(job_type))


@THOROUGH
@given(data=st.data())
def test_all_reduce_jobs_end_when_they_end_in_the_reference(data: st.DataObject) -> None:
    compare(data, ("vgg16-256-allreduce", "bert-64-allreduce"))


@THOROUGH
@given(data=st.data())
def test_jobs_of_all_kinds_end_when_they_end_in_the_reference(data: st.DataObject) -> None:
    compare(data, KNOWN_TYPES)


@THOROUGH
@given(data=st.data())
def test_prices_and_sessions_are_as_in_the_reference(data: st.DataObject) -> None:
    compare(data, KNOWN_TYPES, groups=True)


@THOROUGH
@given(data=st.data())
def test_prices_and_sessions_of_types_that_nobody_has_seen_are_as_in_the_reference(data: st.DataObject) -> None:
    compare(data, DRAWN_TYPES + KNOWN_TYPES[:2], groups=True)


@THOROUGH
@given(data=st.data())
def test_types_that_nobody_has_seen_are_learned_as_in_the_reference(data: st.DataObject) -> None:
    compare(data, DRAWN_TYPES + KNOWN_TYPES[:2])


@THOROUGH
@given(data=st.data())
def test_workers_that_lie_apart_slow_down_as_in_the_reference(data: st.DataObject) -> None:
    compare(data, KNOWN_TYPES, default_placement_effect())


def test_a_policy_that_has_learned_of_many_workers_goes_on_from_there_with_few() -> None:
    """Splits that no job of the next workload may have were seen; the others' beliefs follow from them too."""
    speeds, (there, here) = drawn_speeds(0), (fresh(), fresh())
    environment = Environment(20, gpus_per_node=4, cpus_per_node=16, decide_on=DecideOn.EVENT, speed_noise=0.273)
    name, seen = "vgg16-256-allreduce", []
    for most in (64, 16, 40):
        jobs = tuple(
            WorkloadJob(
                *(f"job-{number}", name, 900.0 * number, 300.0 + number, 2560.0),
                *(Resources(2000, 1), Resources(2000, 0), Allocation(most, 0)),
                *(most if number % 2 else min(most, 16), 0),
                kind=JobKind.ALLREDUCE,
                min_ps=0,
                work_known=number % 3 > 0,
            )
            for number in range(12)
        )
        workload = Workload("more", jobs)
        assert uncovered(workload, environment, here, speeds) is None
        assert_equal(
            replay(workload, environment, there, speeds, compiled=False),
            run_compiled(workload, environment, here, speeds),
        )
        assert here.beliefs is not None
        assert there.beliefs is not None
        assert here.beliefs.digest() == there.beliefs.digest()
        np.testing.assert_array_equal(here.beliefs.grid(name), there.beliefs.grid(name))
        seen.append(max(split.workers for split in here.beliefs.allocations_seen(name)))
    assert seen[0] > 16


@pytest.mark.parametrize("seed", [19, 36, 37])
def test_jobs_that_are_alike_come_by_arrival_as_in_the_reference(seed: int) -> None:
    """Several of each; the residual of the reference is a matrix product, whose rounding told some of them apart."""
    generator, now = np.random.default_rng(seed), 0.0
    content = default_set_file()
    assert isinstance(content.spec, SetSpec)
    spec = replace_hidden(content.spec, (16,))
    weights = (0.5 * generator.normal(size=spec.parameter_count)).astype(np.float32)
    jobs: list[WorkloadJob] = []
    for _ in range(int(generator.integers(3, 8))):
        now += float(generator.choice([0, 600, 2400]))
        name, epochs = str(generator.choice(("vgg-16", "resnet-50", "seq2seq"))), float(generator.choice([20, 60]))
        jobs += [
            WorkloadJob(
                *(f"job-{len(jobs) + number}", name, now, epochs, 50_000.0),
                *(Resources(2000, 1), Resources(2000, 0), Allocation(2, 1), 8, 8),
            )
            for number in range(int(generator.integers(1, 6)))
        ]
    there, here = (SetPolicy(spec, weights, content.priors, places=False) for _ in range(2))
    assert goes_the_same(there, here, Workload("alike", tuple(jobs)), Environment(3, 4, 16), drawn_speeds(0))


@pytest.mark.parametrize("stall_seconds", [0.0, 120.0])
def test_a_policy_that_has_learned_goes_on_from_there(stall_seconds: float) -> None:
    speeds, (there, here) = drawn_speeds(0), (fresh(), fresh())
    pauses = {"resize_seconds": stall_seconds, "resume_seconds": stall_seconds}
    environment = Environment(4, decide_on=DecideOn.EVENT, speed_noise=0.273, **pauses)
    for job_types in (("vgg-16", "drawn-ps"), ("resnet-50", "vgg-16"), ("drawn-ps", "drawn-async")):
        jobs = tuple(
            WorkloadJob(
                *(f"job-{number}", job_types[number % 2], 400.0 * number, 10.0 + number, 2000.0),
                *(Resources(2000, 1), Resources(2000, 0), Allocation(1, 1)),
                kind=kind_of(job_types[number % 2]),
                work_known=number % 3 > 0,
            )
            for number in range(30)
        )
        workload = Workload("more", jobs)
        assert_equal(
            replay(workload, environment, there, speeds, compiled=False),
            run_compiled(workload, environment, here, speeds),
        )
        assert here.beliefs is not None
        assert there.beliefs is not None
        assert here.beliefs.digest() == there.beliefs.digest()


def fresh() -> SetPolicy:
    content = default_set_file()
    assert isinstance(content.spec, SetSpec)
    return SetPolicy(content.spec, content.weights, content.priors)
