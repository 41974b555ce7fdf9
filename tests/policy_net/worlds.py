"""Small worlds for simulation tests: speeds that can be computed by hand, workloads, random policies."""

import random
from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from policy_net.domain import Allocation, ClusterState, Decision, Progress, Resources, Trigger
from policy_net.laboratory.workloads.workload import Workload, WorkloadJob
from policy_net.placement.capacity import open_capacity

GPU_WORKER = Resources(2000, 1)
CPU_TASK = Resources(2000, 0)
HOUR = 3600.0


class PairSpeeds:
    """One sample a second for every pair of a worker and a PS; type `slow` half of that, type `dead` nothing."""

    def samples_per_second(self, job_type: str, ps: int, workers: int) -> float:
        return float(self.grid(job_type)[ps, workers])

    def grid(self, job_type: str) -> NDArray[np.float64]:
        size = np.arange(17.0)
        return np.minimum(size[:, None], size) * {"slow": 0.5, "dead": 0.0}.get(job_type, 1.0)


def make_spec(number: int = 0, **changes: object) -> WorkloadJob:
    """A job of 1200 samples in 12 epochs: one 20-minute slot with one worker and one PS."""
    values: dict[str, object] = {
        "job_id": f"job-{number}",
        "job_type": "plain",
        "submit_time_seconds": 0.0,
        "total_epochs": 12.0,
        "samples_per_epoch": 100.0,
        "worker_demand": GPU_WORKER,
        "ps_demand": CPU_TASK,
        "requested": Allocation(1, 1),
    }
    return WorkloadJob(**{**values, **changes})  # type: ignore[arg-type]


def make_workload(*jobs: WorkloadJob, name: str = "test") -> Workload:
    return Workload(name, jobs)


def one_pair_each(state: ClusterState) -> Decision:
    return Decision({job.job_id: Allocation(1, 1) for job in state.jobs})


class GivePairs:
    """Gives every job so many pairs; what the cluster lacks is up to the simulator."""

    def __init__(self, pairs: int = 1) -> None:
        self.pairs = pairs
        self.seen: list[Progress] = []

    @property
    def name(self) -> str:
        return "give-pairs"

    def decide(self, state: ClusterState, trigger: Trigger) -> Decision:
        return Decision({job.job_id: Allocation(self.pairs, self.pairs) for job in state.jobs})

    def observe(self, progress: Sequence[Progress]) -> None:
        self.seen.extend(progress)


class RandomPolicy:
    """Grants random tasks within capacity, one-sided ones too; the same state gets the same decision."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.states: list[ClusterState] = []
        self.decisions: list[Decision] = []
        self.seen: list[Progress] = []

    @property
    def name(self) -> str:
        return f"random-{self.seed}"

    def decide(self, state: ClusterState, trigger: Trigger) -> Decision:
        rng = random.Random(f"{self.seed}/{state.time_seconds}")
        capacity = open_capacity(state)
        held = {job.job_id: [0, 0] for job in state.jobs}
        for _ in range(rng.randrange(4 * len(state.jobs) + 1)):
            job = rng.choice(state.jobs)
            role = rng.randrange(2)
            demand = (job.worker_demand, job.ps_demand)[role]
            if held[job.job_id][role] < (job.max_workers, job.max_ps)[role] and capacity.fits(demand):
                capacity.take(demand)
                held[job.job_id][role] += 1
        # The first job always gets what it needs to go on, so that every run ends.
        first = state.jobs[0]
        if capacity.fits(first.worker_demand, first.ps_demand) and max(held[first.job_id]) < 16:
            held[first.job_id] = [held[first.job_id][0] + 1, held[first.job_id][1] + 1]
        elif 0 in held[first.job_id]:
            held = {first.job_id: [1, 1]}
        decision = Decision({job_id: Allocation(*tasks) for job_id, tasks in held.items()})
        self.states.append(state)
        self.decisions.append(decision)
        return decision

    def observe(self, progress: Sequence[Progress]) -> None:
        self.seen.extend(progress)


@st.composite
def workloads(draw: st.DrawFn, most_jobs: int = 8, declared: bool = True) -> Workload:
    times = sorted(draw(st.lists(st.floats(0, 5 * HOUR), min_size=1, max_size=most_jobs)))
    jobs = [
        make_spec(
            number,
            submit_time_seconds=time,
            job_type=draw(st.sampled_from(["plain", "slow"])),
            total_epochs=draw(st.floats(0.01, 100)),
            worker_demand=draw(st.sampled_from([GPU_WORKER, CPU_TASK, Resources(3000, 2)])),
            ps_demand=draw(st.sampled_from([CPU_TASK, Resources(1000, 0)])),
            declared_epochs=draw(st.none() | st.floats(0.01, 100)) if declared else None,
        )
        for number, time in enumerate(times)
    ]
    return Workload("drawn", tuple(jobs))
