"""Check of every call for a job: caller and answerer prove to each other that they have the job's token.

Services behind it raise `CallRefused`, or errors of ours that refuse a request, and never see a call without the proof.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import monotonic
from typing import Any, NoReturn

import grpc
from google.protobuf.message import DecodeError

from elastic_runtime.control.calls import REFUSAL_KEY, SESSION_KEY, UNKNOWN
from elastic_runtime.control.sessions import CoordinatorSessions, ReceivedCall, UnknownSession, Unproven
from elastic_runtime.errors import BadInput, ElasticError, ProtocolError, ResizeFailed
from elastic_runtime.generated import elastic_pb2 as pb
from elastic_runtime.generated.elastic_pb2_grpc import SessionsServicer, add_SessionsServicer_to_server

_OPEN = f"/{pb.DESCRIPTOR.services_by_name['Sessions'].full_name}/Open"


_CODES = {
    ProtocolError: grpc.StatusCode.INVALID_ARGUMENT,
    BadInput: grpc.StatusCode.FAILED_PRECONDITION,
    ResizeFailed: grpc.StatusCode.RESOURCE_EXHAUSTED,
}


class CallRefused(Exception):
    """Refusal of a call, with a line for its sender."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


class CallCheck(grpc.ServerInterceptor, SessionsServicer):
    """Opens sessions, and lets calls of theirs through."""

    def __init__(self, job: str, token: str) -> None:
        self._job = job
        self._sessions = CoordinatorSessions(job, token, monotonic)

    def serve_on(self, server: grpc.Server) -> None:
        """Let sessions be opened there; `self` is one of the server's interceptors too."""
        add_SessionsServicer_to_server(self, server)

    def Open(self, request: pb.OpenRequest, context: grpc.ServicerContext) -> pb.OpenReply:  # noqa: N802
        """Open a session; only a caller with the token can use it."""
        if request.job != self._job:
            _abort(context, grpc.StatusCode.NOT_FOUND, f"this is the coordinator of job {self._job}, not of yours")
        try:
            return self._sessions.open(request.number)
        except Unproven as error:
            _abort(context, grpc.StatusCode.INVALID_ARGUMENT, str(error))

    def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        """See `grpc.ServerInterceptor`: the same service, behind the check."""
        handler = continuation(details)
        method: str = details.method
        if handler is None or method == _OPEN:
            return handler
        parse, serialize = handler.request_deserializer, handler.response_serializer

        def answer(data: bytes, context: grpc.ServicerContext) -> bytes:
            call = self._taken(method, data, context)
            try:
                return call.answer(serialize(handler.unary_unary(_request(parse, call), context)))
            except (CallRefused, ElasticError) as error:
                _refuse(context, call, error)

        def stream(data: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
            call = self._taken(method, data, context)
            try:
                for reply in handler.unary_stream(_request(parse, call), context):
                    yield call.answer(serialize(reply))
            except (CallRefused, ElasticError) as error:
                _refuse(context, call, error)

        if handler.response_streaming:
            return grpc.unary_stream_rpc_method_handler(stream)
        return grpc.unary_unary_rpc_method_handler(answer)

    def _taken(self, method: str, data: bytes, context: grpc.ServicerContext) -> ReceivedCall:
        try:
            return self._sessions.take(method, data)
        except UnknownSession as error:
            context.set_trailing_metadata(((SESSION_KEY, UNKNOWN),))
            _abort(context, grpc.StatusCode.UNAUTHENTICATED, f"job {self._job}: a call {error}")
        except Unproven as error:
            _abort(
                context,
                grpc.StatusCode.UNAUTHENTICATED,
                f"job {self._job} does not take this call: {error}; whoever sent it has to be of the same version of "
                "fedl2 as the job, and have its token file",
            )


def _request(parse: Callable[[bytes], Any], call: ReceivedCall) -> Any:
    try:
        return parse(call.payload)
    except DecodeError as error:
        raise CallRefused(grpc.StatusCode.INVALID_ARGUMENT, "bytes that are no request") from error


def _refuse(context: grpc.ServicerContext, call: ReceivedCall, error: CallRefused | ElasticError) -> NoReturn:
    refused = error if isinstance(error, CallRefused) else _as_refused(error)
    context.set_trailing_metadata(((REFUSAL_KEY, call.refusal(refused.code.name, refused.message)),))
    _abort(context, refused.code, refused.message)


def _as_refused(error: ElasticError) -> CallRefused:
    """One of our errors in gRPC's words; any other is a fault of the coordinator's, and is raised."""
    for kind, code in _CODES.items():
        if isinstance(error, kind):
            return CallRefused(code, str(error))
    raise error


def _abort(context: grpc.ServicerContext, code: grpc.StatusCode, line: str) -> NoReturn:
    context.abort(code, line)
    raise AssertionError("abort returned")
