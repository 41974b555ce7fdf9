"""Last checkpoint of a TrainingJob that was deleted, where its author asked for one: how long it is waited for; pure.

The agent's finalizer keeps such a job until its coordinator has written a checkpoint and let its tasks go. All that it
takes is seen again by an agent that has just begun: when the job was deleted, its pods, and what its coordinator says.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from cluster_agent.backends.kubernetes.training.memory import Memory, Told
from cluster_agent.backends.kubernetes.training.step import Standing
from cluster_agent.backends.kubernetes.training.task_pods import TaskPod
from cluster_agent.kubernetes.training.manifests import COORDINATOR
from cluster_agent.kubernetes.training.training_job import TrainingJob
from elastic_runtime.protocol.plan import Phase

_WRITTEN = (Phase.SUSPENDED, Phase.FINISHED)
_NOTHING_NEW = (Phase.STARTING, Phase.RECOVERING)
"""It has trained nothing since its last checkpoint."""
_WITHOUT_PODS = (Standing.QUEUED, Standing.SUSPENDED)


@dataclass(frozen=True, slots=True)
class Parting:
    """A deleted job may go.

    Attributes:
        is_written: its last checkpoint is there.
        line: what people are told; empty: nothing.
    """

    is_written: bool = True
    line: str = ""


def parting(
    job: TrainingJob,
    pods: Iterable[TaskPod],
    told: Told | None,
    memory: Memory,
    unix_seconds: float,
    limit_seconds: float,
) -> Parting | None:
    """Whether a deleted job may go; None: its last checkpoint is waited for.

    Args:
        pods: all that carry its name.
        told: what its coordinator said; None where it cannot be asked.
        limit_seconds: longest wait since the deletion.
    """
    if job.outcome or not job.has_started:
        return Parting()
    ours = [pod for pod in pods if pod.owner == job.uid]
    found = _by_its_word(told) if told is not None else _by_its_pods(job, ours)
    if found is None and unix_seconds - _seconds(job.deleted) >= limit_seconds:
        why = memory.given_up[1] or memory.trouble
        return _lost(f"there was none within {limit_seconds:g} s{f': {why}' if why else ''}")
    return found


def _by_its_word(told: Told) -> Parting | None:
    """What its coordinator says."""
    status = told.status
    if status.phase in _WRITTEN:
        return Parting(line=f"its last checkpoint is of {status.epoch:g} epochs, {status.samples} samples")
    if status.phase is Phase.FAILED:
        return _lost(f"it has failed: {status.failure}")
    return Parting() if status.phase in _NOTHING_NEW else None


def _by_its_pods(job: TrainingJob, ours: list[TaskPod]) -> Parting | None:
    """Nobody answers: whether anybody will."""
    coordinator = next((pod for pod in ours if pod.task == COORDINATOR), None)
    if coordinator is not None and not coordinator.ended and not coordinator.deleting:
        return None
    stays = any(not pod.deleting and (not pod.ended or pod is coordinator) for pod in ours)
    if not stays and str(job.status.get("phase") or "") in _WITHOUT_PODS:
        return Parting()  # it was suspended, with a checkpoint
    if coordinator is not None and coordinator.exit_code == 0 and coordinator.last_words.startswith(Phase.FINISHED):
        return Parting()
    return _lost("its coordinator is gone")


def _lost(why: str) -> Parting:
    return Parting(False, f"no last checkpoint: {why}; what it trained since the one before is lost")


def _seconds(time: str) -> float:
    """Unix seconds; long ago where nobody can read it, as then nothing is waited for."""
    try:
        return datetime.fromisoformat(time).timestamp()
    except ValueError:
        return 0.0
