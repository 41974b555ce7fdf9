"""TrainingJobs on the test cluster: the agent's own part of it, with decisions that a test takes."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from apiserver.cluster import Cluster
from training_objects import CRDS, TABLE, crd

from cluster_agent.backends.kubernetes.training.coordinators import (
    CoordinatorConnection,
    open_connection,
)
from cluster_agent.backends.kubernetes.training.free_capacity import ClusterCapacity
from cluster_agent.backends.kubernetes.training.jobs import TrainingJobs
from cluster_agent.kubernetes.access import Access, open_client
from cluster_agent.kubernetes.api_server import ApiServer
from cluster_agent.kubernetes.capacity import Amounts, node_facts, pod_facts
from cluster_agent.kubernetes.training.credentials import JobKeys
from cluster_agent.kubernetes.training.pod_rights import NO_RIGHTS, Rights
from cluster_agent.telemetry import AgentTelemetry
from elastic_runtime.control.client import ControlClient
from policy_net.domain import Allocation, Decision, DecisionOrigin, Job, Resources

Json = dict[str, Any]
KEY = b"k" * 32
POLL_SECONDS = 0.1
"""Of agents in tests; by default a second."""
PAUSE_SECONDS = 10.0
"""After a gang that did not come, or between two words on how far a job is."""


class Agent:
    """One agent's TrainingJobs; `acts` is whether it holds the Lease. A test may skip some of its time."""

    def __init__(
        self,
        cluster: Cluster,
        connect: Callable[[CoordinatorConnection], ControlClient] = open_connection,
        acts: bool = True,
        lease_epoch: int = 7,
        key: bytes = KEY,
        earlier: tuple[bytes, ...] = (),
        last_checkpoint_seconds: float = 300.0,
        kubeconfig: Path | None = None,
        rights: Rights = NO_RIGHTS,
    ) -> None:
        self.cluster, self.acts, self.numbers = cluster, acts, itertools.count()
        self.lease_epoch, self.skipped_seconds = lease_epoch, 0.0
        self.telemetry = AgentTelemetry()
        self.jobs = TrainingJobs(
            ApiServer(
                open_client(Access(kubeconfig or cluster.kubeconfig, "")),
                10.0,
                on_error=lambda error: self.telemetry.api_failures.labels(error.word).inc(),
            ),
            ("",),
            self.free_capacity,
            JobKeys(key, earlier),
            lambda: self.acts,
            lambda: self.lease_epoch,
            lambda: None,
            lambda: time.monotonic() + self.skipped_seconds,
            lambda: time.time() + self.skipped_seconds,
            lambda line, epoch: connect(line),
            last_checkpoint_seconds,
            self.telemetry.reported,
            POLL_SECONDS,
            rights=rights,
        )
        self.jobs.start()

    def skip_pause(self) -> None:
        """Let a pause be over: what is tried again is, and what is told now and then."""
        self.skipped_seconds += PAUSE_SECONDS

    def wait_second_try(self, workers: int, servers: int, name: str = "digits") -> None:
        """Wait until a job has its size, though its first gang may not have come; the pause after that is skipped."""

        def is_refused() -> bool:
            return "it is tried again" in status_of(self.cluster, name).get("message", "")

        def holds() -> bool:
            return is_refused() or has_size(self.cluster, workers, servers, name)

        self.cluster.wait(holds, f"{name} runs, or is tried again")
        if is_refused():
            self.skip_pause()
        wait_size(self.cluster, workers, servers, name)

    def free_capacity(self) -> ClusterCapacity:
        pods = [pod_facts(pod) for pod in self.cluster.all("pods")]
        return ClusterCapacity(
            [node_facts(node) for node in self.cluster.all("nodes")], [pod for pod in pods if pod is not None]
        )

    def counted(self, reason: str) -> float:
        """How often there was that to tell of a TrainingJob, from `/metrics`."""
        labels = {"kind": "TrainingJob", "reason": reason}
        return self.telemetry.registry.get_sample_value("fedl2_agent_object_reasons_total", labels) or 0.0

    def observe(self) -> list[Job]:
        return self.jobs.observe(_demand)

    def failures(self, error: str) -> float:
        """How many requests failed so, from `/metrics`."""
        return self.telemetry.registry.get_sample_value("fedl2_agent_api_failures_total", {"error": error}) or 0.0

    def decide(self, **sizes: Allocation) -> None:
        """Give jobs of the namespace `team` a size, once all are seen."""
        names = {name.replace("_", "-"): size for name, size in sizes.items()}
        wanted = {f"team/trainingjob/{name}": size for name, size in names.items()}
        self.cluster.wait(lambda: all(map(self._sees, names)), f"sight of {set(names)}")
        self.cluster.wait(lambda: wanted.keys() <= {job.job_id for job in self.observe()}, f"sight of {set(wanted)}")
        self.decide_all(wanted)

    def decide_all(self, wanted: Mapping[str, Allocation]) -> None:
        """Give jobs a size, by their ids; the others keep theirs."""
        others = {job.job_id: job.current for job in self.observe()}
        number = next(self.numbers)
        decision = Decision({**others, **wanted}, origin=DecisionOrigin("v1", number))
        self.jobs.apply(decision, self.lease_epoch + number / 1000)

    def _sees(self, name: str) -> bool:
        """Whether it knows the job that has this name now, and not one that had it before."""
        entry, found = self.jobs.jobs.get(("team", name)), self.cluster.find(TABLE, name)
        return entry is not None and found is not None and entry.uid == found["metadata"]["uid"]


def _demand(requests: Amounts) -> Resources:
    return Resources(requests.get("cpu", 0), 0)


@contextlib.contextmanager
def agent_of(cluster: Cluster, **how: Any) -> Iterator[Agent]:
    agent = Agent(cluster, **how)
    try:
        yield agent
    finally:
        agent.jobs.close()


def install(cluster: Cluster) -> None:
    """The CRD and two volume claims."""
    cluster.make(CRDS, crd())
    for name in ("shared", "journal"):
        cluster.make("persistentvolumeclaims", {"metadata": {"name": name, "namespace": "team"}, "spec": {}})


def submit(cluster: Cluster, spec: Json, name: str = "digits") -> Json:
    return cluster.make(TABLE, {"metadata": {"name": name, "namespace": "team"}, "spec": spec})


def status_of(cluster: Cluster, name: str = "digits") -> Json:
    found = cluster.find(TABLE, name) or {}
    return found.get("status") or {}


def wait_phase(cluster: Cluster, phase: str, name: str = "digits") -> Json:
    cluster.wait(lambda: status_of(cluster, name).get("phase") == phase, f"{name} is {phase}")
    return status_of(cluster, name)


def let_go(cluster: Cluster) -> Path:
    """The file that lets a held job train as fast as it can."""
    return cluster.folder / "let-go"


def finish(cluster: Cluster) -> Json:
    """Let a held job go; its status once it is complete."""
    let_go(cluster).touch()
    return wait_phase(cluster, "Complete")


def has_size(cluster: Cluster, workers: int, servers: int, name: str = "digits") -> bool:
    status = status_of(cluster, name)
    return (status.get("phase"), status.get("workers"), status.get("ps")) == ("Running", workers, servers)


def wait_size(cluster: Cluster, workers: int, servers: int, name: str = "digits") -> None:
    what = f"{name} runs with {workers} workers and {servers} PSs"
    cluster.wait(lambda: has_size(cluster, workers, servers, name), what)


def pods_of(cluster: Cluster, name: str = "digits") -> dict[str, Json]:
    """By task."""
    mine = [pod for pod in cluster.all("pods") if pod["metadata"]["labels"].get("fedl2.io/training-job") == name]
    return {pod["metadata"]["labels"]["fedl2.io/task"]: pod for pod in mine}


def events_of(cluster: Cluster, name: str = "digits") -> dict[str, str]:
    """The last message of each reason."""
    mine = [event for event in cluster.all("events") if event["involvedObject"]["name"] == name]
    return {event["reason"]: event["message"] for event in mine}


def wait_told(cluster: Cluster, reason: str, words: str = "", name: str = "digits") -> None:
    """Until an Event of `reason` says `words`: Events follow the status, they do not come with it."""
    cluster.wait(
        lambda: reason in (job_report := events_of(cluster, name)) and words in job_report[reason],
        f"an Event {reason}: {words}",
    )
