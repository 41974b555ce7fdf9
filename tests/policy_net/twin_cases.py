"""Drawn cases of every kind that the twin covers, and what it must have in common with the reference on them."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, reject, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from policy_net.domain import Allocation, CapacityMode, JobKind, PlacementEffect, Resources, SpeedModel
from policy_net.errors import BadInput, NoProgress
from policy_net.laboratory.catalogue import CATALOGUE
from policy_net.laboratory.simulation.case import FinishedRun
from policy_net.laboratory.simulation.environment import DecideOn, Environment, NodeChange, PlacementStrategy
from policy_net.laboratory.simulation.replay import ReplayResult, replay, run_compiled, uncovered
from policy_net.laboratory.speeds.speed import TableSpeedModel, default_speeds
from policy_net.laboratory.workloads.workload import Workload, WorkloadJob
from policy_net.policy import SchedulerPolicy

KNOWN_TYPES = ("vgg-16", "resnet-50", "seq2seq", "vgg-16-async", "vgg16-256-allreduce", "bert-64-allreduce")
DRAWN_TYPES = ("drawn-ps", "drawn-async", "drawn-allreduce", "plateau")
KINDS = {
    "drawn-ps": JobKind.PS,
    "drawn-async": JobKind.ASYNC,
    "drawn-allreduce": JobKind.ALLREDUCE,
    "plateau": JobKind.PS,
}
TOLERANCE = 1e-9
MOST_DECISIONS, MOST_WITH_CHANGES = 2000, 300
THOROUGH = settings(
    max_examples=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


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
def job_specs(draw: st.DrawFn, number: int, job_types: tuple[str, ...]) -> WorkloadJob:
    job_type = draw(st.sampled_from(job_types))
    with_ps = kind_of(job_type).uses_ps
    most = 16 if with_ps or draw(st.booleans()) else 64
    most_workers, most_ps = draw(st.integers(1, most)), draw(st.integers(1, 16)) if with_ps else 0
    least_workers = draw(st.integers(1, min(most // 8, most_workers))) if draw(st.booleans()) else 1
    total = draw(st.sampled_from((30.0, 100.0))) if draw(st.booleans()) else draw(st.floats(0.5, 300.0))
    declared = draw(st.one_of(st.none(), st.floats(0.01, 20.0)))
    return WorkloadJob(
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
        true_type=draw(st.sampled_from((None, *(name for name in job_types if kind_of(name) is kind_of(job_type))))),
        report_factor=draw(st.sampled_from((1.0, 1.0, 0.1, 10.0))),
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
def node_changes(draw: st.DrawFn, nodes: int) -> tuple[NodeChange, ...]:
    """Nodes that come and go by plan, some at once and some between two decisions; one stays."""
    there, changes, now = {f"node-{number}" for number in range(nodes)}, [], 0.0
    for _ in range(draw(st.integers(0, 6))):
        now += draw(st.sampled_from((0.0, 10.0, 500.0, 1200.0, 5000.0)))
        node_id = f"node-{draw(st.integers(0, nodes + 1))}"
        up = node_id not in there
        if not up and len(there) == 1:
            continue
        size = Resources(draw(st.integers(6, 20)) * 1000, draw(st.integers(2, 4))) if draw(st.booleans()) else None
        changes.append(NodeChange(now, node_id, up, size if up else None))
        there ^= {node_id}
    return tuple(changes)


@st.composite
def failures(draw: st.DrawFn, environment: Environment) -> Environment:
    """The environment with nodes that come and go, by plan or by chance; jobs may lose what they have trained."""
    return replace(
        environment,
        node_changes=draw(node_changes(environment.nodes)),
        node_mtbf_seconds=draw(st.sampled_from((0.0, 6000.0, 40000.0))),
        node_repair_seconds=draw(st.sampled_from((300.0, 3600.0))),
        checkpoint_seconds=draw(st.sampled_from((0.0, 100.0, 1200.0))),
    )


@st.composite
def environments(draw: st.DrawFn) -> Environment:
    nodes = draw(st.integers(1, 6))
    sizes = tuple(
        Resources(draw(st.integers(6, 20)) * 1000, draw(st.integers(2, 4))) for _ in range(nodes) if draw(st.booleans())
    )
    pause = st.sampled_from((0.0, 24.0, 120.0, 3000.0))
    environment = Environment(
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
    return draw(failures(environment)) if draw(st.integers(0, 2)) == 0 else environment


def reference(
    workload: Workload,
    environment: Environment,
    policy: SchedulerPolicy,
    speeds: SpeedModel,
    effect: PlacementEffect | None,
) -> ReplayResult | str:
    decisions = itertools.count(1)
    most = MOST_WITH_CHANGES if environment.changes_nodes else MOST_DECISIONS

    def go_on(_: float) -> None:
        if next(decisions) > most:
            reject()  # of a workload that takes the reference minutes, others show as much

    try:
        return replay(
            workload,
            environment,
            policy,
            speeds,
            placement_effect=effect,
            on_progress=go_on,
            compiled=False,
            by_an_agent=True,
        )
    except (BadInput, NoProgress) as error:
        return str(error)


def assert_equal(found: ReplayResult, run: FinishedRun) -> None:
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


def goes_the_same(
    there: SchedulerPolicy,
    here: SchedulerPolicy,
    workload: Workload,
    environment: Environment,
    speeds: SpeedModel,
    effect: PlacementEffect | None = None,
) -> bool:
    """See that the twin covers a case, and has the reference's results or refusal; False where it is refused.

    Args:
        there, here: two policies alike, of the reference and of the twin.
    """
    assert uncovered(workload, environment, here, speeds, effect) is None
    expected = reference(workload, environment, there, speeds, effect)
    if isinstance(expected, str):
        with pytest.raises((BadInput, NoProgress)) as raised:
            replay(workload, environment, here, speeds, placement_effect=effect, by_an_agent=True)
        assert str(raised.value) == expected
        return False
    assert_equal(expected, run_compiled(workload, environment, here, speeds, effect))
    return True
