"""Process of one job's coordinator (`python -m elastic_runtime.coordinator`), until the job or somebody ends it."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import structlog

from elastic_runtime.checkpoint.object_store import Place, make_folder
from elastic_runtime.control.addresses import path_of_socket
from elastic_runtime.control.messages import JobStatus
from elastic_runtime.coordinator.checkpoint_store import CheckpointStore
from elastic_runtime.coordinator.journal import Journal
from elastic_runtime.coordinator.metrics import serve_metrics
from elastic_runtime.coordinator.options import Options, parse
from elastic_runtime.coordinator.passing_on import PassingOn
from elastic_runtime.coordinator.rules.machine import CoordinatorMachine, begin
from elastic_runtime.coordinator.runner import CoordinatorRunner
from elastic_runtime.coordinator.service import start_server
from elastic_runtime.errors import BadInput, CheckpointError, ElasticError
from elastic_runtime.protocol.plan import JobPhase
from elastic_runtime.telemetry import LEVEL_VARIABLE, configure_logging
from foundation.clocks import AwakeClock
from foundation.files import write_whole
from foundation.signal_event import SignalEvent
from foundation.text import LONGEST_ERROR_CHARACTERS, plain_line

_TICK_SECONDS = 0.1
_GAP_SECONDS = 2.0
"""Between two ticks more is a time in which this process was stopped, or its disk kept it: it heard nobody."""
_GRACE_SECONDS = 2.0
_LINGER_SECONDS = 10.0
"""Time after the job's end in which a launcher that was held up still learns how the job ended, and ends us."""

_log = structlog.get_logger()


def serve(options: Options, stop: threading.Event) -> int:
    """Serve until the job has ended and its members have left, or until `stop`; the process's exit code.

    Raises:
        BadInput: a folder, file or address cannot be used.
        CheckpointError: the checkpoints' store does not answer.
    """
    try:
        options.folder.mkdir(parents=True, exist_ok=True)
        if isinstance(options.checkpoints, Path):
            make_folder(options.checkpoints)
    except OSError as error:
        raise BadInput(f"a folder of job {options.settings.job} cannot be made: {error}") from error
    if not isinstance(options.checkpoints, Path):
        check_store(options.checkpoints)
    journal = Journal(options.folder, options.settings.job)
    with contextlib.ExitStack() as closing:
        closing.callback(journal.close)
        checkpoints = CheckpointStore(options.checkpoints, options.settings.checkpoints_kept)
        state = journal.state or begin(options.settings, checkpoints.found(options.restore))
        clock = AwakeClock(_GAP_SECONDS)
        machine = CoordinatorMachine(options.settings, clock(), state, time.time)
        if options.relaunched:
            machine.on_relaunch()
        runner = CoordinatorRunner(machine, journal, checkpoints, clock)
        closing.callback(runner.close)
        name = f"fedl2-control-{secrets.token_hex(16)}"  # random: nobody can have it before
        server, port = start_server(
            runner,
            options.settings.job,
            options.bind if options.listener is None else f"unix-abstract:{name}",
            options.credentials,
            options.settings.report_every_seconds,
        )
        path = path_of_socket(options.bind)
        address = options.bind if path is not None else f"{options.bind.rpartition(':')[0]}:{port}"
        if path is not None:
            closing.callback(path.unlink, missing_ok=True)
        if options.listener is not None:
            address = options.bind
            closing.callback(PassingOn(options.listener, name).close)
        if options.metrics_port is not None:
            closing.callback(serve_metrics(runner.status, options.metrics_host, options.metrics_port))
        _write_address(options.address_file, address, secrets.randbits(64))
        closing.callback(options.address_file.unlink, missing_ok=True)
        _log.info("coordinator-started", job=options.settings.job, address=address)
        ended_seconds: float | None = None
        while not stop.wait(_TICK_SECONDS):
            runner.on_tick()
            if runner.failure is not None:
                raise runner.failure
            status = runner.status()
            if status.phase not in {JobPhase.FINISHED, JobPhase.FAILED}:
                continue
            now = clock()
            ended_seconds = ended_seconds or now
            waited_seconds = now - ended_seconds
            if waited_seconds >= (options.settings.leave_seconds if status.tasks else _LINGER_SECONDS):
                break
        server.stop(_GRACE_SECONDS).wait(_GRACE_SECONDS + 1)
    tell_end(options.end_file, runner.status())
    return 1 if runner.status().phase is JobPhase.FAILED else 0


def check_store(place: Place) -> None:
    """Write to the checkpoints' store, before anybody trains for an hour.

    Raises:
        BadInput: it cannot be written to, until somebody changes that.
        CheckpointError: another try may succeed.
    """
    try:
        make_folder(place)
    except (FileNotFoundError, PermissionError) as error:
        raise BadInput(
            f"checkpoints cannot be written to {place}: {error.strerror}; see to bucket and rights"
        ) from error
    except OSError as error:
        raise CheckpointError(f"checkpoints cannot be written to {place}: {error.strerror}") from error


def _write_address(path: Path, address: str, incarnation: int) -> None:
    """Write address, process id and incarnation (JSON) for whoever started us.

    Raises:
        BadInput: the file cannot be written.
    """
    content = {"address": address, "pid": os.getpid(), "incarnation": f"{incarnation:016x}"}
    try:
        write_whole(path, json.dumps(content) + "\n", durable=False)
    except OSError as error:
        raise BadInput(f"the coordinator's address cannot be written to {path}: {error}") from error


def tell_end(path: Path | None, status: JobStatus) -> None:
    """Write how the job has ended, for a reader who finds no coordinator; nothing of a job that goes on.

    Raises:
        BadInput: the file cannot be written.
    """
    if path is None or status.phase not in {JobPhase.FINISHED, JobPhase.FAILED}:
        return
    line = status.failure if status.phase is JobPhase.FAILED else f"{status.epoch:g} epochs, {status.samples} samples"
    try:
        # In place: in a container it is a mounted file.
        path.write_text(f"{status.phase.value}: {plain_line(line, LONGEST_ERROR_CHARACTERS)}\n", encoding="utf-8")
    except OSError as error:
        raise BadInput(f"how the job has ended cannot be written to {path}: {error}") from error


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and serve; the exit code."""
    configure_logging(os.environ.get(LEVEL_VARIABLE, "info"))
    stop = SignalEvent()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        return serve(parse(sys.argv[1:] if arguments is None else arguments), stop)
    except ElasticError as error:
        print(f"elastic_runtime.coordinator: {plain_line(str(error), LONGEST_ERROR_CHARACTERS)}", file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
