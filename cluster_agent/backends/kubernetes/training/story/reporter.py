"""Reports on TrainingJobs: in their status, by which whoever follows knows what was decided, and in Events.

Each resize of a job that trains is reported in one Event, however short it was and whoever leads then: a coordinator
remembers what it was asked for, and a gang has a number, so that what was done between two polls is found afterwards.
An Event's name follows from the resize, so that whoever reports it again finds it there; up to where all are reported
stands in the status, for when the server has forgotten its Events.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from cluster_agent.backends.kubernetes.training.ranks import GangStep
from cluster_agent.backends.kubernetes.training.step import (
    CoordinatorReport,
    JobMemory,
    JobStanding,
    JobStep,
    Request,
    size_words,
)
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
from cluster_agent.kubernetes.resources import Json, as_dict
from cluster_agent.kubernetes.training import manifests
from cluster_agent.kubernetes.training.manifests import leader
from cluster_agent.kubernetes.training.training_job import TRAINING_JOBS, JobUpdateMode, TrainingJob
from elastic_runtime.control.messages import RequestOutcome, RequestState, Size
from elastic_runtime.protocol.plan import JobPhase
from foundation.clocks import Clock, UnixClock
from policy_net.domain import Allocation

REASON: Final = "Resized"
AGAIN_SECONDS: Final = 10.0
"""An Event that nobody took is sent again after this."""
END_WAITS_SECONDS: Final = 5.0
"""The end of a job is told after its last resize, unless that takes longer."""
_MOST_AT_ONCE = 10
"""One that makes up resizes is not to keep the others' Events waiting."""
_NONE = Size(0, 0)


@dataclass(frozen=True, slots=True)
class Resize:
    """One that was done, by a request or a gang with a key of its own, from a size; 0/0 where nobody knows it."""

    key: str
    before: Size
    after: Size

    @property
    def line(self) -> str:
        """What people are told."""
        before = f"from {size_words(self.before)} " if self.before != _NONE else ""
        return f"{before}to {size_words(self.after)}"


@dataclass(frozen=True, slots=True)
class ResizeMark:
    """Up to which key all resizes of a job are reported, and the size with which it trained last; 0/0: none now."""

    count: int = 0
    last: str = ""
    size: Size = _NONE

    def content(self) -> Json:
        """As it stands in the status."""
        return {"count": self.count, "last": self.last, "workers": self.size.workers, "ps": self.size.servers}


def mark_of(job: TrainingJob) -> ResizeMark:
    """The mark in a job's status; that may be anybody's."""
    found = as_dict(job.status.get("resizes"))
    numbers = [found.get(name) for name in ("count", "ps", "workers")]
    count, servers, workers = (each if isinstance(each, int) and each >= 0 else 0 for each in numbers)
    return ResizeMark(count, str(found.get("last") or ""), Size(servers, workers))


def resizes_since(mark: ResizeMark, rows: Iterable[RequestState]) -> tuple[list[Resize], Size]:
    """What a coordinator has done that is not reported yet, oldest first.

    Args:
        rows: all requests that it remembers, oldest first; it forgets the oldest ones first.

    Returns:
        The resizes, and the size after all that was done; 0/0 where nobody knows it.
    """
    known = list(rows)
    keys = [_key(f"{row.request_id} {row.began_unix_seconds:.3f}") for row in known]
    begin = keys.index(mark.last) + 1 if mark.last in keys else 0
    size, found = mark.size, []
    for key, row in zip(keys[begin:], known[begin:], strict=True):
        if row.state is not RequestOutcome.DONE:
            continue
        after = _NONE if row.kind == Request.SUSPEND else row.target
        if row.kind == Request.RESIZE:
            found.append(Resize(key, size, after))
        size = after
    return found, size


@dataclass(slots=True)
class _Followed:
    """Of one job: what is reported, what waits, and when its Events were sent and if taken; None: not known yet."""

    mark: ResizeMark
    waiting: list[Resize] = field(default_factory=list)
    sent: dict[str, tuple[float, bool | None]] = field(default_factory=dict)


class Resizes:
    """Finds them, and reports each; one thread calls it, and events are written by another."""

    def __init__(self, events: EventRecorder, clock: Clock) -> None:
        self._events, self._clock = events, clock
        self._lock = threading.Lock()
        self._followed: dict[str, _Followed] = {}

    def forget(self, uids: set[str]) -> None:
        """Forget all jobs but these."""
        for uid in [uid for uid in self._followed if uid not in uids]:
            del self._followed[uid]

    def poll(self, job: TrainingJob, step: JobStep, job_report: CoordinatorReport | None) -> ResizeMark:
        """Find what was done since the last poll, and report it; up to where all is reported, for the status."""
        followed = self._followed.setdefault(job.uid, _Followed(mark_of(job)))
        self._advance(followed)
        end = followed.waiting[-1] if followed.waiting else None
        reached = followed.mark if end is None else ResizeMark(0, end.key, end.after)
        found, size = self._since(job, step, job_report, reached)
        followed.waiting.extend(found[:_MOST_AT_ONCE])
        self._report(job, followed)
        self._advance(followed)
        if not followed.waiting:
            mark = followed.mark
            followed.mark = ResizeMark(mark.count, mark.last, size)
        return followed.mark

    def delays_end(self, job: TrainingJob) -> bool:
        """Whether a resize is just being told, after which the job's end may be."""
        followed, now = self._followed.get(job.uid), self._clock()
        with self._lock:
            sent = [] if followed is None else [followed.sent.get(each.key) for each in followed.waiting]
        return any(each is not None and each[1] is None and now - each[0] < END_WAITS_SECONDS for each in sent)

    def _since(
        self, job: TrainingJob, step: JobStep, job_report: CoordinatorReport | None, reached: ResizeMark
    ) -> tuple[list[Resize], Size]:
        gives_back = step.standing in (JobStanding.SUSPENDED, JobStanding.QUEUED)
        if isinstance(step, GangStep):
            number, world = step.trained
            key, after = _key(f"gang {number}"), Size(0, world)
            if not world:
                is_over = gives_back and (job.suspend or not step.delete)
                return [], _NONE if is_over else reached.size
            is_other = reached.size not in (_NONE, after) and key != reached.last
            return ([Resize(key, reached.size, after)] if is_other else []), after
        if job_report is None or job_report.falsehood:
            return [], _NONE if gives_back else reached.size
        status = job_report.status
        found, size = resizes_since(reached, status.requests)
        if found:
            return found, size
        if (
            status.phase is JobPhase.RUNNING
            and status.size == status.target
            and all(row.ended for row in status.requests)
        ):
            return [], status.size
        # After a loss it may begin with another size.
        return [], _NONE if gives_back or status.phase is JobPhase.RECOVERING else reached.size

    def _report(self, job: TrainingJob, followed: _Followed) -> None:
        about = About(TRAINING_JOBS.api_version, TRAINING_JOBS.kind, job.namespace, job.name, job.uid)
        for resize in followed.waiting:
            with self._lock:
                at, taken = followed.sent.get(resize.key, (-float("inf"), False))
                if taken is not False or self._clock() - at < AGAIN_SECONDS:
                    continue
                followed.sent[resize.key] = self._clock(), None
            name = f"{job.name[:200].rstrip('.-')}.{_key(f'{job.uid} {resize.key}')}"
            self._events.report_once(about, name, REASON, resize.line, self._noting(followed, resize.key))

    def _noting(self, followed: _Followed, key: str) -> Callable[[bool], None]:
        def note(taken: bool) -> None:
            with self._lock:
                followed.sent[key] = followed.sent[key][0], taken

        return note

    def _advance(self, followed: _Followed) -> None:
        with self._lock:
            while followed.waiting and followed.sent.get(followed.waiting[0].key, (0.0, None))[1]:
                job_report = followed.waiting.pop(0)
                del followed.sent[job_report.key]
                followed.mark = ResizeMark(followed.mark.count + 1, job_report.key, job_report.after)


def _key(words: str) -> str:
    return hashlib.sha256(words.encode()).hexdigest()[:16]


_PROGRESS_A_SECOND = 5.0
"""Of all jobs together: with 2,000 each one's is written every seven minutes."""
_TRAINED = frozenset({JobPhase.RUNNING, JobPhase.RESIZING, JobPhase.SUSPENDING, JobPhase.FINISHED})


class Reporter:
    """Reports, and keeps what is to be reported; what was decided may come from any thread, all else from one.

    Args:
        check_acting: raises `NotActing` before a write of an agent that does not act.
    """

    def __init__(
        self,
        api: ApiServer,
        jobs: Cache[TrainingJob],
        pods: Cache[TaskPod],
        events: EventRecorder,
        check_acting: Callable[[], None],
        clock: Clock,
        unix_clock: UnixClock,
    ) -> None:
        self._api, self._jobs, self._pods, self._events = api, jobs, pods, events
        self._check_acting, self._clock, self._unix_clock = check_acting, clock, unix_clock
        self._lock = threading.Lock()
        self._granted: dict[str, Granted] = {}
        self._advised: dict[str, Allocation] = {}
        self._written_at: dict[str, float] = {}
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
            for kept in (self._granted, self._advised, self._written_at):
                for uid in [uid for uid in kept if uid not in uids]:
                    del kept[uid]

    def granted(self, job: TrainingJob) -> Granted | None:
        """What this agent decided; none where one that leads since has decided."""
        with self._lock:
            granted = self._granted.get(job.uid)
        epoch = (job.status.get("allocation") or {}).get("leaseEpoch")
        return None if granted is None or (isinstance(epoch, int) and epoch > granted.lease_epoch) else granted

    def decision(self, job: TrainingJob) -> str:
        """Id of the decision that holds."""
        granted = self.granted(job)
        stated = (job.status.get("allocation") or {}).get("decisionId")
        return granted.decision if granted is not None else str(stated or "unknown")

    def note(self, job: TrainingJob) -> bool:
        """Write what was decided before it is asked for: whoever follows asks the same. False: it must not be asked."""
        granted = self.granted(job)
        if granted is None or granted.decision == (job.status.get("allocation") or {}).get("decisionId"):
            return True
        return self.write(job, {"allocation": granted.content()})

    def begin(self, job: TrainingJob, step: JobStep) -> bool:
        """Write that a job begins or goes on, before its first pod is made: whoever follows knows there may be one.

        False where it could not be written, as of a job that is over by now, or another one.
        """
        granted = self.granted(job)
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
        if step.outcome and self.resizes.delays_end(job):
            return  # at the next look: nobody asks how a job came to its end once it is told
        with self._lock:
            advised = self._advised.get(job.uid) if job.mode is JobUpdateMode.OFF else None
        status = status_of(job, step, job_report, self.granted(job), self._unix_clock(), advised)
        if job_report is not None and job_report.status.phase in _TRAINED:
            pod = self._pods.get((job.namespace, manifests.pod_name(job, leader(job))))
            if pod is not None and pod.kept.owner == job.uid:
                status["coordinator"] = pod.kept.uid
        if mark != ResizeMark() or job.status.get("resizes"):
            status["resizes"] = mark.content()
        waited = self._clock() - self._written_at.get(job.uid, -float("inf"))
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
        self._written_at[job.uid] = self._clock()
        return True

    def report(self, job: TrainingJob, reason: str, line: str, kind: EventType = EventType.NORMAL) -> None:
        """Report on a job in an Event."""
        about = About(TRAINING_JOBS.api_version, TRAINING_JOBS.kind, job.namespace, job.name, job.uid)
        self._events.record(about, reason, line, kind)

    def report_step(
        self, job: TrainingJob, before: JobStep | None, step: JobStep, job_report: CoordinatorReport | None
    ) -> None:
        """Report where a job is now, where that is news; `before` was planned at the last poll."""
        is_news = before is None or before.standing is not step.standing
        if is_news and job.status.get("phase") != step.standing.value:
            kind = EventType.WARNING if step.standing in (JobStanding.FAILED, JobStanding.INVALID) else EventType.NORMAL
            self.report(job, step.standing.value, event_line(step, job_report), kind)

    def warn(self, job: TrainingJob, memory: JobMemory, reason: str, line: str, trouble: str = "") -> None:
        """Report a trouble that may last, known again by `trouble`, or its line."""
        if memory.warns(f"{reason} {trouble or line}", self._clock()):
            self.report(job, reason, line, EventType.WARNING)
