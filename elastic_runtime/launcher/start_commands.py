"""`elastic-run SCRIPT` and `elastic-run resume JOB`: begin with a job, or go on with one, and look after it."""

from __future__ import annotations

import errno
import os
import socket
import sys
import uuid
from pathlib import Path
from typing import Annotated

import typer

from elastic_runtime.control.client import ControlClient
from elastic_runtime.control.credentials import ClientCredentials
from elastic_runtime.control.messages import JobStatus, Size
from elastic_runtime.errors import BadInput
from elastic_runtime.launcher.asking import WaitOption, ask
from elastic_runtime.launcher.display import Display
from elastic_runtime.launcher.job_facts import resting_facts
from elastic_runtime.launcher.job_folder import JobFolder, create, open_job
from elastic_runtime.launcher.job_lock import JobLock, holder_of
from elastic_runtime.launcher.job_spec import JobSpec, check_script, spec_of
from elastic_runtime.launcher.options import (
    PROGRAM,
    TIMEOUT_SECONDS,
    Debug,
    Folder,
    Job,
    Output,
    OutputOption,
    Timeout,
    client_of,
    jobs_of,
    show,
)
from elastic_runtime.launcher.programs import Programs
from elastic_runtime.launcher.settings import LauncherSettings
from elastic_runtime.launcher.supervisor import Supervisor, Wish
from elastic_runtime.plan import Phase

Servers = Annotated[int | None, typer.Option("--ps", min=0, help="Parameter servers; what it had, unless given.")]
Workers = Annotated[int | None, typer.Option("--workers", min=0, help="Workers; what it had, unless given.")]


def run(
    script: Annotated[Path, typer.Argument(metavar="SCRIPT", help="The Python script that trains.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[ARGUMENTS]...", help="What the script gets, options included.")
    ] = None,
    servers: Annotated[int, typer.Option("--ps", min=0, help="Parameter servers to start with.")] = 1,
    workers: Annotated[int, typer.Option("--workers", min=0, help="Workers to start with.")] = 1,
    name: Annotated[
        str | None, typer.Option(help="The job's name; from the script and a counter unless given.")
    ] = None,
    folder: Folder = None,
    checkpoints: Annotated[
        Path | None, typer.Option(help="Where checkpoints go; below the job's folder unless given.")
    ] = None,
    minimum_servers: Annotated[
        int, typer.Option("--min-ps", min=1, help="Resizes to fewer parameter servers are refused.")
    ] = 1,
    minimum_workers: Annotated[
        int, typer.Option("--min-workers", min=1, help="Resizes to fewer workers are refused.")
    ] = 1,
    bind: Annotated[str, typer.Option(help="Address that the job's processes listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The coordinator's port; 0: any that is free.")] = 0,
    restarts: Annotated[int, typer.Option(min=0, help="Failures of the script after which the job fails.")] = 3,
    worker_threads: Annotated[
        int, typer.Option("--worker-threads", min=0, help="Threads of a worker; 0: the cores shared among them.")
    ] = 0,
    output: OutputOption = Output.TABLE,
    debug: Debug = False,
) -> None:
    """Start a job from a script and look after it until it is done.

    Ctrl-C writes a checkpoint and ends it, for `elastic-run resume`; a second one ends it at once.
    """
    del debug
    if servers == 0 or workers == 0:
        raise BadInput(f"--ps {servers} --workers {workers}: a job begins with at least one of both")
    if servers < minimum_servers or workers < minimum_workers:
        raise BadInput(
            f"--ps {servers} --workers {workers} is below --min-ps {minimum_servers} --min-workers {minimum_workers}"
        )
    script = check_script(script)
    _check_port(bind, port)
    jobs = jobs_of(folder)
    spec = JobSpec(
        script=script,
        arguments=tuple(arguments or ()),
        python=sys.executable,
        working_folder=Path.cwd(),
        servers=servers,
        workers=workers,
        minimum_servers=minimum_servers,
        minimum_workers=minimum_workers,
        checkpoints=None if checkpoints is None else checkpoints.absolute(),
        bind=bind,
        port=port,
        restarts=restarts,
        worker_threads=worker_threads,
    )
    job = create(jobs, name, script, spec.record())
    _look_after(job, output, None)


def resume(
    name: Job,
    servers: Servers = None,
    workers: Workers = None,
    folder: Folder = None,
    request_id: Annotated[str | None, typer.Option(help="To send the same request again; random unless given.")] = None,
    wait: WaitOption = True,
    output: OutputOption = Output.TABLE,
    timeout: Timeout = TIMEOUT_SECONDS,
    debug: Debug = False,
) -> None:
    """Go on with a suspended job; one of which nothing runs is started again from its folder, in the foreground."""
    del debug
    job = open_job(jobs_of(folder), name)
    chosen = request_id or uuid.uuid4().hex

    def target_of(status: JobStatus) -> Size:
        before = status.target
        return Size(before.servers if servers is None else servers, before.workers if workers is None else workers)

    def wish(client: ControlClient) -> object:
        status = client.status()
        target = target_of(status)
        if status.phase is Phase.SUSPENDED:
            return client.resume(chosen, target)
        return client.resize(chosen, target) if target != status.target else None

    if holder_of(job.path) is None:
        phase = resting_facts(job)["phase"]
        if phase in (Phase.FINISHED.value, Phase.FAILED.value):
            raise BadInput(f"{name} has {phase}; there is nothing to go on with")
        _look_after(job, output, wish)
        return
    with client_of(job, timeout) as client:
        status = client.status()
        if status.phase is not Phase.SUSPENDED:
            raise BadInput(f"{name} is {status.phase.value}, not suspended; `elastic-run resize` changes its size")
        target = target_of(status)
        ask(lambda: client.resume(chosen, target), f"{name} goes on with {target}", chosen, wait, timeout, output)


def _look_after(job: JobFolder, output: Output, wish: Wish | None) -> None:
    settings = LauncherSettings()
    with JobLock(job.path):
        spec = spec_of(job.record(), job.record_file)
        programs = Programs(spec, job, os.environ)
        # With -o json stdout is the result's alone.
        display = Display(
            PROGRAM, sys.stderr if output is Output.JSON else sys.stdout, sys.stderr, settings.shown_lines
        )
        display.tell(f"job {job.name} in {job.path}")
        try:
            phase = Supervisor(programs, ClientCredentials(job.token()), display, settings).run(wish)
        finally:
            display.close()
    facts = resting_facts(job)
    if output is Output.JSON:
        show(output, facts, "")
    elif phase is Phase.SUSPENDED:
        print(
            f"{job.name} is suspended at step {facts.get('step', 0)}; `elastic-run resume {job.name}` goes on with it"
        )
    else:
        print(f"{job.name} is done after {facts.get('step', 0)} steps; checkpoints: {programs.checkpoints}")


def _check_port(bind: str, port: int) -> None:
    try:
        family, _, _, _, address = socket.getaddrinfo(bind, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise BadInput(f"--bind {bind}: is no address ({error.strerror})") from error
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the coordinator will: no rest of a past one
        try:
            probe.bind(address)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise BadInput(f"--port {port}: something listens on {bind}:{port} already; name another") from error
            raise BadInput(f"--bind {bind} --port {port}: cannot be listened on ({error.strerror})") from error
