"""Resizes of TrainingJobs while they train: each is reported in one Event, however short it was and whoever leads then.

A coordinator remembers what it was asked for, and a gang has a number: what was done between two polls is found
afterwards. An Event's name follows from the resize, so that whoever reports it again finds it there; up to where all
are reported stands in the status, for when the server has forgotten its Events.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from cluster_agent.backends.kubernetes.training.memory import CoordinatorReport
from cluster_agent.backends.kubernetes.training.ranks.plan import GangStep
from cluster_agent.backends.kubernetes.training.step import JobStanding, JobStep, Request, size_words
from cluster_agent.kubernetes.events import About, EventRecorder
from cluster_agent.kubernetes.resources import Json, as_dict
from cluster_agent.kubernetes.training.training_job import TRAINING_JOBS, TrainingJob
from elastic_runtime.control.messages import RequestOutcome, RequestState, Size
from elastic_runtime.protocol.plan import JobPhase

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
    """One that was done.

    Attributes:
        key: of a request or a gang; no two of a job's have the same.
        before: 0/0 where nobody knows it.
    """

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
    """Up to where all resizes of a job are reported.

    Attributes:
        last: the newest one's key; empty before any.
        size: with which the job has trained last; 0/0 where it gave that back.
    """

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
    """Of one job: what is reported, and what is about to be.

    Attributes:
        sent: of each resize that waits, when its Event was sent, and whether it was taken; None: nobody knows yet.
    """

    mark: ResizeMark
    waiting: list[Resize] = field(default_factory=list)
    sent: dict[str, tuple[float, bool | None]] = field(default_factory=dict)


class Resizes:
    """Finds them, and reports each; one thread calls it, and events are written by another."""

    def __init__(self, events: EventRecorder, clock: Callable[[], float]) -> None:
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
        self._tell(job, followed)
        self._advance(followed)
        if not followed.waiting:
            mark = followed.mark
            followed.mark = ResizeMark(mark.count, mark.last, size)
        return followed.mark

    def holds_end(self, job: TrainingJob) -> bool:
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

    def _tell(self, job: TrainingJob, followed: _Followed) -> None:
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
