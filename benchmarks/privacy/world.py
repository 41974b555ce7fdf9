"""A problem on which much can be learned soon: a bad residual, and clusters that know a better one.

Every run starts from the shipped `set` policy with the sign of its residual turned, which takes twice as long. Clusters
watch the shipped policy on workloads of their own, and teach what it decided: gradients of the likelihood of its
allocations, as `policy-net train --imitate` has it. At 44 parameters it is as small as a policy gets, which is what
privacy wants.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from policy_net.exchange.policy_file import PolicyFile
from policy_net.exchange.spec import SetSpec, Weights
from policy_net.laboratory.simulation.environment import Environment
from policy_net.laboratory.simulation.replay import replay
from policy_net.laboratory.speeds.speed import default_speeds
from policy_net.laboratory.training.imitation import watch
from policy_net.laboratory.training.set_imitation import PickCollector, PickLikelihood, Picks, log_views
from policy_net.laboratory.workloads.sources import load_workload
from policy_net.laboratory.workloads.workload import Workload, WorkloadOptions
from policy_net.set_policy.policy import SetPolicy, default_set_file, set_spec_of
from policy_net.throughput.gaussian_process import GaussianProcessBeliefs

WORKLOADS, SHARES = 5, 20
"""Watched for a training seed, and the clusters that share one of them, each with decisions of its own."""
JOBS, JUDGED_JOBS = 20, 60
NODES = 8
BATCH_PICKS = 25
"""Of a gradient."""
JUDGED_SEEDS = range(9_600_000, 9_600_004)
"""Nobody learns from these."""


@dataclass(frozen=True, slots=True)
class Experience:
    """What one cluster teaches from: batches of picks."""

    batches: tuple[Picks, ...]

    def gradient(self, spec: SetSpec, head: Weights, number: int) -> Weights:
        """Of the loss at the head, on one of the batches in turn; float32, shape (parameter_count,)."""
        likelihood = PickLikelihood(spec, self.batches[number % len(self.batches)], 0.0)
        _, slope = likelihood.loss(np.append(head.astype(np.float64), 0.0))
        return slope[:-1].astype(np.float32)


@functools.cache
def teacher() -> tuple[PolicyFile, SetSpec]:
    """The shipped policy."""
    shipped = default_set_file()
    return shipped, set_spec_of(shipped, "shipped")


def beginning() -> Weights:
    """The shipped residual with its last layer turned."""
    shipped, spec = teacher()
    last = sum(math.prod(shape) for _, shape in spec.layout()[-2:])
    return np.concatenate([shipped.weights[:-last], -shipped.weights[-last:]])


def watched(seed: int, workload: int) -> list[Experience]:
    """The experiences of the clusters that share a workload, by their decisions in turn."""
    shipped, spec = teacher()
    policy = SetPolicy(spec, shipped.weights, shipped.priors)
    log = watch(policy, _workload(1000 * (seed + 7) + workload, JOBS), _environment(), default_speeds())
    collectors = [PickCollector() for _ in range(SHARES)]
    for number, view in enumerate(log_views(log, GaussianProcessBeliefs(shipped.priors))):
        collectors[number % SHARES].add(view)
    return [Experience(tuple(_batches(collector.picks()))) for collector in collectors]


def average_jcts(weights: Weights) -> NDArray[np.float64]:
    """Average JCT in seconds on the workloads that nobody learns from, shape (workloads,); acting greedily."""
    shipped, spec = teacher()
    figures = []
    for seed in JUDGED_SEEDS:
        policy = SetPolicy(spec, weights, shipped.priors)
        result = replay(_workload(seed, JUDGED_JOBS), _environment(), policy, default_speeds()).to_json()
        if result["completed"] != result["jobs"]:
            raise RuntimeError(f"{result['completed']} of {result['jobs']} jobs were completed")
        figures.append(float(result["avg_jct_seconds"]))
    return np.array(figures)


def _batches(picks: Picks) -> Sequence[Picks]:
    return [_of(picks, first, first + BATCH_PICKS) for first in range(0, max(1, picks.count), BATCH_PICKS)]


def _of(picks: Picks, first: int, behind: int) -> Picks:
    """The picks from one to before another, with the inputs that they need."""
    taken = (picks.pick_C >= first) & (picks.pick_C < behind)
    rows, row_C = np.unique(picks.row_C[taken], return_inverse=True)
    return Picks(
        picks.inputs_RF[rows],
        row_C,
        picks.pick_C[taken] - first,
        picks.log_score_C[taken],
        picks.log_share_C[taken],
        picks.right_C[taken],
    )


def _workload(seed: int, jobs: int) -> Workload:
    source = f"dl2:jobs={jobs},arrivals=google,sizes=varied,seed={seed}"
    return load_workload(source, WorkloadOptions(speeds=default_speeds()))


def _environment() -> Environment:
    return Environment(nodes=NODES)
