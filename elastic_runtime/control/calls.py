"""One call to a coordinator: its deadline, the job's token, and the errors of gRPC in our words."""

from __future__ import annotations

from typing import Any, NoReturn

import grpc

from elastic_runtime.control.credentials import JOB_KEY, TOKEN_KEY, ClientCredentials
from elastic_runtime.errors import (
    BadInput,
    CoordinatorMistrusted,
    CoordinatorUnreachable,
    ElasticError,
    ProtocolError,
    ResizeFailed,
)

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
