"""Process of the twin: one question about a block on standard input, its figures on standard output.

The block is simulated from its begin under either version, with what really came. Each figure is the mean number of
jobs in the block, and behind it those of the next `LEFT_BEHIND_BLOCKS` under the incumbent, added up. The simulator in
Python does it: the compiled twin begins with an empty cluster, and this is about one in the middle of its work. Nodes
stay as they were when the simulation begins, and no speed varies.

The process takes little of a core, with the lowest priority and a bound on memory, and ends with its agent.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from cluster_agent.active_policy import CandidateFactory, PolicyIdentity
from cluster_agent.rollout.block_question import (
    AGENTS_PRIORITY,
    LEFT_BEHIND_BLOCKS,
    BlockQuestion,
    ClusterStanding,
    Figures,
    PolicyAtBlock,
    TwinJob,
)
from cluster_agent.settings import PolicySettings
from foundation.question_process import LOWEST_PRIORITY, be_modest
from policy_net.domain import JobKind, PolicyContext, Trigger
from policy_net.laboratory.simulation.engine import Simulation
from policy_net.laboratory.simulation.environment import DecideOn, Environment
from policy_net.laboratory.simulation.metrics import RunCounters
from policy_net.laboratory.workloads.workload import Workload, WorkloadJob
from policy_net.policy import SchedulerPolicy, build_policy
from policy_net.set_policy.policy import SetPolicy

Stays = Mapping[str, tuple[float, float]]
"""Of every job when it came and left, in seconds of the cluster's clock; infinite for one that is still there."""

Build = Callable[[], SchedulerPolicy]
"""A policy as it was when the block began; every simulation has its own, which learns as it goes."""


class GridSpeeds:
    """A `SpeedModel` of grids."""

    def __init__(self, grids: Mapping[str, Sequence[Sequence[float]]]) -> None:
        self._grids = {job_type: np.array(grid, dtype=np.float64) for job_type, grid in grids.items()}

    def samples_per_second(self, job_type: str, ps: int, workers: int) -> float:
        """See `SpeedModel`."""
        return float(self._grids[job_type][ps, workers])

    def grid(self, job_type: str) -> NDArray[np.float64]:
        """See `SpeedModel`."""
        return self._grids[job_type]


def twin_figures(
    question: BlockQuestion, incumbent: Build, candidate: Build, on_decision: Callable[[], None] = lambda: None
) -> Figures:
    """What the twin has to say of a block; `on_decision` is called after every simulated one, and may raise.

    Raises:
        BadInput, InvalidAllocation: the twin cannot have such jobs, or a policy decided what cannot be done.
        KeyError: the speeds of a job's type are missing.
    """
    begin, end = question.begin, question.end
    until = end + LEFT_BEHIND_BLOCKS * (end - begin)
    jobs = question.jobs
    really = {each.job.job_id: (each.came, math.inf if each.left is None else each.left) for each in jobs}

    def behind(stays: Stays) -> float:
        return LEFT_BEHIND_BLOCKS * jobs_in_system(stays, end, until)

    left = _simulated(question, question.at_end, [], (incumbent, until), on_decision)
    priced = jobs_in_system(really, begin, end) + behind(left)
    foreseen = []
    for version in (incumbent, candidate):
        stays = _simulated(question, question.at_begin, [(version, end)], (incumbent, until), on_decision)
        foreseen.append(jobs_in_system(stays, begin, end) + behind(stays))
    return priced, foreseen[0], foreseen[1]


def jobs_in_system(stays: Stays, begin: float, end: float) -> float:
    """Jobs in the system between two times, on average."""
    return sum(max(0.0, min(left, end) - max(came, begin)) for came, left in stays.values()) / (end - begin)


def _simulated(
    question: BlockQuestion,
    start: ClusterStanding,
    first: Sequence[tuple[Build, float]],
    last: tuple[Build, float],
    on_decision: Callable[[], None],
) -> Stays:
    """Let versions decide one after the other, each up to its time; what had ended before ended as it really did."""
    now, present = start.state.time_seconds, start.done_epochs
    stays: dict[str, tuple[float, float]] = {}
    replayed: list[TwinJob] = []
    for each in question.jobs:
        if each.job.job_id in present or each.came >= now:
            replayed.append(each)
        elif each.left is not None:
            stays[each.job.job_id] = (each.came, each.left)
    if not replayed:
        return stays
    simulation = _simulation(question, start, replayed)
    for build, until in (*first, last):
        policy = build()
        while not simulation.finished and simulation.time_seconds < until:
            state, trigger = simulation.observe()
            policy.observe(simulation.apply(policy.decide(state, trigger)))
            on_decision()
    for outcome, each in zip(simulation.jobs.outcomes(), replayed, strict=True):
        stays[outcome.job_id] = (each.came, math.inf if outcome.end_seconds is None else outcome.end_seconds)
    return stays


def _simulation(question: BlockQuestion, start: ClusterStanding, jobs: Sequence[TwinJob]) -> Simulation:
    state = start.state
    nodes = sorted(state.nodes, key=lambda node: (not node.gpu_type, node.gpu_type))
    types = list(dict.fromkeys(node.gpu_type for node in nodes if node.gpu_type))
    environment = Environment(
        nodes=len(nodes),
        slot_seconds=state.slot_seconds,
        decide_on=DecideOn.SLOT if question.slotted else DecideOn.EVENT,
        debounce_seconds=question.debounce_seconds,
        capacity_mode=state.capacity_mode,
        resize_seconds=question.pause_seconds,
        resume_seconds=question.pause_seconds,
        start_seconds=question.pause_seconds,
        gpu_types=tuple((name, sum(node.gpu_type == name for node in nodes)) for name in types),
        node_sizes=tuple(node.capacity for node in nodes),
    )
    workload = Workload(f"block {question.number}", tuple(_spec(each) for each in jobs))
    simulation = Simulation(workload, environment, GridSpeeds(question.speeds))
    views = {job.job_id: job for job in state.jobs}
    arrived = [each for each in jobs if each.job.job_id in start.done_epochs]
    rows = []
    for each in arrived:
        job = views[each.job.job_id]
        done = min(start.done_epochs[job.job_id], each.work_epochs * _ALMOST_DONE)
        rows.append(
            {
                "job_id": job.job_id,
                "done_epochs": done,
                "run_seconds": job.run_seconds,
                "start_seconds": each.came if job.run_seconds > 0.0 else None,
                "workers": job.current.workers,
                "ps": job.current.ps,
                "can_train": job.can_train(job.current),
                "pause_seconds": 0.0,
                "checkpoint_epochs": done,
                "trained_since_checkpoint_seconds": 0.0,
            }
        )
    snapshot = simulation.snapshot()
    if arrived:
        simulation.restore(
            {
                "environment": environment.as_json,
                "time_seconds": state.time_seconds,
                "trigger": Trigger.SLOT.value,
                "counters": RunCounters().to_json(),
                "jobs": {**snapshot["jobs"], "arrived": len(arrived), "ended": {}, "present": rows},
            }
        )
    return simulation


_ALMOST_DONE = 1.0 - 1e-9
"""A job that was there had not ended, whatever the sum of its work says."""


def _spec(each: TwinJob) -> WorkloadJob:
    job = each.job
    declared = job.total_epochs if job.work_known and job.total_epochs != each.work_epochs else None
    return WorkloadJob(
        job.job_id,
        job.job_type,
        each.came,
        each.work_epochs,
        job.samples_per_epoch,
        job.worker_demand,
        job.ps_demand,
        job.requested,
        job.max_workers,
        job.max_ps if job.kind is not JobKind.ALLREDUCE else 0,
        declared,
        job.kind,
        job.min_workers,
        job.min_ps,
        job.work_known,
    )


MOST_BYTES = 2**30
"""Of data; a question of 5,000 jobs takes a tenth of it, with all that is imported."""


def build(policy_at_block: PolicyAtBlock, settings: PolicySettings) -> SchedulerPolicy:
    """A policy as it was when the block began.

    Raises:
        UnknownPolicy, PolicyFileError, BadInput: it cannot be used here.
    """
    if policy_at_block.file is None:
        return build_policy(policy_at_block.name, PolicyContext(seed=settings.seed))
    policy = CandidateFactory(settings).from_bytes(policy_at_block.file, PolicyIdentity(policy_at_block.name)).policy
    if isinstance(policy, SetPolicy) and policy.beliefs is not None and policy_at_block.beliefs is not None:
        policy.beliefs.go_on_from(policy_at_block.beliefs)
    return policy


def main() -> None:
    """Answer one question: `block_process PERCENT POLICY-SETTINGS-JSON AGENT-PID [agents-priority]`."""
    niceness = 0 if AGENTS_PRIORITY in sys.argv[4:] else LOWEST_PRIORITY
    between_steps = be_modest(int(sys.argv[3]), float(sys.argv[1]), MOST_BYTES, niceness=niceness)
    question = BlockQuestion.from_line(sys.stdin.buffer.readline())
    settings = PolicySettings.model_validate_json(sys.argv[2])
    figures = twin_figures(
        question,
        lambda: build(question.incumbent, settings),
        lambda: build(question.candidate, settings),
        between_steps,
    )
    sys.stdout.write(json.dumps(figures, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
