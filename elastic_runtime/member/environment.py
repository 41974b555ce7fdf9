"""Environment variables of a worker or parameter server, from its launcher or its container."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import zmq

from elastic_runtime.checkpoint.object_store import Place, place_of
from elastic_runtime.control.checks import check_host_and_port, check_job, check_task
from elastic_runtime.control.credentials import ClientCredentials, check_coordinator, follow_ca, read_token
from elastic_runtime.control.member_link import MemberLink, ReadyFile
from elastic_runtime.errors import BadInput, CoordinatorUnreachable, ElasticError, ProtocolError
from elastic_runtime.protocol.plan import TaskRole
from elastic_runtime.transport import BadAddress, CurveKeys, Endpoint
from foundation.text import plain_line

COORDINATOR = "ELASTIC_COORDINATOR"
JOB = "ELASTIC_JOB"
TASK = "ELASTIC_TASK"
TOKEN_FILE = "ELASTIC_TOKEN_FILE"  # noqa: S105  # a variable's name
CHECKPOINTS = "ELASTIC_CHECKPOINTS"
BIND = "ELASTIC_BIND"
ADVERTISE = "ELASTIC_ADVERTISE"
CA_FILE = "ELASTIC_CA_FILE"
INSECURE = "ELASTIC_INSECURE"
CURVE = "ELASTIC_CURVE"
SHARED_MEMORY = "ELASTIC_SHARED_MEMORY"
READY_FILE = "ELASTIC_READY_FILE"
GRACE = "ELASTIC_GRACE_SECONDS"
_GRACE_SECONDS = 25.0
"""Kubernetes waits 30 s from SIGTERM to SIGKILL, unless it is told otherwise: a member ends by itself before."""


@dataclass(frozen=True, slots=True)
class MemberEnvironment:
    """Where the job is and who this process is in it.

    Attributes:
        coordinator: `host:port`, or `unix:` and the path of its socket.
        checkpoints: the folder that all members of the job share, or a place in an object store.
        bind: ZeroMQ address of the data plane.
        advertise: host that peers use, where it is not the bound one; None: the bound one.
        credentials: for the coordinator; the token is the data plane's too.
        ready_file: there while this process takes part in the job; None: no file.
        grace_seconds: how long it works on after SIGTERM, until it is let go.
    """

    coordinator: str
    job: str
    task: str
    checkpoints: Place
    bind: str
    advertise: str | None
    credentials: ClientCredentials
    curve: bool
    shared_memory: bool
    ready_file: Path | None = None
    grace_seconds: float = _GRACE_SECONDS
    incarnation: int = field(default_factory=lambda: secrets.randbits(64) | 1)

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> MemberEnvironment:
        """From a process's environment.

        Raises:
            BadInput: a variable is missing or cannot be used.
        """
        missing = [name for name in (COORDINATOR, JOB, TASK, TOKEN_FILE, CHECKPOINTS) if not environment.get(name)]
        if missing:
            raise BadInput(f"{', '.join(missing)} not set; `elastic-run` sets them for every task that it starts")
        ca_file = environment.get(CA_FILE)
        return cls(
            coordinator=_checked(environment, COORDINATOR, check_coordinator),
            job=_checked(environment, JOB, check_job),
            task=_checked(environment, TASK, check_task),
            checkpoints=_place(environment, CHECKPOINTS),
            bind=_zmq_address(environment.get(BIND) or "127.0.0.1"),
            advertise=_checked(environment, ADVERTISE, _check_host) if environment.get(ADVERTISE) else None,
            credentials=ClientCredentials(
                token=read_token(Path(environment[TOKEN_FILE])),
                insecure_allowed=_flag(environment, INSECURE, default=False),
                ca=follow_ca(Path(ca_file)) if ca_file else None,
            ),
            curve=_flag(environment, CURVE, default=False),
            shared_memory=_flag(environment, SHARED_MEMORY, default=True),
            ready_file=Path(environment[READY_FILE]) if environment.get(READY_FILE) else None,
            grace_seconds=_seconds(environment, GRACE, default=_GRACE_SECONDS),
        )

    def open_endpoint(self) -> Endpoint:
        """This member's data plane.

        Raises:
            BadInput: the address cannot be bound.
            ElasticError: it is taken, maybe by a predecessor that has not ended yet.
        """
        try:
            return Endpoint(
                self.task,
                bind=self.bind,
                job_token=self.credentials.token,
                curve=CurveKeys.generate() if self.curve else None,
                advertise=self.advertise,
                shared_memory=self.shared_memory,
            )
        except (BadAddress, zmq.ZMQError, UnicodeError) as error:
            cause = error.__cause__ if isinstance(error, BadAddress) else error
            taken = isinstance(cause, zmq.ZMQError) and cause.errno == zmq.EADDRINUSE
            raise (ElasticError if taken else BadInput)(
                f"{BIND} is {self.bind.removeprefix('tcp://')[:80]!r}: {plain_line(str(error), 200)}"
            ) from error

    def open_link(self, role: TaskRole, clock: Callable[[], float]) -> MemberLink:
        """This member's line to the coordinator.

        Raises:
            BadInput: the ready file cannot be.
        """
        ready_file = ReadyFile(self.ready_file) if self.ready_file is not None else None
        return MemberLink(
            self.coordinator,
            self.job,
            self.task,
            role,
            self.incarnation,
            self.credentials,
            clock,
            ready_file=ready_file,
        )

    def unreachable(self, seconds: float) -> CoordinatorUnreachable:
        """The error of a member that has waited long enough."""
        return CoordinatorUnreachable(
            f"{self.task}: the coordinator of {self.job} at {self.coordinator} was silent for {seconds:.0f} s"
        )


def _checked(environment: Mapping[str, str], name: str, check: Callable[[str], str]) -> str:
    try:
        return check(environment[name])
    except (BadInput, ProtocolError) as error:
        raise BadInput(f"{name}: {error}") from error


def _check_host(host: str) -> str:
    return check_host_and_port(f"{host}:1").removesuffix(":1")


def _place(environment: Mapping[str, str], name: str) -> Place:
    try:
        path = place_of(environment[name])
    except BadInput as error:
        raise BadInput(f"{name}: {error}") from error
    try:
        if isinstance(path, Path) and path.exists() and not path.is_dir():
            raise BadInput(f"{name} is {environment[name][:80]!r}, which is no folder")
    except OSError as error:
        raise BadInput(f"{name} is {environment[name][:80]!r}, which cannot be used: {error.strerror}") from error
    return path


def _zmq_address(bind: str) -> str:
    """`host` or `host:port` as ZeroMQ wants it; without a port any free one."""
    host, colon, port = bind.rpartition(":")
    if not colon or not port.isdigit():
        host, port = bind, "0"
    return f"tcp://{host}:{port}"


def _flag(environment: Mapping[str, str], name: str, *, default: bool) -> bool:
    value = environment.get(name, "").lower()
    if value not in {"", "0", "1", "true", "false"}:
        raise BadInput(f"{name} is {value[:40]!r}; set it to 1 or 0")
    return value in {"1", "true"} if value else default


def _seconds(environment: Mapping[str, str], name: str, *, default: float) -> float:
    value = environment.get(name, "")
    try:
        seconds = float(value) if value else default
    except ValueError:
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds >= 0):
        raise BadInput(f"{name} is {value[:40]!r}; give seconds, 0 or more")
    return seconds
