"""The score of what a run ended with, on workloads that nobody trained on: acting as when it learns, and greedily."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from benchmarks.robustness.worlds import environment
from policy_net.dl2.policy import ActingMode, LearnedPolicy
from policy_net.domain import PolicyContext
from policy_net.exchange.policy_file import PolicyFile
from policy_net.laboratory.simulation.replay import replay
from policy_net.laboratory.speeds.speed import default_speeds
from policy_net.laboratory.workloads.workload import Workload
from policy_net.policy import SchedulerPolicy, build_policy

_SAMPLING_SEED = 1

Figures = NDArray[np.float64]
"""Average JCT in seconds, shape (workloads,)."""


def learned_jcts(policy: PolicyFile, workloads: Sequence[Workload], mode: ActingMode) -> Figures:
    """Of a policy file."""
    spec = policy.network_spec
    return _jcts(lambda: LearnedPolicy(spec, policy.weights, seed=_SAMPLING_SEED, mode=mode), workloads)


def named_jcts(name: str, workloads: Sequence[Workload]) -> Figures:
    """Of a scheduler by its name."""
    return _jcts(lambda: build_policy(name, PolicyContext()), workloads)


def mean_ratio(pairs: Sequence[tuple[Figures, Figures]]) -> float:
    """Geometric mean over workloads and seeds of the first over the second."""
    return math.exp(float(np.mean([np.log(figures / against).mean() for figures, against in pairs])))


def _jcts(build: Callable[[], SchedulerPolicy], workloads: Sequence[Workload]) -> Figures:
    found = []
    for workload in workloads:
        result = replay(workload, environment(), build(), default_speeds()).to_json()
        if result["completed"] != result["jobs"]:
            raise RuntimeError(f"{result['completed']} of {result['jobs']} jobs of {workload.name} were completed")
        found.append(float(result["avg_jct_seconds"]))
    return np.array(found)
