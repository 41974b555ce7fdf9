"""Cluster states and progress reports for contract tests: mixed nodes, demands, kinds, caps, types and histories."""

from __future__ import annotations

import sys

from hypothesis import strategies as st

from policy_net.domain import (
    SUSPENDED,
    Allocation,
    CapacityMode,
    ClusterState,
    Decision,
    Job,
    JobKind,
    Node,
    Progress,
    Resources,
)

JOB_TYPES = ("resnet-50", "dssm", "never-seen")
KIND_OF_TYPE = {
    **dict.fromkeys(JOB_TYPES, JobKind.PS),
    "bert-allreduce": JobKind.ALLREDUCE,
    "gpt2-allreduce": JobKind.ALLREDUCE,
    "dssm-async": JobKind.ASYNC,
}
"""A type's name fixes its kind."""
NODE_SIZES = (Resources(8000, 2), Resources(4000, 0), Resources(16000, 8), Resources(1000, 1))
WORKER_DEMANDS = (Resources(2000, 1), Resources(2000, 0), Resources(3000, 2), Resources(9000, 1), Resources(500, 0))
PS_DEMANDS = (Resources(2000, 0), Resources(1000, 0), Resources(3000, 1))


def job(number: int = 0, **changes: object) -> Job:
    values: dict[str, object] = {
        "job_id": f"job-{number}",
        "job_type": JOB_TYPES[number % len(JOB_TYPES)],
        "submit_time_seconds": 10.0 * number,
        "worker_demand": WORKER_DEMANDS[0],
        "ps_demand": PS_DEMANDS[0],
        "samples_per_epoch": 100.0,
        "total_epochs": 1000.0,
        "remaining_epochs": 1000.0 / (1 + number % 7),
    }
    return Job(**{**values, **changes})  # type: ignore[arg-type]  # the changes are a test's own


def cluster(jobs: list[Job], nodes: int = 6, mode: CapacityMode = CapacityMode.NODES, hours: float = 0) -> ClusterState:
    machines = tuple(Node(f"node-{index}", NODE_SIZES[0]) for index in range(nodes))
    return ClusterState(3600.0 * hours, machines, tuple(jobs), 1200.0, mode)


@st.composite
def drawn_jobs(draw: st.DrawFn, number: int) -> Job:
    """Any kind; caps may be 0 and minimum sizes above them: then the job cannot train."""
    job_type = draw(st.sampled_from(sorted(KIND_OF_TYPE)))
    kind = KIND_OF_TYPE[job_type]
    most_workers = draw(st.integers(0, 16))
    most_ps = draw(st.integers(0, 16)) if kind.uses_ps else 0
    known = draw(st.booleans())
    remaining = draw(st.one_of(st.just(0.0), st.floats(1e-6, 1e7)))
    return job(
        number,
        job_type=job_type,
        kind=kind,
        worker_demand=draw(st.sampled_from(WORKER_DEMANDS)),
        ps_demand=draw(st.sampled_from(PS_DEMANDS)),
        max_workers=most_workers,
        max_ps=most_ps,
        min_workers=draw(st.integers(1, 4)),
        min_ps=draw(st.integers(1, 3)) if kind.uses_ps else 0,
        requested=Allocation(draw(st.integers(1, 16)), draw(st.integers(1, 16)) if kind.uses_ps else 0),
        current=Allocation(draw(st.integers(0, most_workers)), draw(st.integers(0, most_ps))),
        total_epochs=1000.0 if known else 2 * remaining,
        remaining_epochs=remaining,
        work_known=known,
        run_seconds=draw(st.floats(0, 1e7)),
    )


@st.composite
def drawn_states(draw: st.DrawFn, most_jobs: int = 12) -> ClusterState:
    jobs = [draw(drawn_jobs(number)) for number in range(draw(st.integers(0, most_jobs)))]
    sizes = draw(st.lists(st.sampled_from(NODE_SIZES), max_size=8))
    nodes = tuple(Node(f"node-{index}", size) for index, size in enumerate(sizes))
    return ClusterState(draw(st.floats(0, 1e8)), nodes, tuple(jobs), 1200.0, draw(st.sampled_from(list(CapacityMode))))


@st.composite
def drawn_progress(draw: st.DrawFn) -> Progress:
    """Also what a real cluster reports on a bad day: nothing trained, no time, one role missing, the speed of light."""
    samples = draw(st.one_of(st.just(0.0), st.floats(1e-9, 1e12), st.floats(0.0, sys.float_info.max)))
    return Progress(
        job_id=f"job-{draw(st.integers(0, 20))}",
        job_type=draw(st.sampled_from(sorted(KIND_OF_TYPE))),
        allocation=Allocation(draw(st.integers(0, 16)), draw(st.integers(0, 16))),
        seconds=draw(st.one_of(st.just(0.0), st.floats(1e-6, 1e6), st.floats(0.0, sys.float_info.max))),
        samples=samples,
        epochs=samples / 100,
        remaining_epochs=draw(st.floats(0, 1e7)),
        finished=draw(st.booleans()),
    )


def progress_of(state: ClusterState, decision: Decision, samples_per_second: float = 50.0) -> list[Progress]:
    """What the jobs of a decision report if every one of them runs for a slot at about the same speed."""
    reports = []
    for number, one in enumerate(state.jobs):
        held = decision.of(one.job_id)
        if held == SUSPENDED:
            continue
        trains = one.can_train(held)
        samples = state.slot_seconds * samples_per_second * (1 + number % 3) if trains else 0.0
        reports.append(
            Progress(one.job_id, one.job_type, held, state.slot_seconds, samples, samples / 100, one.remaining_epochs)
        )
    return reports
