"""Command line of a coordinator: its settings by their own names and descriptions, and where its files are."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from elastic_runtime.checkpoint.object_store import Place, place_of
from elastic_runtime.control.addresses import check_coordinator, path_of_socket
from elastic_runtime.control.credentials import ServerCredentials, follow_pair, read_token
from elastic_runtime.coordinator.checkpoint_store import Restore
from elastic_runtime.coordinator.rules.settings import CoordinatorSettings
from elastic_runtime.errors import BadInput
from foundation.followed_files import FollowedFiles
from foundation.text import plain_line


@dataclass(frozen=True)
class Options:
    """What a coordinator was started with.

    Attributes:
        address_file: where it says where it answers.
        end_file: where it says how the job has ended, once it has; None: nowhere.
        bind: `host:port`, port 0 takes any; or `unix:` and a socket's path.
        restore: whether to begin from the newest complete checkpoint that is there already.
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
        wanted = "use lower case letters, digits, dots and dashes, at most 63"
    else:
        limits = CoordinatorSettings.model_fields[name].metadata
        words = {"ge": "at least", "gt": "above", "le": "at most"}
        found = [(words[kind], getattr(limit, kind)) for limit in limits for kind in words if hasattr(limit, kind)]
        wanted = "must be " + " and ".join(f"{word} {bound:g}" for word, bound in found)
    return f"--{name.replace('_', '-')} {given}: {wanted}"


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
