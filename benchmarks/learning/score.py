"""The score of policies on the held-out workloads: log-ratios of the average JCT, and what they say over the seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import stats

import policy_net.baselines  # noqa: F401  (registers drf)
from benchmarks.learning.worlds import environment
from benchmarks.processes import process_pool
from policy_net.domain import PolicyContext
from policy_net.laboratory.simulation.replay import replay
from policy_net.laboratory.speeds.speed import default_speeds
from policy_net.laboratory.workloads.sources import load_workload
from policy_net.laboratory.workloads.workload import WorkloadOptions
from policy_net.policy_kinds import load_policy

PROCESSES = 2


def average_jcts(policies: Sequence[str | Path], workloads: Sequence[str]) -> NDArray[np.float64]:
    """Average JCT in seconds, shape (policies, workloads); a policy is a name or a file, and acts greedily."""
    tasks = [(str(policy), workload) for policy in policies for workload in workloads]
    with process_pool(PROCESSES) as pool:
        figures = list(pool.map(_average_jct, tasks, chunksize=4))
    return np.array(figures).reshape(len(policies), len(workloads))


def _average_jct(task: tuple[str, str]) -> float:
    name, source = task
    workload = load_workload(source, WorkloadOptions(speeds=default_speeds()))
    result = replay(workload, environment(), load_policy(name, PolicyContext()), default_speeds()).to_json()
    if result["completed"] != result["jobs"]:
        raise RuntimeError(f"{name} completed {result['completed']} of {result['jobs']} jobs of {workload.name}")
    return float(result["avg_jct_seconds"])


def mean_log_ratio(figures: NDArray[np.float64], against: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean over the workloads (the last axis) of the log of the ratio."""
    return np.asarray(np.log(figures / against).mean(axis=-1), dtype=np.float64)


def ratio_interval(log_ratios: NDArray[np.float64], confidence: float = 0.95) -> tuple[float, float]:
    """The t-interval of the mean log-ratio over the seeds, as ratios.

    Raises:
        ValueError: fewer than two seeds.
    """
    count = len(log_ratios)
    if count < 2:
        raise ValueError(f"an interval over seeds needs at least 2, not {count}")
    half = stats.t.ppf((1 + confidence) / 2, count - 1) * log_ratios.std(ddof=1) / math.sqrt(count)
    mean = log_ratios.mean()
    return math.exp(mean - half), math.exp(mean + half)
