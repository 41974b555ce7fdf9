"""Client of a coordinator for those who schedule a job: resize, suspend, resume, status; and how tasks ended.

Each call has a deadline, and shows that its sender has the job's token.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from elastic_runtime.control.calls import SealedChannel
from elastic_runtime.control.conversions import outcome_from_message, status_from_message, to_message
from elastic_runtime.control.credentials import ClientCredentials
from elastic_runtime.control.messages import JobStatus, RequestOutcome, ResizeMode, Size
from elastic_runtime.generated import elastic_pb2 as pb
from elastic_runtime.generated.elastic_pb2_grpc import JobControlStub, MembershipStub


class ControlClient:
    """One job's coordinator, asked by tools. Every request with an id may be sent again.

    Args:
        epoch: of the caller's lease, where schedulers stand by for one another; 0: it has none.

    Raises:
        BadInput: of every call: wrong token, wrong job, or a request that the coordinator refuses, in its words.
        CoordinatorUnreachable: of every call: no answer in time.
        ResizeFailed: of requests: none is taken now.
    """

    def __init__(
        self,
        address: str,
        job: str,
        credentials: ClientCredentials,
        timeout_seconds: float = 10.0,
        epoch: Callable[[], int] = lambda: 0,
    ) -> None:
        self._epoch = epoch
        self._timeout_seconds = timeout_seconds
        self._channel = SealedChannel(address, job, credentials)
        self._job = JobControlStub(self._channel)
        self._members = MembershipStub(self._channel)

    def __enter__(self) -> ControlClient:
        return self

    def __exit__(self, *_: object) -> None:
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
            request_id=request_id,
            target=to_message(target),
            victims=victims,
            mode=to_message(mode),
            epoch=self._epoch(),
        )
        return self._ask(self._job.Resize, message)

    def suspend(self, request_id: str) -> tuple[RequestOutcome, str]:
        """Ask for a checkpoint, after which all tasks end."""
        return self._ask(self._job.Suspend, pb.SuspendRequest(request_id=request_id, epoch=self._epoch()))

    def resume(self, request_id: str, target: Size) -> tuple[RequestOutcome, str]:
        """Ask a suspended job to go on with this size."""
        message = pb.ResumeRequest(request_id=request_id, target=to_message(target), epoch=self._epoch())
        return self._ask(self._job.Resume, message)

    def status(self) -> JobStatus:
        """How the job is doing."""
        return status_from_message(self._call(self._job.Status, pb.StatusRequest()))

    def task_ended(self, task: str, exit_code: int, last_line: str = "") -> None:
        """Say how a task's process ended; negative exit codes are signals."""
        message = pb.TaskEndedRequest(task=task, exit_code=exit_code, last_line=last_line[-1000:], epoch=self._epoch())
        self._call(self._members.TaskEnded, message)

    def close(self) -> None:
        """Close the channel."""
        self._channel.close()

    def _call(self, method: Any, message: Any) -> Any:
        return method(message, timeout=self._timeout_seconds)

    def _ask(self, method: Any, message: Any) -> tuple[RequestOutcome, str]:
        reply = self._call(method, message)
        return outcome_from_message(reply.state), reply.detail
