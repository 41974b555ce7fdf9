"""A measurement of one agent process on a large cluster: how quick it is, what it takes, and what it asks for.

At each tick some jobs come and some go; a tick lasts from the first change until the agent has done what there is to do
for the last job that came: watch, decision and writes together. Memory and processor time are the agent's own; the
server runs beside it, in this process.
"""

from __future__ import annotations

import json
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks.kube.jobs import AdvisedJobs, SetJobs, Work
from benchmarks.kube.large_cluster import LargeCluster, Size, large_cluster
from benchmarks.kube.trained_jobs import trained_jobs
from benchmarks.processes import cpu_seconds, percentile, resident_bytes
from cluster_agent.kubernetes.access import Access, open_client
from cluster_agent.kubernetes.api_server import ApiServer
from cluster_agent.kubernetes.cache import Cache
from cluster_agent.kubernetes.capacity import PodFacts, pod_facts
from cluster_agent.kubernetes.list_watch import ListWatch
from cluster_agent.kubernetes.resources import PODS
from deploy.demonstration.processes import DemoFailed, Processes

_LIST_SECONDS = 120.0
_START_SECONDS = 1800.0
_TICK_SECONDS = 120.0
_POLL_SECONDS = 0.005
_LISTS = 5
_WARM_TICKS = 20
"""Ticks before memory is looked at: caches, allocator and policy are warm by then."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How much comes and goes.

    Attributes:
        jobs: how many there are at any time.
        changes: jobs that come at each tick; as many go.
        calm_seconds: how long nothing comes and goes, at the end.
    """

    jobs: int
    ticks: int
    changes: int
    calm_seconds: float


def measure(mode: str, size: Size, plan: Plan, folder: Path) -> dict[str, Any]:
    """Run it all.

    Args:
        mode: `advice`, `auto` or `training`.

    Raises:
        DemoFailed: the agent ended, or did not keep up.
    """
    with large_cluster(size) as cluster, _work(mode, cluster) as work, Processes(folder) as processes:
        kubeconfig = _kubeconfig(folder, cluster.address)
        lists = [_list_seconds(kubeconfig) for _ in range(_LISTS)] if size.pods else [0.0]
        running = [work.add() for _ in range(plan.jobs)]
        began = time.monotonic()
        processes.start("agent", "cluster_agent.cli", ["run", "--config", str(_config(folder, kubeconfig, work))])
        _wait(lambda: all(map(work.is_done, running)), processes, _START_SECONDS)
        first_seconds = time.monotonic() - began
        pid = processes.pid_of("agent")
        seconds, memory = [], []
        counts = _Counts(cluster, work, pid)
        for _ in range(plan.ticks):
            seconds.append(_tick(work, running, plan.changes, processes))
            memory.append(resident_bytes(pid))
        ticked = counts.since()
        calm = _Counts(cluster, work, pid)
        time.sleep(plan.calm_seconds)
        rested = calm.since()
        warm = memory[min(_WARM_TICKS, len(memory) - 1)]
        come = plan.ticks * plan.changes
        return {
            "tick_p99_seconds": percentile(seconds, 0.99),
            "tick_p50_seconds": statistics.median(seconds),
            "memory_growth_percent": 100.0 * (memory[-1] - warm) / warm,
            "calls_per_change": ticked["writes"] / (come + ticked["sizes"]),
            "reads_per_tick": ticked["reads"] / plan.ticks,
            "sizes_set_per_tick": ticked["sizes"] / plan.ticks,
            "list_10000_pods_seconds": statistics.median(lists) * 10_000 / (size.pods or 1),
            "rss_mb": max(memory) / 1e6,
            "cpu_seconds_per_tick": ticked["cpu"] / plan.ticks,
            "calm_calls_per_second": (rested["writes"] + rested["reads"]) / max(plan.calm_seconds, 1e-9),
            "calm_cpu_percent": 100.0 * rested["cpu"] / max(plan.calm_seconds, 1e-9),
            "first_seconds": first_seconds,
            "nodes": size.nodes,
            "pods": size.pods,
            "jobs": plan.jobs,
            "ticks": plan.ticks,
            "changes": plan.changes,
        }


@contextmanager
def _work(mode: str, cluster: LargeCluster) -> Iterator[Work]:
    if mode == "training":
        with trained_jobs(cluster) as work:
            yield work
    else:
        yield SetJobs(cluster) if mode == "auto" else AdvisedJobs(cluster)


class _Counts:
    """What an agent has asked for and taken since now."""

    def __init__(self, cluster: LargeCluster, work: Work, pid: int) -> None:
        self._cluster, self._work, self._pid = cluster, work, pid
        self._before = self._now()

    def since(self) -> dict[str, float]:
        """By what it is."""
        return {name: value - self._before[name] for name, value in self._now().items()}

    def _now(self) -> dict[str, float]:
        writes, reads = self._cluster.writes, self._cluster.reads
        return {"writes": writes, "reads": reads, "sizes": self._work.sizes_set, "cpu": cpu_seconds(self._pid)}


def _tick(work: Work, running: list[str], changes: int, processes: Processes) -> float:
    began = time.monotonic()
    for name in running[:changes]:
        work.end(name)
    del running[:changes]
    new = [work.add() for _ in range(changes)]
    running += new
    _wait(lambda: all(map(work.is_done, new)), processes, _TICK_SECONDS)
    return time.monotonic() - began


def _list_seconds(kubeconfig: Path) -> float:
    """Until a cache has all pods, from a new connection on."""
    api = ApiServer(open_client(Access(kubeconfig, "")))
    cache: Cache[PodFacts] = Cache(pod_facts, time.monotonic, lambda: None)
    following: ListWatch[PodFacts] = ListWatch(api, PODS, cache, time.monotonic)
    stopping = threading.Event()
    thread = threading.Thread(target=following.run, args=(stopping.wait,))
    began = time.monotonic()
    thread.start()
    synced = cache.wait_synced(_LIST_SECONDS)
    seconds = time.monotonic() - began
    stopping.set()
    following.stop()
    thread.join()
    if not synced:
        raise DemoFailed(f"the pods were not listed within {_LIST_SECONDS:g} s")
    api.close()
    return seconds


def _wait(holds: Callable[[], bool], processes: Processes, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        processes.check()
        if time.monotonic() > deadline:
            raise DemoFailed(f"the agent did not keep up within {seconds:g} s")
        time.sleep(_POLL_SECONDS)


def _config(folder: Path, kubeconfig: Path, work: Work) -> Path:
    content = {
        "cluster": "large",
        "state_dir": "agent",
        "backend": {
            "kind": "kubernetes",
            "kubeconfig": kubeconfig.name,
            "slot_seconds": 600.0,
            "debounce_seconds": 0.0,
            **work.backend,
        },
        "policy": {"initial": "set"},
    }
    path = folder / "agent.yaml"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return path


def _kubeconfig(folder: Path, address: str) -> Path:
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "large",
        "clusters": [{"name": "large", "cluster": {"server": address}}],
        "users": [{"name": "large", "user": {}}],
        "contexts": [{"name": "large", "context": {"cluster": "large", "user": "large"}}],
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(content), encoding="utf-8")
    return path
