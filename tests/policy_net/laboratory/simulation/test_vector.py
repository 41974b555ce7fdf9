from dataclasses import replace as changed

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import PairSpeeds, RandomPolicy, make_spec, make_workload, workloads

from policy_net.domain import CapacityMode, ClusterState, Progress
from policy_net.errors import BadInput, InvalidAllocation
from policy_net.laboratory.simulation.engine import Simulation
from policy_net.laboratory.simulation.environment import DecideOn, Environment
from policy_net.laboratory.simulation.vector import VectorSimulation, VectorStep
from policy_net.laboratory.workloads.workload import Workload

POOLED = Environment(2, capacity_mode=CapacityMode.POOLED)


def started(environment: Environment, *batch: Workload) -> VectorSimulation:
    vector = VectorSimulation(environment, PairSpeeds())
    vector.reset(batch)
    return vector


def close(left: float, right: float, noise: float) -> bool:
    """Equal bit for bit without noise; with it, numpy's and Python's logarithms differ in the last bit."""
    return left == right if noise == 0.0 else left == pytest.approx(right, rel=1e-9)


def assert_same_view(vector: VectorSimulation, b: int, workload: Workload, state: ClusterState, noise: float) -> None:
    shown = {job.job_id: job for job in state.jobs}
    for j, spec in enumerate(workload.jobs):
        assert vector.present_BJ[b, j] == (spec.job_id in shown)
        if spec.job_id in shown:
            assert close(vector.remaining_BJ[b, j], shown[spec.job_id].remaining_epochs, noise)
            assert close(vector.run_seconds_BJ[b, j], shown[spec.job_id].run_seconds, noise)


def assert_same_progress(
    step: VectorStep, b: int, workload: Workload, progress: dict[str, Progress], noise: float
) -> None:
    for j, spec in enumerate(workload.jobs):
        entry = progress.get(spec.job_id)
        assert step.finished_BJ[b, j] == (entry is not None and entry.finished)
        assert close(step.epochs_BJ[b, j], entry.epochs if entry else 0.0, noise)
        assert close(step.samples_BJ[b, j], entry.samples if entry else 0.0, noise)
        assert close(step.seconds_BJ[b, j], entry.seconds if entry else 0.0, noise)
        if entry:
            assert close(step.remaining_BJ[b, j], entry.remaining_epochs, noise)


@given(
    st.lists(workloads(), min_size=1, max_size=3),
    st.integers(2, 4),
    st.sampled_from([0.0, 0.3]),
    st.sampled_from([0.0, 0.3]),
    st.integers(0, 9),
    st.integers(1, 2),
)
@settings(max_examples=50)
def test_the_dynamics_are_those_of_the_scalar_engine(
    batch: list[Workload], nodes: int, noise: float, job_noise: float, seed: int, least: int
) -> None:
    batch = [
        changed(drawn, jobs=tuple(changed(job, min_ps=least if number else 1) for number, job in enumerate(drawn.jobs)))
        for drawn in batch
    ]
    environment = Environment(
        nodes, capacity_mode=CapacityMode.POOLED, speed_noise=noise, job_noise=job_noise, seed=seed
    )
    vector = started(environment, *batch)
    scalars = [Simulation(workload, environment, PairSpeeds()) for workload in batch]
    policy = RandomPolicy(seed)
    for _ in range(500):
        assert vector.done_B.tolist() == [scalar.finished for scalar in scalars]
        if vector.done_B.all():
            break
        allocation = np.zeros_like(vector.allocation_BJ2)
        progress: list[dict[str, Progress]] = []
        for b, (workload, scalar) in enumerate(zip(batch, scalars, strict=True)):
            if scalar.finished:
                progress.append({})
                continue
            state, trigger = scalar.observe()
            assert vector.time_B[b] == state.time_seconds
            assert_same_view(vector, b, workload, state, noise)
            decision = policy.decide(state, trigger)
            for j, spec in enumerate(workload.jobs):
                allocation[b, j] = decision.of(spec.job_id).workers, decision.of(spec.job_id).ps
            progress.append({entry.job_id: entry for entry in scalar.apply(decision)})
        step = vector.step(allocation)
        for b, workload in enumerate(batch):
            assert_same_progress(step, b, workload, progress[b], noise)
    for b, scalar in enumerate(scalars):
        ends = [outcome.end_seconds for outcome in scalar.outcomes()]
        for j, end in enumerate(ends):
            assert (end is None and np.isnan(vector.end_BJ[b, j])) or close(vector.end_BJ[b, j], end or 0.0, noise)


def test_mean_completion_times_are_per_cluster() -> None:
    short, long = make_workload(make_spec()), make_workload(make_spec(0), make_spec(1, total_epochs=36.0))
    vector = started(POOLED, short, long)
    assert np.isnan(vector.avg_jct_seconds_B()).all()
    while not vector.done_B.all():
        vector.step(np.where(vector.present_BJ[..., None], 1, 0) * np.ones(2, dtype=np.int64))
    assert vector.avg_jct_seconds_B().tolist() == [1200.0, 2400.0]


def test_a_cluster_that_is_done_stays_where_it_is() -> None:
    vector = started(POOLED, make_workload(make_spec()), make_workload(make_spec(total_epochs=60.0)))
    first = vector.step(np.ones((2, 1, 2), dtype=np.int64))
    assert first.done_B.tolist() == [True, False]
    time = vector.time_B[0]
    second = vector.step(np.array([[[0, 0]], [[1, 1]]]))
    assert vector.time_B[0] == time
    assert second.epochs_BJ.tolist() == [[0.0], [12.0]]


@pytest.mark.parametrize(
    ("allocation", "message"),
    [
        ([[[17, 1], [0, 0]]], "cluster 0, job 0: 17 workers and 1 PSs"),
        ([[[1, -1], [0, 0]]], "outside its caps"),
        ([[[1, 1], [1, 1]]], "cluster 0, job 1: 1 workers and 1 PSs are outside its caps, or it is not there"),
        ([[[5, 1], [0, 0]]], "cluster 0: 5 GPUs are allocated, it has 4"),
        ([[[1, 8], [0, 0]]], "cluster 0: 18000 millicores are allocated, it has 16000"),
        ([[[1, 1]]], "shape"),
    ],
)
def test_an_impossible_allocation_is_refused_and_changes_nothing(allocation: object, message: str) -> None:
    vector = started(POOLED, make_workload(make_spec(0), make_spec(1, submit_time_seconds=9000.0)))
    with pytest.raises(InvalidAllocation, match=message):
        vector.step(np.array(allocation))
    assert vector.time_B.tolist() == [0.0]
    assert vector.done_epochs_BJ.tolist() == [[0.0, 0.0]]


@pytest.mark.parametrize(
    "environment", [changed(POOLED, decide_on=DecideOn.EVENT), changed(POOLED, capacity_mode=CapacityMode.NODES)]
)
def test_only_pooled_slots_are_offered(environment: Environment) -> None:
    with pytest.raises(BadInput, match="slot decisions and pooled capacity"):
        VectorSimulation(environment, PairSpeeds())


@pytest.mark.parametrize(
    "disturbance",
    [{"resize_seconds": 1.0}, {"resume_seconds": 1.0}, {"start_seconds": 1.0}, {"node_mtbf_seconds": 1e6}],
)
def test_what_is_not_offered_is_refused_by_name(disturbance: dict[str, float]) -> None:
    with pytest.raises(BadInput, match=r"without pauses and changes of nodes, but .* use Simulation instead"):
        VectorSimulation(changed(POOLED, **disturbance), PairSpeeds())  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="jobs of unknown work: use Simulation instead"):
        started(POOLED, make_workload(make_spec(work_known=False)))


def test_a_job_that_never_fits_is_refused() -> None:
    with pytest.raises(BadInput, match="never fits"):
        started(changed(POOLED, gpus_per_node=0), make_workload(make_spec()))
