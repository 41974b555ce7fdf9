"""Versions that are worse on purpose: the planner kept from part of the GPUs, or with a residual turned round."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from benchmarks.rollout.worlds import Cluster
from policy_net.domain import ClusterState, Decision, Node, Progress, Resources, Trigger
from policy_net.exchange.spec import Weights
from policy_net.laboratory.simulation.environment import Environment
from policy_net.laboratory.simulation.replay import replay
from policy_net.set_policy.policy import SetPolicy, default_set_file, set_spec_of

PLANNER = "planner"
"""The incumbent: `set` with a silent residual, as a fleet begins. It is also the cheapest to replay."""
NEGATED = "negated"
"""The shipped residual with its output's sign turned: it puts last what should be first."""
WORSE_5 = "worse-5"
WORSE_10 = "worse-10"
"""The planner, kept from as many of the cluster's GPUs as cost it 5% or 10% in JCT."""
TARGETS = {WORSE_5: 1.05, WORSE_10: 1.10}
RECORDED = (NEGATED, WORSE_5, WORSE_10)

_FIRST_SHARE = 0.06
_LARGEST_SHARE = 0.4
_STEPS = 3
_CLOSE = 0.004
_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0


class KeptFrom:
    """A policy that never sees a share of its cluster's GPUs, nor the CPUs beside them.

    The share need not be whole GPUs: which decisions miss one more follows the golden ratio, evenly.
    """

    def __init__(self, policy: SetPolicy, share: float) -> None:
        self._policy, self._share = policy, share
        self._decisions = 0
        self._fewer: dict[int, tuple[Node, ...]] = {}

    @property
    def name(self) -> str:
        """The name under which results are reported."""
        return f"{self._policy.name} less {self._share:.1%}"

    def decide(self, state: ClusterState, trigger: Trigger) -> Decision:
        """As the policy does on the smaller cluster."""
        self._decisions += 1
        missing = self._share * state.total.gpu + (self._decisions * _GOLDEN) % 1.0
        return self._policy.decide(replace(state, nodes=self._nodes(state.nodes, int(missing))), trigger)

    def observe(self, progress: Sequence[Progress]) -> None:
        """As the policy does."""
        self._policy.observe(progress)

    def _nodes(self, nodes: tuple[Node, ...], missing: int) -> tuple[Node, ...]:
        if missing not in self._fewer:
            kept: list[Node] = []
            left = missing
            for node in nodes:
                lost = min(left, node.capacity.gpu)
                left -= lost
                gpus = node.capacity.gpu - lost
                if gpus:
                    cpu_milli = node.capacity.cpu_milli * gpus // node.capacity.gpu
                    kept.append(replace(node, capacity=Resources(cpu_milli, gpus)))
            self._fewer[missing] = tuple(kept)
        return self._fewer[missing]


def build_version(version: str, cluster: Cluster, shares: dict[str, float]) -> SetPolicy | KeptFrom:
    """A version as it acts in a cluster, on what the cluster believes of speeds.

    Args:
        shares: of the GPUs, by version, that it is kept from.
    """
    content = default_set_file()
    spec = set_spec_of(content, version)
    weights: Weights = np.zeros_like(content.weights)
    if version == NEGATED:
        last = sum(math.prod(shape) for _, shape in spec.layout()[-2:])
        weights = np.concatenate([content.weights[:-last], -content.weights[-last:]])
    policy = SetPolicy(spec, weights, speeds=cluster.believed, label=version)
    return KeptFrom(policy, shares[version]) if version in shares else policy


def mean_jct_seconds(version: str, cluster: Cluster, shares: dict[str, float]) -> float:
    """Of all jobs of a cluster, replayed to the end."""
    environment: Environment = cluster.environment
    run = replay(cluster.workload, environment, build_version(version, cluster, shares), cluster.truth)
    return float(np.mean([outcome.jct_seconds for outcome in run.outcomes if outcome.jct_seconds is not None]))


def calibrate(cluster: Cluster) -> tuple[dict[str, float], dict[str, float]]:
    """The shares of GPUs that make a version as much worse as its name says, and every version's mean JCT in seconds.

    By the secant on the log of the JCT, over the whole recording: a version is what it is over weeks, not in one block.
    """
    jcts = {version: mean_jct_seconds(version, cluster, {}) for version in (PLANNER, NEGATED)}
    shares: dict[str, float] = {}
    for version, target in TARGETS.items():
        desired = math.log(target)
        known = [(0.0, 0.0)]
        share = _FIRST_SHARE * desired / math.log(1.05)
        for _ in range(_STEPS):
            found = math.log(mean_jct_seconds(version, cluster, {version: share}) / jcts[PLANNER])
            known.append((share, found))
            if abs(found - desired) < _CLOSE:
                break
            below = max((point for point in known if point[1] <= desired), default=(0.0, 0.0))
            above = min((point for point in known if point[1] > desired), default=None)
            if above is None:
                share = min(share * 2.0, _LARGEST_SHARE)
            else:
                share = below[0] + (above[0] - below[0]) * (desired - below[1]) / max(above[1] - below[1], 1e-9)
        shares[version], effect = min(known[1:], key=lambda point: abs(point[1] - desired))
        jcts[version] = jcts[PLANNER] * math.exp(effect)
    return shares, jcts
