from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from states import GPU_WORKER, make_job, make_state

from policy_net.baselines.decision_capacity import RequestedSizes
from policy_net.baselines.fifo import EasyPolicy, build_easy
from policy_net.domain import (
    SUSPENDED,
    Allocation,
    CapacityMode,
    ClusterState,
    Job,
    JobKind,
    PolicyContext,
    Progress,
    Resources,
    Trigger,
)
from policy_net.laboratory.speeds.speed import TableSpeedModel
from policy_net.placement.capacity import open_capacity

# A worker trains 100 samples/s, which is one epoch, however many there are: `remaining_epochs` / workers are seconds.
GRID = np.zeros((17, 17))
GRID[0, 1:] = 100.0 * np.arange(1, 17)
SPEEDS = TableSpeedModel({"even": GRID}, "a test")


def waiting(number: int, gpus: int, seconds: float, **changes: object) -> Job:
    epochs = gpus * seconds
    values = {"kind": JobKind.ALLREDUCE, "max_ps": 0, "min_ps": 0, "requested": Allocation(gpus)}
    return make_job(number, "even", total_epochs=epochs, remaining_epochs=epochs, **{**values, **changes})


def running(number: int, gpus: int, seconds: float) -> Job:
    return waiting(number, gpus, seconds, current=Allocation(gpus))


def workers_of(jobs: list[Job], nodes: int = 2, mode: CapacityMode = CapacityMode.POOLED) -> list[int]:
    """Workers of every job on nodes of 2 GPUs."""
    decision = EasyPolicy(SPEEDS).decide(make_state(jobs, nodes, mode), Trigger.ARRIVAL)
    return [decision.of(job.job_id).workers for job in jobs]


def test_a_job_that_ends_before_the_head_can_start_passes_it() -> None:
    assert workers_of([running(0, 2, 100), waiting(1, 4, 50), waiting(2, 2, 100)]) == [2, 0, 2]


def test_a_job_that_would_delay_the_head_waits() -> None:
    assert workers_of([running(0, 2, 100), waiting(1, 4, 50), waiting(2, 2, 101)]) == [2, 0, 0]


def test_a_long_job_passes_where_the_head_leaves_room_for_it() -> None:
    # At 100 s there are 4 GPUs for the head's 3.
    assert workers_of([running(0, 2, 100), waiting(1, 3, 50), waiting(2, 1, 9999), waiting(3, 1, 9999)]) == [2, 0, 1, 0]


def test_the_head_is_promised_the_first_end_that_makes_room() -> None:
    # After 10 s there are 3 GPUs, after 100 s 4: a job of 50 s may pass a head of 4 and not one of 3.
    busy = [running(0, 1, 100), running(1, 2, 10)]
    assert workers_of([*busy, waiting(2, 4, 5), waiting(3, 1, 50)]) == [1, 2, 0, 1]
    assert workers_of([*busy, waiting(2, 3, 5), waiting(3, 1, 50)]) == [1, 2, 0, 0]


def test_jobs_that_end_together_make_room_together() -> None:
    assert workers_of([running(0, 1, 100), running(1, 1, 100), waiting(2, 4, 5), waiting(3, 2, 100)]) == [1, 1, 0, 2]


def test_room_for_the_head_is_asked_of_every_node() -> None:
    # Two nodes of 8 CPU and 2 GPUs. Three workers of 2 CPU leave 10 CPU and one GPU, but no node with 7 CPU.
    heavy = waiting(1, 1, 50, worker_demand=Resources(7000, 1))
    jobs = [running(0, 3, 100), heavy, waiting(2, 1, 9999)]
    assert workers_of(jobs, mode=CapacityMode.NODES) == [3, 0, 1]
    assert workers_of(jobs, mode=CapacityMode.POOLED) == [3, 1, 0]
    # At 100 s the head takes 7 CPU of each node: no other worker finds room beside it.
    jobs = [
        running(0, 1, 100),
        running(1, 1, 100),
        waiting(2, 2, 50, worker_demand=heavy.worker_demand),
        waiting(3, 1, 9999),
    ]
    assert workers_of(jobs, mode=CapacityMode.NODES) == [1, 1, 0, 0]


def test_waiting_jobs_whose_work_nobody_knows_pass_only_beside_the_head() -> None:
    unknown = replace(waiting(2, 1, 1), work_known=False)
    assert workers_of([running(0, 2, 100), waiting(1, 4, 50), unknown]) == [2, 0, 0]
    assert workers_of([running(0, 2, 100), waiting(1, 3, 50), unknown]) == [2, 0, 1]


def test_without_a_truth_speeds_are_learned_from_progress() -> None:
    policy = build_easy(PolicyContext())
    jobs = [running(0, 2, 100), waiting(1, 4, 50), waiting(2, 2, 100)]
    state = make_state(jobs, 2, CapacityMode.POOLED)
    policy.decide(state, Trigger.ARRIVAL)
    before = policy.estimate_seconds(state, 0, Allocation(2), started=True)
    for workers in (1, 2, 3, 4):
        policy.observe([Progress("job-0", "even", Allocation(workers), 10.0, 1000.0 * workers, 10.0 * workers, 200.0)])
    after = policy.estimate_seconds(state, 0, Allocation(2), started=True)
    assert after == pytest.approx(100, rel=0.05)
    assert after != before


@st.composite
def queues(draw: st.DrawFn) -> ClusterState:
    """Some running jobs, and a queue; what runs may be more than the nodes hold, as where some were lost."""
    jobs = []
    for number in range(draw(st.integers(1, 14))):
        job = waiting(
            number,
            draw(st.integers(1, 8)),
            draw(st.sampled_from([1.0, 10.0, 10.0, 50.0, 100.0, 1000.0])),
            worker_demand=draw(st.sampled_from([GPU_WORKER, GPU_WORKER * 2])),
            work_known=draw(st.integers(0, 4)) > 0,
        )
        jobs.append(replace(job, current=job.requested) if draw(st.booleans()) else job)
    return make_state(jobs, draw(st.integers(1, 6)), draw(st.sampled_from(CapacityMode)))


def fits(state: ClusterState, sizes: dict[int, Allocation]) -> bool:
    capacity = open_capacity(state)
    for index, size in sizes.items():
        demands = (state.jobs[index].worker_demand,) * size.workers
        if not capacity.fits(*demands):
            return False
        capacity.take(*demands)
    return True


@given(queues())
def test_passing_jobs_keep_to_capacity_and_never_delay_the_head_by_the_policys_own_estimate(
    state: ClusterState,
) -> None:
    policy = EasyPolicy(SPEEDS)
    sizes = RequestedSizes().of(state)
    decision = policy.decide(state, Trigger.ARRIVAL)
    held = {index: decision.of(job.job_id) for index, job in enumerate(state.jobs)}
    held = {index: size for index, size in held.items() if size != SUSPENDED}
    assert fits(state, held)
    assert all(size == sizes[index] for index, size in held.items())
    runs = {index for index in held if state.jobs[index].current == sizes[index]}
    queue = [i for i in range(len(sizes)) if state.jobs[i].current != sizes[i] and sizes[i].tasks]
    head = next((index for index in queue if index not in held), None)
    if head is None:
        return
    ends = {i: policy.estimate_seconds(state, i, size, started=i in runs) for i, size in held.items()}

    def earliest(jobs: set[int]) -> float:
        """When the head could start if these jobs were all that hold anything."""
        times = sorted(ends[index] for index in jobs)
        left = ({index: held[index] for index in jobs if ends[index] > time} for time in times)
        return next(time for time, stay in zip(times, left, strict=True) if fits(state, {**stay, head: sizes[head]}))

    first = {index for index in held if index in runs or index < head}
    assert earliest(set(held)) <= earliest(first)
