"""Client of a coordinator for those who schedule a job: resize, suspend, resume, status; and how tasks ended.

Each call has a deadline and carries the job's token. The errors of gRPC are said in our words: whether nobody answers,
who does is not trusted, or the coordinator refuses.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any, NoReturn

import grpc

from elastic_runtime.control.credentials import JOB_KEY, TOKEN_KEY, ClientCredentials, open_channel
from elastic_runtime.control.messages import JobStatus, RequestOutcome, ResizeMode, Size
from elastic_runtime.control.report_conversions import (
    mode_to_message,
    outcome_from_message,
    size_to_message,
    status_from_message,
)
from elastic_runtime.errors import (
    BadInput,
    CoordinatorMistrusted,
    CoordinatorUnreachable,
    ElasticError,
    ProtocolError,
    ResizeFailed,
)
from elastic_runtime.generated import elastic_pb2 as pb
from elastic_runtime.generated.elastic_pb2_grpc import JobControlStub, MembershipStub

_GONE = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
    # A fault of the coordinator's own: it ends, and is started again from its journal.
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.INTERNAL,
}
_MISTRUST = {
    "certificate has expired": "its certificate has expired; give it another one",
    "CERTIFICATE_VERIFY_FAILED": "its certificate is not signed by the CA file's; give all of the job the same CA file",
    "Hostname Verification Check failed": "its certificate is of another host; name the host that stands in it",
    "WRONG_VERSION_NUMBER": "it speaks no TLS; start it with a certificate and key, or its members without CA file",
}
"""What stands in gRPC's words when a handshake fails, which to it is one more address where nobody answers."""
_OURS: dict[grpc.StatusCode, type[ElasticError]] = {
    grpc.StatusCode.UNAUTHENTICATED: BadInput,
    grpc.StatusCode.NOT_FOUND: BadInput,
    grpc.StatusCode.FAILED_PRECONDITION: BadInput,
    grpc.StatusCode.RESOURCE_EXHAUSTED: ResizeFailed,
}


class ControlClient:
    """One job's coordinator, asked by tools. Every request with an id may be sent again.

    Args:
        address: `host:port` of the coordinator.
        job: its name.
        credentials: token and TLS.
        timeout_seconds: of every call.

    Raises:
        BadInput: of every call: wrong token, wrong job, or a request that the coordinator refuses, in its words.
        CoordinatorUnreachable: of every call: no answer in time.
        ResizeFailed: of requests: none is taken now.
    """

    def __init__(self, address: str, job: str, credentials: ClientCredentials, timeout_seconds: float = 10.0) -> None:
        self._address = address
        self._timeout_seconds = timeout_seconds
        self._headers = metadata(job, credentials)
        self._channel = open_channel(address, credentials)
        self._job = JobControlStub(self._channel)
        self._members = MembershipStub(self._channel)

    def __enter__(self) -> ControlClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def resize(
        self,
        request_id: str,
        target: Size,
        victims: Sequence[str] = (),
        mode: ResizeMode = ResizeMode.ROLLING,
    ) -> tuple[RequestOutcome, str]:
        """Ask for another size; 0/0 suspends. The answer is the request's state and a line about it."""
        message = pb.ResizeRequest(
            request_id=request_id, target=size_to_message(target), victims=victims, mode=mode_to_message(mode)
        )
        return _outcome(self._call(self._job.Resize, message))

    def suspend(self, request_id: str) -> tuple[RequestOutcome, str]:
        """Ask for a checkpoint, after which all tasks end."""
        return _outcome(self._call(self._job.Suspend, pb.SuspendRequest(request_id=request_id)))

    def resume(self, request_id: str, target: Size) -> tuple[RequestOutcome, str]:
        """Ask a suspended job to go on with so many tasks."""
        message = pb.ResumeRequest(request_id=request_id, target=size_to_message(target))
        return _outcome(self._call(self._job.Resume, message))

    def status(self) -> JobStatus:
        """How the job is doing."""
        return status_from_message(self._call(self._job.Status, pb.StatusRequest()))

    def task_ended(self, task: str, exit_code: int, last_line: str = "") -> None:
        """Say how a task's process ended; negative exit codes are signals."""
        message = pb.TaskEndedRequest(task=task, exit_code=exit_code, last_line=last_line[-1000:])
        self._call(self._members.TaskEnded, message)

    def close(self) -> None:
        """Close the channel."""
        self._channel.close()

    def _call(self, method: Any, message: Any) -> Any:
        return call(method, message, self._timeout_seconds, self._address, self._headers)


def _outcome(reply: pb.RequestReply) -> tuple[RequestOutcome, str]:
    return outcome_from_message(reply.state), reply.detail


def metadata(job: str, credentials: ClientCredentials) -> tuple[tuple[str, str], ...]:
    """What every call carries."""
    return ((TOKEN_KEY, credentials.token), (JOB_KEY, job))


def translate(error: grpc.RpcError, address: str) -> NoReturn:
    """Raise what an error of gRPC means to us, chained to it.

    Raises:
        CoordinatorUnreachable: nobody answers at the address, or not in time; or who does is not trusted.
        BadInput: wrong token or job, or a request that the coordinator refuses.
        ResizeFailed: the coordinator takes no requests now, such as with a full disk.
        ProtocolError: it did not understand us, or failed.
    """
    code, details = error.code(), error.details() or ""
    for sign, reason in _MISTRUST.items():
        if code in _GONE and sign in details:
            raise CoordinatorMistrusted(f"the coordinator at {address} is not trusted: {reason}") from error
    if code in _GONE:
        raise CoordinatorUnreachable(f"no coordinator answers at {address} ({code.name.lower()})") from error
    if code in _OURS:
        raise _OURS[code](details) from error
    raise ProtocolError(f"the coordinator at {address} answered {code.name.lower()}: {details}") from error


def call(method: Any, request: Any, timeout_seconds: float, address: str, headers: tuple[tuple[str, str], ...]) -> Any:
    """One unary call.

    Raises:
        ElasticError: see `translate`.
    """
    try:
        return method(request, timeout=timeout_seconds, metadata=headers)
    except grpc.RpcError as error:
        translate(error, address)
