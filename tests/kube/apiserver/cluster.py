"""A small cluster for tests: the test API server with the stand-ins that give its objects a life.

with running_cluster(nodes=(Node("a"), Node("b", gpus=8)), kubelet="processes") as cluster:
    subprocess.run(["kubectl", "--kubeconfig", cluster.kubeconfig, "apply", "-f", "job.yaml"])
"""

from __future__ import annotations

import base64
import contextlib
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from apiserver.controllers.addresses import Addresses
from apiserver.controllers.collection import Collector
from apiserver.controllers.jobs import JobController
from apiserver.controllers.kubelet import Kubelet
from apiserver.controllers.pretending import Pretending
from apiserver.controllers.processes import Processes
from apiserver.controllers.scheduler import Scheduler
from apiserver.rbac import allowed_by
from apiserver.serving import KubeServer
from apiserver.store import Refused

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Node:
    """A node and what it has for pods.

    Attributes:
        more: of its spec, as taints.
    """

    name: str
    cpu: str = "8"
    memory: str = "32Gi"
    gpus: int = 4
    pods: int = 110
    labels: Mapping[str, str] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Waits:
    """How long stand-ins wait before they try again: shorter than the real ones, whose times are in brackets.

    Attributes:
        job_backoff_seconds: before a Job's failed pod is made again (10, doubling).
        restart_seconds: before a container is started again (10, doubling).
        lost_node_seconds: until the pods of a node that is gone are deleted (40).
    """

    job_backoff_seconds: float = 0.5
    restart_seconds: float = 0.5
    lost_node_seconds: float = 2.0


@dataclass(slots=True)
class Cluster:
    """A cluster that runs.

    Attributes:
        folder: of volumes and logs, gone at the end.
    """

    server: KubeServer
    kubelet: Kubelet
    addresses: Addresses
    runtime: Pretending | Processes
    folder: Path
    _rules: dict[str, list[Json]] = field(default_factory=dict)

    @property
    def address(self) -> str:
        return self.server.address

    @property
    def kubeconfig(self) -> Path:
        """A file for `kubectl --kubeconfig`, of one who may do everything."""
        return self.kubeconfig_of("admin")

    def kubeconfig_of(self, user: str) -> Path:
        """A file for `kubectl --kubeconfig`, and for our own programs."""
        path = self.folder / f"kubeconfig-{user}"
        path.touch(mode=0o600)
        path.write_text(json.dumps(_kubeconfig(self.server, user)), encoding="utf-8")
        return path

    def grant(self, user: str, rules: Sequence[Json]) -> Path:
        """Let a user do what rules allow, and nothing else; their file for kubectl.

        Args:
            rules: of a ClusterRole, or of a Role with its `namespace`.
        """
        self._rules[user] = list(rules)
        self.server.tokens[f"{user}-token"] = user
        self.server.may = allowed_by(self._rules)
        return self.kubeconfig_of(user)

    def account(self, user: str, namespace: str, rules: Sequence[Json]) -> tuple[Path, dict[str, str]]:
        """A service account with these rights: the folder that is mounted for it, and its pods' environment."""
        self.grant(user, rules)
        assert self.server.ca_file is not None
        folder = self.folder / f"account-{user}"
        folder.mkdir(exist_ok=True)
        content = {"token": f"{user}-token", "namespace": namespace, "ca.crt": self.server.ca_file.read_text("utf-8")}
        for name, text in content.items():
            (folder / name).write_text(text, encoding="utf-8")
        port = str(self.server.secure_port)
        return folder, {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": port}

    @property
    def pretending(self) -> Pretending:
        """The containers, where they are not real."""
        assert isinstance(self.runtime, Pretending), "the containers of this cluster are processes"
        return self.runtime

    @property
    def processes(self) -> Processes:
        """The containers, where they are real."""
        assert isinstance(self.runtime, Processes), "the containers of this cluster are not real"
        return self.runtime

    def make(self, table: str, found: Json) -> Json:
        """Create an object, as whoever sets up a test."""
        return self.server.call(lambda: self.server.store.create(table, found))

    def find(self, table: str, name: str, namespace: str = "team") -> Json | None:
        """An object; None where it is not there."""
        return self.server.call(lambda: self.server.store.objects.get(table, {}).get((namespace, name)))

    def all(self, table: str, namespace: str = "") -> list[Json]:
        return self.server.call(lambda: list(self.server.store.all(table, namespace)))

    def change(
        self, table: str, name: str, change: Callable[[Json], Json], namespace: str = "team", part: str = ""
    ) -> Json:
        """Put in an object's place what `change` makes of it."""
        store = self.server.store
        return self.server.call(
            lambda: store.replace(table, namespace, name, change(store.get(table, namespace, name)), part)
        )

    def delete(self, table: str, name: str, namespace: str = "team", **options: Any) -> None:
        self.server.call(lambda: self.server.store.delete(table, namespace, name, options))

    def add(self, node: Node) -> None:
        """Let a node join."""
        room = {"cpu": node.cpu, "memory": node.memory, "pods": str(node.pods)}
        if node.gpus:
            room["nvidia.com/gpu"] = str(node.gpus)

        def join() -> None:
            now = self.server.store.now()
            ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is ready"}
            self.server.store.create(
                "nodes",
                {
                    "metadata": {
                        "name": node.name,
                        "labels": {"kubernetes.io/hostname": node.name, "kubernetes.io/os": "linux", **node.labels},
                    },
                    "spec": dict(node.more),
                    "status": {
                        "capacity": room,
                        "allocatable": room,
                        "conditions": [{**ready, "lastHeartbeatTime": now, "lastTransitionTime": now}],
                        "addresses": [
                            {"type": "InternalIP", "address": self.addresses.of_node(node.name)},
                            {"type": "Hostname", "address": node.name},
                        ],
                        "nodeInfo": {"kubeletVersion": "v1.36.0-test", "operatingSystem": "linux"},
                    },
                },
            )

        self.server.call(join)

    def wait(self, holds: Callable[[], Any], what: str, seconds: float = 120.0) -> Any:
        """Wait until something holds, and give it.

        Raises:
            TimeoutError: it did not, with the pods as they are.
        """
        deadline = time.monotonic() + seconds
        while not (found := holds()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"not within {seconds} s: {what}; pods: {json.dumps(self._pods())}")
            time.sleep(0.02)
        return found

    def wait_for_condition(
        self, table: str, name: str, condition: str, namespace: str = "team", seconds: float = 120.0
    ) -> Json:
        """Wait until a condition of an object is True; the object."""

        def holds() -> Json | None:
            found = self.find(table, name, namespace) or {}
            conditions = (found.get("status") or {}).get("conditions") or ()
            return found if any((each["type"], each["status"]) == (condition, "True") for each in conditions) else None

        result: Json = self.wait(holds, f"{condition} of {table} {namespace}/{name}", seconds)
        return result

    def log(self, pod: str, namespace: str = "team") -> str:
        """What a pod's process has said so far."""
        found = self.find("pods", pod, namespace)
        if found is None:
            raise Refused(404, "NotFound", f'pods "{pod}" not found')
        path = self.processes.log_path(found)
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def _pods(self) -> list[str]:
        return [f"{each['metadata']['name']}: {(each.get('status') or {}).get('phase')}" for each in self.all("pods")]


@contextlib.contextmanager
def running_cluster(
    nodes: Sequence[Node] = (Node("node-a"), Node("node-b")),
    kubelet: Literal["pretend", "processes"] = "pretend",
    server: KubeServer | None = None,
    waits: Waits | None = None,
    seed: int = 0,
    images: Mapping[str, Sequence[str]] | None = None,
) -> Iterator[Cluster]:
    """A cluster, until the end of the block; then no process of it is left.

    Args:
        server: with settings of its own: tokens, rights, a clock.
        seed: of generated names.
        images: entry points of images, with `processes`.
    """
    waits = waits or Waits()
    with contextlib.ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="fedl2-cluster-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        if server is None:
            certificates = folder / "certificates"
            certificates.mkdir()
            server = KubeServer({"admin-token": "admin"}, bookmark_seconds=1.0, certificates=certificates)
        addresses = Addresses(server.store)
        stack.callback(addresses.close)
        server.writer.service_address = addresses.for_service
        stack.enter_context(server.running())
        runtime: Pretending | Processes
        if kubelet == "processes":
            # Ranks meet at a port that follows from their job's uid, on all addresses of the machine: jobs of clusters
            # beside each other must have other uids.
            server.store.reseed(256 * seed + addresses.block)
            runtime = Processes(folder, server.store, addresses, images)
            server.logs = runtime.log_path
            stack.callback(server.call, runtime.close)
        else:
            runtime = Pretending(server.store.seconds)
        kubelets = Kubelet(server.store, runtime, addresses, server.wake, waits.restart_seconds)
        controllers = (
            Collector(server.store, waits.lost_node_seconds),
            JobController(server.store, seed, waits.job_backoff_seconds),
            server.writer.quotas,
            Scheduler(server.store),
            kubelets,
        )
        stack.callback(server.call, server.detach_all)
        for controller in controllers:
            server.call(lambda each=controller: server.attach(each))  # type: ignore[misc]
        cluster = Cluster(server, kubelets, addresses, runtime, folder)
        for node in nodes:
            cluster.add(node)
        yield cluster


def _kubeconfig(server: KubeServer, user: str) -> Json:
    token = next((token for token, of in server.tokens.items() if of == user), "")
    cluster = {"server": server.address}
    if server.ca_file is not None:
        authority = base64.b64encode(server.ca_file.read_bytes()).decode()
        cluster = {"server": server.secure_address, "certificate-authority-data": authority}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": user, "user": {"token": token} if token else {}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": user, "namespace": "team"}}],
    }
