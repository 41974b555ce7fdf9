"""Speed tables and clusters for hand-worked scheduling examples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from policy_net.domain import Allocation, CapacityMode, ClusterState, Job, Node, Progress, Resources, SpeedModel
from policy_net.laboratory.speeds.speed import TableSpeedModel


def table(**speeds: dict[tuple[int, int], float]) -> TableSpeedModel:
    """Grids in samples/s that are zero but for the given (ps, workers) cells."""
    grids = {}
    for name, cells in speeds.items():
        grids[name] = np.zeros((17, 17))
        for cell, speed in cells.items():
            grids[name][cell] = speed
    return TableSpeedModel(grids, "a test")


def room_for(tasks: int, jobs: list[Job], mode: CapacityMode = CapacityMode.POOLED) -> ClusterState:
    """One node with so many times 2 CPU, and plenty of GPUs."""
    return ClusterState(0.0, (Node("n0", Resources(2000 * tasks, 100)),), tuple(jobs), 1200.0, mode)


class Known:
    """Beliefs that are right from the start and never change: plans on them can be worked out by hand."""

    optimistic = True

    def __init__(self, speeds: SpeedModel) -> None:
        self.grid = speeds.grid
        self.samples_per_second = speeds.samples_per_second

    def introduce(self, jobs: Iterable[Job]) -> None: ...

    def observe(self, progress: Sequence[Progress]) -> None: ...

    def allocations_seen(self, job_type: str) -> frozenset[Allocation]:
        return frozenset()

    def snapshot(self) -> dict[str, object]:
        return {}

    def restore(self, snapshot: Mapping[str, object]) -> None: ...
