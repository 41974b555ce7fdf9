"""Words on places: what a decision is told of where tasks lie, and beliefs of what jobs did there; pure.

Nobody moves a task of a running job. An all-reduce TrainingJob of another size is made anew, wherever there is room;
any other job grows and shrinks where it is. Where the pods of a TrainingJob should be is said to the cluster's own
scheduler, which decides; where those of other jobs go, it decides alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from cluster_agent.backends.kubernetes.observation import Observed, SeenCluster
from cluster_agent.backends.kubernetes.places.job_placement import (
    GpuTypes,
    JobPlacement,
    gpu_types_of,
    placement_of_targets,
    places_of,
    shares_of,
)
from cluster_agent.kubernetes.capacity import PodFacts
from policy_net.domain import Moves, Progress


def in_places(about: Observed, seen: SeenCluster, of_own: Callable[[], Mapping[str, JobPlacement]]) -> Observed:
    """What was observed, with where tasks lie, if that makes a difference.

    Args:
        seen: of which it was observed.
        of_own: where the tasks of TrainingJobs lie, by the job's id.
    """
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
    """What the jobs of targets did, with where their workers lay, if that was the same at both ends of the interval.

    Args:
        about: what was observed at its beginning.
        gpu_types: of all nodes at its end; empty where places make no difference.
        pods: at its end.
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
