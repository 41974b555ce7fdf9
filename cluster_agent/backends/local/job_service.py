"""Desk of the jobs: what users ask (submit, list, cancel, suspend, resume, explain), answered from the table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster_agent.backends.local.job_file import JobFile, check_job
from cluster_agent.backends.local.job_table import JobState, JobTable, LocalJobRecord
from cluster_agent.backends.local.job_views import GUESSED_SAMPLES_PER_EPOCH
from cluster_agent.errors import BadJobFile, JobRefused
from cluster_agent.job_messages import METHODS, Facts
from cluster_agent.recording.last_decision import WeighedDecision, cores, weighed_decision
from foundation.figures import counted
from foundation.text import nearest
from policy_net.domain import SUSPENDED, Allocation, ClusterState, Job, Resources
from policy_net.exchange.state_codec import encode_state

_MOST_ENDED = 20
"""Jobs of a type by which its speed is reckoned where nobody measured it: the last of them."""


def explain(facts: Mapping[str, Any], state_dir: Path, lacks: str = "") -> dict[str, Any]:
    """Explanation of a job's size, as plain JSON values; `lacks` says why it has not got what it was given."""
    shown = ("name", "state", "stateSinceUnixSeconds", "workers", "ps", "held", "ended", "failures", "lastFailure")
    answer: dict[str, Any] = {key: facts[key] for key in shown}
    decision = weighed_decision(state_dir)
    job = None if decision is None else decision.job(facts["name"])
    waits = _without_decision(facts)
    if decision is None or job is None:
        waits = waits or "the next decision: it was not there at the last one"
        return {**answer, "decision": None, "steps": [], "others": [], "waitsFor": waits}
    return {**answer, **decision.answer(job.job_id), "waitsFor": waits or _waits_for(facts, job, decision, lacks)}


def _without_decision(facts: Mapping[str, Any]) -> str:
    """What it waits for whatever was decided; empty if that has to be looked at."""
    if facts["ended"]:
        return f"nothing: it {JobState(facts['state']).ended_words}"
    if facts["cancelling"]:
        return "its end: it is being cancelled"
    if facts["held"]:
        return f"its user, who holds it: `cluster-agent resume {facts['name']}`"
    if facts.get("depends"):
        names = [word.partition(":")[0] for word in facts["dependsOn"]]
        return f"the end of {', '.join(names)}, on which it depends"
    return ""


def _waits_for(facts: Mapping[str, Any], job: Job, decision: WeighedDecision, lacks: str) -> str:
    has, desired = Allocation(facts["workers"], facts["ps"]), decision.size_of(job.job_id)
    if desired == SUSPENDED:
        return decision.capacity_for(job)
    if desired == has:
        return ""
    if has != SUSPENDED:
        return f"a resize to {_size(desired)}" + (f": {lacks}" if lacks else ", which is under way")
    if facts["state"] in (JobState.QUEUED.value, JobState.SUSPENDED.value):
        return lacks or "what other jobs are about to give back"
    return "its processes, which are starting"


def _size(size: Allocation) -> str:
    return f"{size.workers} workers and {size.ps} parameter servers" if size.ps else f"{size.workers} workers"


@dataclass(frozen=True, slots=True)
class JobDesk:
    """Requests of users, answered from the table; what they want happens with the next decision.

    Attributes:
        capacity: what all jobs together may take.
        pace_seconds: the slot, and the least time between two decisions.
        remove: removes all that an ended job has left; only its record, unless given.
        seen: the machine now, with the jobs that are decided about, and without what others have.
    """

    table: JobTable
    capacity: Resources
    facts: Callable[[LocalJobRecord], Facts]
    now: Callable[[], float]
    state_dir: Path = Path()
    pace_seconds: tuple[float, float] = (30.0, 2.0)
    remove: Callable[[str], None] | None = None
    why_it_waits: Callable[[str], str] | None = None
    seen: Callable[[], ClusterState] | None = None

    @property
    def answers(self) -> dict[str, Callable[[Mapping[str, Any]], Facts]]:
        """Of each method that can be asked."""
        return {name: getattr(self, name) for name in METHODS}

    def submit(self, content: Mapping[str, Any]) -> Facts:
        """Take a job; it is on disk when this returns.

        Raises:
            BadJobFile: it cannot be, or asks for more than the machine has.
            JobRefused: its name is taken.
        """
        job = self._checked(content)
        for name, any_end in job.dependencies.items():
            if name == job.name:
                raise BadJobFile(f"{content['source']}: dependsOn: {name} is the job itself; name another one")
            before = self._named(name).state
            if before.ended and before is not JobState.DONE and not any_end:
                raise JobRefused(
                    f"dependsOn: {name} {before.ended_words}: this would never begin; leave it out, or say {name}:any"
                )
        return self.facts(self.table.add(job, self.now()))

    def simulate(self, content: Mapping[str, Any]) -> Facts:
        """What has to be known to foresee when a job would start and end; nothing is submitted.

        Raises:
            BadJobFile: as `submit`.
        """
        job = self._checked(content)
        there = [record for record in self.table if not (record.state.ended or record.held or record.cancelling)]
        alike = [
            record for record in self.table if record.file.model_type == job.model_type and record.samples_per_epoch
        ]
        steps = [record.steps_per_epoch for record in alike if record.steps_per_epoch]
        epochs = None if job.work is None else job.work.epochs
        if job.work is not None and job.work.steps is not None and steps:
            epochs = job.work.steps / steps[-1]
        tasks, sizes = (job.worker, job.ps), {"min": job.least, "max": job.most, "requested": job.requested}
        return {
            "job": {
                "modelType": job.model_type,
                "kind": job.kind.value,
                "epochs": epochs,
                "fixed": job.fixed,
                **{role: [of.cpu, of.gpu] for role, of in zip(("worker", "ps"), tasks, strict=True)},
                **{name: [size.workers, size.ps] for name, size in sizes.items()},
            },
            "known": bool(alike),
            "ended": self._ended_alike(job),
            "samplesPerEpoch": alike[-1].samples_per_epoch if alike else GUESSED_SAMPLES_PER_EPOCH,
            "present": [record.name for record in there],
            "cpuMilli": self.capacity.cpu_milli,
            "gpus": self.capacity.gpu,
            "slotSeconds": self.pace_seconds[0],
            "debounceSeconds": self.pace_seconds[1],
            "stateDir": str(self.state_dir.absolute()),
            **({} if self.seen is None else {"state": encode_state(self.seen())}),
            **self._fixed(),
        }

    def _fixed(self) -> dict[str, Any]:
        """Of scripts of a fixed size, of which nobody counts what they do: what they have, and how long others took.

        `staying` are those that run: type, millicores, GPUs and seconds so far (null: it is being ended). `waiting`
        are the types of those that wait, by name, and `seconds` how long the last that are done took, by type.
        """
        staying, waiting, seconds = [], {}, dict[str, list[float]]()
        for record in self.table:
            file = record.file
            if record.stays:
                takes, ran = file.takes(record.granted), self.facts(record)["runSeconds"]
                row = [file.model_type, takes.cpu_milli, takes.gpu, None if record.cancelling else ran]
                staying.append(row)
            elif file.fixed and not record.state.ended:
                waiting[record.name] = file.model_type
            elif file.fixed and record.state is JobState.DONE and record.trained_seconds > 0.0:
                seconds.setdefault(file.model_type, []).append(record.trained_seconds)
        last = {name: found[-_MOST_ENDED:] for name, found in seconds.items()}
        return {"staying": staying, "waiting": waiting, "seconds": last}

    def _ended_alike(self, job: JobFile) -> list[list[float]]:
        """Of the last jobs of its type and kind that ended: workers and PSs held last, samples and seconds in all."""
        return [
            [record.granted_workers, record.granted_ps, record.samples, record.trained_seconds]
            for record in self.table
            if record.state.ended
            and (record.file.model_type, record.file.kind) == (job.model_type, job.kind)
            and record.granted_workers
            and record.samples > 0.0
            and record.trained_seconds > 0.0
        ][-_MOST_ENDED:]

    def _checked(self, content: Mapping[str, Any]) -> JobFile:
        job = check_job(dict(content["job"]), Path(content["folder"]), content["source"])
        if not job.smallest.fits_in(self.capacity):
            raise BadJobFile(
                f"{content['source']}: needs at least {_resources(job.smallest, 0)}; this machine's jobs have "
                f"{_resources(self.capacity, job.smallest.gpu)}"
            )
        if job.ends_by is not None and job.ends_by <= self.now():
            raise BadJobFile(f"{content['source']}: timeLimit = {job.time_limit}: is past; name a time to come")
        return job

    def jobs(self, content: Mapping[str, Any]) -> Facts:
        """All jobs, or one of a name.

        Raises:
            JobRefused: there is none of that name.
        """
        name = content.get("name")
        records = list(self.table) if name is None else [self._named(name)]
        return {"jobs": [self.facts(record) for record in records]}

    def cancel(self, content: Mapping[str, Any]) -> Facts:
        """End a job for good; asked again, it has been."""
        record = self._named(content["name"])
        if not record.state.ended:
            ended = record.state is JobState.QUEUED
            changes: dict[str, object] = {"cancelling": True}
            if ended:
                changes |= {"state": JobState.CANCELLED, "ended_unix_seconds": self.now()}
            record = self.table.change(record.name, **changes)
        return self.facts(record)

    def suspend(self, content: Mapping[str, Any]) -> Facts:
        """Pause a job: a checkpoint is written, and what it had is given to others."""
        return self._set_paused(content["name"], paused=True)

    def resume(self, content: Mapping[str, Any]) -> Facts:
        """Let a paused job be scheduled again."""
        return self._set_paused(content["name"], paused=False)

    def delete(self, content: Mapping[str, Any]) -> Facts:
        """Forget a job that has ended, with all that it left behind; its name is free again.

        Raises:
            JobRefused: it has not ended.
        """
        record = self._named(content["name"])
        name = record.name
        if not record.state.ended:
            raise JobRefused(f"{name} has not ended; end it first with `cluster-agent cancel {name}`, then delete it")
        waiting = [one.name for one in self.table.unended if one.depends and name in one.file.dependencies]
        if waiting:
            raise JobRefused(f"{name} has to stay for {', '.join(waiting[:3])}, which depends on it; try again later")
        if record.is_to_notify:
            raise JobRefused(f"{name} has ended, which is still being told (--notify); delete it in some seconds")
        facts = self.facts(record)
        (self.remove or self.table.remove)(name)
        return {**facts, "deleted": True}

    def explain(self, content: Mapping[str, Any]) -> Facts:
        """Why a job has what it has."""
        record = self._named(content["name"])
        lacks = self.why_it_waits(record.name) if self.why_it_waits is not None else ""
        return explain(self.facts(record), self.state_dir, lacks)

    def _set_paused(self, name: str, *, paused: bool) -> Facts:
        record = self._named(name)
        if record.state.ended:
            raise JobRefused(
                f"{name} {record.state.ended_words}; nothing of it can be {'suspended' if paused else 'resumed'}"
            )
        return self.facts(self.table.change(name, held=paused))

    def _named(self, name: str) -> LocalJobRecord:
        record = self.table.get(name)
        if record is None:
            meant = nearest(name, [record.name for record in self.table])
            raise JobRefused(f"no job named {name}" + (f"; did you mean {meant}?" if meant else ""))
        return record


def _resources(amount: Resources, needed_gpus: int) -> str:
    """Cores, and GPUs where there are some or some were wanted."""
    gpus = f" and {counted(amount.gpu, 'GPU')}" if amount.gpu or needed_gpus else ""
    return f"{cores(amount.cpu_milli)}{gpus}"
