"""Process of one job's coordinator (`python -m elastic_runtime.coordinator`), until the job or somebody ends it."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog
from pydantic import ValidationError

from elastic_runtime.checkpoint.object_store import Place, make_folder, place_of
from elastic_runtime.control.credentials import (
    ServerCredentials,
    check_coordinator,
    follow_pair,
    path_of_socket,
    read_token,
)
from elastic_runtime.control.messages import JobStatus
from elastic_runtime.coordinator.checkpoint_store import CheckpointStore, Restore
from elastic_runtime.coordinator.connection_forwarder import ConnectionForwarder
from elastic_runtime.coordinator.journal import Journal
from elastic_runtime.coordinator.metrics import serve_metrics
from elastic_runtime.coordinator.rules.machine import CoordinatorMachine, begin
from elastic_runtime.coordinator.rules.settings import CoordinatorSettings
from elastic_runtime.coordinator.runner import CoordinatorRunner
from elastic_runtime.coordinator.service import start_server
from elastic_runtime.errors import BadInput, CheckpointError, ElasticError
from elastic_runtime.protocol.plan import ENDED, JobPhase
from elastic_runtime.telemetry import LEVEL_VARIABLE, configure_logging
from foundation.clocks import AwakeClock
from foundation.files import write_whole
from foundation.followed_files import FollowedFiles
from foundation.signal_event import SignalEvent
from foundation.text import LONGEST_ERROR_CHARACTERS, plain_line

_TICK_SECONDS = 0.1
_GAP_SECONDS = 2.0
"""Between two ticks more is a time in which this process was stopped, or its disk kept it: it heard nobody."""
_GRACE_SECONDS = 2.0
_LINGER_SECONDS = 10.0
"""Time after the job's end in which a launcher that was held up still learns how the job ended, and ends us."""

_log = structlog.get_logger()


@dataclass(frozen=True)
class Options:
    """What a coordinator was started with.

    Attributes:
        end_file: where it says how the job has ended, once it has; None: nowhere.
        bind: `host:port`, port 0 takes any; or `unix:` and a socket's path.
        relaunched: no process of the job runs any more; go on with as many as the settings say.
        listener: descriptor of a socket that listens at `bind` already; None: there is none.
    """

    settings: CoordinatorSettings
    folder: Path
    checkpoints: Place
    address_file: Path
    bind: str
    credentials: ServerCredentials
    restore: Restore = Restore.NEVER
    relaunched: bool = False
    listener: int | None = None
    metrics_host: str = "127.0.0.1"
    metrics_port: int | None = None
    end_file: Path | None = None


def parse(arguments: Sequence[str]) -> Options:
    """Read a command line.

    Raises:
        BadInput: it cannot be used.
        SystemExit: argparse's own, with code 2, or 0 after `--help`.
    """
    parser = argparse.ArgumentParser(
        "python -m elastic_runtime.coordinator", description="Coordinates one elastic training job."
    )
    parser.add_argument("--folder", type=Path, required=True, help="the journal's folder, made if it is missing")
    parser.add_argument(
        "--checkpoints", type=place_of, help="folder of the job's checkpoints, or a URL; FOLDER/checkpoints"
    )
    parser.add_argument("--address-file", type=Path, help="written once it serves; FOLDER/coordinator.json")
    parser.add_argument("--end-file", type=Path, help="gets a line about how the job has ended, in its last moment")
    parser.add_argument(
        "--bind", default="127.0.0.1:0", help="host, host:port (port 0: any that is free) or unix:PATH to serve at"
    )
    parser.add_argument("--port", type=int, help="port to serve at, if --bind names only a host")
    parser.add_argument("--listener", type=int, help="descriptor of a socket that listens at --bind already")
    parser.add_argument(
        "--restore",
        nargs="?",
        type=Restore,
        choices=list(Restore),
        const=Restore.ALWAYS,
        default=Restore.NEVER,
        help="a new job begins from the newest checkpoint there; if-there: or anew, where there is none",
    )
    parser.add_argument(
        "--relaunched",
        action="store_true",
        help="no process of the job runs any more: go on with as many as --servers and --workers say",
    )
    parser.add_argument("--metrics-port", type=int, help="answers Prometheus there, at --metrics-host")
    parser.add_argument("--metrics-host", help="an address of this machine; the host of --bind")
    parser.add_argument("--token-file", type=Path, required=True, help="the job's token, one line")
    parser.add_argument("--certificate", type=Path, help="PEM file to serve TLS with")
    parser.add_argument("--key", type=Path, help="the certificate's key, PEM")
    parser.add_argument("--allow-insecure", action="store_true", help="without TLS also beyond this machine")
    for name, field in CoordinatorSettings.model_fields.items():
        flag = "--" + name.replace("_", "-")
        kind = int if field.annotation is int else float if field.annotation is float else str
        parser.add_argument(flag, type=kind, required=field.is_required(), help=field.description, default=None)
    given = vars(parser.parse_args(arguments))
    settings = {name: given[name] for name in CoordinatorSettings.model_fields if given[name] is not None}
    try:
        checked = CoordinatorSettings.model_validate(settings)
    except ValidationError as error:
        raise BadInput(_problem(error)) from error
    folder: Path = given["folder"]
    bind = _address(given["bind"], given["port"])
    of_bind = "127.0.0.1" if path_of_socket(bind) else bind.rpartition(":")[0].strip("[]")
    return Options(
        settings=checked,
        folder=folder,
        checkpoints=given["checkpoints"] or folder / "checkpoints",
        address_file=given["address_file"] or folder / "coordinator.json",
        bind=bind,
        credentials=ServerCredentials(
            read_token(given["token_file"]),
            insecure_allowed=given["allow_insecure"],
            pair=_pair(given["certificate"], given["key"]),
        ),
        restore=given["restore"],
        relaunched=given["relaunched"],
        listener=given["listener"],
        metrics_host=given["metrics_host"] or of_bind,
        metrics_port=given["metrics_port"],
        end_file=given["end_file"],
    )


def _pair(certificate: Path | None, key: Path | None) -> FollowedFiles[tuple[bytes, bytes]] | None:
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise BadInput("TLS needs both a certificate and its key")
    return follow_pair(certificate, key)


def _problem(error: ValidationError) -> str:
    """Fault of the first option that cannot be used; argparse has seen to the types."""
    first = error.errors()[0]
    name, given = str(first["loc"][0]), plain_line(str(first["input"]), 80)
    if name == "job":
        rule = "use lower case letters, digits, dots and dashes, at most 63"
    else:
        limits = CoordinatorSettings.model_fields[name].metadata
        words = {"ge": "at least", "gt": "above", "le": "at most"}
        found = [(words[kind], getattr(limit, kind)) for limit in limits for kind in words if hasattr(limit, kind)]
        rule = "must be " + " and ".join(f"{word} {bound:g}" for word, bound in found)
    return f"--{name.replace('_', '-')} {given}: {rule}"


def _address(bind: str, port: int | None) -> str:
    if path_of_socket(bind) is not None:
        if port is not None:
            raise BadInput(f"--bind {bind} is a socket's path; leave out --port")
        return check_coordinator(bind)
    host, colon, own_port = bind.rpartition(":")
    named = bool(colon) and own_port.isdigit() and (host.endswith("]") or ":" not in host)
    if not named:
        host, own_port = (f"[{bind}]" if ":" in bind and not bind.startswith("[") else bind), "0"
    elif port is not None:
        raise BadInput(f"--bind {bind} names a port already; leave out --port")
    number = int(own_port) if port is None else port
    if not 0 <= number <= 65535:
        raise BadInput(f"port {number}; a port is 0 to 65535")
    return f"{host}:{number}"


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
            closing.callback(ConnectionForwarder(options.listener, name).close)
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
            if status.phase not in ENDED:
                continue
            now = clock()
            ended_seconds = ended_seconds or now
            waited_seconds = now - ended_seconds
            if waited_seconds >= (options.settings.leave_seconds if status.tasks else _LINGER_SECONDS):
                break
        server.stop(_GRACE_SECONDS).wait(_GRACE_SECONDS + 1)
    write_end(options.end_file, runner.status())
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
    """Write address, process id and incarnation (JSON) for the launcher.

    Raises:
        BadInput: the file cannot be written.
    """
    content = {"address": address, "pid": os.getpid(), "incarnation": f"{incarnation:016x}"}
    try:
        write_whole(path, json.dumps(content) + "\n", durable=False)
    except OSError as error:
        raise BadInput(f"the coordinator's address cannot be written to {path}: {error}") from error


def write_end(path: Path | None, status: JobStatus) -> None:
    """Write how the job has ended, for a reader who finds no coordinator; nothing of a job that goes on.

    Raises:
        BadInput: the file cannot be written.
    """
    if path is None or status.phase not in ENDED:
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
