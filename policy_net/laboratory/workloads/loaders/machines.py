"""Machines that a recording shows: the nodes on which its jobs ran, and how much of one was held at a time.

What was never held is not seen, so both are lower bounds: a node that was idle all the time is missing, and a node of
8 GPUs of which 6 were held at most counts as one of 6.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from policy_net.laboratory.workloads.loaders.record import RecordedJob


@dataclass(frozen=True, slots=True)
class SeenMachines:
    """Nodes, all taken to be like the largest.

    Attributes:
        gpus_per_node: the most GPUs that were held of one node at a time.
        cpus_per_node: the same of CPU cores; 0 where the recording does not say them.
    """

    nodes: int
    gpus_per_node: int
    cpus_per_node: int


def machines_of(records: Sequence[RecordedJob]) -> SeenMachines | None:
    """The machines of a whole recording; None where it names no node."""
    changes: dict[str, list[tuple[float, int, int]]] = defaultdict(list)
    for job in records:
        for share in job.shares:
            changes[share.node] += [
                (share.start_seconds, share.gpus, share.cpus),
                (share.end_seconds, -share.gpus, -share.cpus),
            ]
    if not changes:
        return None
    peaks = [_peak(of_node) for of_node in changes.values()]
    return SeenMachines(len(changes), max(gpus for gpus, _ in peaks), max(cpus for _, cpus in peaks))


def _peak(changes: list[tuple[float, int, int]]) -> tuple[int, int]:
    """The most GPUs and CPU cores that were held of a node at a time; at the same moment what ends comes first."""
    gpus = cpus = most_gpus = most_cpus = 0
    for _, by_gpus, by_cpus in sorted(changes):
        gpus, cpus = gpus + by_gpus, cpus + by_cpus
        most_gpus, most_cpus = max(most_gpus, gpus), max(most_cpus, cpus)
    return most_gpus, most_cpus
