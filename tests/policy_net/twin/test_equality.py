"""Equality of the compiled twin and the reference, on drawn cases of every kind that the twin covers."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from policy_net.domain import Allocation, CapacityMode, JobKind, PlacementEffect, Resources, SpeedModel
from policy_net.errors import BadInput, NoProgress
from policy_net.exchange.spec import PRICE_COUNT, PRICES, SESSION_COUNT, SESSIONS, SetSpec
from policy_net.laboratory.catalogue import CATALOGUE
from policy_net.laboratory.simulation.compiled import CompiledRun, run_compiled, uncovered
from policy_net.laboratory.simulation.environment import DecideOn, Environment, PlacementStrategy
from policy_net.laboratory.simulation.replay import ReplayResult, replay
from policy_net.laboratory.speeds.placement_effect import default_placement_effect
from policy_net.laboratory.speeds.speed import TableSpeedModel, default_speeds
from policy_net.laboratory.workloads.workload import JobSpec, Workload
from policy_net.set_policy.policy import SetPolicy, default_set_file
from policy_net.twin.library import notice

pytestmark = [pytest.mark.heavy, pytest.mark.skipif(notice() is not None, reason=str(notice()))]

KNOWN_TYPES = ("vgg-16", "resnet-50", "seq2seq", "vgg-16-async", "vgg16-256-allreduce", "bert-64-allreduce")
DRAWN_TYPES = ("drawn-ps", "drawn-async", "drawn-allreduce", "plateau")
KINDS = {
    "drawn-ps": JobKind.PS,
    "drawn-async": JobKind.ASYNC,
    "drawn-allreduce": JobKind.ALLREDUCE,
    "plateau": JobKind.PS,
}
TOLERANCE = 1e-9
MOST_DECISIONS = 2000


def kind_of(job_type: str) -> JobKind:
    return KINDS.get(job_type) or CATALOGUE[job_type].kind


def drawn_speeds(seed: int) -> SpeedModel:
    """The catalogue's, and types of which nobody knows anything: with dead splits, one with many equal speeds."""
    generator = np.random.default_rng(seed)
    grids: dict[str, NDArray[np.float64]] = {name: default_speeds().grid(name) for name in KNOWN_TYPES}
    size = np.arange(17.0)
    for name in DRAWN_TYPES:
        grid = np.exp(generator.normal(3.0, 1.0) + generator.normal(0.0, 0.4, size=(17, 17)))
        grid *= np.minimum(np.maximum(size[:, None], KINDS[name] is JobKind.ALLREDUCE), size) ** 0.6
        grid *= generator.random((17, 17)) > 0.1
        grid[1, 1] = grid[0, 1] = 20.0
        if name == "plateau":
            grid = np.minimum(size[:, None], size)
        grid[:, 0] = 0.0
        if KINDS[name] is JobKind.ALLREDUCE:
            more = np.arange(17.0, 65.0)
            beyond = np.exp(generator.normal(3.5, 0.4, size=48)) * more**0.6 * (generator.random(48) > 0.1)
            grid = np.concatenate([grid[0], beyond])[None]
        else:
            grid[0] = 0.0
        grids[name] = grid
    return TableSpeedModel(grids, "the test")


@st.composite
def job_specs(draw: st.DrawFn, number: int, job_types: tuple[str, ...]) -> JobSpec:
    job_type = draw(st.sampled_from(job_types))
    with_ps = kind_of(job_type).uses_ps
    most = 16 if with_ps or draw(st.booleans()) else 64
    most_workers, most_ps = draw(st.integers(1, most)), draw(st.integers(1, 16)) if with_ps else 0
    least_workers = draw(st.integers(1, min(most // 8, most_workers))) if draw(st.booleans()) else 1
    total = draw(st.sampled_from((30.0, 100.0))) if draw(st.booleans()) else draw(st.floats(0.5, 300.0))
    declared = draw(st.one_of(st.none(), st.floats(0.01, 20.0)))
    return JobSpec(
        job_id=f"job-{number}",
        job_type=job_type,
        submit_time_seconds=0.0,
        total_epochs=total,
        samples_per_epoch=draw(st.sampled_from((50.0, 100.0, 700.0))),
        worker_demand=draw(st.sampled_from((Resources(2000, 1), Resources(1000, 0), Resources(3000, 1)))),
        ps_demand=draw(st.sampled_from((Resources(2000, 0), Resources(500, 0), Resources(0, 0)))),
        requested=Allocation(draw(st.integers(0, most)), draw(st.integers(0, 16)) if with_ps else 0),
        max_workers=most_workers,
        max_ps=most_ps,
        declared_epochs=None if declared is None else declared * total,
        kind=kind_of(job_type),
        min_workers=least_workers,
        min_ps=1 if with_ps else 0,
        work_known=draw(st.booleans()),
    )


@st.composite
def workloads(draw: st.DrawFn, job_types: tuple[str, ...]) -> Workload:
    count = draw(st.integers(1, 9))
    gaps = draw(st.lists(st.sampled_from((0.0, 1.0, 300.0, 1200.0, 7000.0)), min_size=count, max_size=count))
    jobs, now = [], 0.0
    for number, gap in enumerate(gaps):
        now += gap
        jobs.append(replace(draw(job_specs(number, job_types)), submit_time_seconds=now))
    if draw(st.booleans()):  # twins among the jobs: every score of theirs is a tie
        jobs = [replace(jobs[number // 2], job_id=f"job-{number}") for number in range(2 * len(jobs))]
    return Workload("drawn", tuple(jobs))


@st.composite
def environments(draw: st.DrawFn) -> Environment:
    nodes = draw(st.integers(1, 6))
    sizes = tuple(
        Resources(draw(st.integers(6, 20)) * 1000, draw(st.integers(2, 4))) for _ in range(nodes) if draw(st.booleans())
    )
    pause = st.sampled_from((0.0, 24.0, 120.0, 3000.0))
    return Environment(
        nodes=nodes,
        gpus_per_node=draw(st.integers(2, 8)),
        cpus_per_node=draw(st.integers(8, 32)),
        decide_on=draw(st.sampled_from(DecideOn)),
        debounce_seconds=draw(st.sampled_from((0.0, 60.0))),
        capacity_mode=draw(st.sampled_from(CapacityMode)),
        speed_noise=draw(st.sampled_from((0.0, 0.273))),
        job_noise=draw(st.sampled_from((0.0, 0.3))),
        resize_seconds=draw(pause),
        resume_seconds=draw(pause),
        start_seconds=draw(pause),
        placement=draw(st.sampled_from(PlacementStrategy)),
        node_sizes=sizes if len(sizes) == nodes else (),
        seed=draw(st.integers(0, 5)),
    )


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


def replace_hidden(spec: SetSpec, hidden: tuple[int, ...]) -> SetSpec:
    return SetSpec(hidden=hidden, bound=spec.bound)


def reference(
    workload: Workload, environment: Environment, policy: SetPolicy, speeds: SpeedModel, effect: PlacementEffect | None
) -> ReplayResult | str:
    decisions = itertools.count(1)

    def go_on(_: float) -> None:
        if next(decisions) > MOST_DECISIONS:
            reject()  # of a workload that takes the reference minutes, others show as much

    try:
        return replay(workload, environment, policy, speeds, placement_effect=effect, on_progress=go_on, compiled=False)
    except (BadInput, NoProgress) as error:
        return str(error)


def assert_equal(found: ReplayResult, run: CompiledRun) -> None:
    assert run.standstill is None
    for one, other in zip(found.outcomes, run.outcomes, strict=True):
        assert one.job_id == other.job_id
        assert other.start_seconds == pytest.approx(one.start_seconds, rel=TOLERANCE)
        assert other.end_seconds == pytest.approx(one.end_seconds, rel=TOLERANCE)
    for name, value in found.counters.to_json().items():
        assert run.counters.to_json()[name] == pytest.approx(value, rel=TOLERANCE), name
    gaps = [result.longest_gap_seconds for result in found.job_results]
    assert list(run.longest_gaps.values()) == pytest.approx(gaps, rel=TOLERANCE)
    if found.gpu_training_share is not None:
        share = run.counters.share_of_gpu_time(run.training_gpu_seconds)
        assert share == pytest.approx(found.gpu_training_share, rel=TOLERANCE)


def compare(
    data: st.DataObject, job_types: tuple[str, ...], effect: PlacementEffect | None = None, *, groups: bool = False
) -> None:
    speeds = drawn_speeds(data.draw(st.integers(0, 3)))
    workload, environment = data.draw(workloads(job_types)), data.draw(environments())
    there, here = data.draw(policies(speeds))
    if groups:
        there, here = data.draw(grouped(there, speeds))
    assert uncovered(workload, environment, here, speeds, effect) is None
    expected = reference(workload, environment, there, speeds, effect)
    if isinstance(expected, str):
        with pytest.raises((BadInput, NoProgress)) as raised:
            replay(workload, environment, here, speeds, placement_effect=effect)
        assert str(raised.value) == expected
        return
    assert_equal(expected, run_compiled(workload, environment, here, speeds, effect))
    assert here.decision_index == there.decision_index
    if here.beliefs is not None and there.beliefs is not None:
        assert here.beliefs.digest() == there.beliefs.digest()
        for job_type in {job.job_type for job in workload.jobs}:
            np.testing.assert_array_equal(here.beliefs.grid(job_type), there.beliefs.grid(job_type))


THOROUGH = settings(
    max_examples=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


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
            JobSpec(
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


@pytest.mark.parametrize("stall_seconds", [0.0, 120.0])
def test_a_policy_that_has_learned_goes_on_from_there(stall_seconds: float) -> None:
    speeds, (there, here) = drawn_speeds(0), (fresh(), fresh())
    pauses = {"resize_seconds": stall_seconds, "resume_seconds": stall_seconds}
    environment = Environment(4, decide_on=DecideOn.EVENT, speed_noise=0.273, **pauses)
    for job_types in (("vgg-16", "drawn-ps"), ("resnet-50", "vgg-16"), ("drawn-ps", "drawn-async")):
        jobs = tuple(
            JobSpec(
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
