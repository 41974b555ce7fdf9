"""The servers under load: `global-learner serve` as an operator starts it, and the bare echo beside it."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks.processes import CommandedModule
from benchmarks.push.load import Figures, Load
from cluster_agent.fleet.learner_client import LearnerClient
from cluster_agent.settings import LearnerConnectionSettings as LearnerAddress
from deploy.demonstration.processes import Processes
from global_learner.enrollment.authority import open_authority
from global_learner.policyctl.client import AdminClient, TlsFiles
from policy_net.errors import LearnerUnreachable
from policy_net.exchange.enrolled_identity import EnrollmentFile
from policy_net.exchange.generated import fleet_pb2
from policy_net.exchange.identity_file import write_private
from policy_net.exchange.policy_file import PolicyFile, write_policy_file

START_SECONDS = 120.0
CALL_SECONDS = 120.0
LOAD_MODULE = "benchmarks.push.load"
WARM_SECONDS = 0.5
"""Of a load: connections are open and every program is warm by then."""


@dataclass(frozen=True, slots=True)
class Server:
    """Where a server answers, and as whom the clusters come.

    Attributes:
        pid: its process.
        identities: an identity file a cluster; none for plain text.
        http_port: of its metrics; 0 for a server without.
    """

    name: str
    address: str
    pid: int
    identities: dict[str, str]
    state_dir: Path
    http_port: int = 0


def start_learner(
    processes: Processes, folder: Path, name: str, policy: PolicyFile, clusters: Sequence[str], **sections: object
) -> Server:
    """Start a learner, with identities if `clusters` are named, and enroll these; `sections` are further settings."""
    home = folder / name
    home.mkdir()
    write_policy_file(home / "first.safetensors", policy)
    content: dict[str, Any] = {
        "state_dir": "state",
        "initial_policy": "first.safetensors",
        "listen": "127.0.0.1:0",
        "port_file": "ports.json",
        "telemetry": {"http_listen": "127.0.0.1:0"},
        "scores": {"enabled": False},
        **sections,
    }
    if clusters:
        content["identity"] = {"enroll_port": 0}
    (home / "learner.yaml").write_text(yaml.safe_dump(content))
    processes.start(
        name, "benchmarks.with_constants", ["global_learner.cli", "serve", "--config", str(home / "learner.yaml")]
    )
    _wait_for(home / "ports.json", processes)
    ports = json.loads((home / "ports.json").read_text())
    address = f"127.0.0.1:{ports['port']}"
    identities = enroll(home, address, clusters)
    return Server(name, address, processes.pid_of(name), identities, home / "state", ports["http_port"])


def enroll(home: Path, address: str, clusters: Sequence[str], at_once: int = 1) -> dict[str, str]:
    """Invite every cluster and trade its token, with the code of `policyctl` and of the agent.

    Args:
        home: the learner's; each cluster gets a folder in it.
        at_once: how many do so at a time.

    Returns:
        each cluster's identity file.
    """
    if not clusters:
        return {}
    admin = AdminClient(address, TlsFiles(certificate=home / "state" / "identity" / "admin.pem"), CALL_SECONDS)

    def enroll_one(cluster: str) -> str:
        reply = admin.ask(fleet_pb2.EnrollClusterRequest(cluster=cluster))
        token = home / f"{cluster}.enrollment"
        authority = reply.authority.decode()
        EnrollmentFile(cluster, reply.token, reply.enroll_port, reply.expires_unix_seconds, authority).write(token)
        settings = LearnerAddress(address=address, enrollment_file=token)
        client = LearnerClient(settings, cluster, lambda _method, _outcome: None, home / cluster)
        _register(client)
        client.close()
        return str(home / cluster / "identity.pem")

    with ThreadPoolExecutor(at_once) as pool:
        identities = dict(zip(clusters, pool.map(enroll_one, clusters), strict=True))
    admin.close()
    return identities


def _register(client: LearnerClient) -> None:
    """Enroll and register; on a busy machine the first connection may take more than one try."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            client.register("", ())
        except LearnerUnreachable:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return


def start_echo(processes: Processes, folder: Path, name: str, like: Server) -> Server:
    """Start the echo; it takes the same clusters, over the same kind of connection, as the learner `like`."""
    home = folder / name
    home.mkdir()
    arguments = [str(home / "port")]
    if like.identities:
        authority = open_authority(like.state_dir / "identity", time.time())
        key, certificate = authority.for_server(("127.0.0.1",), time.time())
        write_private(home / "server.pem", key + certificate + authority.pem)
        arguments.append(str(home / "server.pem"))
    processes.start(name, "benchmarks.push.echo", arguments)
    _wait_for(home / "port", processes)
    address = f"127.0.0.1:{(home / 'port').read_text()}"
    return Server(name, address, processes.pid_of(name), like.identities, home)


def load_server(
    load: CommandedModule,
    server: Server,
    clusters: Sequence[str],
    seconds: float,
    *,
    echo: bool,
    messages: bool = False,
) -> Figures:
    """Put a server under load for a while; `echo` and `messages` as in `Load`.

    Args:
        load: runs `LOAD_MODULE`.
    """
    names = list(clusters)
    command = Load(server.address, server.identities, names, server.pid, seconds, WARM_SECONDS, echo, messages)
    return Figures(**load.ask(asdict(command)))


def metrics(server: Server) -> dict[str, float]:
    """The learner's metrics by name and labels, as `/metrics` shows them."""
    with urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}/metrics", timeout=CALL_SECONDS) as page:
        lines = page.read().decode().splitlines()
    values = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name: float(value) for name, _, value in values}


def _wait_for(path: Path, processes: Processes, clock: Callable[[], float] = time.monotonic) -> None:
    deadline = clock() + START_SECONDS
    while not path.exists():
        processes.check()
        if clock() > deadline:
            raise TimeoutError(f"no {path} after {START_SECONDS:.0f} s")
        time.sleep(0.02)
