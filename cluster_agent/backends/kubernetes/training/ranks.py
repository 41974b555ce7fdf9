"""All-reduce TrainingJobs: gangs of ranks, and which to make and which to delete; nothing is touched.

Ranks are of use together or not at all, and cannot be resized while they train: all of a gang are told to stop, and do
so after the same step, of which the first one writes a checkpoint; once no pod is left, a gang of another size goes on
from there. Each pod says which gang it is of, and how many ranks that has. So there are never ranks of two gangs, and
whoever follows an agent that was killed plans the same.

    nothing -> gang (all ranks together) -> trains -> stops (for another size, a suspension, a lost rank) -> nothing
                                                   -> over
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from cluster_agent.backends.kubernetes.training.plan import GANG_SECONDS, waiting
from cluster_agent.backends.kubernetes.training.step import JobStanding, JobStep, SeenJob, size_words
from cluster_agent.backends.kubernetes.training.task_pods import TaskPod
from cluster_agent.kubernetes.resources import Json, as_dict
from cluster_agent.kubernetes.training.manifests import FIRST_RANK, pod_name
from cluster_agent.kubernetes.training.training_job import TrainingJob
from elastic_runtime.protocol.plan import JobPhase
from foundation.backoff import Failures
from foundation.errors import BAD_INPUT
from foundation.text import describe_end
from policy_net.domain import SUSPENDED, Allocation

FINISHED: Final = "finished:"
STOPPED: Final = "stopped:"
"""How the last words begin of a rank whose job is done, and of one that stopped with the others after a checkpoint."""
_LOST = "lost the others"
"""Of the words of a rank whose peer was gone first."""
_RANK = re.compile(r"worker-(0|[1-9][0-9]?)")
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS, _MOST_DOUBLINGS = 10.0, 600.0, 10


@dataclass(frozen=True, slots=True)
class Gang:
    """The pods of a job that are there, by rank, at least one; of pods of several gangs, the highest number."""

    pods: tuple[TaskPod, ...]
    number: int
    world: int

    @property
    def is_one(self) -> bool:
        """Whether all pods say that they are of the same gang, and one that has their ranks."""
        same = all((pod.gang, pod.world) == (self.number, self.world) for pod in self.pods)
        return same and all(rank_of(pod) < self.world for pod in self.pods)

    @property
    def missing(self) -> tuple[str, ...]:
        """Ranks without a pod."""
        there = {pod.task for pod in self.pods}
        return tuple(task for task in tasks_of(self.world) if task not in there)

    @property
    def pending(self) -> tuple[TaskPod, ...]:
        """Pods that do not run yet."""
        return tuple(pod for pod in self.pods if pod.phase == "Pending")

    @property
    def first(self) -> TaskPod | None:
        """The pod of rank 0."""
        return next((pod for pod in self.pods if pod.task == FIRST_RANK), None)

    @property
    def is_going(self) -> bool:
        """Whether a rank is told to end, or has stopped: all others do likewise."""
        stopped = (pod.ended and (pod.disrupted or pod.last_words.startswith(STOPPED)) for pod in self.pods)
        return any(stopped) or any(pod.deleting for pod in self.pods)

    @property
    def is_done(self) -> bool:
        """Whether every rank came to the end of the training: the first one says so, or nobody told any to stop."""
        first = self.first
        if first is None or not all(_ended_well(pod) for pod in self.pods):
            return False
        return first.last_words.startswith(FINISHED) or not self.missing

    @property
    def is_finishing(self) -> bool:
        """Whether a rank has come to the end, and others still work with the model."""
        return any(_ended_well(pod) for pod in self.pods)

    @property
    def failed(self) -> tuple[TaskPod, ...]:
        """Ranks that ended badly, and not because they were told to; the one that tells most comes first."""
        found = [pod for pod in self.pods if pod.ended and pod.exit_code != 0 and not pod.deleting]
        return tuple(sorted(found, key=lambda pod: (_LOST in pod.last_words, pod.ended_at or "~", rank_of(pod))))

    @property
    def left(self) -> tuple[TaskPod, ...]:
        """Pods that nobody has told to go."""
        return tuple(pod for pod in self.pods if not pod.deleting)


def gang_of(job: TrainingJob, pods: Iterable[TaskPod]) -> Gang | None:
    """The job's own pods, by their names, as labels can be copied; None where there is none."""
    ours = [
        pod
        for pod in pods
        if pod.owner == job.uid and pod.name == pod_name(job, pod.task) and _RANK.fullmatch(pod.task)
    ]
    if not ours:
        return None
    number = max(pod.gang for pod in ours)
    world = max(pod.world for pod in ours if pod.gang == number)
    return Gang(tuple(sorted(ours, key=rank_of)), number, world)


def rank_of(pod: TaskPod) -> int:
    """Its number."""
    return int(pod.task.rpartition("-")[2])


def tasks_of(world: int) -> tuple[str, ...]:
    """The names of so many ranks."""
    return tuple(f"worker-{rank}" for rank in range(world))


def end_line(pod: TaskPod) -> str:
    """How a rank ended, in a line."""
    words = pod.last_words
    if words.startswith((FINISHED, STOPPED)):
        words = "after it had trained; see its log"
    return f"{pod.task} {describe_end(pod.exit_code)}" + (f": {words}" if words else "")


def _ended_well(pod: TaskPod) -> bool:
    """Whether it came to its own end. One that was told to end did so only where it says it."""
    if not pod.ended or pod.exit_code != 0 or pod.last_words.startswith(STOPPED):
        return False
    return not (pod.deleting or pod.disrupted) or pod.last_words.startswith(FINISHED)


@dataclass(frozen=True, slots=True)
class RankNotes:
    """What the status keeps of a job's gangs, for whoever looks after it next.

    Attributes:
        gang: number of the newest.
        failures: in a row, without progress in between.
        failed_gang: number of the gang whose failure was counted last.
        samples: that were trained then.
        reason: how it failed, in a line.
        total: failures in the job's life; `recent`: each within ten minutes of the one before.
    """

    gang: int = 0
    failures: int = 0
    failed_gang: int = 0
    samples: int = 0
    failed_unix_seconds: float = 0.0
    reason: str = ""
    total: int = 0
    recent: int = 0

    @property
    def again_unix_seconds(self) -> float:
        """When another gang may follow: each failure soon after another, or without progress, doubles the pause."""
        if not self.failures or self.failed_gang != self.gang:
            return -math.inf
        doublings = min(max(self.failures, self.recent) - 1, _MOST_DOUBLINGS)
        return self.failed_unix_seconds + min(_FIRST_PAUSE_SECONDS * 2.0**doublings, _LONGEST_PAUSE_SECONDS)

    def content(self) -> Json:
        """As it stands in the status."""
        return {
            "gang": self.gang,
            "failures": self.failures,
            "failedGang": self.failed_gang,
            "samples": self.samples,
            "failedUnixSeconds": int(self.failed_unix_seconds),
            "reason": self.reason,
            "totalFailures": self.total,
            "recentFailures": self.recent,
        }

    def and_another(self, gang: int, samples: int, unix_seconds: float, reason: str) -> RankNotes:
        """One more failure, of this gang."""
        known = Failures(self.failures, self.total, self.recent, self.samples, self.failed_unix_seconds)
        now = known.and_another(samples, unix_seconds)
        newest = max(self.gang, gang)
        return RankNotes(newest, now.in_a_row, gang, samples, unix_seconds, reason, now.total, now.recent)


def notes_of(job: TrainingJob) -> RankNotes:
    """As the status has them; what makes no sense there counts as nothing."""
    stated = as_dict(job.status.get("ranks"))
    return RankNotes(
        _count(stated, "gang"),
        _count(stated, "failures"),
        _count(stated, "failedGang"),
        _count(stated, "samples"),
        float(_count(stated, "failedUnixSeconds")),
        str(stated.get("reason") or ""),
        _count(stated, "totalFailures"),
        _count(stated, "recentFailures"),
    )


def samples_of(job: TrainingJob) -> int:
    """How many were trained, as the status says."""
    return _count(as_dict(job.status.get("progress")), "samples")


def _count(stated: Json, name: str) -> int:
    value = stated.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0


SILENT_SECONDS = 60.0
"""Ranks that run for so long train, also where the first one does not say so: its script may not join."""
FAILED_GRACE_SECONDS = 5
"""Ranks of which one has failed wait for it; they have no common step left, and nothing to write."""
_TRAINS = frozenset({JobPhase.RUNNING, JobPhase.SUSPENDING, JobPhase.FINISHED})


@dataclass(frozen=True, slots=True)
class GangStep(JobStep):
    """What is to be done about an all-reduce job now.

    Attributes:
        gang: number of the gang that it has, or that is made.
        world: how many ranks that has.
        grows: how many workers more there has to be capacity for before anything is deleted.
        meanwhile: where it stands until there is.
        notes: what the status has to say before anything else is done; empty: what it says.
        trained: number and ranks of a gang that is known to train, or to have trained; 0, 0: of none.
    """

    gang: int = 0
    world: int = 0
    grows: int = 0
    meanwhile: JobStanding = JobStanding.RUNNING
    notes: Json = field(default_factory=dict)
    trained: tuple[int, int] = (0, 0)

    @property
    def is_gang(self) -> bool:
        """See `JobStep`: its pods are made together, or given back together."""
        return bool(self.create)

    @property
    def needs(self) -> tuple[str, ...]:
        """See `JobStep`."""
        return self.create


def plan_ranks(seen: SeenJob) -> GangStep:
    """What to do about one job."""
    job = seen.job
    gang = gang_of(job, seen.pods)
    if job.outcome:
        running = () if gang is None else tuple(pod for pod in gang.left if not pod.ended)
        return GangStep(JobStanding(job.outcome), str(job.condition(job.outcome).get("message") or ""), delete=running)
    if gang is None:
        return _without_gang(seen)
    if gang.is_one and gang.is_done:
        step = _complete(gang)
    elif gang.failed:
        step = _after_failure(seen, gang)
    elif gang.is_going or not gang.is_one or seen.desired == SUSPENDED:
        step = _leaving(seen, gang)
    elif gang.missing or gang.pending:
        step = _gathering(seen, gang)
    else:
        step = _training(seen, gang)
    return step


def _complete(gang: Gang) -> GangStep:
    words = "" if gang.first is None else gang.first.last_words
    line = words.removeprefix(FINISHED).strip() if words.startswith(FINISHED) else ""
    line = line or f"all of its {gang.world} ranks ended well"
    return GangStep(JobStanding.COMPLETE, line, outcome="Complete", trained=(gang.number, gang.world))


def _without_gang(seen: SeenJob) -> GangStep:
    """There is no gang: the job waits, begins, or goes on from its checkpoint."""
    memory, desired = seen.memory, seen.desired
    memory.gang_since = memory.silent_since = None
    if (waits := waiting(seen)) is not None:
        return GangStep(*waits)
    notes = notes_of(seen.job)
    if seen.unix_seconds < notes.again_unix_seconds:
        return GangStep(JobStanding.RECOVERING, _again(notes))
    memory.gang_since = seen.now
    notes = replace(notes, gang=notes.gang + 1)
    return GangStep(
        JobStanding.STARTING,
        "its pods are made",
        create=tasks_of(desired.workers),
        begin=desired,
        gang=notes.gang,
        world=desired.workers,
        notes=notes.content(),
    )


def _after_failure(seen: SeenJob, gang: Gang) -> GangStep:
    """A rank has ended badly: the others go too, and are followed by others unless that is in vain.

    One that was ended from outside, as by an eviction, says nothing of what it ran, nor does one that lost such a peer.
    """
    job = seen.job
    lost = bool(gang.missing) or any(pod.deleting or pod.disrupted for pod in gang.pods)
    faulty = () if lost else gang.failed
    notes = notes_of(job)
    if not faulty or (notes.failed_gang == gang.number and notes.failures):
        return _leaving(seen, gang)
    reason = end_line(faulty[0])
    final = GangStep(JobStanding.FAILED, reason, outcome="Failed")
    refused = next((pod for pod in faulty if pod.exit_code == BAD_INPUT), None)
    if refused is not None:  # another start would end likewise
        return replace(final, line=end_line(refused))
    notes = notes.and_another(gang.number, samples_of(job), seen.unix_seconds, reason)
    failures = notes.failures
    if failures > job.backoff_limit:
        often = f"{failures} times in a row without progress" if failures > 1 else "and backoffLimit is 0"
        return replace(final, line=f"{reason} ({often})")
    step = _leaving(seen, gang)
    return replace(step, line=reason, notes=notes.content(), grace_seconds=FAILED_GRACE_SECONDS)


def _leaving(seen: SeenJob, gang: Gang) -> GangStep:
    """Every rank is told to stop; what comes next comes when none is left."""
    job, desired, memory = seen.job, seen.desired, seen.memory
    memory.gang_since = memory.silent_since = None
    step = GangStep(JobStanding.RECOVERING, "its ranks end, and others go on", delete=gang.left)
    if any(pod.last_words.startswith(STOPPED) for pod in gang.pods):  # it has trained, though nobody looked
        step = replace(step, trained=(gang.number, gang.world))
    notes = notes_of(job)
    if desired == SUSPENDED:
        line = "by its user" if job.suspend else "gives back what it has"
        return replace(step, standing=JobStanding.SUSPENDING, line=line)
    if seen.now < memory.not_before_seconds:
        return replace(step, standing=JobStanding.QUEUED, line=memory.refused)
    if notes.failures and notes.failed_gang == gang.number:
        return replace(step, line=_again(notes), grace_seconds=FAILED_GRACE_SECONDS)
    if desired.workers != gang.world and job.is_resizable:
        return replace(step, standing=JobStanding.RESIZING, line=_becomes(desired))
    return step


def _gathering(seen: SeenJob, gang: Gang) -> GangStep:
    """Some ranks are not there yet; none trains before all are."""
    memory, desired, now = seen.memory, seen.desired, seen.now
    making = bool(gang.pending) or memory.gang_since is not None
    if gang.missing and (not making or seen.job.problem or now < memory.not_before_seconds):
        return _leaving(seen, gang)  # one that runs waits for another run of the missing one
    step = GangStep(JobStanding.STARTING, gang=gang.number, world=gang.world)
    if desired.workers != gang.world:
        return _resizing(step, desired, gang)
    memory.gang_since = now if memory.gang_since is None else memory.gang_since
    line = _lacking(gang)
    if now - memory.gang_since >= GANG_SECONDS:
        memory.on_gang_failed(f"its pods did not come in {GANG_SECONDS:g} s ({line}); it is tried again", now)
        return GangStep(JobStanding.QUEUED, memory.refused, delete=gang.left)
    return replace(step, line=line, create=gang.missing, begin=Allocation(gang.world))


def _training(seen: SeenJob, gang: Gang) -> GangStep:
    """All ranks run, or have come to their end."""
    job, memory, job_report = seen.job, seen.memory, seen.job_report
    memory.gang_since = None
    step = GangStep(JobStanding.RUNNING, gang=gang.number, world=gang.world)
    if gang.is_finishing or (job_report is not None and job_report.status.phase is JobPhase.FINISHED):
        working = next((pod.task for pod in gang.pods if not pod.ended), "")
        return replace(step, line=f"{working} still works with the model", trained=(gang.number, gang.world))
    first = gang.first
    has_trained = first is not None and job.trained_under == first.uid
    if job_report is None:
        memory.silent_since = seen.now if memory.silent_since is None else memory.silent_since
        if not has_trained and seen.now - memory.silent_since < SILENT_SECONDS:
            return replace(step, standing=JobStanding.STARTING, line="its ranks join")
        trouble = f": {memory.trouble}" if memory.trouble else ""
        step = replace(step, line=f"its first rank does not say how far it is{trouble}")
    else:
        memory.silent_since = None
        if job_report.status.phase not in _TRAINS and not has_trained:
            return replace(step, standing=JobStanding.STARTING, line="its ranks join")
    memory.on_trains()
    step = replace(step, trained=(gang.number, gang.world))
    if job.problem:  # it keeps what it has
        return replace(step, line=job.problem)
    if seen.desired.workers == gang.world or not job.is_resizable:
        return step
    return _resizing(step, seen.desired, gang)


def _resizing(step: GangStep, desired: Allocation, gang: Gang) -> GangStep:
    """A gang of another size is to follow; until there is capacity for it, this one stays as it is."""
    grows = max(0, desired.workers - gang.world)
    return replace(
        step,
        standing=JobStanding.RESIZING,
        line=_becomes(desired),
        delete=gang.left,
        grows=grows,
        meanwhile=step.standing,
    )


def _lacking(gang: Gang) -> str:
    troubled = next((f"{pod.task}: {pod.trouble}" for pod in gang.pending if pod.trouble), "")
    return troubled or f"{(*(pod.task for pod in gang.pending), *gang.missing)[0]} is not there yet"


def _becomes(desired: Allocation) -> str:
    return f"becomes {size_words(desired)}: its ranks stop after a checkpoint"


def _again(notes: RankNotes) -> str:
    return f"{notes.reason}; another gang goes on (failure {notes.failures} in a row)"
