"""Forecast of one job: when it would start and end beside those that are there, under a policy, by the simulator.

The project's own simulator runs the jobs that are there, and this one, once for each of some seeds, which draw how far
speeds and unknown work are off.
Deviation: what is drawn is an assumption (a fifth of the speed, a factor of two of work that nobody said), not a fit.

Of a job of this machine, speeds are what its agent kept when it decided last. A machine's first job of a type may have
ended since: what ended jobs did in all is taken instead, or else what the policy that decides was told by others.

A script of a fixed size is not counted: it takes as long as those of its type that are done, or else as long again as
it has run. Nobody stops one that runs, so what it has comes back at its end, as a node would.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from cluster_agent.errors import JobRefused
from cluster_agent.recording.last_decision import policy_of
from cluster_agent.recording.log_reading import last_decision, state_of
from cluster_agent.recording.memory import MEMORY
from cluster_agent.recording.state_files import read_json
from foundation.figures import counted, duration
from policy_net.domain import (
    Allocation,
    CapacityMode,
    ClusterState,
    Job,
    JobKind,
    PolicyContext,
    Progress,
    Resources,
    SpeedModel,
    speed_at,
)
from policy_net.errors import BadInput
from policy_net.exchange.state_codec import decode_state
from policy_net.laboratory.simulation.admission import check_jobs_can_run
from policy_net.laboratory.simulation.environment import DecideOn, Environment, NodeChange
from policy_net.laboratory.simulation.metrics import JobOutcome
from policy_net.laboratory.simulation.replay import replay
from policy_net.laboratory.workloads.workload import Workload, WorkloadJob
from policy_net.policy import DEFAULT_POLICY, SchedulerPolicy, build_policy, policy_names
from policy_net.set_policy.policy import SetPolicy
from policy_net.throughput.beliefs import measured_kinds, type_of_kind
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


@dataclass(frozen=True, slots=True)
class Staying:
    """What a script of a fixed size that runs has, and for how many seconds more, as is to be expected."""

    demand: Resources
    seconds: float


def foreseen(
    present: Sequence[Job],
    new: Job,
    environment: Environment,
    policy: SchedulerPolicy,
    speeds: SpeedModel,
    draws: Draws,
    staying: Sequence[Staying] = (),
) -> dict[str, dict[str, float]]:
    """`start` and `end` of the job in seconds from now, each as low (10%), median and high (90%).

    Args:
        present: in the order in which they came; `new` (its id is `NEW`) comes now.
        environment: without a seed, noise of jobs and changes of nodes, which are set here.
        policy: begins each run as it is; it forgets the jobs that it knows.
        staying: scripts beside what the environment has.

    Raises:
        BadInput: the job can never run there.
    """
    if isinstance(policy, SetPolicy) and policy.beliefs is not None:
        policy.beliefs.forget_jobs()
    outcomes = []
    for seed in range(draws.seed, draws.seed + draws.runs):
        draw = random.Random(seed)
        jobs = tuple(
            spec_of(job, job.remaining_epochs if job.work_known else _varied(job.remaining_epochs, draw))
            for job in (*present, new)
        )
        ends = [
            NodeChange(_varied(each.seconds, draw), f"staying-{at}", up=True, capacity=each.demand)
            for at, each in enumerate(staying)
        ]
        ends.sort(key=lambda end: end.time_seconds)
        drawn = replace(environment, job_noise=_SPEED_DEVIATION, seed=seed, node_changes=tuple(ends))
        outcomes.append(_outcome(jobs, drawn, policy, speeds))
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
    """Whether there is capacity for a job at all; the simulator takes no others."""
    try:
        check_jobs_can_run(Workload("one", (job,)), environment, {job.job_type: speeds.grid(job.job_type).tolist()})
    except BadInput:
        return False
    return True


def named_by_kind(jobs: Sequence[Job], speeds: OnlineFit) -> list[Job]:
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


def _outcome(
    jobs: tuple[WorkloadJob, ...], environment: Environment, policy: SchedulerPolicy, speeds: SpeedModel
) -> JobOutcome:
    workload = Workload("now", jobs)
    found = replay(workload, environment, policy, speeds, until_done=NEW, keep_beliefs=False, by_an_agent=True)
    return next(outcome for outcome in found.outcomes if outcome.job_id == NEW)


def _varied(amount: float, draw: random.Random) -> float:
    return amount * math.exp(draw.gauss(0.0, _WORK_DEVIATION))


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


_GUESSED_EPOCHS = 1.0


def foreseen_here(facts: dict[str, Any], runs: int, seed: int) -> dict[str, Any]:
    """Start and end in seconds from now, each as low (10%), median and high (90%), and whether it is a guess.

    Raises:
        JobRefused: no decision was taken yet, so that nothing is known of the policy.
    """
    folder = Path(facts["stateDir"])
    line = last_decision(folder)
    if line is None:
        raise JobRefused("no decision was taken here yet: there is nothing to foresee from; submit the job")
    state = decode_state(facts["state"]) if "state" in facts else state_of(line)  # an agent of before says none
    policy = policy_of(folder, line)
    present = [_if_fixed(job, facts) for job in state.jobs if job.job_id in set(facts["present"])]
    speeds = _speeds_here(facts, policy, [*present, _if_fixed(_new_job(facts), facts)])
    *present, new = speeds.jobs
    staying = [_staying(row, facts) for row in facts.get("staying", [])]
    notes = []
    unmeasured = {job.job_type for job in present if not speeds.known(job)}
    unmeasured |= {name for name, *_ in facts.get("staying", []) if not facts["seconds"].get(name)}
    if unknown := sorted(unmeasured - {new.job_type}):
        notes.append(f"nothing was measured of {', '.join(unknown)}, of which jobs are here: when they end is a guess")
    counted_by_time = _is_timed(new)
    guessed = not (
        counted_by_time or (speeds.known(new) and speeds.epochs_known and facts["job"]["epochs"] is not None)
    )
    if counted_by_time:
        name = facts["job"]["modelType"]
        ended = counted(len(facts["seconds"][name]), "ended job")
        notes.append(f"nobody counts what {name} does: it is to take as long as {ended} did")
    else:
        notes += speeds.notes_on(new)
        if facts["job"]["epochs"] is None:
            notes.append("the job does not say its work: one epoch is taken; say `work`, or --epochs")
    *present, new = named_by_kind([*present, new], speeds.fit)
    spread = foreseen(
        present,
        new,
        _environment(facts, state),
        policy or build_policy(_name_of(line), PolicyContext()),
        speeds.fit,
        Draws(runs, seed),
        staying,
    )
    return {
        **with_guesses(spread, start=bool(unmeasured), end=guessed),
        "policy": line["policy"],
        "version": line["version"],
        "jobsPresent": len(present) + len(staying),
        "runs": runs,
        "notes": notes,
    }


_TIMED = " of a fixed size"
"""Behind the name of a type of scripts that nobody counts: an epoch is one of them, and a sample a second."""


def _is_timed(job: Job) -> bool:
    return job.job_type.endswith(_TIMED)


def _if_fixed(job: Job, facts: dict[str, Any]) -> Job:
    """The job; one of a fixed size whose type has ended before is to take as long as those did."""
    model_type = facts["job"]["modelType"] if job.job_id == NEW else facts.get("waiting", {}).get(job.job_id)
    is_fixed = model_type is not None and (job.job_id != NEW or facts["job"].get("fixed", False))
    seconds = facts.get("seconds", {}).get(model_type)
    if not (is_fixed and seconds):
        return job
    work = {"samples_per_epoch": median(seconds), "total_epochs": 1.0, "remaining_epochs": 1.0, "work_known": False}
    return replace(job, job_type=f"{model_type}{_TIMED}", **work)


def _staying(row: tuple[str, int, int, float | None], facts: dict[str, Any]) -> Staying:
    """A script that runs, by how long those of its type took that are done; one that is being ended has none left."""
    model_type, cpu_milli, gpus, seconds = row
    if seconds is None:
        return Staying(Resources(cpu_milli, gpus), 0.0)
    longer = [took for took in facts["seconds"].get(model_type, []) if took > seconds]
    return Staying(Resources(cpu_milli, gpus), median(longer) - seconds if longer else seconds)


def _environment(facts: dict[str, Any], state: ClusterState) -> Environment:
    return Environment(
        nodes=1,
        node_sizes=(state.total if "state" in facts else Resources(facts["cpuMilli"], facts["gpus"]),),
        slot_seconds=facts["slotSeconds"],
        decide_on=DecideOn.EVENT,
        debounce_seconds=facts["debounceSeconds"],
        capacity_mode=CapacityMode.POOLED,
    )


def _name_of(line: dict[str, Any]) -> str:
    name = str(line["policy"])
    return name if name in policy_names() else DEFAULT_POLICY


def _new_job(facts: dict[str, Any]) -> Job:
    job = facts["job"]
    epochs = job["epochs"] or _GUESSED_EPOCHS
    return Job(
        job_id=NEW,
        job_type=job["modelType"],
        submit_time_seconds=0.0,
        worker_demand=Resources(*job["worker"]),
        ps_demand=Resources(*job["ps"]),
        samples_per_epoch=facts["samplesPerEpoch"],
        total_epochs=epochs,
        remaining_epochs=epochs,
        requested=Allocation(*job["requested"]),
        max_workers=job["max"][0],
        max_ps=job["max"][1],
        kind=JobKind(job["kind"]),
        min_workers=job["min"][0],
        min_ps=job["min"][1],
        work_known=job["epochs"] is not None,
    )


def forecast_text(answer: dict[str, Any]) -> str:
    """The answer for people."""
    start, end = answer["start"], answer["end"]
    version = f" v{answer['version']}" if answer["version"] else ""
    there = counted(answer["jobsPresent"], "job")
    lines = [f"starts in {time_in_words(start)}", f"ends in {time_in_words(end)}"]
    how = f"simulated {answer['runs']} times under {answer['policy']}{version}, beside {there}"
    if start["guess"]:
        return "\n".join([*answer["notes"], *lines, how])
    how += "; 8 of 10 runs lie within the bounds"
    return "\n".join([*answer["notes"], *lines, how] if end["guess"] else [*lines, how, *answer["notes"]])


@dataclass(frozen=True, slots=True)
class _KnownSpeeds:
    """Speeds, and of which types they are measured.

    Attributes:
        fit: what is taken for true on average.
        of_ended: types known by what ended jobs did in all, with how many there were.
        of_others: types that were not measured here, but told by others.
        epochs_known: whether it was measured how many samples an epoch of the job asked about has.
        jobs: as this agent knows them: of a type of two kinds, the later one's jobs have another name.
    """

    fit: OnlineFit
    of_ended: dict[str, int]
    of_others: frozenset[str]
    epochs_known: bool
    jobs: tuple[Job, ...]

    def known(self, job: Job) -> bool:
        """Whether anybody, here or elsewhere, measured the type, as of this kind."""
        seen = self.fit.allocations_seen(job.job_type)
        return any(bool(size.ps) == job.kind.uses_ps for size in seen)

    def notes_on(self, job: Job) -> list[str]:
        """What the speed of the job that is asked about rests on, where that is little."""
        name = job.job_type
        if not self.known(job):
            return [f"nothing was measured of {name} here yet: its speed is a guess"]
        notes = []
        if name in self.of_others:
            notes.append(f"nothing was measured of {name} here yet: its speed is what other clusters told")
        if not self.epochs_known:
            notes.append(f"no job of {name} has trained here yet: how much an epoch of it is, is a guess")
        if name in self.of_ended:
            notes.append(
                f"no decision has counted what {name} did here: its speed is what"
                f" {counted(self.of_ended[name], 'ended job')} did in all"
            )
        sizes = self.fit.allocations_seen(name)
        may_differ = job.min_workers < job.max_workers or sizes != {job.requested}
        if len(sizes) == 1 and name not in self.of_others and may_differ:
            [size] = sizes
            notes.append(f"{name} was measured with {_in_words(size)} only: at other sizes its speed is reckoned")
        return notes


def _speeds_here(facts: dict[str, Any], policy: SetPolicy | None, jobs: Sequence[Job]) -> _KnownSpeeds:
    """Speeds of the types of these jobs, the last of which is asked about; older agents say nothing of `ended` jobs."""
    fit = OnlineFit()
    saved = read_json(Path(facts["stateDir"]) / MEMORY)
    if saved is not None and saved.get("beliefs"):
        fit.restore(saved["beliefs"])
    jobs = tuple(replace(job, job_type=_known_as(job, fit)) for job in jobs)
    fit.introduce(jobs)
    a_second = [Progress("", job.job_type, job.requested, 1.0, 1.0, 1.0, 1.0) for job in jobs if _is_timed(job)]
    fit.observe(a_second)
    new = jobs[-1]
    ended = [] if fit.allocations_seen(new.job_type) else facts.get("ended", [])
    for workers, servers, samples, seconds in ended:
        fit.observe([Progress("", new.job_type, Allocation(workers, servers), seconds, samples, samples, 1.0)])
    reported = set()
    if policy is not None and policy.beliefs is not None:
        policy.beliefs.introduce(jobs)
        for job in jobs:
            if fit.allocations_seen(job.job_type) or not policy.beliefs.has_scale(job.job_type):
                continue
            median, _ = policy.beliefs.posterior(job.job_type)
            speed = speed_at(median, job.requested.ps, job.requested.workers)
            if speed > 0.0:
                fit.observe([Progress("", job.job_type, job.requested, 1.0, speed, speed, 1.0)])
                reported.add(job.job_type)
    return _KnownSpeeds(
        fit, {new.job_type: len(ended)} if ended else {}, frozenset(reported), bool(facts["known"]), jobs
    )


def _known_as(job: Job, fit: OnlineFit) -> str:
    name = type_of_kind(job.job_type, job.kind, measured_kinds(fit))
    return name if fit.allocations_seen(name) else job.job_type


def _in_words(size: Allocation) -> str:
    workers = counted(size.workers, "worker")
    return f"{workers} and {counted(size.ps, 'PS')}" if size.ps else workers
