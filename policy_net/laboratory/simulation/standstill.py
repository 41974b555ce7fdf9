"""Runs that would never come to an end: when they are given up, and what is said then; the same in the twin."""

from __future__ import annotations

from dataclasses import dataclass

from policy_net.errors import NoProgress

MAX_IDLE_DECISIONS = 1000
"""Decisions in a row without any progress, with no arrival to wait for, after which a replay gives up."""

MAX_WAITING_DECISIONS = 100_000
"""The same where there are nodes to wait for: some always fail and return, and may never be what is lacking. Where jobs
lose what they have trained, so many decisions without any job's end."""


@dataclass(frozen=True, slots=True)
class Standstill:
    """Where a run stopped as nothing came of it any more: how many jobs were left, and the first of them.

    Attributes:
        decisions: without any progress; where jobs only lose what they have trained, without any job's end.
        loses: whether jobs train, and lose it with their nodes.
    """

    jobs: int
    first_job_id: str
    decisions: int
    time_seconds: float
    loses: bool = False

    def error(self, policy: str, workload: str) -> NoProgress:
        """What is raised of a policy's run of a workload."""
        if self.loses:
            return NoProgress(
                f"workload {workload!r} under policy {policy!r}: no job has ended in {self.decisions} decisions up to"
                f" {self.time_seconds:.0f} s, while nodes failed and training since the last checkpoint was lost: the"
                " replay would never end; let nodes fail less often, or checkpoint more often"
            )
        return NoProgress(
            f"policy {policy!r} let none of the {self.jobs} remaining jobs of workload {workload!r} train in"
            f" {self.decisions} decisions up to {self.time_seconds:.0f} s (the first is {self.first_job_id!r}): the"
            " replay would never end"
        )
