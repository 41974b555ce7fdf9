"""This machine as a cluster of one node: the cores and GPUs that its jobs may have."""

from __future__ import annotations

import os
from pathlib import Path

from cluster_agent.backend_settings import LocalBackendSettings
from cluster_agent.errors import BadAgentConfig
from policy_net.domain import Node, Resources

NODE = "this-machine"
_CGROUP_LIMIT = Path("/sys/fs/cgroup/cpu.max")


def this_node(settings: LocalBackendSettings, gpus: int, cgroup_limit: Path = _CGROUP_LIMIT) -> Node:
    """What jobs may have here: what this process may use, less what the operator keeps back.

    Args:
        settings: of the backend.
        gpus: that there are.
        cgroup_limit: the file in which a container's limit stands.

    Raises:
        BadConfig: nothing is left, or there are not so many GPUs.
    """
    if settings.gpus is not None and settings.gpus > gpus:
        raise BadAgentConfig(
            f"setting backend.gpus = {settings.gpus}: NVIDIA's library finds {gpus} here; install nvidia-ml-py and a "
            "driver, or leave it out"
        )
    usable = len(os.sched_getaffinity(0)) * 1000
    limit = _container_limit_milli(cgroup_limit)
    if limit is not None:
        usable = min(usable, limit)
    cpu_milli = (usable if settings.cpu_milli is None else settings.cpu_milli) - settings.reserved_cpu_milli
    if cpu_milli <= 0:
        raise BadAgentConfig(
            f"setting backend.reserved_cpu_milli = {settings.reserved_cpu_milli}: nothing is left of this machine's "
            f"{usable} millicores"
        )
    return Node(NODE, Resources(cpu_milli, gpus if settings.gpus is None else settings.gpus))


def job_cores(node: Node) -> list[int]:
    """The cores that jobs run on: the last ones, as systems do their own work on the first."""
    usable = sorted(os.sched_getaffinity(0))
    return usable[-min(len(usable), -(-node.capacity.cpu_milli // 1000)) :]


def _container_limit_milli(file: Path) -> int | None:
    """A container's share of the cores; None where there is no limit. Source: cgroup v2, cpu.max: quota and period."""
    try:
        quota, period = file.read_text(encoding="ascii").split()
        return max(1, int(quota) * 1000 // int(period))
    except (OSError, ValueError):
        return None
