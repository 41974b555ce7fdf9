"""The past of a cluster in its agent's state directory, for the processes that replay it: log, machines, what acts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cluster_agent.backends.local.recorded_ends import with_ends_since
from cluster_agent.recording.last_decision import policy_from_file
from cluster_agent.recording.log_reading import state_of
from policy_net.domain import PolicyContext
from policy_net.errors import NothingRecorded, PolicyFileError
from policy_net.laboratory.training.twin_windows import TwinMachines
from policy_net.laboratory.workloads.decided import RecordedJobs, read_recorded
from policy_net.policy import SchedulerPolicy, build_policy, policy_names


def log_of(state_dir: Path) -> RecordedJobs | None:
    """What the decision log shows, and the ends that it has not; None before it shows any job whose work is known.

    Raises:
        BadInput: it cannot be read.
    """
    try:
        return with_ends_since(read_recorded(state_dir), state_dir)
    except NothingRecorded:
        return None


def machines_of(line: dict[str, Any], log: RecordedJobs | None) -> TwinMachines:
    """The machines of a decision, and what a start cost there.

    Raises:
        StateDamaged: the decision cannot be read.
    """
    state = state_of(line)
    nodes = tuple(node.capacity for node in state.nodes)
    return TwinMachines(nodes, state.slot_seconds, 0.0 if log is None else log.pause_seconds, state.capacity_mode)


def acting_of(state_dir: Path, line: dict[str, Any]) -> SchedulerPolicy | None:
    """What decides here, as it begins, without what it has come to believe; None where it is not at hand."""
    try:
        policy = policy_from_file(state_dir, line)
    except PolicyFileError:
        return None
    named = policy is None and line["policy"] in policy_names()
    return build_policy(line["policy"], PolicyContext()) if named else policy
