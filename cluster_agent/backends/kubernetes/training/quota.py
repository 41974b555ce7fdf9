"""Plan of a TrainingJob's quota: what Kueue lets it have, and what to write about that; nothing is touched.

    begin    the Workload is admitted, and then pods are made
    grow     a second Workload (a slice) is admitted, then the coordinator is asked to grow; the first one is finished
    shrink   the coordinator has let tasks go and their pods are gone, and then the Workload's counts are lowered
    evicted  the job gives back all it has, after a checkpoint if it has any, and then its quota; it waits again

Planned again from what is seen, every time: whoever follows an agent that was killed plans the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from cluster_agent.backends.kubernetes.training.step import CoordinatorReport, JobStanding, JobStep, size_words
from cluster_agent.backends.kubernetes.training.task_pods import TaskPod
from cluster_agent.kubernetes.training.manifests import COORDINATOR
from cluster_agent.kubernetes.training.training_job import TrainingJob
from cluster_agent.kubernetes.training.workloads import KueueWorkload, WorkloadState
from elastic_runtime.protocol.plan import JobPhase
from policy_net.domain import SUSPENDED, Allocation

WAITS: Final = "WaitsForQuota"
_WAITING = (JobStanding.QUEUED, JobStanding.SUSPENDING, JobStanding.STARTING)
_QUIET = ("", "Finished", "NotAsked")


class Verb(StrEnum):
    """What is done to a Workload."""

    CREATE = "create"
    COUNT = "count"
    READY = "ready"
    GIVE_BACK = "give-back"
    FINISH = "finish"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Act:
    """One write to a Workload; CREATE names the one that is replaced, and the number of the new one."""

    verb: Verb
    workload: KueueWorkload | None
    size: Allocation = SUSPENDED
    number: int = 0


@dataclass(frozen=True, slots=True)
class QuotaUse:
    """What a job holds of its quota now.

    Attributes:
        any: whether any of its processes may still run.
        size: its tasks, or as many as its coordinator means to have, if those are more; None where nobody knows.
        trains: all that it needs runs.
        tasks: its tasks that may still run, whatever its coordinator means to have.
    """

    any: bool
    size: Allocation | None
    trains: bool = False
    tasks: Allocation = SUSPENDED

    @property
    def least(self) -> Allocation:
        """What it holds for certain."""
        return self.tasks if self.size is None else self.tasks.most(self.size)


@dataclass(frozen=True, slots=True)
class Quota:
    """What a job may have now; without an admitted Workload that its pods count for, `ground`, no pod is made."""

    allowed: Allocation
    reason: str
    line: str
    ground: KueueWorkload | None = None
    acts: tuple[Act, ...] = ()

    def limit(self, step: JobStep, pods: Iterable[TaskPod]) -> JobStep:
        """A step, without pods for which there is no quota, and with what people are told."""
        waits = self.ground is None or self.allowed == SUSPENDED
        if waits and self.reason not in _QUIET and step.standing in _WAITING:
            step = replace(step, line=self.line)
        size = self.ground.size if self.ground is not None else SUSPENDED
        pods_left = {"worker": size.workers, "ps": size.ps}
        for pod in pods:
            role = pod.task.rpartition("-")[0]
            if role in pods_left and not pod.ended and not pod.deleting:
                pods_left[role] -= 1
        create = []
        for task in step.create if self.ground is not None else ():
            role = task.rpartition("-")[0]
            if pods_left.get(role, 1) > 0:
                create.append(task)
                pods_left[role] = pods_left.get(role, 2) - 1
        whole = not step.is_gang or len(create) == len(step.create)
        return replace(step, create=tuple(create) if whole else ())

    @property
    def is_reported(self) -> bool:
        """Whether it is worth an Event."""
        return self.reason not in _QUIET

    @property
    def is_trouble(self) -> bool:
        """Whether somebody may have to see to it."""
        return self.reason in ("Evicted", "KueueMissing", "KueueRefused")

    @property
    def condition(self) -> tuple[str, bool, str, str] | None:
        """As the job's status says it; None: there is nothing to say."""
        return ("Admitted", self.allowed != SUSPENDED, self.reason, self.line) if self.reason else None


def use_of(pods: Iterable[TaskPod], job_report: CoordinatorReport | None) -> QuotaUse:
    """What a job's pods hold, and what its coordinator says that it will have."""
    here = [pod for pod in pods if not pod.ended]
    tasks = [pod.task for pod in here if pod.task != COORDINATOR]
    size = Allocation(sum(task.startswith("worker-") for task in tasks), sum(task.startswith("ps-") for task in tasks))
    if job_report is None:
        return QuotaUse(bool(here), None if len(tasks) < len(here) else size, tasks=size)
    target = job_report.status.target
    trains = job_report.status.phase is JobPhase.RUNNING and job_report.status.size == target
    return QuotaUse(bool(here), size.most(Allocation(target.workers, target.servers)), trains, size)


def plan_quota(
    job: TrainingJob, desired: Allocation, in_use: QuotaUse, seen: Iterable[KueueWorkload], patient: bool = True
) -> Quota:
    """What a job may have, and what to write about that.

    Args:
        patient: it has not waited long for its first quota.
    """
    ours = sorted((each for each in seen if each.owner == job.uid and each.number >= 0), key=lambda each: each.number)
    left = [each for each in ours if not each.deleting]
    live = [each for each in left if each.state is not WorkloadState.FINISHED]
    if job.outcome:
        acts = () if in_use.any else tuple(Act(Verb.FINISH, each) for each in live)
        return Quota(SUSPENDED, "Finished", "the job is over", acts=acts)
    if desired == SUSPENDED or (job.problem and not in_use.any):
        acts = () if in_use.any else tuple(Act(Verb.DELETE, each) for each in left)
        return Quota(SUSPENDED, "NotAsked", "it is to have nothing: no quota is asked for", acts=acts)
    pending = [each for each in live if each.state is WorkloadState.PENDING]
    reserving = [each for each in live if each.state is not WorkloadState.PENDING]
    number = max((each.number for each in ours), default=-1) + 1
    if not reserving:
        # One whose Workload somebody deleted may still run: what it holds it needs, until it is gone.
        return _first(job, (desired if patient else job.least).most(in_use.least), pending, number)
    if reserving[-1].state is WorkloadState.EVICTED:
        return _evicted(reserving, pending, in_use)
    ground = next((each for each in reversed(reserving) if each.state is WorkloadState.ADMITTED), None)
    if ground is None and in_use.any:  # it runs on the slice before, while the checks of this one are done
        ground = next((each for each in left if each.name == reserving[-1].replaces), None)
    if ground is None:
        line = f"has quota of queue {job.queue}; {reserving[-1].line}"
        return Quota(SUSPENDED, "WaitsForChecks", line, acts=_deleted(pending))
    return _within(job, desired, in_use, ground, left, number)


def _first(job: TrainingJob, requested: Allocation, pending: list[KueueWorkload], number: int) -> Quota:
    """Nothing was admitted yet: it may have nothing."""
    newest = pending[-1] if pending else None
    line = f"waits for quota of queue {job.queue} for {size_words(requested)}" + (f": {newest.line}" if newest else "")
    acts = _deleted(pending[:-1])
    if newest is None:
        acts = (*acts, Act(Verb.CREATE, None, requested, number))
    elif newest.size != requested:
        acts = (*acts, Act(Verb.COUNT, newest, requested))
    return Quota(SUSPENDED, WAITS, line, acts=acts)


def _evicted(reserving: list[KueueWorkload], pending: list[KueueWorkload], in_use: QuotaUse) -> Quota:
    """It gives back what it has, and then its quota; of several slices the newest waits again."""
    newest = reserving[-1]
    acts = _deleted(pending)
    if not in_use.any:
        acts = (*acts, *_deleted(reserving[:-1]), Act(Verb.GIVE_BACK, newest))
    return Quota(SUSPENDED, "Evicted", f"gives back what it has: {newest.line}", acts=acts)


def _within(
    job: TrainingJob,
    desired: Allocation,
    in_use: QuotaUse,
    ground: KueueWorkload,
    left: list[KueueWorkload],
    number: int,
) -> Quota:
    """It may have what it wants, as far as that was admitted; for more a slice is asked for."""
    size = ground.size
    allowed = Allocation(min(desired.workers, size.workers), min(desired.ps, size.ps))
    acts: list[Act] = []
    if ground.state is WorkloadState.ADMITTED:
        for each in [each for each in left if each.number < ground.number]:
            # Kueue finishes the slice before; one that does not know of slices leaves that to us.
            finished = each.state is WorkloadState.FINISHED
            acts.append(Act(Verb.DELETE if finished else Verb.FINISH, each))
        if in_use.trains and not ground.is_ready:
            acts.append(Act(Verb.READY, ground))
    later = [each for each in left if each.number > ground.number and each.state is not WorkloadState.FINISHED]
    acts += _deleted([each for each in later[:-1] if each.state is WorkloadState.PENDING])
    requested = later[-1] if later else None
    # What it holds it needs, until it is gone; what it was never given is nobody's to ask for.
    kept = (
        size
        if in_use.size is None
        else Allocation(min(in_use.size.workers, size.workers), min(in_use.size.ps, size.ps))
    )
    need = desired.most(kept)
    if allowed == desired:
        if requested is not None and requested.state is WorkloadState.PENDING:
            acts += _deleted([requested])
        elif requested is None and need != size and ground.state is WorkloadState.ADMITTED:
            acts.append(Act(Verb.COUNT, ground, need))
        return Quota(
            allowed,
            "Admitted",
            f"queue {job.queue} has quota for {size_words(size)}",
            ground,
            tuple(acts),
        )
    if requested is None:
        acts.append(Act(Verb.CREATE, ground, need, number))
    elif requested.state is WorkloadState.PENDING and requested.size != need:
        acts.append(Act(Verb.COUNT, requested, need))
    if not in_use.any and allowed.most(job.least) != allowed:
        allowed = SUSPENDED  # its bounds were raised meanwhile
    line = f"has quota of queue {job.queue} for {size_words(size)}, and waits for that for {size_words(need)}"
    line += f": {requested.line}" if requested is not None else ""
    return Quota(allowed, "WaitsForMoreQuota", line, ground, tuple(acts))


def _deleted(which: Iterable[KueueWorkload]) -> tuple[Act, ...]:
    return tuple(Act(Verb.DELETE, each) for each in which)


def unread(desired: Allocation, in_use: QuotaUse, trouble: str) -> Quota:
    """Nobody knows what was admitted: nothing begins or grows, and what runs goes on."""
    if not trouble:
        return Quota(_kept(desired, in_use), "", "Kueue's Workloads are being read")
    line = (
        f"Kueue's Workloads cannot be read ({trouble}): install Kueue 0.18 or newer, and give the agent rights to them"
    )
    return Quota(_kept(desired, in_use), "KueueMissing", line)


def refused(quota: Quota, desired: Allocation, in_use: QuotaUse, line: str) -> Quota:
    """What holds after a write that did not work: what was admitted; who has no Workload at all keeps what it has."""
    unknown = quota.acts[-1].verb is Verb.CREATE and quota.acts[-1].workload is None
    allowed = _kept(desired, in_use) if unknown else quota.allowed
    return replace(quota, allowed=allowed, reason="KueueRefused", line=f"{quota.line}; {line}")


def _kept(desired: Allocation, in_use: QuotaUse) -> Allocation:
    if not in_use.any or in_use.size is None:
        return desired if in_use.any else SUSPENDED
    return Allocation(min(desired.workers, in_use.size.workers), min(desired.ps, in_use.size.ps))
