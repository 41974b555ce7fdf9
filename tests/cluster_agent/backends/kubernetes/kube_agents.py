"""Agents of a test cluster whose decisions a test takes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kube_clients import api_of
from kube_cluster import KubeCluster

from cluster_agent.backend_settings import KubernetesBackendSettings
from cluster_agent.backends.base import AgentParts
from cluster_agent.backends.kubernetes.backend import KubernetesBackend
from cluster_agent.kubernetes.elector import Elector
from cluster_agent.telemetry import AgentTelemetry
from policy_net.domain import Allocation, Decision, DecisionOrigin, Progress, Trigger

DEADLINE_SECONDS = 60.0
_POLL_SECONDS = 0.005


class Agent:
    """A backend and the thread of decisions over it.

    A look at what has changed comes as soon as the backend has seen all that stands in the server, and the time up to
    it is skipped, so that a slot is over in a moment. A slot that a test states passes as it does elsewhere.

    Args:
        user: whose rights it has.
    """

    def __init__(
        self, cluster: KubeCluster, folder: Path, user: str = "agent", elector: Elector | None = None, **settings: Any
    ) -> None:
        self._cluster = cluster
        self._skips = "slot_seconds" not in settings
        self.stop = threading.Event()
        self.skipped_seconds = 0.0
        self.telemetry = AgentTelemetry()
        parts = AgentParts(folder, "drf", None, self.wait, self.clock, self.telemetry)
        values = {"slot_seconds": 0.5, "debounce_seconds": 0.0, **settings}
        read = KubernetesBackendSettings.model_validate(values)
        failures = self.telemetry.api_failures
        api = api_of(cluster.server, user, on_error=lambda error: failures.labels(error.word).inc())
        self.backend = KubernetesBackend(read, parts, api, lambda: time.time() + self.skipped_seconds, elector)
        self.backend.start()
        self.progress: list[Progress] = []
        self.decisions = 0

    def clock(self) -> float:
        """Monotonic seconds, of which a test may skip some."""
        return time.monotonic() + self.skipped_seconds

    def wait(self, seconds: float) -> bool:
        """Wait so long, or until the backend has seen everything; whether it is to stop."""
        if not self._skips:
            return self.stop.wait(seconds)
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0.0 and not self.stop.wait(min(_POLL_SECONDS, left)):
            if self.has_seen_all():
                self.skipped_seconds += max(0.0, deadline - time.monotonic())
                break
        return self.stop.is_set()

    def has_seen_all(self) -> bool:
        watch = self.backend.watch
        caches = [(word, following.cache) for word, following in watch.followed.items()]
        caches += [("namespaces", following.cache) for following in watch.opted_in.values()]
        seen = {(word, *key): entry.version for word, cache in caches for key, entry in cache.entries().items()}
        followed = {word for word, _ in caches}

        def standing() -> dict[tuple[str, str, str], str]:
            return {
                (plural.partition(".")[0], *key): found["metadata"]["resourceVersion"]
                for plural, table in self._cluster.server.store.objects.items()
                for key, found in table.items()
                if plural.partition(".")[0] in followed
            }

        return self._cluster.server.call(standing) == seen

    def decide(self, reasons: tuple[str, ...] = (), **workers: int) -> Trigger:
        """Take a decision, once those that are named are seen; a job that is not named gets one worker."""
        wait_for(lambda: {f"team/{name}" for name in workers} <= set(self.backend.poll().members))
        found = self.backend.observe()
        assert found is not None
        state, trigger = found
        sizes = {job.job_id: Allocation(workers.get(job.job_id.partition("/")[2], 1), 0) for job in state.jobs}
        self.decisions += 1
        self.progress = self.backend.apply(Decision(sizes, None, reasons, DecisionOrigin("v7", self.decisions)))
        return trigger

    def counted(self, metric: str, **labels: str) -> float:
        """A sample of `/metrics`; 0 where there is none."""
        return self.telemetry.registry.get_sample_value(metric, labels) or 0.0

    def close(self) -> None:
        self.stop.set()
        self.backend.close()


def wait_for(is_so: Callable[[], bool], found: Callable[[], object] = lambda: "") -> None:
    """Wait until something is so.

    Args:
        found: what is there instead, for whoever reads that it never was.
    """
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not is_so():
        assert time.monotonic() < deadline, found()
        time.sleep(0.005)
