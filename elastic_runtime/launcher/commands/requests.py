"""Requests to a job that runs: `elastic-run resize`, `suspend` and `stop`, and waiting until they are carried out."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from elastic_runtime.control.checks import check_request_id
from elastic_runtime.control.messages import RequestOutcome, ResizeMode, Size
from elastic_runtime.errors import BadInput, CoordinatorUnreachable, ElasticError
from elastic_runtime.launcher.commands.options import (
    PROGRAM,
    TASKS,
    Anyway,
    Folder,
    Job,
    open_own_job,
)
from elastic_runtime.launcher.job_folder import JobFolder, holder_of, resume_command
from elastic_runtime.launcher.job_status import check_not_ended, client_of, read_state, resting_facts
from elastic_runtime.protocol.plan import ENDED, JobPhase
from foundation.output import Form, Output, show

if TYPE_CHECKING:
    from elastic_runtime.control.client import ControlClient

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
_FIRST_POLL_SECONDS = 0.05
"""At a request; doubled with each look."""
_LONGEST_POLL_SECONDS = 1.0
_AT_ONCE = (signal.SIGTERM, signal.SIGINT)
"""What ends a launcher at once; the first alone, after a checkpoint. Two of a kind in a moment are taken for one."""
_LOCK_POLL_SECONDS = 0.1
"""At the lock of a launcher that is told to end."""

Send = Callable[[], tuple[RequestOutcome, str]]
"""Sends a request, or asks for the state of the same one; may be repeated."""


class RequestAborted(ElasticError):
    """The job refused the request, or gave it up; it goes on as before."""


class RequestPending(ElasticError):
    """The request is not done within the time that the caller gives it; it goes on."""


def resize(
    name: Job,
    servers: Annotated[
        int | None, typer.Option("--ps", click_type=TASKS, help="Parameter servers in all; as now, unless given.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option("--workers", click_type=TASKS, help="Workers in all; as now, unless given.")
    ] = None,
    victims: Annotated[
        list[str] | None,
        typer.Option(
            "--victim", metavar="TASK", help="A task to remove first, or to replace if the size stays (repeatable)."
        ),
    ] = None,
    mode: Annotated[ResizeMode, typer.Option(help="How parameters get to their new servers.")] = ResizeMode.ROLLING,
    folder: Folder = None,
    request_id: RequestId = None,
    wait: WaitOption = True,
    output: Output = Form.TABLE,
    timeout: Patience = PATIENCE_SECONDS,
    anyway: Anyway = False,
) -> None:
    """Change how many parameter servers and workers a job has, while it trains; 0 of both suspends it."""
    if servers is None and workers is None and not victims:
        raise BadInput("give --ps, --workers, or both; or a --victim to replace")
    job = open_own_job(folder, name, "explain", anyway=anyway)
    chosen = chosen_id(request_id)
    with asked(job) as client:
        if servers is None or workers is None:
            status = client.status()
            if status.phase is JobPhase.SUSPENDED:
                raise BadInput(f"{name} is suspended; {_goes_on(job, anyway)}, at another size with --ps and --workers")
            before = status.target
            servers = before.servers if servers is None else servers
            workers = before.workers if workers is None else workers
        target = Size(servers, workers)
        ask(
            job,
            lambda: client.resize(chosen, target, tuple(victims or ()), mode),
            f"{name} has {target}" + (f", without {' and '.join(victims)}" if victims else ""),
            chosen,
            wait,
            timeout,
            output,
        )
    _warn_of_few_cores(workers)


def suspend(
    name: Job,
    folder: Folder = None,
    request_id: RequestId = None,
    wait: WaitOption = True,
    output: Output = Form.TABLE,
    timeout: Patience = PATIENCE_SECONDS,
    anyway: Anyway = False,
) -> None:
    """Write a checkpoint and end a job's tasks; its launcher stays, and `resume` goes on with the job."""
    job = open_own_job(folder, name, "suspend", anyway=anyway)
    chosen = chosen_id(request_id)
    with asked(job) as client:
        ask(job, lambda: client.suspend(chosen), f"{name} is suspended", chosen, wait, timeout, output)


def stop(
    name: Job,
    now: Annotated[bool, typer.Option("--now", help="Without a checkpoint, at once.")] = False,
    folder: Folder = None,
    output: Output = Form.TABLE,
    timeout: Patience = PATIENCE_SECONDS,
    anyway: Anyway = False,
) -> None:
    """End a job and its launcher after a checkpoint; `resume` starts it again from its folder."""
    job = open_own_job(folder, name, "suspend", "cancel", anyway=anyway)
    if holder_of(job.path) is None:  # as a second `suspend`: what is asked for is so
        phase = resting_facts(job)["phase"]
        over = phase in ENDED
        line = f"{name} has {phase}; nothing of it runs" if over else f"{name} does not run; {_goes_on(job, anyway)}"
        _show_stopped(name, line, output)
        return
    if not _end_launcher(job, _AT_ONCE if now else _AT_ONCE[:1], timeout):
        harder = f"elastic-run stop {name} --now" + (" --anyway" if anyway else "")
        raise RequestAborted(f"{name} has not ended within {timeout:g} s; end it with `{harder}`")
    _show_stopped(name, f"{name} is stopped; {_goes_on(job, anyway)}", output)


def _show_stopped(name: str, line: str, output: Form) -> None:
    record = {"job": name, "stopped": True}
    show(output, record, line, [record])


def _goes_on(job: JobFolder, anyway: bool) -> str:
    return f"`{resume_command(job, os.environ, anyway=anyway)}` goes on with it"


def _warn_of_few_cores(workers: int) -> None:
    cores = len(os.sched_getaffinity(0))
    if workers > cores:
        print(
            f"{PROGRAM}: {workers} workers are more than the {cores} core{'s' * (cores != 1)} here; they share them",
            file=sys.stderr,
        )


@contextlib.contextmanager
def asked(job: JobFolder) -> Iterator[ControlClient]:
    """Client of a job that runs.

    Raises:
        BadInput: nothing of it runs, or it ends just now.
        CoordinatorUnreachable: it runs, and does not answer.
    """
    try:
        with client_of(job, CALL_SECONDS) as client:
            yield client
    except CoordinatorUnreachable:
        check_not_ended(job)
        raise


def chosen_id(given: str | None) -> str:
    """The request's id: the one that was given, or a random one.

    Raises:
        BadInput: it is none; an empty one would make each try a request of its own.
    """
    return uuid.uuid4().hex if given is None else check_request_id(given)


def ask(
    job: JobFolder, send: Send, done: str, request_id: str, wait: bool, patience_seconds: float, output: Form
) -> None:
    """Send a request and print what became of it.

    Raises:
        RequestAborted: the job gave it up, or has ended.
        CoordinatorUnreachable: the coordinator was lost meanwhile.
        RequestPending: it is not done in time.
    """
    state, detail = carry_through(send, wait, patience_seconds, lambda: _end_of(job))
    if state is RequestOutcome.ABORTED:
        raise RequestAborted(detail or "the job gave the request up")
    line = done if state is RequestOutcome.DONE else f"request {request_id} is {state.value}"
    record = {"request_id": request_id, "state": state.value, "detail": detail}
    show(output, record, line + (f" ({detail})" if detail else ""), [record])


def _end_of(job: JobFolder) -> str:
    """How a job has ended of which nothing runs any more, in a line; empty while something does."""
    if holder_of(job.path) is not None:
        return ""
    state = read_state(job)
    phase, failure = state.get("phase"), str(state.get("failure") or "")
    over = phase in ENDED
    line = f"{job.name} has {phase} meanwhile" if over else f"{job.name}'s launcher has ended meanwhile"
    return f"{line}: {failure}" if failure else line


def carry_through(
    send: Send,
    wait: bool,
    patience_seconds: float,
    ended: Callable[[], str] = str,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[RequestOutcome, str]:
    """Send a request until it is taken and, if wanted, until it has ended; its last state.

    Args:
        ended: why nobody will ever answer, in a line; empty if somebody may.
    """
    deadline = clock() + patience_seconds
    pause = _FIRST_POLL_SECONDS
    taken: tuple[RequestOutcome, str] | None = None
    while True:
        try:
            taken = send()
        except CoordinatorUnreachable:
            # A job that never answered is not there; one that has taken the request is, and comes back.
            if taken is None or clock() >= deadline:
                raise
            if line := ended():
                raise RequestAborted(line) from None
        if taken is not None and (not wait or taken[0] in (RequestOutcome.DONE, RequestOutcome.ABORTED)):
            return taken
        if clock() >= deadline:
            raise RequestPending(
                f"the request is {taken[0].value if taken else 'sent'} and not done within {patience_seconds:g} s; "
                "it goes on, see `elastic-run status`"
            )
        sleep(pause)
        pause = min(2 * pause, _LONGEST_POLL_SECONDS)


def _end_launcher(
    job: JobFolder,
    signals: Sequence[signal.Signals],
    patience_seconds: float,
    clock: Callable[[], float] = time.monotonic,
) -> bool:
    deadline = clock() + patience_seconds
    for number in signals:
        # Asked anew each time: the number may stand for somebody else once its holder has gone.
        launcher = holder_of(job.path)
        if launcher is None:
            return True
        try:
            os.kill(launcher, number)
        except ProcessLookupError:
            return True
        except PermissionError as error:
            raise BadInput(f"{job.name} belongs to somebody else; only its owner can stop it") from error
        time.sleep(_LOCK_POLL_SECONDS)  # the first is taken before the second comes
    while holder_of(job.path) is not None:
        if clock() >= deadline:
            return False
        time.sleep(_LOCK_POLL_SECONDS)
    return True
