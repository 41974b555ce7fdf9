"""Places of a cluster's tasks: which nodes hold a job's pods, and GPUs of which type these have; pure.

They are told where two nodes or more have GPUs of a type that is named, and nowhere else: there decisions and beliefs
are what they are without places. A pod lies where it is bound to, also while it starts; one that is to go lies nowhere.
What a job did counts for its places only if all of its workers were on known nodes, the same, of the same types, from
the beginning of the interval to its end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from cluster_agent.kubernetes.capacity import NodeFacts, PodFacts
from policy_net.accelerators import is_counted
from policy_net.domain import Allocation, Share

_LEAST_NODES = 2

GpuTypes = Mapping[str, str]
"""By name of a node, the type of its GPUs; empty where places make no difference."""
Places = tuple[tuple[str, int], ...]
"""As `Progress` has them."""


@dataclass(frozen=True, slots=True)
class JobPlacement:
    """How many of a job's tasks of each role lie on which nodes."""

    workers: dict[str, int] = field(default_factory=dict)
    ps: dict[str, int] = field(default_factory=dict)

    def add(self, role: str, node: str) -> None:
        """Count one more task."""
        tasks = self.workers if role == "worker" else self.ps
        tasks[node] = tasks.get(node, 0) + 1


def gpu_types_of(nodes: Iterable[NodeFacts]) -> GpuTypes:
    """The types of all nodes, if it makes a difference where tasks lie."""
    nodes = list(nodes)
    found = {node.name: node.gpu_type for node in nodes}
    named = [
        node
        for node in nodes
        if node.gpu_type and any(amount and is_counted(name) for name, amount in dict(node.allocatable or ()).items())
    ]
    return found if len(named) >= _LEAST_NODES else {}


def placement_of_targets(pods: Iterable[PodFacts], uids: Collection[str]) -> dict[str, JobPlacement]:
    """Where the pods of these owners lie, by uid; all of them are workers."""
    found: dict[str, JobPlacement] = {}
    for pod in pods:
        if pod.owner in uids and pod.node and not pod.is_nominated and not pod.is_terminating:
            found.setdefault(pod.owner, JobPlacement()).add("worker", pod.node)
    return found


def shares_of(job_placements: JobPlacement, nodes: Collection[str]) -> tuple[Share, ...]:
    """What each of these nodes holds of a job; what lies on others, which are about to go, is not there."""
    return tuple(
        Share(node, Allocation(job_placements.workers.get(node, 0), job_placements.ps.get(node, 0)))
        for node in sorted(job_placements.workers.keys() | job_placements.ps.keys())
        if node in nodes
    )


def places_of(workers: Mapping[str, int], held: int, gpu_types: GpuTypes) -> Places:
    """Where a job's workers lie, as reports have it; nothing unless all that it holds lie on nodes that are known.

    Args:
        workers: by node.
        held: workers in all.
    """
    if not held or sum(workers.values()) != held or any(node not in gpu_types for node in workers):
        return ()
    return tuple((gpu_types[node], workers[node]) for node in sorted(workers))
