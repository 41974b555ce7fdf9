"""Plan of one all-reduce TrainingJob: which ranks to make and which to delete, from what is seen; nothing is touched.

Its processes cannot be resized while they train: all of a gang are told to stop, and do so after the same step, of
which the first one writes a checkpoint; once no pod is left, a gang of another size goes on from there. So there are
never ranks of two gangs, and whoever follows an agent that was killed plans the same.

    nothing -> gang (all ranks together) -> trains -> stops (for another size, a suspension, a lost rank) -> nothing
                                                   -> over
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from cluster_agent.backends.kubernetes.training.plan import GANG_SECONDS, waiting
from cluster_agent.backends.kubernetes.training.ranks.gang import (
    FINISHED,
    STOPPED,
    Gang,
    RankNotes,
    end_line,
    gang_of,
    notes_of,
    samples_of,
    tasks_of,
)
from cluster_agent.backends.kubernetes.training.step import JobStanding, JobStep, SeenJob, size_words
from cluster_agent.kubernetes.resources import Json
from elastic_runtime.protocol.plan import JobPhase
from foundation.errors import BAD_INPUT
from policy_net.domain import SUSPENDED, Allocation

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
        grows: how many workers more there has to be room for before anything is deleted.
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
    """A gang of another size is to follow; until there is room for it, this one stays as it is."""
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
