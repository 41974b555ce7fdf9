"""Pods of TrainingJobs: what is kept of each; how its process ended, or why it does not start."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from cluster_agent.backends.kubernetes.places import JobPlacement
from cluster_agent.kubernetes.capacity import LONGEST_LINE, stuck
from cluster_agent.kubernetes.resources import Json, condition_of, controller_of, dicts_in
from cluster_agent.kubernetes.training.manifests import (
    COORDINATOR,
    GANG_LABEL,
    JOB_LABEL,
    TASK_LABEL,
    WORLD_LABEL,
    role_of,
)
from foundation.text import plain_line

KILLED: Final = -9
"""How a process ended that left no exit code: with its node, or its pod was deleted."""
_SIGNALS = 128
"""A shell's exit codes above are signals."""
_DIGITS = 10


@dataclass(frozen=True, slots=True)
class TaskPod:
    """One pod.

    Attributes:
        owner: uid of its TrainingJob.
        exit_code: of the process, minus the signal's number if one ended it; 0 before its end.
        last_words: the last line that is known of it.
        trouble: why it does not start, in a line.
        gang: of an all-reduce job: the number of the gang that it belongs to, which has `world` ranks; 0 of others.
        ended_at: when its process ended, as the API writes it; empty where nobody saw it.
        disrupted: it was ended from outside, such as by an eviction, and not by what it ran.
    """

    namespace: str
    name: str
    job: str
    task: str
    uid: str
    owner: str
    phase: str
    node: str = ""
    deleting: bool = False
    exit_code: int = 0
    last_words: str = ""
    trouble: str = ""
    gang: int = 0
    world: int = 0
    ended_at: str = ""
    disrupted: bool = False

    @property
    def ended(self) -> bool:
        """Whether its process has ended, however."""
        return self.phase in ("Succeeded", "Failed")


def placement_of_tasks(pods: Iterable[TaskPod]) -> dict[str, JobPlacement]:
    """Where the tasks of TrainingJobs lie, by uid of the job."""
    found: dict[str, JobPlacement] = {}
    for pod in pods:
        if pod.node and pod.task != COORDINATOR and not pod.deleting and not pod.ended:
            found.setdefault(pod.owner, JobPlacement()).add(role_of(pod.task), pod.node)
    return found


def task_pod_facts(pod: Json) -> TaskPod | None:
    """What is kept of a pod as the API gives it; None of one that is no TrainingJob's."""
    metadata, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    stated = metadata.get("labels") or {}
    owner = controller_of(metadata)
    if not (stated.get(JOB_LABEL) and stated.get(TASK_LABEL) and owner.get("kind") == "TrainingJob"):
        return None
    phase = str(status.get("phase") or "Pending")
    containers = dicts_in(status.get("containerStatuses"))
    exit_code, words, ended_at, end = 0, "", "", None
    if phase in ("Succeeded", "Failed"):
        end = _end(containers, spec)
        if end is not None:
            exit_code, words, ended_at = end
        elif phase == "Failed":  # evicted, or its node was shut down
            exit_code, words = KILLED, str(status.get("message") or status.get("reason") or "")
    return TaskPod(
        namespace=str(metadata.get("namespace") or ""),
        name=str(metadata["name"]),
        job=str(stated[JOB_LABEL]),
        task=str(stated[TASK_LABEL]),
        uid=str(metadata.get("uid") or ""),
        owner=str(owner.get("uid") or ""),
        phase=phase,
        node=str(spec.get("nodeName") or ""),
        deleting="deletionTimestamp" in metadata,
        exit_code=exit_code,
        last_words=plain_line(words, LONGEST_LINE),
        trouble=plain_line(_trouble(status), LONGEST_LINE) if phase == "Pending" else "",
        gang=_number(stated.get(GANG_LABEL)),
        world=_number(stated.get(WORLD_LABEL)),
        ended_at=ended_at,
        disrupted=phase == "Failed" and (end is None or _is_disrupted(status)),
    )


def _number(label: Any) -> int:
    """A label as a number; anybody may have changed it."""
    text = str(label or "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < _DIGITS else 0


def _is_disrupted(status: Json) -> bool:
    return condition_of(status, "DisruptionTarget").get("status") == "True"


def _end(containers: list[Json], spec: Json) -> tuple[int, str, str] | None:
    """Code, last words and time of the container that runs the task, the first one; None: nobody saw its end."""
    names = [each.get("name") for each in spec.get("containers") or ()]
    ended = {each.get("name"): (each.get("state") or {}).get("terminated") or {} for each in containers}
    end = ended.get(names[0]) if names else None
    if not end:
        return None
    code = end.get("exitCode")
    code = code if isinstance(code, int) else 0
    lines = str(end.get("message") or end.get("reason") or "").strip().splitlines()
    code = _SIGNALS - code if code > _SIGNALS else code
    return code, (lines[-1] if lines else ""), str(end.get("finishedAt") or "")


def _trouble(status: Json) -> str:
    if found := stuck(status):
        return found
    scheduled = condition_of(status, "PodScheduled")
    if scheduled.get("status") == "False":
        return f"{scheduled.get('reason') or 'Unschedulable'}: {scheduled.get('message') or ''}".strip(": ")
    return ""
