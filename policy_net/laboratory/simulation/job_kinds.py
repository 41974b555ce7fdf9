"""What a user may say about how the jobs of a recorded workload train."""

from __future__ import annotations

from enum import StrEnum

from policy_net.domain import JobKind


class JobKindChoice(StrEnum):
    """How the jobs of a recorded workload train."""

    PS = "ps"
    ASYNC = "async"
    ALLREDUCE = "allreduce"
    MIX = "mix"

    @property
    def kinds(self) -> tuple[JobKind, ...]:
        """The kinds that occur, in equal shares: `mix` is of synchronous PS and all-reduce jobs."""
        return (JobKind.PS, JobKind.ALLREDUCE) if self is JobKindChoice.MIX else (JobKind(self.value),)
