"""Sending a request to a running job, and waiting until it is carried out."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Annotated

import typer

from elastic_runtime.control.checks import check_request_id
from elastic_runtime.control.messages import RequestOutcome
from elastic_runtime.errors import CoordinatorUnreachable
from elastic_runtime.launcher.commands.options import Output, show
from elastic_runtime.launcher.errors import RequestAborted, RequestPending

WaitOption = Annotated[
    bool, typer.Option("--wait/--no-wait", help="Wait until it is done, or only until the job took the request.")
]
RequestId = Annotated[
    str | None,
    typer.Option("--request-id", help="Names the request, which may then be sent again; random unless given."),
]
Patience = Annotated[
    float, typer.Option("--timeout", min=0.01, max=86400.0, help="Seconds to wait until the request is carried out.")
]
PATIENCE_SECONDS = 600.0
CALL_SECONDS = 10.0
"""One call; a coordinator that restarts is back sooner."""
_FIRST_LOOK_SECONDS = 0.05
_LONGEST_LOOK_SECONDS = 1.0

Send = Callable[[], tuple[RequestOutcome, str]]
"""Sends a request, or asks for the state of the same one; may be repeated."""


def chosen_id(given: str | None) -> str:
    """The request's id: the one that was given, or one that nobody else has.

    Raises:
        BadInput: it is none; an empty one would make each try a request of its own.
    """
    return uuid.uuid4().hex if given is None else check_request_id(given)


def ask(send: Send, done: str, request_id: str, wait: bool, patience_seconds: float, output: Output) -> None:
    """Send a request and print what became of it.

    Args:
        done: what to say when it is done.

    Raises:
        RequestAborted: the job gave it up.
        CoordinatorUnreachable: the coordinator was lost meanwhile.
        RequestPending: it is not done in time.
    """
    state, detail = carry_through(send, wait, patience_seconds)
    if state is RequestOutcome.ABORTED:
        raise RequestAborted(detail or "the job gave the request up")
    line = done if state is RequestOutcome.DONE else f"request {request_id} is {state.value}"
    record = {"request_id": request_id, "state": state.value, "detail": detail}
    show(output, record, line + (f" ({detail})" if detail else ""))


def carry_through(
    send: Send,
    wait: bool,
    patience_seconds: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[RequestOutcome, str]:
    """Send a request until it is taken and, if wanted, until it has ended; the last state of it."""
    deadline = clock() + patience_seconds
    pause = _FIRST_LOOK_SECONDS
    taken: tuple[RequestOutcome, str] | None = None
    while True:
        try:
            taken = send()
        except CoordinatorUnreachable:
            # A job that never answered is not there; one that has taken the request is, and comes back.
            if taken is None or clock() >= deadline:
                raise
        if taken is not None and (not wait or taken[0] in (RequestOutcome.DONE, RequestOutcome.ABORTED)):
            return taken
        if clock() >= deadline:
            raise RequestPending(
                f"the request is {taken[0].value if taken else 'sent'} and not done within {patience_seconds:g} s; "
                "it goes on, see `elastic-run status`"
            )
        sleep(pause)
        pause = min(2 * pause, _LONGEST_LOOK_SECONDS)
