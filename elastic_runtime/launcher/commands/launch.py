"""Launch of a job: `elastic-run SCRIPT` begins one, `elastic-run resume JOB` goes on with one; both look after it.

What looks after a job is loaded when there is one: help and refusals of what was typed wait for none of it.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click
import typer

from elastic_runtime.control.checks import MOST_TASKS
from elastic_runtime.control.messages import JobStatus, RequestOutcome, Size
from elastic_runtime.errors import BadInput
from elastic_runtime.launcher.commands.launch_checks import (
    check_address,
    check_checkpoints,
    check_joins,
    check_script,
    check_secrecy,
    check_tls,
    own_words,
)
from elastic_runtime.launcher.commands.options import (
    PROGRAM,
    TASKS,
    Anyway,
    Folder,
    Job,
    jobs_of,
    open_own_job,
)
from elastic_runtime.launcher.commands.requests import (
    PATIENCE_SECONDS,
    Patience,
    RequestId,
    WaitOption,
    ask,
    asked,
    chosen_id,
)
from elastic_runtime.launcher.job_folder import JobFolder, JobLock, create, holder_of, resume_command
from elastic_runtime.launcher.job_status import credentials_of, resting_facts
from elastic_runtime.protocol.plan import ENDED, JobPhase
from foundation.output import Form, Output, show

if TYPE_CHECKING:
    from elastic_runtime.control.client import ControlClient
    from elastic_runtime.launcher.job_spec import JobSpec
    from elastic_runtime.launcher.supervisor import FirstRequest

Servers = Annotated[
    int | None, typer.Option("--ps", click_type=TASKS, help="Parameter servers; what it had, unless given.")
]
Workers = Annotated[int | None, typer.Option("--workers", click_type=TASKS, help="Workers; what it had, unless given.")]

Quiet = Annotated[bool, typer.Option("--quiet", help="Leave the first worker's lines to the logs.")]


def run(
    script: Annotated[Path, typer.Argument(metavar="SCRIPT", help="The Python script that trains.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[ARGUMENTS]...", help="What the script gets, options included.")
    ] = None,
    servers: Annotated[int, typer.Option("--ps", click_type=TASKS, help="Parameter servers to start with.")] = 1,
    workers: Annotated[int, typer.Option("--workers", click_type=TASKS, help="Workers to start with.")] = 1,
    name: Annotated[
        str | None, typer.Option(help="The job's name; from the script and a counter unless given.")
    ] = None,
    folder: Folder = None,
    checkpoints: Annotated[
        Path | None, typer.Option(help="Where checkpoints go; below the job's folder unless given.")
    ] = None,
    checkpoint_seconds: Annotated[
        float,
        typer.Option(
            "--checkpoint-seconds",
            min=0.1,
            max=86400.0,
            help="Time between two checkpoints: what the loss of a parameter server costs.",
        ),
    ] = 60.0,
    restore: Annotated[
        bool, typer.Option("--restore", help="Begin from the newest checkpoint in --checkpoints, of an earlier job.")
    ] = False,
    minimum_servers: Annotated[
        int, typer.Option("--min-ps", min=1, max=MOST_TASKS, help="Resizes to fewer parameter servers are refused.")
    ] = 1,
    minimum_workers: Annotated[
        int, typer.Option("--min-workers", min=1, max=MOST_TASKS, help="Resizes to fewer workers are refused.")
    ] = 1,
    replicas: Annotated[
        int,
        typer.Option(
            "--replicas",
            min=1,
            max=2,
            help="Parameter servers that hold each part of the model; with 2 the loss of one undoes no step.",
        ),
    ] = 1,
    bind: Annotated[str, typer.Option(help="Address that the job's processes listen on.")] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option(min=0, max=65535, help="The coordinator's port; 0: none on this machine alone, else any free."),
    ] = 0,
    metrics_port: Annotated[
        int | None, typer.Option("--metrics-port", min=1, max=65535, help="Answer Prometheus there, at --bind.")
    ] = None,
    restarts: Annotated[
        int,
        typer.Option(
            min=0,
            max=1_000_000,
            help="Failures of the script without a durable step in between after which the job fails; at once if it "
            "ends with 2, or all workers alike.",
        ),
    ] = 3,
    certificate: Annotated[
        Path | None, typer.Option(help="The coordinator's certificate (PEM), for TLS; with --key and --ca.")
    ] = None,
    key: Annotated[Path | None, typer.Option(help="Its private key (PEM).")] = None,
    ca: Annotated[Path | None, typer.Option(help="Certificates the coordinator's is checked against (PEM).")] = None,
    insecure: Annotated[
        bool, typer.Option("--allow-insecure", help="Let control leave this machine without TLS.")
    ] = False,
    curve: Annotated[bool, typer.Option("--curve", help="Encrypt parameters and gradients on their way.")] = False,
    worker_threads: Annotated[
        int,
        typer.Option("--worker-threads", min=0, max=1024, help="Threads of a worker; 0: its share of the cores."),
    ] = 0,
    worker_gpus: Annotated[
        int, typer.Option("--worker-gpus", min=0, max=64, help="GPUs of a worker, out of those in --gpu-file.")
    ] = 0,
    gpu_file: Annotated[
        Path | None, typer.Option("--gpu-file", help="A JSON list of the GPUs that the job has; it may change.")
    ] = None,
    interpreter: Annotated[
        list[str] | None,
        typer.Option(
            "--interpreter",
            metavar="WORD",
            help="Another Python for the job's processes, which then start cold, and its options, a word each "
            "(repeatable); behind -m the script is a module's name.",
        ),
    ] = None,
    cold: Annotated[
        bool,
        typer.Option("--cold", envvar="ELASTIC_COLD", help="Start every task from the beginning, rather than fork it."),
    ] = False,
    joins_elsewhere: Annotated[
        bool,
        typer.Option(
            "--joins-elsewhere",
            help="The script does not import elastic_runtime itself; a module does that is not beside it.",
        ),
    ] = False,
    quiet: Quiet = False,
    output: Output = Form.TABLE,
) -> None:
    """Start a job from a script and look after it until it is done.

    Ctrl-C writes a checkpoint and ends it, for `elastic-run resume`; a second one ends it at once.
    """
    if servers == 0 or workers == 0:
        raise BadInput(f"--ps {servers} --workers {workers}: a job begins with at least one of both")
    if servers < minimum_servers or workers < minimum_workers:
        raise BadInput(
            f"--ps {servers} --workers {workers} is below --min-ps {minimum_servers} --min-workers {minimum_workers}"
        )
    if len({certificate is None, key is None, ca is None}) > 1:
        raise BadInput("--certificate, --key and --ca go together; give all of them, or none")
    if restore and checkpoints is None:
        raise BadInput("--restore needs --checkpoints: the folder of an earlier job's checkpoints")
    if (worker_gpus > 0) != (gpu_file is not None):
        raise BadInput("--worker-gpus and --gpu-file go together; give both of them, or none")
    python, *options = interpreter or [sys.executable]
    if shutil.which(python) is None:
        raise BadInput(f"--interpreter {python}: there is no such program that may be run; name a Python")
    is_module = options[-1:] == ["-m"]
    script = script if is_module else check_script(script)
    if checkpoints is not None:
        check_checkpoints(checkpoints, restore)
    check_address(bind, port, "--port")
    check_secrecy(bind, certificate is not None, insecure)
    if metrics_port is not None:
        check_address(bind, metrics_port, "--metrics-port")
    # Loaded before the job has a folder: whoever interrupts it leaves none behind.
    from elastic_runtime.launcher.job_spec import JobSpec  # noqa: PLC0415

    jobs = jobs_of(folder)
    spec = JobSpec(
        script=script,
        arguments=tuple(arguments or ()),
        python=python,
        options=tuple(options),
        working_folder=Path.cwd(),
        servers=servers,
        workers=workers,
        minimum_servers=minimum_servers,
        minimum_workers=minimum_workers,
        replicas=replicas,
        checkpoints=_absolute(checkpoints),
        checkpoint_seconds=checkpoint_seconds,
        restore=restore,
        bind=bind,
        port=port,
        metrics_port=metrics_port,
        restarts=restarts,
        certificate=_absolute(certificate),
        key=_absolute(key),
        ca=_absolute(ca),
        insecure=insecure,
        curve=curve,
        worker_threads=worker_threads,
        worker_gpus=worker_gpus,
        cold=cold or bool(interpreter),
        gpu_file=_absolute(gpu_file),
    )
    _check_tls(spec)
    if not is_module:
        if not joins_elsewhere:
            check_joins(script)
        _report_script_options(script, arguments or ())
    job = create(jobs, name, script, spec.record())
    _supervise(job, output, None, quiet)


def resume(
    name: Job,
    servers: Servers = None,
    workers: Workers = None,
    folder: Folder = None,
    request_id: RequestId = None,
    wait: WaitOption = True,
    quiet: Quiet = False,
    output: Output = Form.TABLE,
    timeout: Patience = PATIENCE_SECONDS,
    anyway: Anyway = False,
) -> None:
    """Go on with a suspended job; one of which nothing runs is started again from its folder, in the foreground."""
    job = open_own_job(folder, name, "resume", anyway=anyway)
    from elastic_runtime.launcher.job_spec import Programs, spec_of  # noqa: PLC0415

    spec = spec_of(job.record(), job.record_file)
    chosen = chosen_id(request_id)

    def target_of(status: JobStatus) -> Size:
        before = _size_before(status, spec)
        return Size(before.servers if servers is None else servers, before.workers if workers is None else workers)

    def first_request(client: ControlClient) -> object:
        status = client.status()
        target = target_of(status)
        if status.phase is JobPhase.SUSPENDED:
            return client.resume(chosen, target)
        return client.resize(chosen, target) if target != status.target else None

    if holder_of(job.path) is None:
        phase = resting_facts(job)["phase"]
        if phase in ENDED:
            old = Programs(spec, job, {}).checkpoints
            raise BadInput(
                f"{name} has {phase}; a new job can begin from its newest checkpoint: --restore --checkpoints {old}"
            )
        if not spec.is_module:
            check_script(spec.script)
        _check_tls(spec)
        size = None if servers is None or workers is None else Size(servers, workers)
        _supervise(job, output, first_request, quiet, size)
        return
    with asked(job) as client:
        status = client.status()
        if status.phase is not JobPhase.SUSPENDED:
            raise BadInput(f"{name} is {status.phase.value}, not suspended; `elastic-run resize` changes its size")
        target = target_of(status)
        ask(job, lambda: client.resume(chosen, target), f"{name} goes on with {target}", chosen, wait, timeout, output)


def _size_before(status: JobStatus, spec: JobSpec) -> Size:
    """Size of a job before it was suspended; its desired size, if it was not."""
    if status.target.workers:
        return status.target
    sizes = [row.target for row in status.requests if row.state is RequestOutcome.DONE and row.target.workers]
    return sizes[-1] if sizes else Size(spec.servers, spec.workers)


def _supervise(
    job: JobFolder, output: Form, first_request: FirstRequest | None, quiet: bool, size: Size | None = None
) -> None:
    from elastic_runtime.launcher.display import Display  # noqa: PLC0415
    from elastic_runtime.launcher.job_spec import Programs, spec_of  # noqa: PLC0415
    from elastic_runtime.launcher.settings import LauncherSettings  # noqa: PLC0415
    from elastic_runtime.launcher.supervisor import Supervisor  # noqa: PLC0415

    settings = LauncherSettings()
    with JobLock(job.path):
        spec = spec_of(job.record(), job.record_file)
        programs = Programs(spec, job, os.environ, size)
        # What a program reads is the result alone.
        display = Display(
            PROGRAM, sys.stdout if output.for_people else sys.stderr, sys.stderr, settings.shown_lines, quiet
        )
        display.report(f"job {job.name} in {job.path}")
        try:
            phase = Supervisor(programs, credentials_of(job, spec), display, settings).run(first_request)
        finally:
            display.close()
    facts = resting_facts(job)
    if phase is JobPhase.SUSPENDED:
        command = resume_command(job, os.environ)
        line = f"{job.name} is {facts['phase']} at step {facts.get('step', 0)}; `{command}` goes on with it"
    else:
        line = f"{job.name} has finished after {facts.get('step', 0)} steps; checkpoints: {programs.checkpoints}"
    from elastic_runtime.launcher.commands.job_tables import jobs_table  # noqa: PLC0415

    show(output, facts, line, lambda: jobs_table([facts]))


def _report_script_options(script: Path, arguments: Sequence[str]) -> None:
    """Say which options that read like ours go to the script, as all do that stand behind it."""
    options = [option for parameter in click.get_current_context().command.params for option in parameter.opts]
    if theirs := own_words(script, arguments, options):
        goes, it = ("goes", "it is") if len(theirs) == 1 else ("go", "they are")
        print(
            f"{PROGRAM}: {' and '.join(theirs)} {goes} to the script; write it before the script if {it} meant for"
            f" {PROGRAM}",
            file=sys.stderr,
        )


def _check_tls(spec: JobSpec) -> None:
    if spec.certificate is not None and spec.key is not None and spec.ca is not None:
        check_tls(spec.certificate, spec.key, spec.ca, spec.bind)


def _absolute(path: Path | None) -> Path | None:
    return None if path is None else path.absolute()
