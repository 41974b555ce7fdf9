"""Twin of a run: the simulator with the speeds and the starts that the first run measured, and the same jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from benchmarks.local.machine import DEBOUNCE_SECONDS, SLOT_SECONDS, Run
from benchmarks.local.plan import Submission
from policy_net.domain import CapacityMode, PolicyContext, SpeedModel
from policy_net.laboratory.simulation.environment import DecideOn, Environment
from policy_net.laboratory.simulation.replay import replay
from policy_net.laboratory.speeds.decided_speeds import speeds_of_decisions
from policy_net.laboratory.workloads.decided import read_decided
from policy_net.laboratory.workloads.workload import JobSpec, Workload
from policy_net.policy import build_policy


@dataclass(frozen=True, slots=True)
class Calibration:
    """What the first run shows of this machine.

    Attributes:
        types: a job of each type, with what does not depend on the run.
        start_seconds, resume_seconds: at the median.
    """

    speeds: SpeedModel
    types: dict[str, JobSpec]
    cores: int
    start_seconds: float
    resume_seconds: float


def calibrated(first: Run, cores: int) -> Calibration:
    """Fit a machine to what its first run measured; a live resize does not stop its job, so it costs nothing here."""
    start = median(first.first_start_seconds)
    return Calibration(
        speeds_of_decisions(first.state_dir),
        {job.job_type: job for job in read_decided(first.state_dir).jobs},
        cores,
        start,
        median(first.resume_seconds) if first.resume_seconds else start,
    )


def foretold_jct_seconds(policy: str, submissions: Sequence[Submission], machine: Calibration) -> float:
    """Average completion time of a plan's jobs under a policy, as the simulator has it."""
    environment = Environment(
        nodes=1,
        gpus_per_node=0,
        cpus_per_node=machine.cores,
        slot_seconds=SLOT_SECONDS,
        decide_on=DecideOn.EVENT,
        debounce_seconds=DEBOUNCE_SECONDS,
        capacity_mode=CapacityMode.POOLED,
        start_seconds=machine.start_seconds,
        resume_seconds=machine.resume_seconds,
    )
    jobs = tuple(_spec(submission, machine.types) for submission in submissions)
    workload = Workload("plan", jobs, (), suggested_nodes=1)
    found = replay(workload, environment, build_policy(policy, PolicyContext()), machine.speeds)
    times = [outcome.jct_seconds for outcome in found.outcomes if outcome.jct_seconds is not None]
    return sum(times) / len(times)


def _spec(submission: Submission, types: dict[str, JobSpec]) -> JobSpec:
    epochs = float(submission.file["work"]["epochs"])
    return replace(
        types[submission.file["modelType"]],
        job_id=submission.name,
        submit_time_seconds=submission.after_seconds,
        total_epochs=epochs,
        declared_epochs=epochs,
    )
