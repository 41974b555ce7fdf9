"""Service of a coordinator over gRPC: messages are read, the runner answers; `CallCheck` is around each call."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import grpc

from elastic_runtime.control.call_check import CallCheck
from elastic_runtime.control.checks import MOST_TASKS, check_task, check_text
from elastic_runtime.control.conversions import (
    enumeration_from_message,
    report_from_message,
    size_from_message,
    status_to_message,
    to_message,
)
from elastic_runtime.control.credentials import SERVER_OPTIONS, ServerCredentials, bind
from elastic_runtime.control.messages import RequestState, ResizeMode, Size
from elastic_runtime.coordinator.rules.machine import CoordinatorMachine, EventOutcome
from elastic_runtime.coordinator.rules.registering import Newcomer
from elastic_runtime.coordinator.runner import CoordinatorRunner
from elastic_runtime.errors import BadInput, ProtocolError
from elastic_runtime.generated import elastic_pb2 as pb
from elastic_runtime.generated.elastic_pb2_grpc import (
    JobControlServicer,
    MembershipServicer,
    add_JobControlServicer_to_server,
    add_MembershipServicer_to_server,
)
from elastic_runtime.protocol.plan import TaskRole

_FOLLOWERS = 2 * MOST_TASKS + 8
"""A thread waits for each stream of views. A resize may replace all tasks, and launchers and agents follow too; threads
are made when they are needed."""
_OTHER_CALLS = 32
_POLL_SECONDS = 1.0
"""How often a stream looks whether its reader is still there."""


class CoordinatorService(JobControlServicer, MembershipServicer):
    """Both services: for schedulers, and for workers, servers and their launcher."""

    def __init__(self, runner: CoordinatorRunner, report_every_seconds: float) -> None:
        self._runner = runner
        self._report_every_seconds = report_every_seconds

    def Resize(self, request: pb.ResizeRequest, _context: grpc.ServicerContext) -> pb.RequestReply:  # noqa: N802
        """Another size."""
        resize = RequestState(
            request.request_id,
            "resize",
            target=size_from_message(request.target),
            victims=_victims(request.victims),
            mode=enumeration_from_message(ResizeMode, request.mode),
        )
        return self._request(resize, request.epoch)

    def Suspend(self, request: pb.SuspendRequest, _context: grpc.ServicerContext) -> pb.RequestReply:  # noqa: N802
        """Checkpoint, and end all tasks."""
        return self._request(RequestState(request.request_id, "suspend", target=Size(0, 0)), request.epoch)

    def Resume(self, request: pb.ResumeRequest, _context: grpc.ServicerContext) -> pb.RequestReply:  # noqa: N802
        """Go on after a suspend."""
        target = size_from_message(request.target)
        return self._request(RequestState(request.request_id, "resume", target=target), request.epoch)

    def Status(self, _request: pb.StatusRequest, _context: grpc.ServicerContext) -> pb.JobStatus:  # noqa: N802
        """How the job is doing."""
        return status_to_message(self._runner.status())

    def _request(self, request: RequestState, epoch: int) -> pb.RequestReply:
        row = self._runner.on_request(request, epoch)
        return pb.RequestReply(state=row.state.value, detail=row.detail)

    def Register(self, request: pb.RegisterRequest, _context: grpc.ServicerContext) -> pb.RegisterReply:  # noqa: N802
        """A task joins."""
        newcomer = Newcomer(
            task=check_task(request.task),
            role=enumeration_from_message(TaskRole, request.role),
            incarnation=request.incarnation,
            address_json=check_text(request.address_json, "an address"),
            layout_json=_text(request.layout_json),
            training_json=_text(request.training_json),
        )
        return self._runner.run(lambda machine, now: self._register(machine, newcomer, now))

    def _register(
        self, machine: CoordinatorMachine, newcomer: Newcomer, now: float
    ) -> tuple[pb.RegisterReply, EventOutcome]:
        refusal, outcome = machine.on_register(newcomer, now)
        if refusal:
            return pb.RegisterReply(refusal=refusal, not_needed=machine.is_not_needed(newcomer.task)), outcome
        reply = pb.RegisterReply(report_every_seconds=self._report_every_seconds)
        model = machine.state.model
        if model.training_json:  # else no worker has brought the model yet
            reply.layout_json, reply.training_json = model.layout_json.encode(), model.training_json.encode()
        return reply, outcome

    def Follow(self, request: pb.FollowRequest, context: grpc.ServicerContext) -> Iterator[pb.View]:  # noqa: N802
        """The newest view, and every newer one."""
        task = check_task(request.task)
        self._runner.run(lambda machine, now: (None, machine.on_stream(task, request.incarnation, True, now)))
        try:
            number = 0
            while context.is_active() and not self._runner.closed:
                view = self._runner.next_view(number, _POLL_SECONDS)
                if view is not None:
                    number = view.number
                    yield to_message(view)
        finally:
            self._runner.run(lambda machine, now: (None, machine.on_stream(task, request.incarnation, False, now)))

    def Report(self, request: pb.ReportRequest, _context: grpc.ServicerContext) -> pb.ReportReply:  # noqa: N802
        """Where a member is."""
        report = report_from_message(request)
        known = self._runner.run(lambda machine, now: machine.on_report(report, now))
        return pb.ReportReply(view=self._runner.view_number, expelled=not known)

    def Lease(self, request: pb.LeaseRequest, _context: grpc.ServicerContext) -> pb.LeaseReply:  # noqa: N802
        """Samples for an asynchronous worker."""
        asker = check_task(request.task), request.incarnation, request.generation
        lent, finished = self._runner.run(
            lambda machine, now: machine.on_lease(*asker, tuple(request.done), request.batches, now),
            when_full="no samples are lent; make room",
        )
        return pb.LeaseReply(leases=to_message(lent), finished=finished)

    def TaskEnded(self, request: pb.TaskEndedRequest, _context: grpc.ServicerContext) -> pb.TaskEndedReply:  # noqa: N802
        """A task's process ended."""
        line = check_text(request.last_line, "a last line").partition("\n")[0]
        task, code = check_task(request.task), request.exit_code
        self._runner.run(lambda machine, now: (None, machine.on_task_ended(task, code, line, now, request.epoch)))
        return pb.TaskEndedReply()


def start_server(
    runner: CoordinatorRunner, job: str, address: str, credentials: ServerCredentials, report_every_seconds: float
) -> tuple[grpc.Server, int]:
    """Serve; the server and its port.

    Raises:
        BadInput: it cannot serve at this address, or not without TLS.
    """
    check = CallCheck(job, credentials.token)
    server = grpc.server(
        ThreadPoolExecutor(_FOLLOWERS + _OTHER_CALLS, thread_name_prefix="calls"),
        interceptors=[check],
        options=SERVER_OPTIONS,
        maximum_concurrent_rpcs=_FOLLOWERS + _OTHER_CALLS,
    )
    check.serve_on(server)
    service = CoordinatorService(runner, report_every_seconds)
    add_JobControlServicer_to_server(service, server)
    add_MembershipServicer_to_server(service, server)
    port = bind(server, address, credentials)
    with contextlib.ExitStack() as undo:
        undo.callback(server.stop, None)
        server.start()
        undo.pop_all()
    return server, port


def _victims(names: Sequence[str]) -> tuple[str, ...]:
    if len(names) > MOST_TASKS:
        raise BadInput(f"{len(names)} victims; a job has at most {MOST_TASKS} tasks")
    try:
        return tuple(check_task(name) for name in names)
    except ProtocolError as error:  # a person may have typed it
        raise BadInput(f"a task to remove: {error}") from error


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ProtocolError("a model's description that is not UTF-8") from error
