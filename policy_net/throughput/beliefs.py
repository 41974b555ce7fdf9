"""Beliefs about speed, as schedulers see them: the interface of every model, and a cache of what follows from one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from policy_net.domain import Allocation, Job, Progress, SpeedModel
from policy_net.exchange.statistics import SpeedStatistic

Made = TypeVar("Made")
Grid = NDArray[np.float64]


class Beliefs(SpeedModel, Protocol):
    """A `SpeedModel` that learns: deterministic, also across a snapshot, and never shown the simulator's truth."""

    @property
    def optimistic(self) -> bool:
        """Whether speeds are raised where little is known: a planner then learns by itself, and needs no probes."""
        ...

    def introduce(self, jobs: Iterable[Job]) -> None:
        """Learn of what kind the types of these jobs are; a type keeps the kind with which it was first met.

        Before a type was introduced or observed it is taken for a parameter-server type.
        """
        ...

    def observe(self, progress: Sequence[Progress]) -> None:
        """Take in what jobs did; entries that say nothing about speed are passed over."""
        ...

    def allocations_seen(self, job_type: str) -> frozenset[Allocation]:
        """The allocations in which this type was observed."""
        ...

    def statistics(self) -> tuple[SpeedStatistic, ...]:
        """What was observed, as it may be shared with others."""
        ...

    def snapshot(self) -> dict[str, object]:
        """Everything observed, as JSON-able values; `restore` is its inverse."""
        ...

    def restore(self, snapshot: Mapping[str, object]) -> None:
        """Replace what is believed by a snapshot.

        Raises:
            BadInput: the snapshot was not written by `snapshot`; nothing is changed.
        """
        ...

    def checkpoint(self) -> dict[str, Any]:
        """Everything that later beliefs follow from, as JSON-able values; `go_on_from` is its inverse."""
        ...

    def go_on_from(self, checkpoint: Mapping[str, Any]) -> None:
        """Be, bit for bit, what was believed at a checkpoint of beliefs that were built with the same priors.

        Raises:
            BadInput: it is no checkpoint.
        """
        ...

    def digest(self) -> str:
        """SHA-256 over what a checkpoint holds, hex; a few microseconds where little has changed since the last."""
        ...


@runtime_checkable
class Believing(Protocol):
    """A policy that plans on beliefs; None where it was given speeds in their place."""

    @property
    def beliefs(self) -> Beliefs | None:
        """What it plans on."""
        ...


def beliefs_of(policy: object) -> Beliefs | None:
    """What a policy believes of speeds; None if its decisions follow from the state alone."""
    return policy.beliefs if isinstance(policy, Believing) else None


class TypeCache(Generic[Made]):
    """One thing per (type, caps, smallest split), made anew when the speed model hands out another grid for the type.

    A speed model returns the same array until its speeds change (`SpeedModel.grid` arrays are read-only), so the
    array itself is the version.

    Args:
        make: takes speeds in samples/s [ps, workers], the most PSs and workers, and the smallest split.
    """

    def __init__(self, speeds: SpeedModel, make: Callable[[Grid, int, int, Allocation], Made]) -> None:
        self._speeds = speeds
        self._make = make
        self._known: dict[tuple[str, int, int, int, int], tuple[Grid, Made]] = {}

    def of(self, job: Job) -> Made:
        """What was made of this job's type under this job's caps and minimum."""
        grid = self._speeds.grid(job.job_type)
        key = (job.job_type, job.max_ps, job.max_workers, job.min_ps, job.min_workers)
        known = self._known.get(key)
        if known is None or known[0] is not grid:
            known = self._known[key] = (grid, self._make(grid, job.max_ps, job.max_workers, job.smallest))
        return known[1]
