"""The clusters of the benchmark: those of the fleet, and the one that joins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from policy_net.domain import CapacityMode, SpeedModel, speed_at
from policy_net.exchange.spec import SetSpec
from policy_net.exchange.statistics import SpeedStatistic
from policy_net.laboratory.catalogue import MODEL_NAMES
from policy_net.laboratory.simulation.environment import Environment
from policy_net.laboratory.simulation.replay import replay
from policy_net.laboratory.speeds.speed import default_speeds
from policy_net.laboratory.workloads.sources import load_workload
from policy_net.set_policy.policy import SetPolicy
from policy_net.set_policy.residual import initial_residual

NOISE = 0.273
"""Of a job's speed from slot to slot: what DL2 §6 reports from production."""
FLEET_NODES = (16, 24, 32, 48)
FIRST_FLEET_SEED = 8_500_000
FIRST_HELD_OUT_SEED = 9_700_000
_SPEC = SetSpec()
_NO_TILT = initial_residual(_SPEC, 0)
"""The planner alone: what differs between two runs is then what was believed."""


@dataclass(frozen=True)
class Faster:
    """A `SpeedModel` that is another's times a factor: the same jobs on other GPUs."""

    model: SpeedModel
    factor: float
    _grids: dict[str, NDArray[np.float64]] = field(default_factory=dict)

    def grid(self, job_type: str) -> NDArray[np.float64]:
        """Speeds in samples/s, shape (17, 17), [ps, workers]; the same array every time."""
        if job_type not in self._grids:
            self._grids[job_type] = self.model.grid(job_type) * self.factor
        return self._grids[job_type]

    def samples_per_second(self, job_type: str, ps: int, workers: int) -> float:
        """Speed in samples/s."""
        return speed_at(self.grid(job_type), ps, workers)


def planner(priors: Sequence[SpeedStatistic] = (), speeds: SpeedModel | None = None) -> SetPolicy:
    """The `set` policy without its residual, on beliefs or on given speeds."""
    return SetPolicy(_SPEC, _NO_TILT, tuple(priors), speeds=speeds)


@dataclass(frozen=True)
class World:
    """One cluster's machines and speeds; a trace is a workload of 60 jobs."""

    nodes: int
    mix: tuple[str, ...] = MODEL_NAMES
    factor: float = 1.0
    jobs: int = 60

    @cached_property
    def speeds(self) -> SpeedModel:
        """The truth."""
        return Faster(default_speeds(), self.factor)

    def mean_jct_seconds(self, policy: SetPolicy, seed: int, noise: float = NOISE) -> float:
        """Average JCT of one trace; the policy's beliefs go on from it."""
        source = f"dl2:jobs={self.jobs},arrivals=google,sizes=fixed,seed={seed},mix={'+'.join(self.mix)}"
        environment = Environment(
            nodes=self.nodes, capacity_mode=CapacityMode.POOLED, speed_noise=noise, seed=seed % 1000
        )
        result = replay(load_workload(source), environment, policy, self.speeds)
        return float(result.to_json()["avg_jct_seconds"])

    def statistics(self, seeds: Sequence[int]) -> tuple[SpeedStatistic, ...]:
        """What the cluster has seen of speeds after these traces, beginning with nothing."""
        policy = planner()
        for seed in seeds:
            self.mean_jct_seconds(policy, seed)
        assert policy.beliefs is not None  # noqa: S101  (given no speeds, it has beliefs; narrows the type)
        return policy.beliefs.statistics()


UNSEEN_TYPES = ("vgg-16", "seq2seq")
"""Left out of the fleet whose jobs are others: the one that holds machines longest, and one of the smaller ones."""

FLEETS: Mapping[str, str] = MappingProxyType(
    {
        "same jobs": "runs the same mix of types, on the same machines",
        "other mixes": "each cluster runs three of the other six types; two of the joining cluster's are unknown to it",
        "other GPUs": "each cluster is half to twice as fast as the joining one",
        "one liar": "as `same jobs`, and one more cluster tells speeds at random",
    }
)


def fleet_reports(name: str, clusters: int, traces: int, jobs: int) -> dict[str, tuple[SpeedStatistic, ...]]:
    """What the clusters of a fleet have seen, by cluster."""
    random = np.random.default_rng(clusters)
    seen = [job_type for job_type in MODEL_NAMES if job_type not in UNSEEN_TYPES]
    reports = {}
    for number in range(clusters):
        mix = tuple(seen[(number + step) % len(seen)] for step in range(3)) if name == "other mixes" else MODEL_NAMES
        factor = float(2 ** random.uniform(-1, 1)) if name == "other GPUs" else 1.0
        first = FIRST_FLEET_SEED + 1000 * number
        world = World(FLEET_NODES[number % len(FLEET_NODES)], mix, factor, jobs)
        reports[f"cluster-{number:02}"] = world.statistics(range(first, first + traces))
    if name == "one liar":
        reports["liar"] = tuple(
            SpeedStatistic(job_type, reports["cluster-00"][0].kind, ps, workers, float(random.uniform(-5, 15)), 10**6)
            for job_type in MODEL_NAMES
            for ps in range(1, 17)
            for workers in range(1, 17)
        )
    return reports
