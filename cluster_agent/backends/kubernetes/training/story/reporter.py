"""Reports on TrainingJobs: in their status, by which whoever follows knows what was decided, and in Events."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

from cluster_agent.backends.kubernetes.training.memory import CoordinatorReport, JobMemory
from cluster_agent.backends.kubernetes.training.ranks.plan import GangStep
from cluster_agent.backends.kubernetes.training.step import JobStanding, JobStep
from cluster_agent.backends.kubernetes.training.story.resizes import ResizeMark, Resizes
from cluster_agent.backends.kubernetes.training.story.statuses import (
    PROGRESS_SECONDS,
    Granted,
    event_line,
    says_more,
    status_of,
)
from cluster_agent.backends.kubernetes.training.task_pods import TaskPod
from cluster_agent.kubernetes.api_server import ApiServer, ContentType
from cluster_agent.kubernetes.cache import Cache
from cluster_agent.kubernetes.errors import Conflict, NotFound
from cluster_agent.kubernetes.events import About, EventRecorder, EventType
from cluster_agent.kubernetes.resources import Json
from cluster_agent.kubernetes.training import manifests
from cluster_agent.kubernetes.training.manifests import leader
from cluster_agent.kubernetes.training.training_job import TRAINING_JOBS, JobUpdateMode, TrainingJob
from elastic_runtime.protocol.plan import JobPhase
from policy_net.domain import Allocation

_PROGRESS_A_SECOND = 5.0
"""Of all jobs together: with 2,000 each one's is written every seven minutes."""
_TRAINED = frozenset({JobPhase.RUNNING, JobPhase.RESIZING, JobPhase.SUSPENDING, JobPhase.FINISHED})


class Reporter:
    """Reports, and keeps what is to be reported; what was decided may come from any thread, all else from one.

    Args:
        check_acting: raises `NotActing` before a write of an agent that does not act.
        clock: monotonic seconds.
        unix_clock: the time of day in seconds.
    """

    def __init__(
        self,
        api: ApiServer,
        jobs: Cache[TrainingJob],
        pods: Cache[TaskPod],
        events: EventRecorder,
        check_acting: Callable[[], None],
        clock: Callable[[], float],
        unix_clock: Callable[[], float],
    ) -> None:
        self._api, self._jobs, self._pods, self._events = api, jobs, pods, events
        self._check_acting, self._clock, self._unix_clock = check_acting, clock, unix_clock
        self._lock = threading.Lock()
        self._granted: dict[str, Granted] = {}
        self._advised: dict[str, Allocation] = {}
        self._said_at: dict[str, float] = {}
        self._progress_seconds = PROGRESS_SECONDS
        self.resizes = Resizes(events, clock)

    def grant(self, uid: str, granted: Granted) -> None:
        """What was decided that a job has."""
        with self._lock:
            self._granted[uid] = granted

    def advise(self, uid: str, size: Allocation) -> None:
        """What was decided of a job whose size is not set."""
        with self._lock:
            self._advised[uid] = size

    def take_back(self) -> None:
        """Another agent decides from now on."""
        with self._lock:
            self._granted.clear()
        self.resizes.forget(set())

    def forget(self, uids: set[str]) -> None:
        """Forget all jobs but these."""
        self.resizes.forget(uids)
        self._progress_seconds = max(PROGRESS_SECONDS, len(uids) / _PROGRESS_A_SECOND)
        with self._lock:
            for kept in (self._granted, self._advised, self._said_at):
                for uid in [uid for uid in kept if uid not in uids]:
                    del kept[uid]

    def current(self, job: TrainingJob) -> Granted | None:
        """What this agent decided; none where one that leads since has decided."""
        with self._lock:
            granted = self._granted.get(job.uid)
        epoch = (job.status.get("allocation") or {}).get("leaseEpoch")
        return None if granted is None or (isinstance(epoch, int) and epoch > granted.lease_epoch) else granted

    def decision(self, job: TrainingJob) -> str:
        """Id of the decision that holds."""
        granted = self.current(job)
        stated = (job.status.get("allocation") or {}).get("decisionId")
        return granted.decision if granted is not None else str(stated or "unknown")

    def note(self, job: TrainingJob) -> bool:
        """Write what was decided into the status before it is asked for, so that whoever follows asks for the same.

        Returns:
            Whether it stands there; else it must not be asked for now.
        """
        granted = self.current(job)
        if granted is None or granted.decision == (job.status.get("allocation") or {}).get("decisionId"):
            return True
        return self.write(job, {"allocation": granted.content()})

    def begin(self, job: TrainingJob, step: JobStep) -> bool:
        """Write that a job begins or goes on, before its first pod is made: whoever follows knows there may be one.

        Returns:
            Whether it could be written; not of a job that is over by now, or another one.
        """
        granted = self.current(job)
        if not job.has_started:
            status = status_of(job, step, None, granted, self._unix_clock())
        else:  # it stands where it stood until there is a pod: what it has trained is saved
            status = {"observedGeneration": job.generation}
            if granted is not None:
                status["allocation"] = granted.content()
        if isinstance(step, GangStep) and step.notes:
            status["ranks"] = step.notes
        return self.write(job, status)

    def say(self, job: TrainingJob, step: JobStep, job_report: CoordinatorReport | None) -> None:
        """Write what has changed into the status; the progress of a job, now and then."""
        entry = self._jobs.get((job.namespace, job.name))
        if entry is not None and entry.uid == job.uid:
            # With what was written in this step, and what was found out about its templates.
            problem = job.problem if entry.kept.digest == job.digest else ""
            job = replace(entry.kept, problem=entry.kept.problem or problem)
        mark = self.resizes.poll(job, step, job_report)
        if step.outcome and self.resizes.holds_end(job):
            return  # at the next look: nobody asks how a job came to its end once it is told
        with self._lock:
            advised = self._advised.get(job.uid) if job.mode is JobUpdateMode.OFF else None
        status = status_of(job, step, job_report, self.current(job), self._unix_clock(), advised)
        if job_report is not None and job_report.status.phase in _TRAINED:
            pod = self._pods.get((job.namespace, manifests.pod_name(job, leader(job))))
            if pod is not None and pod.kept.owner == job.uid:
                status["coordinator"] = pod.kept.uid
        if mark != ResizeMark() or job.status.get("resizes"):
            status["resizes"] = mark.content()
        waited = self._clock() - self._said_at.get(job.uid, -float("inf"))
        news = "progress" in status and status["progress"] != job.status.get("progress")
        if says_more(job, status) or (news and waited >= self._progress_seconds):
            self.write(job, status)

    def write(self, job: TrainingJob, status: Json) -> bool:
        """Write parts of a status; False where it has changed since it was planned by, or there is no such job now."""
        self._check_acting()
        entry = self._jobs.get((job.namespace, job.name))
        version = entry.version if entry is not None and entry.uid == job.uid else job.version
        body = {"metadata": {"uid": job.uid, "resourceVersion": version}, "status": status}
        path = TRAINING_JOBS.path(job.namespace, job.name, "status")
        try:
            self._jobs.put_answer(self._api.patch(path, body, ContentType.MERGE_PATCH))
        except (NotFound, Conflict):  # it is gone, another has its name, or it has changed
            return False
        self._said_at[job.uid] = self._clock()
        return True

    def tell(self, job: TrainingJob, reason: str, line: str, kind: EventType = EventType.NORMAL) -> None:
        """Report on a job in an Event."""
        about = About(TRAINING_JOBS.api_version, TRAINING_JOBS.kind, job.namespace, job.name, job.uid)
        self._events.tell(about, reason, line, kind)

    def report_step(
        self, job: TrainingJob, before: JobStep | None, step: JobStep, job_report: CoordinatorReport | None
    ) -> None:
        """Report where a job is now, where that is news; `before` was planned at the last poll."""
        is_news = before is None or before.standing is not step.standing
        if is_news and job.status.get("phase") != step.standing.value:
            kind = EventType.WARNING if step.standing in (JobStanding.FAILED, JobStanding.INVALID) else EventType.NORMAL
            self.tell(job, step.standing.value, event_line(step, job_report), kind)

    def warn(self, job: TrainingJob, memory: JobMemory, reason: str, line: str, trouble: str = "") -> None:
        """Report a trouble that may last, known again by `trouble`, or its line."""
        if memory.warns(f"{reason} {trouble or line}", self._clock()):
            self.tell(job, reason, line, EventType.WARNING)
