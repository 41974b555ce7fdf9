"""Progress from jobs' own metrics, as decisions see it: learned from where it is believed, told where it is not."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kube_clients import api_of
from kube_cluster import PODS, KubeCluster, kube_cluster
from metrics_server import MetricsServer, dripping, page

from cluster_agent.backend_settings import KubernetesBackendSettings
from cluster_agent.backends.base import AgentParts
from cluster_agent.backends.kubernetes import scrapes
from cluster_agent.backends.kubernetes.backend import KubernetesBackend
from policy_net.domain import Allocation, Decision, Job, Progress

DEADLINE_SECONDS = 60.0


class World:
    """A job that exports metrics, and an agent that decides about it."""

    def __init__(self, cluster: KubeCluster, server: MetricsServer, folder: Path) -> None:
        self.cluster, self.server = cluster, server
        cluster.job("train", workers=2, on="a")
        source = {"port": server.port, "samples": "done", "total": "all"}
        cluster.target("train", progressFrom={"metrics": source})
        pod = cluster.server.call(lambda: cluster.server.store.get(PODS, "team", "train-0"))
        annotations = {"batch.kubernetes.io/job-completion-index": "0"}
        cluster.change(PODS, "train-0", metadata={**pod["metadata"], "annotations": annotations})
        cluster.change(PODS, "train-0", "status", status={"phase": "Running", "podIP": "127.0.0.1"})
        self.stop = threading.Event()
        parts = AgentParts(folder, "drf", None, self.stop.wait, time.monotonic)
        settings = KubernetesBackendSettings(slot_seconds=0.2, debounce_seconds=0.0)
        self.backend = KubernetesBackend(settings, parts, api_of(cluster.server, "agent"), time.time)
        self.backend.start()

    def decide(self) -> tuple[Job, Progress]:
        found = self.backend.observe()
        assert found is not None
        (job,) = found[0].jobs
        (progress,) = self.backend.apply(Decision({job.job_id: Allocation(2, 0)}))
        return job, progress

    def until(self, is_so: Callable[[Job, Progress], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not is_so(*self.decide()):
            assert time.monotonic() < deadline

    @property
    def said(self) -> str:
        (condition,) = self.cluster.status_of("train")["conditions"]
        return str(condition["message"])


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(scrapes, "EVERY_SECONDS", 0.05)
    monkeypatch.setattr(scrapes, "_POLL_SECONDS", 0.05)
    with kube_cluster() as cluster, MetricsServer().running() as server:
        cluster.node("a")
        server.answer = page("done 100\nall 1000\n")
        made = World(cluster, server, tmp_path)
        yield made
        made.stop.set()
        made.backend.close()


def test_what_a_job_says_is_its_progress_and_what_it_trains_is_learned(world: World) -> None:
    world.until(lambda job, progress: job.work_known and job.remaining_epochs == 900.0)
    world.server.answer = page("done 300\nall 1000\n")
    world.until(lambda job, progress: progress.samples == 200.0 and progress.seconds > 0.0)
    world.until(lambda job, progress: job.remaining_epochs == 700.0)
    assert "progress" not in world.said


def test_a_liar_is_told_in_the_condition_and_its_work_counts_as_unknown(world: World) -> None:
    world.until(lambda job, progress: job.work_known)
    world.server.answer = page("done 50\nall 1000\n")
    world.until(lambda job, progress: not job.work_known)
    world.until(lambda job, progress: "progress: not believed: done goes backwards" in world.said)
    written = len(world.cluster.writes())
    for _ in range(3):
        assert world.decide()[1].samples == 0.0
    assert len(world.cluster.writes()) == written, "told once"
    world.server.answer = page("done 120\nall 1000\n")
    world.until(lambda job, progress: job.work_known and "progress" not in world.said)


def test_a_silent_job_holds_no_decision_up_and_keeps_what_it_said(world: World) -> None:
    world.until(lambda job, progress: job.work_known)
    world.server.answer = dripping(b"HTTP/1.1 200 OK\r\n", b"x")
    world.until(lambda job, progress: "takes longer than 1 s" in world.said)
    job, progress = world.decide()
    assert (job.work_known, job.remaining_epochs, progress.samples) == (True, 900.0, 0.0)


def test_without_a_running_pod_nobody_is_asked(world: World) -> None:
    world.until(lambda job, progress: job.work_known)
    world.cluster.change(PODS, "train-0", "status", status={"phase": "Pending"})
    quiet = []

    def is_quiet(job: Job, progress: Progress) -> bool:
        quiet.append(world.server.asked)
        return len(quiet) > 5 and len(set(quiet[-5:])) == 1

    world.until(is_quiet)
