"""Coordinators of TrainingJobs: polled side by side, and asked for what was decided.

Nobody waits for one that does not answer: polls run in a few threads of their own, and what was heard last counts for
some seconds.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import structlog

from cluster_agent.backends.kubernetes.training.step import Ask, CoordinatorReport, Ended, Request, goes_back
from elastic_runtime.control.client import ControlClient
from elastic_runtime.control.credentials import ClientCredentials
from elastic_runtime.control.messages import JobStatus, RequestOutcome
from elastic_runtime.errors import BadInput, CoordinatorUnreachable, ElasticError, ResizeFailed
from elastic_runtime.protocol.plan import JobPhase
from foundation.clocks import Clock

_log = structlog.get_logger()

CALL_SECONDS = 2.0
POLL_SECONDS = 1.0
STALE_SECONDS = 15.0
"""What was heard longer ago says nothing of now."""
_THREADS = 16
_MOST_DOUBLINGS, _LONGEST_PAUSE_SECONDS = 4, 10.0
_CALLS_A_SECOND = 100.0
"""To those at rest, and to the others, where there are more than that: each call takes a millisecond of a core."""
_MOVING_SHARE = 0.25
"""Of the pause: of a job that starts or changes there is soon something to hear."""


@dataclass(frozen=True, slots=True)
class CoordinatorConnection:
    """The way to a coordinator in a pod (its uid): what one said is not what the next one says."""

    address: str
    job: str
    token: str = field(repr=False)
    ca_pem: str = field(repr=False)
    pod: str = ""


def open_connection(to: CoordinatorConnection, epoch: Callable[[], int] = lambda: 0) -> ControlClient:
    """A client of a coordinator; the epoch of the agent's lease is compared there, as the API server cannot."""
    credentials = ClientCredentials(to.token, to.ca_pem.encode())
    return ControlClient(to.address, to.job, credentials, CALL_SECONDS, epoch)


@dataclass(slots=True)
class _Followed:
    connection: CoordinatorConnection
    calls: ControlClient
    job_report: CoordinatorReport | None = None
    most: JobStatus | None = None
    polled_seconds: float = -float("inf")
    under_way: Future[None] | None = None
    trouble: str = ""
    failures: int = 0

    @property
    def is_steady(self) -> bool:
        """Whether it trains, and nothing is under way in its job, as far as it has said."""
        if self.job_report is None or self.failures:
            return False
        status = self.job_report.status
        is_moving = status.size != status.target or status.wanted or status.leaving
        return status.phase is JobPhase.RUNNING and not is_moving


class Coordinators:
    """Follows coordinators, by their jobs' uids; all but the polls in the caller's thread.

    Args:
        on_news: called from a poll's thread where a job has changed; must not block.
        poll_seconds: between two polls of one that answers.
        pool: where polls run; threads of its own unless given. It is shut down at the end.
    """

    def __init__(
        self,
        clock: Clock,
        on_news: Callable[[], None],
        connect: Callable[[CoordinatorConnection], ControlClient] = open_connection,
        poll_seconds: float = POLL_SECONDS,
        pool: Executor | None = None,
    ) -> None:
        self._clock, self._on_news, self._connect, self._poll_seconds = clock, on_news, connect, poll_seconds
        self._followed: dict[str, _Followed] = {}
        self._lock = threading.Lock()
        self._following, self._closed = threading.Lock(), False
        self._pool = pool or ThreadPoolExecutor(_THREADS, thread_name_prefix="coordinators")

    def follow(self, connections: Mapping[str, CoordinatorConnection]) -> None:
        """Follow these and no others, and poll those that are due."""
        with self._following:
            for uid in [uid for uid, followed in self._followed.items() if connections.get(uid) != followed.connection]:
                self._followed.pop(uid).calls.close()
            for uid, connection in connections.items():
                if uid not in self._followed:
                    self._followed[uid] = _Followed(connection, self._connect(connection))
        self.ask_due()

    def ask_due(self) -> None:
        """Poll those that are due: each second, and more often while something is under way.

        Of very many each is polled less often: all calls together take a share of a core, and no more.
        """
        now = self._clock()
        with self._following:
            followed = list(self._followed.values())
            steady = sum(each.is_steady for each in followed)
            at_rest, moving = steady / _CALLS_A_SECOND, (len(followed) - steady) / _CALLS_A_SECOND
            for each in followed:
                if each.is_steady:
                    pause = max(self._poll_seconds, at_rest)
                else:
                    pause = max(self._poll_seconds * (1.0 if each.failures else _MOVING_SHARE), moving)
                # Many that hang must not keep the others from being heard.
                pause = min(pause * 2.0 ** min(each.failures, _MOST_DOUBLINGS), _LONGEST_PAUSE_SECONDS)
                due = now - each.polled_seconds >= pause
                if due and not self._closed and (each.under_way is None or each.under_way.done()):
                    each.polled_seconds = now
                    each.under_way = self._pool.submit(self._poll, each)

    def job_report(self, uid: str) -> CoordinatorReport | None:
        """What a coordinator said last; None where that is too long ago."""
        followed = self._followed.get(uid)
        with self._lock:
            job_report = None if followed is None else followed.job_report
        return job_report if job_report is not None and self._clock() - job_report.at_seconds <= STALE_SECONDS else None

    def trouble(self, uid: str) -> str:
        """Why it was not heard of, in a line."""
        followed = self._followed.get(uid)
        return "" if followed is None else followed.trouble

    def report(self, uid: str, ended: Ended) -> bool:
        """Report how a task ended; whether the coordinator knows now."""
        followed = self._followed.get(uid)
        if followed is None:
            return False
        try:
            followed.calls.task_ended(ended.task, ended.exit_code, ended.last_words)
        except ElasticError as error:
            followed.trouble = str(error)
            # It will not take it, however often it is told; of somebody else at its address nothing follows.
            return isinstance(error, BadInput) and not isinstance(error, CoordinatorUnreachable)
        followed.polled_seconds = -float("inf")  # it has something new to say
        return True

    def ask(self, uid: str, ask: Ask) -> str | None:
        """Send a request.

        Returns:
            Why it is refused; empty: it was taken; None: nobody knows, it may be asked again.
        """
        followed = self._followed.get(uid)
        if followed is None:
            return None
        calls = followed.calls
        try:
            if ask.request is Request.SUSPEND:
                outcome, detail = calls.suspend(ask.request_id)
            elif ask.request is Request.RESUME:
                outcome, detail = calls.resume(ask.request_id, ask.size)
            else:
                outcome, detail = calls.resize(ask.request_id, ask.size)
        except ElasticError as error:
            if isinstance(error, BadInput | ResizeFailed) and not isinstance(error, CoordinatorUnreachable):
                return str(error)
            followed.trouble = str(error)
            return None
        followed.polled_seconds = -float("inf")
        return (detail or "it was given up") if outcome is RequestOutcome.ABORTED else ""

    def close(self) -> None:
        """Follow none; calls under way end by their deadlines."""
        self._closed = True
        self.follow({})
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _poll(self, followed: _Followed) -> None:
        began_seconds = self._clock()
        try:
            status = followed.calls.status()
        except (ElasticError, ValueError) as error:  # ValueError: it was closed under the call
            followed.trouble, followed.failures = str(error), followed.failures + 1
            return
        except Exception as error:
            # A fault of ours; nobody looks at what a poll ended with.
            _log.exception("coordinator-poll", job=followed.connection.job)
            followed.trouble, followed.failures = repr(error), followed.failures + 1
            return
        with self._lock:
            before = followed.job_report
            went_back = followed.most is not None and goes_back(status, followed.most)
            followed.most = followed.most if went_back else status
            followed.job_report = CoordinatorReport(status, began_seconds, went_back)
            followed.trouble, followed.failures = "", 0
        if before is None or _shape(status) != _shape(before.status):
            self._on_news()


def _shape(status: JobStatus) -> tuple[object, ...]:
    """What a job is doing, without its progress."""
    return status.phase, status.size, status.target, status.wanted, status.leaving
