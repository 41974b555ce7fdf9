"""Forecast of one job: when it would start and end beside those that are there, under a policy, by the simulator.

The project's own simulator runs the jobs that are there, and this one, once for each of some seeds, which draw how far
speeds and unknown work are off.
Deviation: what is drawn is an assumption (a fifth of the speed, a factor of two of work that nobody said), not a fit.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import quantiles
from typing import Any

from foundation.figures import duration
from policy_net.domain import Allocation, Job, JobKind, Progress, SpeedModel
from policy_net.errors import BadInput
from policy_net.laboratory.simulation.admission import check_jobs_can_run
from policy_net.laboratory.simulation.environment import Environment
from policy_net.laboratory.simulation.metrics import JobOutcome
from policy_net.laboratory.simulation.replay import replay
from policy_net.laboratory.workloads.workload import Workload, WorkloadJob
from policy_net.policy import SchedulerPolicy
from policy_net.throughput.kinds_apart import measured_kinds, type_of_kind
from policy_net.throughput.parametric import OnlineFit

NEW = "the-job-that-is-asked-about"
"""Id of the job in the simulation."""
_SPEED_DEVIATION = 0.2
_WORK_DEVIATION = math.log(2.0)
_GUESS_FACTOR = 1000.0
"""How far off a time may be that hangs on a speed or an amount of work that nobody knows, either way: an hour was
guessed of a job of a new type that took 15 s."""


@dataclass(frozen=True, slots=True)
class Draws:
    """How often the future is drawn, and the first of the seeds."""

    runs: int = 15
    seed: int = 0


def foreseen(
    present: Sequence[Job],
    asked: Job,
    environment: Environment,
    policy: Callable[[], SchedulerPolicy],
    speeds: SpeedModel,
    draws: Draws,
) -> dict[str, dict[str, float]]:
    """`start` and `end` of the job in seconds from now, each as low (10%), median and high (90%).

    Args:
        present: in the order in which they came; `asked` (its id is `NEW`) comes now.
        environment: without a seed and without noise of jobs, which are set here.
        policy: makes a fresh one for each run.

    Raises:
        BadInput: the job can never run there.
    """
    outcomes = [_run(present, asked, environment, policy(), speeds, draws.seed + run) for run in range(draws.runs)]
    return {
        "start": _spread([outcome.start_seconds or 0.0 for outcome in outcomes]),
        "end": _spread([outcome.end_seconds or 0.0 for outcome in outcomes]),
    }


def with_guesses(
    spread: dict[str, dict[str, float]], *, start: bool = False, end: bool = False
) -> dict[str, dict[str, Any]]:
    """`foreseen`, each time with `guess`: whether it hangs on what nobody measured or said.

    The bounds of a guess are as far apart as it may be off. Who starts at once in every run waits for no other's end.
    """
    starts, ends = spread["start"], spread["end"]
    waits, guess = start and starts["high"] > 0.0, start or end
    found: dict[str, dict[str, Any]] = {"start": {**starts, "guess": waits}, "end": {**ends, "guess": guess}}
    if waits:
        found["start"] |= {"low": starts["low"] / _GUESS_FACTOR, "high": starts["high"] * _GUESS_FACTOR}
    if guess:
        low, high = (max(0.0, ends[bound] - starts[bound]) for bound in ("low", "high"))
        found["end"] |= {
            "low": found["start"]["low"] + low / _GUESS_FACTOR,
            "high": found["start"]["high"] + high * _GUESS_FACTOR,
        }
    return found


def time_in_words(spread: dict[str, Any]) -> str:
    """A time with its bounds; of a guess that it is one, and no bounds."""
    if spread["guess"]:
        return f"{duration(spread['median'])}: a guess, without bounds"
    return f"{duration(spread['median'])} ({duration(spread['low'])} to {duration(spread['high'])})"


def can_run(job: WorkloadJob, environment: Environment, speeds: SpeedModel) -> bool:
    """Whether there is room for a job at all; the simulator takes no others."""
    try:
        check_jobs_can_run(Workload("one", (job,)), environment, {job.job_type: speeds.grid(job.job_type).tolist()})
    except BadInput:
        return False
    return True


def told_apart(jobs: Sequence[Job], speeds: OnlineFit) -> list[Job]:
    """The jobs, with a name of its own for a type's other kind: speeds are known by type, and a type is of one kind.

    Where nothing was measured of the other kind, its least size is believed to be as fast as the known kind's.
    """
    found: list[Job] = []
    kinds: dict[str, JobKind] = {}
    measured = measured_kinds(speeds)
    for job in jobs:
        name = type_of_kind(job.job_type, job.kind, lambda name: measured(name) or kinds.get(name))
        kinds.setdefault(name, job.kind)
        if name == job.job_type:
            found.append(job)
            continue
        servers = int(job.kind.uses_ps)
        known = speeds.samples_per_second(job.job_type, 1 - servers, 1)
        other = replace(job, job_type=name)
        speeds.introduce([other])
        if speeds.allocations_seen(job.job_type) and not speeds.allocations_seen(other.job_type):
            least = Allocation(1, servers)
            speeds.observe([Progress(job.job_id, other.job_type, least, 1.0, known, known, 1.0)])
        found.append(other)
    return found


def _run(
    present: Sequence[Job],
    asked: Job,
    environment: Environment,
    policy: SchedulerPolicy,
    speeds: SpeedModel,
    seed: int,
) -> JobOutcome:
    draw = random.Random(seed)
    jobs = tuple(
        spec_of(job, job.remaining_epochs if job.work_known else _varied(job.remaining_epochs, draw))
        for job in (*present, asked)
    )
    found = replay(
        Workload("now", jobs),
        replace(environment, job_noise=_SPEED_DEVIATION, seed=seed),
        policy,
        speeds,
        until_done=NEW,
        by_an_agent=True,
    )
    return next(outcome for outcome in found.outcomes if outcome.job_id == NEW)


def _varied(epochs: float, draw: random.Random) -> float:
    return epochs * math.exp(draw.gauss(0.0, _WORK_DEVIATION))


def spec_of(job: Job, really_left: float) -> WorkloadJob:
    """A job as one that comes now, with what is left of it."""
    return WorkloadJob(
        job_id=job.job_id,
        job_type=job.job_type,
        submit_time_seconds=0.0,
        total_epochs=really_left,
        samples_per_epoch=job.samples_per_epoch,
        worker_demand=job.worker_demand,
        ps_demand=job.ps_demand,
        requested=job.requested,
        max_workers=job.max_workers,
        max_ps=job.max_ps,
        declared_epochs=None if job.work_known else job.remaining_epochs,
        kind=job.kind,
        min_workers=job.min_workers,
        min_ps=job.min_ps,
        work_known=job.work_known,
    )


def _spread(seconds: list[float]) -> dict[str, float]:
    if len(seconds) == 1:
        return dict.fromkeys(("low", "median", "high"), seconds[0])
    tenths = quantiles(seconds, n=10, method="inclusive")
    return {"low": tenths[0], "median": tenths[4], "high": tenths[8]}
