"""`elastic-run resize`, `suspend` and `stop`: what is asked of a job that runs."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Annotated

import typer

from elastic_runtime.control.checks import MOST_TASKS
from elastic_runtime.control.messages import ResizeMode, Size
from elastic_runtime.errors import BadInput
from elastic_runtime.launcher.asking import (
    CALL_SECONDS,
    PATIENCE_SECONDS,
    Patience,
    RequestId,
    WaitOption,
    ask,
    chosen_id,
)
from elastic_runtime.launcher.commands.options import Debug, Folder, Job, Output, OutputOption, client_of, jobs_of, show
from elastic_runtime.launcher.errors import RequestAborted
from elastic_runtime.launcher.job_folder import JobFolder, open_job
from elastic_runtime.launcher.job_lock import holder_of
from elastic_runtime.plan import Phase

_LOOK_SECONDS = 0.1


def resize(
    name: Job,
    servers: Annotated[
        int | None, typer.Option("--ps", min=0, max=MOST_TASKS, help="Parameter servers; as now, unless given.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option("--workers", min=0, max=MOST_TASKS, help="Workers; as now, unless given.")
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
    output: OutputOption = Output.TABLE,
    timeout: Patience = PATIENCE_SECONDS,
    debug: Debug = False,
) -> None:
    """Change how many parameter servers and workers a job has, while it trains; 0 of both suspends it."""
    del debug
    if servers is None and workers is None and not victims:
        raise BadInput("give --ps, --workers, or both; or a --victim to replace")
    job = open_job(jobs_of(folder), name)
    chosen = chosen_id(request_id)
    with client_of(job, CALL_SECONDS) as client:
        if servers is None or workers is None:
            status = client.status()
            if status.phase is Phase.SUSPENDED:
                raise BadInput(
                    f"{name} is suspended; `elastic-run resume {name}` goes on with it, at another size with --ps and "
                    "--workers"
                )
            before = status.target
            servers = before.servers if servers is None else servers
            workers = before.workers if workers is None else workers
        target = Size(servers, workers)
        ask(
            lambda: client.resize(chosen, target, tuple(victims or ()), mode),
            f"{name} has {target}" + (f", without {' and '.join(victims)}" if victims else ""),
            chosen,
            wait,
            timeout,
            output,
        )


def suspend(
    name: Job,
    folder: Folder = None,
    request_id: RequestId = None,
    wait: WaitOption = True,
    output: OutputOption = Output.TABLE,
    timeout: Patience = PATIENCE_SECONDS,
    debug: Debug = False,
) -> None:
    """Write a checkpoint and end a job's tasks; its launcher stays, and `resume` goes on with the job."""
    del debug
    job = open_job(jobs_of(folder), name)
    chosen = chosen_id(request_id)
    with client_of(job, CALL_SECONDS) as client:
        ask(lambda: client.suspend(chosen), f"{name} is suspended", chosen, wait, timeout, output)


def stop(
    name: Job,
    now: Annotated[bool, typer.Option("--now", help="Without a checkpoint, at once.")] = False,
    folder: Folder = None,
    output: OutputOption = Output.TABLE,
    timeout: Patience = PATIENCE_SECONDS,
    debug: Debug = False,
) -> None:
    """End a job and its launcher after a checkpoint; `resume` starts it again from its folder."""
    del debug
    job = open_job(jobs_of(folder), name)
    if holder_of(job.path) is None:
        raise BadInput(f"{name} is not running")
    if not _end_launcher(job, 2 if now else 1, timeout):
        raise RequestAborted(f"{name} has not ended within {timeout:g} s; end it with `elastic-run stop {name} --now`")
    show(output, {"job": name, "stopped": True}, f"{name} is stopped; `elastic-run resume {name}` goes on with it")


def _end_launcher(
    job: JobFolder, signals: int, patience_seconds: float, clock: Callable[[], float] = time.monotonic
) -> bool:
    deadline = clock() + patience_seconds
    for _ in range(signals):
        # Asked anew each time: the number may stand for somebody else once its holder has gone.
        launcher = holder_of(job.path)
        if launcher is None:
            return True
        try:
            os.kill(launcher, signal.SIGTERM)
        except ProcessLookupError:
            return True
        except PermissionError as error:
            raise BadInput(f"{job.name} belongs to somebody else; only its owner can stop it") from error
        time.sleep(_LOOK_SECONDS)  # two signals at once may be taken for one
    while holder_of(job.path) is not None:
        if clock() >= deadline:
            return False
        time.sleep(_LOOK_SECONDS)
    return True
