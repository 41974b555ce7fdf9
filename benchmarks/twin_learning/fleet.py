"""A fleet that learns from twins: clusters with recorded pasts, and a learner's own head, in one process.

Clusters push one after the other, in an order drawn anew each round; so nobody is stale, and a seed gives the same bits
again. What is pushed is judged, weighed and applied by the learner's own code.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.policy_quality.cells import Durations
from benchmarks.policy_quality.plan import LARGE, SMALL
from benchmarks.policy_quality.worlds import ARRIVALS_BY_JOBS, CPUS_PER_NODE, GPUS_PER_NODE, workload_file
from global_learner.aggregation.settings import AggregationSettings, OptimizerSettings, Units
from global_learner.updates.simulated_fleet import SimulatedHead
from policy_net.domain import CapacityMode, Resources
from policy_net.errors import BadInput
from policy_net.exchange.policy_file import PolicyFile
from policy_net.exchange.spec import SetSpec, Weights
from policy_net.laboratory.simulation.environment import DecideOn, Environment
from policy_net.laboratory.speeds.speed import default_speeds
from policy_net.laboratory.training.twin_windows import (
    DrawnSpeeds,
    History,
    TwinMachines,
    TwinWindow,
    WindowChoice,
    cost_of,
)
from policy_net.laboratory.workloads.sources import load_workload
from policy_net.laboratory.workloads.workload import JobKindChoice, WorkloadOptions
from policy_net.learning.adam import TrustRegion
from policy_net.learning.gradient import GradientResult
from policy_net.learning.settings import TwinSettings
from policy_net.learning.twin_gradient import twin_gradient
from policy_net.set_policy.spreads import spreads_of

TRAINING_SEEDS = 9_000_000
"""Of generated workloads, those below are to train on (docs/evaluation.md)."""
NODES_AT_MOST = 125
"""On 500 nodes every job has what it wants, and nothing can be learned."""
SPEED_SPREAD = 0.15
"""As in windows of recorded pasts."""


@dataclass(frozen=True, slots=True)
class GeneratedCluster:
    """Machines, and how many jobs a window has."""

    nodes: int
    jobs: int

    def draw(self, generator: np.random.Generator) -> TwinWindow:
        """A workload and what it meets; fixed or varied sizes, pooled or placed, as they are judged."""
        seed, noise_seed, speed_seed = (int(each) for each in generator.integers(2**31, size=3))
        sizes = ("fixed", "varied")[int(generator.integers(2))]
        capacity = tuple(CapacityMode)[int(generator.integers(2))]
        most = ARRIVALS_BY_JOBS[self.jobs]
        text = f"jobs={self.jobs},arrivals=google,sizes={sizes},seed={seed % TRAINING_SEEDS},max-arrivals={most}"
        speeds = default_speeds()
        environment = Environment(
            nodes=self.nodes,
            gpus_per_node=GPUS_PER_NODE,
            cpus_per_node=CPUS_PER_NODE,
            decide_on=DecideOn.SLOT,
            capacity_mode=capacity,
            seed=noise_seed,
        )
        workload = load_workload(f"dl2:{text}", WorkloadOptions(speeds=speeds))
        return TwinWindow(workload, environment, DrawnSpeeds(speeds, SPEED_SPREAD, speed_seed))


def generated_clusters(of_each: int) -> list[GeneratedCluster]:
    """So many of every size that policies are judged on."""
    return [GeneratedCluster(*sizing) for sizing in (*SMALL, *LARGE) if sizing[0] <= NODES_AT_MOST] * of_each


SLOT_SECONDS = 1200.0
AVERAGE_DECAY = 0.98
"""Versions average the last fifty steps: a hundredth of what a run of a few hundred moves would lag behind it."""


@dataclass(frozen=True, slots=True)
class Training:
    """How a fleet learns.

    Attributes:
        updates: steps of the head.
        pairs: of one gradient.
        window_jobs: of one replay.
        learning_rate: of the first step, in spreads.
        permute: a control that has nothing to learn from.
    """

    updates: int
    pairs: int
    window_jobs: int
    learning_rate: float
    permute: bool = False


@dataclass(frozen=True, slots=True)
class Past:
    """A cluster's machines, and the recording of its past.

    Attributes:
        job_kind: how its jobs train.
        durations: whether their work is known.
    """

    cluster: str
    recording: Path
    nodes: int
    job_kind: str
    durations: Durations

    @property
    def machines(self) -> TwinMachines:
        """What it has."""
        return TwinMachines((Resources(CPUS_PER_NODE * 1000, GPUS_PER_NODE),) * self.nodes, SLOT_SECONDS)


def first_jobs(data: Path, cluster: str, jobs: int, folder: Path) -> Path:
    """A recording of the first jobs of a cluster alone, in a folder."""
    out = folder / f"{cluster}.csv"
    with workload_file(data, cluster).open(newline="") as source, out.open("w", newline="") as target:
        reader = csv.reader(source)
        writer = csv.writer(target)
        for number, row in enumerate(reader):
            if number > jobs:
                break
            writer.writerow(row)
    return out


def train(
    start: PolicyFile,
    pasts: Sequence[Past],
    training: Training,
    seed: int,
    generated: Sequence[GeneratedCluster] = (),
) -> Weights:
    """What the fleet would publish after all updates.

    Args:
        generated: clusters that teach beside those with a past.
    """
    spec = start.spec
    assert isinstance(spec, SetSpec)  # noqa: S101  (whoever starts a run gives a set policy; narrows the type)
    histories: list[History | GeneratedCluster] = [
        *(_history(past, training.window_jobs) for past in pasts),
        *generated,
    ]
    optimizer = OptimizerSettings(
        units=Units.SPREADS,
        learning_rate=training.learning_rate,
        decay_steps=max(1, training.updates // 2),
    )
    spreads = spreads_of(spec)
    region = TrustRegion.around(start.weights, optimizer.radius_for(spec), optimizer.units_for(spec))
    alike = AggregationSettings(largest_sample_weight=0.0)
    learner = SimulatedHead(start, optimizer, alike, average_decay=AVERAGE_DECAY, region=region)
    head = learner.head
    generator = np.random.default_rng(seed)
    twin = TwinSettings(pairs=training.pairs)
    waiting: list[int] = []
    while head.step < training.updates:
        waiting = waiting or generator.permutation(len(histories)).tolist()
        number = waiting.pop()
        window = histories[number].draw(generator)
        cost = cost_of(window, spec, start.priors)
        found = twin_gradient(head.weights.copy(), spreads, cost, twin, generator, permute=training.permute)
        samples = found.samples * len(window.workload.jobs)
        learner.offer(f"cluster-{number}", head.step, GradientResult(found.gradient, samples, float(samples), {}))
    return head.publishable.copy()


def _history(past: Past, window_jobs: int) -> History:
    choice = WindowChoice(
        jobs=window_jobs, job_kind=JobKindChoice(past.job_kind), work_known=past.durations is Durations.KNOWN
    )
    return History((str(past.recording),), None, past.machines, choice)


SEED, SEEDS = "seed", "seeds"


def mean_of(files: Sequence[PolicyFile]) -> PolicyFile:
    """The mean of several trainings, which differ in their seed alone; its card has their seeds.

    Seeds agree on where a training goes, and differ by chance in how far each weight went.
    Source: Izmailov et al., "Averaging weights leads to wider optima and better generalization" (UAI 2018), there along
    one training; here over several.

    Raises:
        BadInput: there are fewer than two, two of one seed, or some that differ in more than their seeds.
    """
    if len(files) < 2:
        raise BadInput("--average: give two files or more, made by --write with different --seed")
    first = files[0]
    for file in files[1:]:
        if file.spec != first.spec or file.priors != first.priors or _but_seed(file) != _but_seed(first):
            raise BadInput("--average: these files differ in more than their seed; make them with the same options")
    seeds = [file.card.get(SEED) for file in files]
    if None in seeds or len(set(seeds)) < len(seeds):
        raise BadInput(f"--average: the seeds are {', '.join(map(str, seeds))}; each file needs one of its own")
    together = np.stack([file.weights for file in files]).astype(np.float64)
    weights: Weights = together.mean(axis=0).astype(first.weights.dtype)
    return PolicyFile(first.spec, weights, {**_but_seed(first), SEEDS: seeds}, first.priors)


def _but_seed(file: PolicyFile) -> dict[str, Any]:
    return {name: value for name, value in file.card.items() if name != SEED}
