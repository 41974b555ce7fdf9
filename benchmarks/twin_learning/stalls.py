"""What it costs a policy that changes stop jobs: recorded clusters with stalls against the same without."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.policy_quality.cells import RealCell
from benchmarks.policy_quality.worlds import Cluster, build_world
from policy_net.exchange.policy_file import PolicyFile
from policy_net.laboratory.simulation.replay import ReplayResult, replay
from policy_net.set_policy.policy import set_policy_of

Window = Callable[[Cluster], RealCell | None]
"""A cluster's window; None where it has none."""


def stalled(file: PolicyFile, clusters: Sequence[Cluster], window: Window, seconds: float, data: Path) -> list[Any]:
    """By cluster: its name, the change of the log of average JCT where each resize and each resume stops a job for so
    many seconds, and resizes and resumes a job, without stalls and with them."""
    found: list[Any] = []
    for cluster in clusters:
        cell = window(cluster)
        if cell is None:
            continue
        world = build_world(cell, data)
        results: list[ReplayResult] = []
        for stall in (0.0, seconds):
            environment = replace(world.environment, resize_seconds=stall, resume_seconds=stall)
            results.append(replay(world.workload, environment, set_policy_of(file, "a policy"), world.speeds))
        free, costly = (float(result.to_json()["avg_jct_seconds"]) for result in results)
        jobs = len(world.workload.jobs)
        changes = [(result.counters.resizes / jobs, result.counters.resumes / jobs) for result in results]
        found.append((cluster.name, math.log(costly / free), changes))
    return found


def summary(found: Sequence[Any]) -> dict[str, Any]:
    """Means over clusters."""
    values = np.array([change for _, change, _ in found])
    changes = np.array([each for *_, each in found])
    return {
        "clusters": {name: math.expm1(change) for name, change, _ in found},
        "loss_mean": math.expm1(float(values.mean())),
        "loss_error": float(values.std(ddof=1) / len(values) ** 0.5) if len(values) > 1 else None,
        "loss_worst": math.expm1(float(values.max())),
        "resizes_per_job_without_stalls": float(changes[:, 0, 0].mean()),
        "resizes_per_job": float(changes[:, 1, 0].mean()),
        "resumes_per_job_without_stalls": float(changes[:, 0, 1].mean()),
        "resumes_per_job": float(changes[:, 1, 1].mean()),
    }
