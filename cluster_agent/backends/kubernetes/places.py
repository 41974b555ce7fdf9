"""Places of a cluster's tasks: which nodes hold a job's pods, GPUs of which type these have, and who is told; pure.

They are told where two nodes or more have GPUs of a named type, and nowhere else: there decisions and beliefs are what
they are without places. A pod is where it is bound to, also while it starts; one that is leaving is nowhere. What a
job did counts for its places only if all of its workers were on known nodes, the same, of the same types, from the
beginning of the interval to its end.

Nobody moves a task of a running job: an all-reduce TrainingJob of another size is made anew, wherever there is
capacity; any other job grows and shrinks where it is. Nodes that a policy chose for the pods of a TrainingJob are said
to the cluster's own scheduler, which decides; where those of other jobs go, it decides alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cluster_agent.backends.kubernetes.observation import Observed, SeenCluster
from cluster_agent.kubernetes.capacity import NodeFacts, PodFacts
from policy_net.accelerators import is_counted
from policy_net.domain import Allocation, Moves, Progress, Share

_LEAST_NODES = 2

GpuTypes = Mapping[str, str]
"""By name of a node, the type of its GPUs; empty where places make no difference."""
Places = tuple[tuple[str, int], ...]
"""As `Progress` has them."""


@dataclass(frozen=True, slots=True)
class JobPlacement:
    """How many of a job's tasks of each role are on which nodes."""

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
    """Where the pods of these owners are, by uid; all of them are workers."""
    found: dict[str, JobPlacement] = {}
    for pod in pods:
        if pod.owner in uids and pod.node and not pod.is_nominated and not pod.is_terminating:
            found.setdefault(pod.owner, JobPlacement()).add("worker", pod.node)
    return found


def shares_of(job_placements: JobPlacement, nodes: Collection[str]) -> tuple[Share, ...]:
    """What each of these nodes holds of a job; what is on others, which are about to go, is left out."""
    return tuple(
        Share(node, Allocation(job_placements.workers.get(node, 0), job_placements.ps.get(node, 0)))
        for node in sorted(job_placements.workers.keys() | job_placements.ps.keys())
        if node in nodes
    )


def places_of(workers: Mapping[str, int], total: int, gpu_types: GpuTypes) -> Places:
    """Where a job's workers are, as reports have it; nothing unless all that it holds are on nodes that are known."""
    if not total or sum(workers.values()) != total or any(node not in gpu_types for node in workers):
        return ()
    return tuple((gpu_types[node], workers[node]) for node in sorted(workers))


def in_places(about: Observed, seen: SeenCluster, of_own: Callable[[], Mapping[str, JobPlacement]]) -> Observed:
    """What was observed, with where tasks are, if that makes a difference; `of_own` are those of TrainingJobs by id."""
    gpu_types = gpu_types_of(seen.nodes)
    if not gpu_types:
        return about
    uids = {member.facts.uid: job_id for job_id, member in about.members.items()}
    job_placements = {**of_own(), **{uids[uid]: found for uid, found in placement_of_targets(seen.pods, uids).items()}}
    names = {node.node_id for node in about.state.nodes}
    placement = {
        job.job_id: shares_of(job_placements[job.job_id], names)
        for job in about.state.jobs
        if job.job_id in job_placements
    }
    jobs = tuple(
        replace(job, moves=Moves.NEVER if job.kind.uses_ps or job.job_id in about.members else Moves.WITH_SIZE)
        for job in about.state.jobs
    )
    places = {
        job_id: places_of(job_placements[job_id].workers, member.facts.workers, gpu_types)
        for job_id, member in about.members.items()
        if job_id in job_placements
    }
    return replace(
        about, state=replace(about.state, jobs=jobs, placement=placement), gpu_types=gpu_types, places=places
    )


def progress_in_places(
    progress: Sequence[Progress], about: Observed, gpu_types: GpuTypes, pods: Iterable[PodFacts]
) -> list[Progress]:
    """What the jobs of targets did, with where their workers were, if that was the same at both ends of the interval.

    Args:
        about: what was observed at its beginning; `pods` and `gpu_types` are of its end.
    """
    if not gpu_types:
        return list(progress)
    uids = {job_id: member.facts.uid for job_id, member in about.members.items()}
    job_placements = placement_of_targets(pods, set(uids.values()))
    found = []
    for entry in progress:
        before, now = about.places.get(entry.job_id, ()), job_placements.get(uids[entry.job_id], JobPlacement())
        # Of a job that is done no pod lies anywhere any more.
        same = entry.finished or places_of(now.workers, entry.allocation.workers, gpu_types) == before
        found.append(replace(entry, places=before) if same and entry.samples > 0.0 else entry)
    return found
