"""One training run of the benchmark and what it came to: what its processes are given, and give back.

Apart from the command, as a spawned process cannot find what a package's `__main__` defines.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from benchmarks.robustness.fleet import ATTACKS, Treatment, run_fleet
from benchmarks.robustness.worlds import BAD, SPEC, environment, held_out
from policy_net.dl2.policy import ActingMode, LearnedPolicy
from policy_net.domain import PolicyContext
from policy_net.exchange.policy_file import PolicyFile
from policy_net.exchange.spec import Weights
from policy_net.laboratory.simulation.replay import replay
from policy_net.laboratory.speeds.speed import default_speeds
from policy_net.laboratory.workloads.workload import Workload
from policy_net.policy import SchedulerPolicy, build_policy

NORM_LIMIT = 10.0
"""Honest gradients here have a norm of 0.13 to 1.1."""

RATE, COHORT_RATE = 3e-3, 8e-3
"""For single updates and for cohorts of votes with a memory; for other cohorts."""

_COHORT = {"mode": "buffered", "buffer": 5}
_MEDIAN = {**_COHORT, "strategy": "FedMedian"}


def treatments(rounds: int) -> MappingProxyType[str, Treatment]:
    """By name; the rate shrinks over the rounds, to a sixth at their end, so that runs end rather than wander."""

    def optimizer(rate: float, beta1: float = 0.9) -> dict[str, float]:
        return {"learning_rate": rate, "decay_steps": rounds, "beta1": beta1}

    return MappingProxyType(
        {
            "async": Treatment({"mode": "async"}, optimizer(RATE)),
            "async-norm": Treatment({"mode": "async"}, optimizer(RATE), NORM_LIMIT),
            "mean": Treatment({**_COHORT, "strategy": "FedAvg"}, optimizer(COHORT_RATE)),
            "median": Treatment(_MEDIAN, optimizer(COHORT_RATE)),
            # The votes have the memory that Adam's first moment would be.
            "median-memory": Treatment({**_MEDIAN, "vote_momentum": 0.9}, optimizer(RATE, 0.0)),
            "multi-krum-memory": Treatment(
                {
                    **_COHORT,
                    "strategy": "MultiKrum",
                    "parameters": {"num_malicious_nodes": 1, "num_nodes_to_select": 4},
                    "vote_momentum": 0.9,
                },
                optimizer(RATE, 0.0),
            ),
            "robust": Treatment({"mode": "robust"}, optimizer(RATE)),
            "trimmed-mean": Treatment(
                {**_COHORT, "strategy": "FedTrimmedAvg", "parameters": {"beta": 0.2}}, optimizer(COHORT_RATE)
            ),
            "krum": Treatment(
                {**_COHORT, "strategy": "Krum", "parameters": {"num_malicious_nodes": 1}}, optimizer(COHORT_RATE)
            ),
        }
    )


NAMES = tuple(treatments(1))


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


@dataclass(frozen=True, slots=True)
class Task:
    """One training run."""

    start: Weights
    treatment: str
    attack: str
    seed: int
    rounds: int
    workloads: int


@dataclass(frozen=True, slots=True)
class Ended:
    """What one run came to."""

    sampled: Figures
    greedy: Figures
    updates: int
    rejected_of_bad: int
    rejected_of_honest: int
    cpu_seconds: float


def train_and_judge(task: Task) -> Ended:
    """One run, in a process of its own."""
    began = time.process_time()
    treatment = treatments(task.rounds)[task.treatment]
    start = PolicyFile(SPEC, task.start)
    result = run_fleet(start, treatment, ATTACKS[task.attack], task.seed, task.rounds)
    final = PolicyFile(SPEC, result.weights)
    judged = list(held_out(task.workloads))
    return Ended(
        learned_jcts(final, judged, ActingMode.SAMPLE),
        learned_jcts(final, judged, ActingMode.GREEDY),
        result.updates,
        result.rejected[BAD],
        sum(count for name, count in result.rejected.items() if name != BAD),
        time.process_time() - began,
    )
