"""Twin of a run: the simulator with the speeds and the starts that the first seed's runs measured, and the same jobs.

One policy alone tries few sizes, and never those of the others; the runs of one seed under all of them try what any
does. The other seeds' runs, with other sizes of jobs and other arrivals, are foretold.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import mean, median

from benchmarks.local.machine import DEBOUNCE_SECONDS, RESERVED_CPU_MILLI, SLOT_SECONDS, Run, Submission
from cluster_agent.backends.local.job_file import JobFile
from policy_net.domain import CapacityMode, SpeedModel
from policy_net.laboratory.logged import logged_decisions
from policy_net.laboratory.simulation.environment import DecideOn, Environment
from policy_net.laboratory.simulation.replay import replay
from policy_net.laboratory.speeds.speed import TableSpeedModel
from policy_net.laboratory.workloads.workload import Workload, WorkloadJob
from policy_net.policy import SchedulerPolicy
from policy_net.throughput.gaussian_process import GaussianProcessBeliefs

_FINE = 10
"""A simulated node has whole cores only: a tenth of a real one stands for one."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """What some runs show of this machine.

    Attributes:
        samples_per_epoch: of each type.
        start_seconds: from a job's first allocation until it ends, less what it trained; at the median.
        resume_seconds: of a suspended job, likewise.
        resize_seconds: of training, that a live resize costs at the mean: no job stops for one, but a job that grows
            trains at its old speed until its tasks have started.
    """

    speeds: SpeedModel
    samples_per_epoch: dict[str, float]
    cores: int
    start_seconds: float
    resume_seconds: float
    resize_seconds: float


def calibrated(runs: Sequence[Run], submissions: Sequence[Submission], cores: int) -> Calibration:
    """Fit a machine to what runs of one plan measured."""
    epochs = {submission.name: float(submission.file["work"]["epochs"]) for submission in submissions}
    sizes: dict[str, list[float]] = {}
    beliefs = GaussianProcessBeliefs()
    for run in runs:
        for facts in run.facts:
            sizes.setdefault(facts["modelType"], []).append(facts["samples"] / epochs[facts["name"]])
        for logged in logged_decisions(run.state_dir):
            beliefs.observe([entry for entry in logged.observed if entry.job_id in run.names])
            beliefs.introduce(job for job in logged.state.jobs if job.job_id in run.names)
    # What is believed, and not what may be hoped for, as `set` takes it.
    speeds = TableSpeedModel({name: beliefs.posterior(name)[0] for name in sizes}, "the first seed's runs")
    start = median([seconds for run in runs for seconds in _start_seconds(run)] or [0.0])
    resumed = [seconds for run in runs for seconds in run.resume_seconds]
    return Calibration(
        speeds,
        {model_type: median(found) for model_type, found in sizes.items()},
        cores,
        start,
        median(resumed) if resumed else start,
        mean([seconds for run in runs for seconds in resize_costs_seconds(run, speeds)] or [0.0]),
    )


def resize_costs_seconds(run: Run, speeds: SpeedModel) -> Iterator[float]:
    """What each live resize cost: the time that it took, for the part of its new speed that its job had not yet."""
    types = {facts["name"]: facts["modelType"] for facts in run.facts}
    for resize, seconds in zip(run.resized, run.resized_seconds, strict=True):
        grid = speeds.grid(types[resize.job])
        before, after = grid[resize.before[1], resize.before[0]], grid[resize.ps, resize.workers]
        yield seconds * max(0.0, 1.0 - before / after) if after > 0 else 0.0


def _start_seconds(run: Run) -> list[float]:
    """Of jobs that were never suspended: the time in which they held tasks and did not train.

    What a job trained while it was being resized is in no interval of the log; it counts at the measured speed.
    """
    samples: dict[str, float] = {}
    seconds: dict[str, float] = {}
    for logged in logged_decisions(run.state_dir):
        for entry in logged.observed:
            samples[entry.job_id] = samples.get(entry.job_id, 0.0) + entry.samples
            seconds[entry.job_id] = seconds.get(entry.job_id, 0.0) + entry.seconds
    found = []
    for facts in run.facts:
        name = facts["name"]
        if name in run.suspended or not samples.get(name):
            continue
        trained = seconds[name] * facts["samples"] / samples[name]
        found.append(max(0.0, facts["ageSeconds"] - facts["waitedSeconds"] - trained))
    return found


def foretold_jct_seconds(policy: SchedulerPolicy, submissions: Sequence[Submission], machine: Calibration) -> float:
    """Average completion time of a plan's jobs under a policy, as the simulator has it; the policy learns from it."""
    environment = Environment(
        nodes=1,
        gpus_per_node=0,
        cpus_per_node=(1000 * machine.cores - RESERVED_CPU_MILLI) * _FINE // 1000,
        slot_seconds=SLOT_SECONDS,
        decide_on=DecideOn.EVENT,
        debounce_seconds=DEBOUNCE_SECONDS,
        capacity_mode=CapacityMode.POOLED,
        start_seconds=machine.start_seconds,
        resume_seconds=machine.resume_seconds,
        resize_seconds=machine.resize_seconds,
    )
    jobs = tuple(_spec(submission, machine.samples_per_epoch) for submission in submissions)
    workload = Workload("plan", jobs, (), suggested_nodes=1)
    found = replay(workload, environment, policy, machine.speeds, by_an_agent=True)
    times = [outcome.jct_seconds for outcome in found.outcomes if outcome.jct_seconds is not None]
    return sum(times) / len(times)


def _spec(submission: Submission, samples_per_epoch: dict[str, float]) -> WorkloadJob:
    file = JobFile.model_validate({"name": submission.name, "elastic": True, **submission.file})
    epochs = float(submission.file["work"]["epochs"])
    return WorkloadJob(
        job_id=submission.name,
        job_type=file.model_type,
        submit_time_seconds=submission.after_seconds,
        total_epochs=epochs,
        samples_per_epoch=samples_per_epoch[file.model_type],
        worker_demand=file.worker.demand * _FINE,
        ps_demand=file.ps.demand * _FINE,
        requested=file.requested,
        max_workers=file.most.workers,
        max_ps=file.most.ps,
        declared_epochs=epochs,
        kind=file.kind,
        min_workers=file.least.workers,
        min_ps=file.least.ps,
    )
