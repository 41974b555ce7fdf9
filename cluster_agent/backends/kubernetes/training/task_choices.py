"""Choices of nodes of a TrainingJob's tasks; pure.

Workers, parameter servers and the coordinator have templates of their own, and Kueue's admission may say more of each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from cluster_agent.backends.kubernetes.training.room import Need
from cluster_agent.kubernetes.capacity import Amounts, requests_of
from cluster_agent.kubernetes.node_choice import NodeChoice, node_choice
from cluster_agent.kubernetes.training.manifests import COORDINATOR, role_of, template_of
from cluster_agent.kubernetes.training.training_job import TrainingJob

Json = dict[str, Any]
Fit = Callable[[str, Json], None]
"""Changes the pod of a role as Kueue's admission says; ValueError where its template says something else."""

COORDINATOR_ASKS: Amounts = {"cpu": 100, "memory": 256 << 20, "pods": 1}
"""Of a coordinator without a template."""


def asks_of(job: TrainingJob, task: str) -> Amounts:
    """What a task's pod takes; a role stands for any of its tasks."""
    role = role_of(task)
    if role == COORDINATOR:
        return requests_of(job.coordinator["spec"], {}) if job.coordinator else COORDINATOR_ASKS
    return job.worker.asks if role == "worker" else job.ps.asks


def choices_of(job: TrainingJob, fit: Fit | None = None) -> dict[str, NodeChoice]:
    """By role, the nodes that its pods may come to.

    Raises:
        ApiError: what Kueue's admission says cannot be read.
    """
    roles = ("worker",) if job.is_all_reduce else ("worker", "ps", COORDINATOR)
    return {role: _choice(template_of(job, role), role, fit) for role in roles}


def needs_of(job: TrainingJob, tasks: Iterable[str], choices: Mapping[str, NodeChoice]) -> list[Need]:
    """What tasks need of nodes, each as its role does."""
    return [Need(asks_of(job, task), choices[role_of(task)]) for task in tasks]


def _choice(template: Json, role: str, fit: Fit | None) -> NodeChoice:
    pod: Json = {"metadata": {}, "spec": dict(template.get("spec") or {})}
    if fit is not None:
        try:
            fit(role, pod)
        except (ValueError, TypeError, AttributeError):
            # It will be refused, and told, where the pod is made.
            pod["spec"] = template["spec"]
    return node_choice(pod["spec"])
