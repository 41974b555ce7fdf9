"""`python -m benchmarks.kube [-o json]`: what an agent on a large Kubernetes cluster takes, and how quick it is.

A real agent process on the test API server, 500 nodes, 10,000 pods of others, 2,000 Jobs with targets. At each tick
some jobs come and some go; a tick lasts from the first change until the last new job has its advice in its status:
watch, decision and write together. Memory and processor time are the agent's own; the server runs beside it, in this
process.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from benchmarks.kube.large_cluster import LargeCluster, Size, large_cluster
from cluster_agent.kubernetes.access import Access, open_client
from cluster_agent.kubernetes.api_server import ApiServer
from cluster_agent.kubernetes.cache import Cache
from cluster_agent.kubernetes.capacity import PodFacts, pod_facts
from cluster_agent.kubernetes.list_watch import ListWatch
from cluster_agent.kubernetes.resources import PODS
from deploy.local.processes import DemoFailed, Processes

_START_SECONDS = 120.0
_TICK_SECONDS = 60.0
_LOOK_SECONDS = 0.005
_LISTS = 5
_SETTLED = 20
"""Ticks before memory is looked at: caches, allocator and policy are warm by then."""


def measure(size: Size, ticks: int, changes: int, folder: Path) -> dict[str, Any]:
    """Run it all.

    Args:
        changes: jobs that come at each tick; as many go.

    Raises:
        DemoFailed: the agent ended, or did not keep up.
    """
    with large_cluster(size) as cluster, Processes(folder) as processes:
        kubeconfig = _kubeconfig(folder, cluster.address)
        lists = [_list_seconds(kubeconfig) for _ in range(_LISTS)]
        config = folder / "agent.yaml"
        content = {
            "cluster": "large",
            "state_dir": "agent",
            "backend": {
                "kind": "kubernetes",
                "kubeconfig": kubeconfig.name,
                "slot_seconds": 600.0,
                "debounce_seconds": 0.0,
            },
            "policy": {"initial": "set"},
        }
        config.write_text(yaml.safe_dump(content), encoding="utf-8")
        began = time.monotonic()
        processes.start("agent", "cluster_agent.cli", ["run", "--config", str(config)])
        running = [f"job-{number}" for number in range(size.jobs)]
        _wait(lambda: all(map(cluster.is_advised, running)), processes, _START_SECONDS)
        first_seconds = time.monotonic() - began
        pid = processes.pid_of("agent")
        seconds, memory, writes, reads = [], [], cluster.writes, cluster.reads
        cpu = _cpu_seconds(pid)
        for _ in range(ticks):
            seconds.append(_tick(cluster, running, changes, processes))
            memory.append(_rss_bytes(pid))
        cpu = _cpu_seconds(pid) - cpu
        settled = memory[min(_SETTLED, len(memory) - 1)]
        return {
            "tick_p99_seconds": _quantile(seconds, 0.99),
            "tick_p50_seconds": statistics.median(seconds),
            "memory_growth_percent": 100.0 * (memory[-1] - settled) / settled,
            "calls_per_change": (cluster.writes - writes) / (ticks * changes),
            "reads_per_tick": (cluster.reads - reads) / ticks,
            "list_10000_pods_seconds": statistics.median(lists) * 10_000 / (size.pods or 1),
            "rss_mb": max(memory) / 1e6,
            "cpu_seconds_per_tick": cpu / ticks,
            "first_advice_seconds": first_seconds,
            "nodes": size.nodes,
            "pods": size.pods,
            "jobs": size.jobs,
            "ticks": ticks,
            "changes": changes,
        }


def _tick(cluster: LargeCluster, running: list[str], changes: int, processes: Processes) -> float:
    began = time.monotonic()
    for name in running[:changes]:
        cluster.end_job(name)
    del running[:changes]
    new = [cluster.add_job() for _ in range(changes)]
    running += new
    _wait(lambda: all(map(cluster.is_advised, new)), processes, _TICK_SECONDS)
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
    synced = cache.wait_synced(_START_SECONDS)
    seconds = time.monotonic() - began
    stopping.set()
    following.stop()
    thread.join()
    if not synced:
        raise DemoFailed(f"the pods were not listed within {_START_SECONDS:g} s")
    api.close()
    return seconds


def _wait(holds: Any, processes: Processes, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        processes.check()
        if time.monotonic() > deadline:
            raise DemoFailed(f"the agent did not keep up within {seconds:g} s")
        time.sleep(_LOOK_SECONDS)


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


def _rss_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kube", description=__doc__)
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--pods", type=int, default=10_000)
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--ticks", type=int, default=200)
    parser.add_argument("--changes", type=int, default=5, help="jobs that come, and go, at each tick")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="fedl2-kube-") as folder:
        found = measure(Size(given.nodes, given.pods, given.jobs), given.ticks, given.changes, Path(folder))
    if given.output == "json":
        json.dump(found, sys.stdout, indent=2)
        print()
    else:
        for name, value in found.items():
            print(f"{name:26} {value:.4g}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
