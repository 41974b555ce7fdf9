"""Link of a member to its coordinator: it registers, follows views, reports, and survives the coordinator's restarts.

State goes both ways, so nothing is lost with a connection: a reconnected stream begins with the newest view, and each
report is a member's whole state. Two threads: one reads views and calls `on_view`, one sends reports.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import structlog

from elastic_runtime.control.calls import STREAM_SECONDS, SealedChannel, call_backoff
from elastic_runtime.control.conversions import lease_from_message, to_message, view_from_message
from elastic_runtime.control.credentials import ClientCredentials
from elastic_runtime.control.messages import MemberReport, TaskRegistration
from elastic_runtime.errors import (
    BadInput,
    CoordinatorMistrusted,
    CoordinatorUnreachable,
    ElasticError,
    NotNeeded,
    ProtocolError,
)
from elastic_runtime.generated import elastic_pb2 as pb
from elastic_runtime.generated.elastic_pb2_grpc import MembershipStub
from elastic_runtime.model.sample_leases import SampleLease
from elastic_runtime.protocol.plan import TaskRole, View
from foundation.clocks import AwakeClock

_log = structlog.get_logger()
_CALL_SECONDS = 5.0
_POLL_SECONDS = 2 * _CALL_SECONDS
"""Between two looks of the thread that sends reports at the clock; more is a time in which the process was stopped."""


def member_clock() -> AwakeClock:
    """A member's clock: the silence of its coordinator, and of its peers, is none while it was stopped itself."""
    return AwakeClock(_POLL_SECONDS)


class MemberLink:
    """One worker's or parameter server's control plane; all its methods may be called from any thread.

    Args:
        clock: seconds in which this process ran; looked at each time that a report may be due.
        ready_file: marked once the member reports that it is ready, and cleared when the link is closed.

    Attributes:
        expelled: set once the coordinator said that this process is no longer part of the job; it is to end.
        failure: why the link has ended; None while it goes on.
    """

    def __init__(
        self,
        address: str,
        job: str,
        task: str,
        role: TaskRole,
        incarnation: int,
        credentials: ClientCredentials,
        clock: Callable[[], float] | None = None,
        ready_file: ReadyFile | None = None,
    ) -> None:
        self.expelled = threading.Event()
        self.failure: ElasticError | None = None
        self._address, self._task, self._role, self._incarnation = address, task, role, incarnation
        self._channel = SealedChannel(address, job, credentials)
        self._stub = MembershipStub(self._channel)
        self._clock = clock or member_clock()
        self._ready_file = ready_file
        self._closed = threading.Event()
        self._changed = threading.Condition()
        self._state = MemberReport(task, incarnation)
        self._version, self._sent_version = 0, -1
        self._heard_seconds = self._clock()
        self._report_every_seconds = 1.0
        self._stream: Any = None
        self._threads: list[threading.Thread] = []
        self._refresh: Callable[[MemberReport], MemberReport] = lambda report: report

    @property
    def coordinator_silent_seconds(self) -> float:
        """Seconds since the coordinator was last heard."""
        return self._clock() - self._heard_seconds

    def register(
        self,
        address_json: str,
        layout_json: bytes = b"",
        training_json: bytes = b"",
        deadline_seconds: float = 60.0,
    ) -> TaskRegistration:
        """Register this task, trying again while nobody answers; servers wait for the first worker's layout.

        Raises:
            BadInput: the coordinator refuses the task, in its words; or the token is wrong, or the certificates.
            NotNeeded: it refuses it because the job does without it by now.
            CoordinatorUnreachable: no answer, or no layout, by the deadline.
        """
        request = pb.RegisterRequest(
            task=self._task,
            role=to_message(self._role),
            incarnation=self._incarnation,
            address_json=address_json,
            layout_json=layout_json,
            training_json=training_json,
        )
        deadline = self._clock() + deadline_seconds
        backoff = call_backoff(self._incarnation)
        while True:
            problem: CoordinatorUnreachable | None = None
            try:
                reply = self._stub.Register(request, timeout=_CALL_SECONDS)
            except CoordinatorMistrusted as error:
                raise BadInput(str(error)) from error  # it was started so, and trying again does not mend it
            except CoordinatorUnreachable as error:
                problem = error
            else:
                self._heard_seconds = self._clock()
                if reply.refusal:
                    raise (NotNeeded if reply.not_needed else BadInput)(reply.refusal)
                if reply.layout_json:
                    self._report_every_seconds = max(reply.report_every_seconds, 0.01)
                    return TaskRegistration(reply.layout_json, reply.training_json, reply.report_every_seconds)
            if self._clock() >= deadline:
                raise problem or CoordinatorUnreachable(
                    f"no worker brought its model to the coordinator at {self._address} within {deadline_seconds:g} s"
                )
            self._closed.wait(backoff.next_seconds())
            if self._closed.is_set():
                raise CoordinatorUnreachable(f"{self._task} was stopped before it could register")

    def follow(
        self, on_view: Callable[[View], None], refresh: Callable[[MemberReport], MemberReport] | None = None
    ) -> None:
        """Begin to follow views and to send reports; `on_view` gets each newer view, on a thread of this link.

        What `on_view` raises ends the link: `failure` has it, and the process is to end.

        Args:
            refresh: brings a report up to date when it is sent, with what changes too often to be reported each time.
        """
        self._refresh = refresh or self._refresh
        for run, name in ((lambda: self._read(on_view), "views"), (self._send, "reports")):
            thread = threading.Thread(target=run, name=f"{self._task} {name}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def report(self, **changes: Any) -> None:
        """Change what this member reports, named as in `MemberReport`, and send it soon."""
        if self._ready_file is not None and changes.get("ready"):
            self._ready_file.mark()
        with self._changed:
            self._state = replace(self._state, **changes)
            self._version += 1
            self._changed.notify_all()

    def flush(self, deadline_seconds: float) -> None:
        """Wait until the reports so far have arrived.

        Raises:
            CoordinatorUnreachable: not by the deadline.
        """
        with self._changed:
            version = self._version
            if not self._changed.wait_for(lambda: self._sent_version >= version, deadline_seconds):
                raise CoordinatorUnreachable(
                    f"the coordinator at {self._address} took no report within {deadline_seconds:g} s"
                )

    def lease(self, generation: int, done: tuple[int, ...], batches: int) -> tuple[tuple[SampleLease, ...], bool]:
        """Give back finished leases and get new ones; and whether nothing is left in any epoch.

        Raises:
            CoordinatorUnreachable: no answer; ask again, nothing is lost.
        """
        request = pb.LeaseRequest(
            task=self._task, incarnation=self._incarnation, generation=generation, done=done, batches=batches
        )
        reply = self._stub.Lease(request, timeout=_CALL_SECONDS)
        return tuple(lease_from_message(lease) for lease in reply.leases), reply.finished

    def close(self) -> None:
        """End the threads and the channel; unsent reports are dropped (see `flush`)."""
        self._closed.set()
        if self._ready_file is not None:
            self._ready_file.clear()
        with self._changed:
            self._changed.notify_all()
        if self._stream is not None:
            self._stream.cancel()
        self._channel.close()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(_CALL_SECONDS)

    def _read(self, on_view: Callable[[View], None]) -> None:
        backoff = call_backoff(self._incarnation)
        newest = 0
        while not self._closed.is_set():
            try:
                request = pb.FollowRequest(task=self._task, incarnation=self._incarnation)
                self._stream = self._stub.Follow(request, timeout=STREAM_SECONDS)
                for message in self._stream:
                    self._heard_seconds = self._clock()
                    backoff.reset()
                    if message.number > newest and not self._closed.is_set():
                        newest = message.number
                        on_view(view_from_message(message))
                        with self._changed:  # goes with the next report: nobody waits for it
                            self._state = replace(self._state, view=newest)
            except CoordinatorUnreachable:
                pass  # also where somebody else answers: a coordinator that registered this task comes back
            except (ElasticError, ValueError) as error:
                self._fail(error)
                return
            self._closed.wait(backoff.next_seconds())

    def _send(self) -> None:
        backoff = call_backoff(self._incarnation)
        while not self._closed.is_set():
            with self._changed:
                self._changed.wait_for(self._due, self._report_every_seconds)
                state, version = self._state, self._version
            self._clock()
            if self._closed.is_set():
                return
            try:
                message = to_message(self._refresh(state))
                reply = self._stub.Report(message, timeout=_CALL_SECONDS)
            except CoordinatorUnreachable:
                self._closed.wait(backoff.next_seconds())
                continue
            except (ElasticError, ValueError) as error:
                self._fail(error)
                return
            backoff.reset()
            self._heard_seconds = self._clock()
            if reply.expelled:
                self.expelled.set()
            with self._changed:
                self._sent_version = version
                self._changed.notify_all()

    def _due(self) -> bool:
        return self._version > self._sent_version or self._closed.is_set()

    def _fail(self, error: ElasticError | ValueError) -> None:
        """A channel that was closed under a call raises the same as a message with an impossible number."""
        if self._closed.is_set():
            return
        if isinstance(error, ValueError):
            error = ProtocolError(f"{self._task} and the coordinator at {self._address} disagree: {error}")
        _log.error("control-lost", task=self._task, error=str(error))
        self.failure = error
        self.expelled.set()


class ReadyFile:
    """An empty file that is there while a member takes part in its job: what a container's readiness probe looks for.

    One that is left of an earlier process is removed.

    Raises:
        BadInput: there can be no such file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        if not path.parent.is_dir() or path.is_dir():
            raise BadInput(f"the ready file {path} cannot be written: its folder is missing, or it is a folder")
        self.clear()

    def mark(self) -> None:
        """Say that the member takes part.

        Raises:
            BadInput: the file cannot be written.
        """
        try:
            self._path.touch()
        except OSError as error:
            raise BadInput(f"the ready file {self._path} cannot be written: {error.strerror}") from error

    def clear(self) -> None:
        """Say that the member takes no part, or not yet.

        Raises:
            BadInput: the file is there and cannot be removed.
        """
        try:
            self._path.unlink(missing_ok=True)
        except OSError as error:
            raise BadInput(f"the ready file {self._path} cannot be removed: {error.strerror}") from error
