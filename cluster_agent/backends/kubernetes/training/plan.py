"""Plan of one TrainingJob: what to make, delete, report and ask for, from what is known of it now; nothing is touched.

The job's coordinator decides which tasks it needs; what is planned here is that their pods are there, that it hears how
they ended before others take their place, and that it gets the size that was decided. Planned again from what is seen,
every time: whoever follows an agent that was killed plans the same.

    nothing -> gang (coordinator and first tasks together) -> training <-> suspended (no pods) -> over
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from cluster_agent.backends.kubernetes.training.step import (
    CoordinatorReport,
    Ended,
    JobMemory,
    JobStanding,
    JobStep,
    SeenJob,
    first_tasks,
    next_ask,
)
from cluster_agent.backends.kubernetes.training.task_pods import KILLED, TaskPod
from cluster_agent.kubernetes.training.manifests import COORDINATOR, pod_name
from cluster_agent.kubernetes.training.training_job import TrainingJob
from elastic_runtime.control.messages import JobStatus
from elastic_runtime.protocol.plan import JobPhase
from foundation.errors import BAD_INPUT
from policy_net.domain import SUSPENDED

GANG_SECONDS = 600.0
"""Longest wait for all of a job's first pods to run: images have to be pulled."""
LEAVE_SECONDS = 60.0
"""A task that was told to leave, and has not, is ended."""
UNLISTED_SECONDS = 30.0
"""One that nobody has heard of likewise."""
KEPT_SECONDS = 300.0
"""Of a running job, the pod of a task that has ended, for its log."""
SILENT_SECONDS = 120.0
"""Of a coordinator that is to suspend its job; then the job is ended without it."""
GIVEN_BACK_GRACE_SECONDS = 1
"""Of pods that have not trained: they have nothing to write, and hold their quota until they are gone."""
_TASK = re.compile(r"(worker|ps)-(0|[1-9][0-9]{0,5})")
_RELEASED = frozenset({JobPhase.SUSPENDED, JobPhase.FINISHED, JobPhase.FAILED})
_GATHERING = frozenset({JobPhase.STARTING, JobPhase.RECOVERING})
"""It does not train, and waits for tasks."""
_TRAINS = frozenset({JobPhase.RUNNING, JobPhase.RESIZING, JobPhase.SUSPENDING})
_STANDING: Mapping[JobPhase, JobStanding] = {
    JobPhase.STARTING: JobStanding.STARTING,
    JobPhase.RUNNING: JobStanding.RUNNING,
    JobPhase.RESIZING: JobStanding.RESIZING,
    JobPhase.RECOVERING: JobStanding.RECOVERING,
    JobPhase.SUSPENDING: JobStanding.SUSPENDING,
    JobPhase.SUSPENDED: JobStanding.SUSPENDED,
    JobPhase.FINISHED: JobStanding.RUNNING,
    JobPhase.FAILED: JobStanding.FAILED,
}


def plan(seen: SeenJob) -> JobStep:
    """What to do about one job."""
    job, desired, memory, job_report = seen.job, seen.desired, seen.memory, seen.job_report
    ours = {pod.task: pod for pod in seen.pods if pod.owner == job.uid and _is_task(job, pod)}
    memory.keep(ours, {pod.uid for pod in ours.values()}, seen.now)
    coordinator = ours.get(COORDINATOR)
    if job.outcome:
        return _over(job, ours)
    if coordinator is None:
        return _without_coordinator(seen, ours)
    if coordinator.ended:
        return _after_coordinator(seen, coordinator, ours)
    goes = desired != SUSPENDED and _is_given_back(seen, coordinator)
    if coordinator.deleting or goes:
        standing, line = _meanwhile(seen, "its coordinator is about to end")
        leaves = _not_going(ours) if goes or desired == SUSPENDED else ()
        return JobStep(standing, line, delete=leaves, grace_seconds=GIVEN_BACK_GRACE_SECONDS if goes else None)
    if job_report is None:
        return _unheard(seen, coordinator, ours)
    memory.silent_since = None
    gathers = _gang(seen, ours, job_report.status) if job_report.status.phase in _GATHERING else None
    return gathers or _training(seen, ours, job_report)


def _is_task(job: TrainingJob, pod: TaskPod) -> bool:
    """Labels can be copied; the name is one pod's."""
    return pod.name == pod_name(job, pod.task) and (pod.task == COORDINATOR or bool(_TASK.fullmatch(pod.task)))


def _is_given_back(seen: SeenJob, coordinator: TaskPod) -> bool:
    """Whether a gang was refused or did not come, so that its pods are deleted before the next try: they hold quota."""
    report, is_known = seen.job_report, seen.job.trained_under == coordinator.uid
    trains = is_known or (report is not None and report.status.phase not in _GATHERING)
    return seen.now < seen.memory.not_before_seconds and not trains


def _over(job: TrainingJob, ours: Mapping[str, TaskPod]) -> JobStep:
    """The job has ended: its ended pods stay, for their logs, and go with the job."""
    running = tuple(pod for pod in ours.values() if not pod.ended and not pod.deleting)
    line = str(job.condition(job.outcome).get("message") or "")
    return JobStep(JobStanding(job.outcome), line, delete=running)


def _after_coordinator(seen: SeenJob, coordinator: TaskPod, ours: Mapping[str, TaskPod]) -> JobStep:
    """The coordinator's process has ended: the job is over, or goes on with another one."""
    memory = seen.memory
    word, _, line = coordinator.last_words.partition(":")
    line = line.strip()
    if coordinator.exit_code == 0 and word == JobPhase.FINISHED:
        working = next((pod.task for pod in ours.values() if _works(pod)), "")
        if working:  # what a script does with the model takes as long as it takes
            return JobStep(JobStanding.RUNNING, f"{working} still works with the model")
        return JobStep(JobStanding.COMPLETE, line, outcome="Complete")
    if word == JobPhase.FAILED or coordinator.exit_code == BAD_INPUT:
        reason = line if word == JobPhase.FAILED else f"its coordinator cannot start: {coordinator.last_words}"
        return JobStep(JobStanding.FAILED, reason or "no reason was given", outcome="Failed")
    memory.gang_since = memory.silent_since = None
    if coordinator.uid != memory.counted:
        memory.counted = coordinator.uid
        if not coordinator.deleting and seen.job.trained_under != coordinator.uid:
            words = coordinator.last_words or f"code {coordinator.exit_code}"
            why = f"its coordinator ended before it led the job ({words}); it is tried again"
            memory.on_gang_failed(why, seen.now)
    standing, line = _meanwhile(seen, "its coordinator has ended, and is replaced")
    return JobStep(standing, line, delete=() if coordinator.deleting else (coordinator,))


def _works(pod: TaskPod) -> bool:
    return pod.task.startswith("worker-") and not pod.ended and pod.phase != "Pending"


def _meanwhile(seen: SeenJob, line: str) -> tuple[JobStanding, str]:
    """What is told while pods go, so that others can take their place."""
    if seen.desired == SUSPENDED:
        return (
            (JobStanding.SUSPENDED, "by its user") if seen.job.suspend else (JobStanding.QUEUED, "waits for resources")
        )
    if seen.now < seen.memory.not_before_seconds:
        return JobStanding.QUEUED, seen.memory.refused
    return JobStanding.RECOVERING, line


def _without_coordinator(seen: SeenJob, ours: Mapping[str, TaskPod]) -> JobStep:
    """There is no coordinator: the job waits, begins, or goes on from what was written down."""
    job, desired, memory = seen.job, seen.desired, seen.memory
    knows = job.has_started and bool(job.journal_claim)
    may_begin = desired != SUSPENDED and not job.problem and seen.now >= memory.not_before_seconds
    if knows and may_begin and any(not pod.ended and not pod.deleting for pod in ours.values()):
        # Its tasks wait for it, and it finds them in its journal.
        return JobStep(JobStanding.RECOVERING, "its coordinator was lost", create=(COORDINATOR,), begin=desired)
    if ours:
        standing, line = _meanwhile(seen, "what is left of it goes first")
        return JobStep(standing, line, delete=_not_going(ours))
    if (waits := waiting(seen)) is not None:
        return JobStep(*waits)
    memory.gang_since = seen.now
    # A journal knows more than the numbers from which a new coordinator would count.
    tasks = () if knows else first_tasks(desired)
    line = "its pods are made"
    return JobStep(JobStanding.STARTING, line, create=(COORDINATOR, *tasks), relaunched=job.has_started, begin=desired)


def waiting(seen: SeenJob) -> tuple[JobStanding, str] | None:
    """Where a job without pods of its own stands, and why it does not begin; None where it may."""
    job, memory = seen.job, seen.memory
    left = next((pod for pod in seen.pods if pod.owner != job.uid), None)
    if job.suspend:
        return JobStanding.SUSPENDED, "by its user"
    if job.problem:
        return JobStanding.INVALID, job.problem
    if seen.desired == SUSPENDED:
        return JobStanding.QUEUED, "waits for resources"
    if left is not None:
        return JobStanding.QUEUED, f"pod {left.name} of an earlier job of this name is still there"
    if seen.now < memory.not_before_seconds and memory.refused:
        return JobStanding.QUEUED, memory.refused
    return None


def _unheard(seen: SeenJob, coordinator: TaskPod, ours: Mapping[str, TaskPod]) -> JobStep:
    """The coordinator is about to begin, or does not answer."""
    memory = seen.memory
    if coordinator.phase == "Pending":
        memory.silent_since = None
    elif memory.silent_since is None:
        memory.silent_since = seen.now
    silent = memory.silent_since is not None and seen.now - memory.silent_since >= SILENT_SECONDS
    if seen.desired == SUSPENDED:
        # One that trains would lose what it did since its last checkpoint.
        trains = any(pod.phase != "Pending" and not pod.ended for task, pod in ours.items() if task != COORDINATOR)
        if not trains or silent:
            return JobStep(JobStanding.SUSPENDING, "it goes without its coordinator's word", delete=_not_going(ours))
        return JobStep(JobStanding.SUSPENDING, "its coordinator does not answer")
    standing = JobStanding.RECOVERING if seen.job.trained_under else JobStanding.STARTING
    if any(pod.phase == "Pending" for pod in ours.values()):
        return _gang(seen, ours, None) or JobStep(standing, _lacking(ours))
    return JobStep(standing, f"its coordinator does not answer{f': {memory.trouble}' if memory.trouble else ' yet'}")


def _gang(seen: SeenJob, ours: Mapping[str, TaskPod], status: JobStatus | None) -> JobStep | None:
    """Whether what is needed to train comes in time; None: there is more to do for that."""
    job, memory = seen.job, seen.memory
    lacking = [task for task in (status.wanted if status is not None else ()) if task not in ours]
    missing = [pod for pod in ours.values() if pod.phase == "Pending"]
    if seen.desired == SUSPENDED:
        return JobStep(JobStanding.SUSPENDING, "it was only starting", delete=_not_going(ours))
    if not missing and not lacking:
        memory.gang_since = None
        return None
    memory.gang_since = seen.now if memory.gang_since is None else memory.gang_since
    line = _lacking(ours) or job.problem or f"{lacking[0]} is not there yet"
    if seen.now - memory.gang_since < GANG_SECONDS:
        starts = not job.trained_under and len(missing) == sum(not pod.ended for pod in ours.values())
        return JobStep(JobStanding.STARTING, line) if starts else None
    memory.on_gang_failed(f"its pods did not come in {GANG_SECONDS:g} s ({line}); it is tried again", seen.now)
    return JobStep(JobStanding.QUEUED, memory.refused, delete=_not_going(ours))


def _lacking(ours: Mapping[str, TaskPod]) -> str:
    """Which pod is waited for, in a line; empty where all have come."""
    missing = [pod for pod in ours.values() if pod.phase == "Pending"]
    return _troubled(ours) or (f"{missing[0].task} is not there yet" if missing else "")


def _troubled(ours: Mapping[str, TaskPod]) -> str:
    """Why a pod that is waited for does not come, in a line; empty where nothing is known to be wrong."""
    return next((f"{pod.task}: {pod.trouble}" for pod in ours.values() if pod.phase == "Pending" and pod.trouble), "")


def _not_going(ours: Mapping[str, TaskPod]) -> tuple[TaskPod, ...]:
    return tuple(pod for pod in ours.values() if not pod.deleting)


def _training(seen: SeenJob, ours: Mapping[str, TaskPod], job_report: CoordinatorReport) -> JobStep:
    """The coordinator answers: the job trains, is resized, or comes to its end."""
    job, desired, memory, now = seen.job, seen.desired, seen.memory, seen.now
    status = job_report.status
    over = status.phase in _RELEASED
    if status.phase in _TRAINS:
        memory.on_trains()
    report = tuple(_ends(ours, status, memory))
    create = () if over or job.problem or desired == SUSPENDED else _missing_tasks(job, ours, job_report, memory)
    ended = {pod.task for pod in ours.values() if pod.ended}
    known = {task.task for task in status.tasks} | set(status.wanted)
    gone = [pod for pod in ours.values() if not over and _has_been_over(pod, status, memory, now)]
    late = []
    for task, pod in ours.items():
        needed = task == COORDINATOR or (task in known and task not in status.leaving and not over)
        needed = needed or (status.phase is JobPhase.FINISHED and _works(pod))  # with the model, as long as it takes
        if needed or task in ended or pod.deleting:
            memory.unneeded_since.pop(task, None)
            continue
        since = memory.unneeded_since.setdefault(task, now)
        if now - since >= (LEAVE_SECONDS if task in status.leaving or over else UNLISTED_SECONDS):
            late.append(pod)
    standing = _STANDING[status.phase]
    line, ask = next_ask(seen, status)
    if job.problem and desired != SUSPENDED:  # it keeps what it has
        line, ask = job.problem, None
    line = line or (_lacking(ours) if status.phase in _GATHERING else _troubled(ours))
    working = set(ours) - ended - {COORDINATOR}
    if status.phase is JobPhase.FAILED:
        return JobStep(standing, status.failure, report=report, delete=tuple(late), outcome="Failed")
    if status.phase is JobPhase.FINISHED and not working:
        line = f"{status.epoch:g} epochs, {status.samples} samples"
        return JobStep(JobStanding.COMPLETE, line, report=report, outcome="Complete")
    if status.phase is JobPhase.SUSPENDED and desired == SUSPENDED and not working:
        # Nothing of it is needed: it gives back even the little that its coordinator takes.
        why = "by its user" if job.suspend else "waits for resources"
        return JobStep(standing if job.suspend else JobStanding.QUEUED, why, report=report, delete=_not_going(ours))
    return JobStep(standing, line, create=create, report=report, delete=(*gone, *late), ask=ask)


def _missing_tasks(
    job: TrainingJob, ours: Mapping[str, TaskPod], job_report: CoordinatorReport, memory: JobMemory
) -> tuple[str, ...]:
    """Tasks whose pods are to be made: not more than a job may have while as many take the others' places.

    One whose pod came and went is made again only where its coordinator waits for it still, and has said so since.
    """
    free_capacity = {"worker": 2 * job.most.workers, "ps": 2 * job.most.ps}
    for task, pod in ours.items():
        if task != COORDINATOR and not pod.ended:
            free_capacity[task.rpartition("-")[0]] -= 1
    found = []
    for task in dict.fromkeys(job_report.status.wanted):
        role = task.rpartition("-")[0]
        is_missing = task not in ours and not memory.was_listed_before(job_report, task)
        if is_missing and _TASK.fullmatch(task) and free_capacity[role] > 0:
            free_capacity[role] -= 1
            found.append(task)
    return tuple(found)


def _has_been_over(pod: TaskPod, status: JobStatus, memory: JobMemory, now: float) -> bool:
    """Whether the log of a task that has left was there to be read for long enough, or its name is wanted again."""
    if not pod.ended or pod.deleting or pod.uid not in memory.reported:
        return False
    seconds = now - memory.ended_since.setdefault(pod.uid, now)
    return seconds >= (UNLISTED_SECONDS if pod.task in status.wanted else KEPT_SECONDS)


def _ends(ours: Mapping[str, TaskPod], status: JobStatus, memory: JobMemory) -> Iterable[Ended]:
    """Ends that were not reported yet: of pods that are there, and of tasks whose pods are not."""
    for task, pod in ours.items():
        if pod.ended and task != COORDINATOR and pod.uid not in memory.reported:
            yield Ended(task, pod.exit_code, pod.last_words, pod.uid)
    for known in status.tasks:
        if known.state != "wanted" and known.task not in ours:
            yield Ended(known.task, KILLED, "its pod is gone")
