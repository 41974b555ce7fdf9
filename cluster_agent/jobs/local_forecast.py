"""Forecast of a job of this machine, from what its agent says of the job and of those that are there.

An agent keeps what it has measured when it decides, and so what a job did since the last decision stands nowhere among
it: a machine's first job of a type may have ended, with nothing more to decide. What such jobs did in all is known, and
taken instead. Of a type that only others measured, it is what the policy that decides was told by them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cluster_agent.errors import JobRefused
from cluster_agent.jobs.forecast import NEW, Draws, foreseen, time_in_words, told_apart, with_guesses
from cluster_agent.recording.decision_log import state_of
from cluster_agent.recording.last_decision import last_decision, policy_of
from cluster_agent.recording.memory import MEMORY
from cluster_agent.recording.state_files import read_json
from foundation.figures import counted
from policy_net.domain import Allocation, CapacityMode, Job, JobKind, PolicyContext, Progress, Resources, speed_at
from policy_net.laboratory.simulation.environment import DecideOn, Environment
from policy_net.policy import DEFAULT_POLICY, build_policy, policy_names
from policy_net.set_policy.policy import SetPolicy
from policy_net.throughput.kinds_apart import measured_kinds, type_of_kind
from policy_net.throughput.parametric import OnlineFit

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
    state = state_of(line)
    present = [job for job in state.jobs if job.job_id in set(facts["present"])]
    speeds = _speeds_here(facts, policy_of(folder, line), [*present, _asked(facts)])
    *present, new = speeds.jobs
    notes = []
    unknown = sorted({job.job_type for job in present if not speeds.known(job)} - {new.job_type})
    if unknown:
        notes.append(f"nothing was measured of {', '.join(unknown)}, of which jobs are here: when they end is a guess")
    guessed = not (speeds.known(new) and speeds.epochs_known)
    notes += speeds.notes_on(new)
    if facts["job"]["epochs"] is None:
        notes.append("the job does not say its work: one epoch is taken; say `work`, or --epochs")
    start_guessed = any(not speeds.known(job) for job in present)
    *present, new = told_apart([*present, new], speeds.fit)
    spread = foreseen(
        present,
        new,
        _environment(facts),
        lambda: policy_of(folder, line) or build_policy(_name_of(line), PolicyContext()),
        speeds.fit,
        Draws(runs, seed),
    )
    return {
        **with_guesses(spread, start=start_guessed, end=guessed or facts["job"]["epochs"] is None),
        "policy": line["policy"],
        "version": line["version"],
        "jobsPresent": len(present),
        "runs": runs,
        "notes": notes,
    }


def _environment(facts: dict[str, Any]) -> Environment:
    return Environment(
        nodes=1,
        node_sizes=(Resources(facts["cpuMilli"], facts["gpus"]),),
        slot_seconds=facts["slotSeconds"],
        decide_on=DecideOn.EVENT,
        debounce_seconds=facts["debounceSeconds"],
        capacity_mode=CapacityMode.POOLED,
    )


def _name_of(line: dict[str, Any]) -> str:
    name = str(line["policy"])
    return name if name in policy_names() else DEFAULT_POLICY


def _asked(facts: dict[str, Any]) -> Job:
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


def said(answer: dict[str, Any]) -> str:
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
