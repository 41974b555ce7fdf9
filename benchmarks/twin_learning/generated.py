"""Generated workloads among the teachers: clusters that the shipped policy was made on, so that it is not unlearned.

Every window is a workload of its own, of the seeds to train on, decided on in slots as DL2's are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.policy_quality.plan import LARGE, SMALL
from benchmarks.policy_quality.worlds import ARRIVALS_BY_JOBS, CPUS_PER_NODE, GPUS_PER_NODE
from policy_net.domain import CapacityMode
from policy_net.laboratory.simulation.environment import DecideOn, Environment
from policy_net.laboratory.speeds.speed import default_speeds
from policy_net.laboratory.training.twin_windows import DrawnSpeeds, TwinWindow
from policy_net.laboratory.workloads.sources import load_workload
from policy_net.laboratory.workloads.workload import WorkloadOptions

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
