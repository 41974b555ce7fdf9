"""Reservations: room that TrainingJobs were promised and whose pods nobody sees yet; pure.

A job that grows has its room from the moment in which its coordinator is asked: the coordinator names its new tasks a
moment later, then their pods are made, and then those who follow all pods see them. Meanwhile other jobs look for room.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from cluster_agent.backends.kubernetes.training.memory import Memory, Told
from cluster_agent.backends.kubernetes.training.room import Room
from cluster_agent.backends.kubernetes.training.task_choices import choices_of, needs_of
from cluster_agent.backends.kubernetes.training.task_pods import TaskPod
from cluster_agent.kubernetes.node_choice import NodeChoice
from cluster_agent.kubernetes.training.manifests import COORDINATOR
from cluster_agent.kubernetes.training.training_job import TrainingJob
from elastic_runtime.control.messages import Size
from elastic_runtime.protocol.plan import Phase

_HAS_NONE = (Phase.SUSPENDING, Phase.SUSPENDED, Phase.FINISHED, Phase.FAILED)
_ASKED_SECONDS = 30.0
"""A coordinator that has not taken up by then what it was asked will not."""


def promised(job: TrainingJob, told: Told | None, memory: Memory, now: float) -> Size:
    """How many tasks of each role a running job has, or has room for.

    Args:
        told: what its coordinator says; None where it cannot be asked: what it said before counts.
        memory: of the job; is changed.
        now: monotonic seconds.
    """
    if told is not None and not told.lie:
        memory.target = told.status.target if told.status.phase not in _HAS_NONE else Size(0, 0)
        size, since = memory.asked
        if told.status.target == size or now - since > _ASKED_SECONDS:
            memory.asked = Size(0, 0), now
    if memory.target is None:  # an agent that has just begun: what was noted last
        return Size(job.granted.ps, job.granted.workers)
    asked = memory.asked[0]
    servers, workers = max(memory.target.servers, asked.servers), max(memory.target.workers, asked.workers)
    return Size(min(servers, job.most.ps), min(workers, job.most.workers))


def reserve(
    room: Room,
    job: TrainingJob,
    pods: Iterable[TaskPod],
    told: Told | None,
    memory: Memory,
    now: float,
    choices: Mapping[str, NodeChoice] | None = None,
) -> None:
    """Take the room that a job was promised, and that no pod takes yet.

    Args:
        pods: all that carry its name.
        choices: by role, the nodes that its pods may come to; None: those that its templates say.
    """
    choices = choices_of(job) if choices is None else choices
    ours = [pod for pod in pods if pod.owner == job.uid and not pod.ended]
    for pod in ours:
        if not room.counts(pod.namespace, pod.name):
            room.reserve(needs_of(job, [pod.task], choices))
    if job.outcome or job.deleting or not any(pod.task == COORDINATOR for pod in ours):
        return
    leaving = told.status.leaving if told is not None else ()
    here = [pod.task for pod in ours if not pod.deleting and pod.task not in leaving]
    size = promised(job, told, memory, now)
    missing = ["ps"] * (size.servers - _count(here, "ps")) + ["worker"] * (size.workers - _count(here, "worker"))
    room.reserve(needs_of(job, missing, choices))


def _count(tasks: Collection[str], role: str) -> int:
    return sum(task.rpartition("-")[0] == role for task in tasks)
