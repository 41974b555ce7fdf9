"""What an agent needs of a cluster; the loop knows nothing else of it.

Every implementation passes the suite in `tests/contracts`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from policy_net.domain import ClusterState, Decision, Progress, Trigger

Wait = Callable[[float], bool]
"""Waits up to so many seconds; True at once when the agent is to stop."""


@dataclass(frozen=True, slots=True)
class BackendStatus:
    """How a cluster's jobs stand.

    Attributes:
        time_seconds: the cluster's clock.
        jobs_total: 0 where it is not known.
        avg_jct_seconds: of the jobs done so far; 0 before the first.
        baseline_jct_seconds: the fallback's, on the same jobs; 0 where it is not known.
    """

    time_seconds: float
    jobs_running: int
    jobs_waiting: int
    jobs_done: int
    jobs_total: int
    avg_jct_seconds: float
    baseline_jct_seconds: float = 0.0


class Backend(Protocol):
    """A cluster: says how things stand when a decision is due, and carries decisions out."""

    @property
    def finished(self) -> bool:
        """Whether no decision will ever be due again; a live cluster never finishes."""
        ...

    @property
    def time_seconds(self) -> float:
        """The cluster's clock, in the same time as the states' `time_seconds`."""
        ...

    @property
    def job_types(self) -> Sequence[str]:
        """The job types seen so far, in order of appearance."""
        ...

    def observe(self) -> tuple[ClusterState, Trigger] | None:
        """Wait until a decision is due and say for what; None when the agent is to stop, or nothing is due any more.

        Asked twice without `apply` in between, it answers the same.

        Raises:
            BackendUnavailable: the cluster does not answer.
        """
        ...

    def apply(self, decision: Decision) -> list[Progress]:
        """Place and carry out; returns once the next decision is due (or nothing is), with what every job did.

        Raises:
            InvalidAllocation: the decision does not fit what was observed; nothing has changed.
            BackendUnavailable: the cluster does not answer.
        """
        ...

    def status(self) -> BackendStatus:
        """How the jobs stand now; may be called from any thread."""
        ...

    def close(self) -> None:
        """Let go of what is held; the jobs stay as they are."""
        ...
