"""Service of an all-reduce job's first process over gRPC: how the job is doing, to who has its token.

It is the service that a coordinator has, so that whoever asks coordinators asks this one in the same way. What changes
a job is refused: its processes are stopped, and others started, by whoever made them.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NoReturn

import grpc

from elastic_runtime.control.call_check import CallCheck, CallRefused
from elastic_runtime.control.credentials import SERVER_OPTIONS, ServerCredentials, bind
from elastic_runtime.control.messages import JobStatus
from elastic_runtime.control.report_conversions import status_to_message
from elastic_runtime.generated import elastic_pb2 as pb
from elastic_runtime.generated.elastic_pb2_grpc import JobControlServicer, add_JobControlServicer_to_server

_CALLS = 4
"""At once; one agent asks once a second, and a person now and then."""


class RankService(JobControlServicer):
    """For who looks after the job.

    Args:
        status: the job's status now; called from the server's threads.
    """

    def __init__(self, status: Callable[[], JobStatus]) -> None:
        self._status = status

    def Status(self, _request: pb.StatusRequest, _context: grpc.ServicerContext) -> pb.JobStatus:  # noqa: N802
        """How the job is doing."""
        return status_to_message(self._status())

    def Resize(self, _request: pb.ResizeRequest, _context: grpc.ServicerContext) -> pb.RequestReply:  # noqa: N802
        """Refused."""
        _refuse()

    def Suspend(self, _request: pb.SuspendRequest, _context: grpc.ServicerContext) -> pb.RequestReply:  # noqa: N802
        """Refused."""
        _refuse()

    def Resume(self, _request: pb.ResumeRequest, _context: grpc.ServicerContext) -> pb.RequestReply:  # noqa: N802
        """Refused."""
        _refuse()


def start_rank_server(
    status: Callable[[], JobStatus], job: str, address: str, credentials: ServerCredentials
) -> tuple[grpc.Server, int]:
    """Serve; the server and its port.

    Raises:
        BadInput: it cannot serve at this address, or not without TLS.
    """
    check = CallCheck(job, credentials.token)
    server = grpc.server(
        ThreadPoolExecutor(_CALLS, thread_name_prefix="rank-calls"),
        interceptors=[check],
        options=SERVER_OPTIONS,
        maximum_concurrent_rpcs=_CALLS,
    )
    check.serve_on(server)
    add_JobControlServicer_to_server(RankService(status), server)
    port = bind(server, address, credentials)
    server.start()
    return server, port


def _refuse() -> NoReturn:
    raise CallRefused(
        grpc.StatusCode.FAILED_PRECONDITION,
        "an all-reduce job is resized by a checkpoint, by whoever started its processes; it takes no requests itself",
    )
