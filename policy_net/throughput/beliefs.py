"""Beliefs about speed, learned type by type from observed progress, and a cache of what follows from speeds.

How one type is fitted is the subclass's affair (`type_belief.py`). Speeds are known by type, and a type is of one kind.
A script that trained with parameter servers yesterday may train by all-reduce today, under the same name: believed as
the first one's, the second's speed would be zero everywhere. So names keep the kinds of jobs of one type apart.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from policy_net.domain import MAX_TASKS_PER_ROLE, Allocation, Job, JobKind, Progress, SpeedModel, speed_at
from policy_net.errors import BadInput
from policy_net.exchange.statistics import SpeedStatistic
from policy_net.throughput.form import FORMS, form_grid
from policy_net.throughput.type_belief import NOISE, Cell, TypeBelief, is_possible

Grid = NDArray[np.float64]
Belief = TypeVar("Belief", bound=TypeBelief)
Made = TypeVar("Made")


class BeliefsByType(Generic[Belief]):
    """A `SpeedModel` that starts from a prior and sharpens with every report; it never sees the simulator's truth.

    Deterministic: the same calls in the same order, also across a snapshot, give the same grids bit for bit. What kinds
    types have is introduced anew after a restore; of those that were observed, the snapshot says it.
    """

    optimistic: ClassVar[bool]
    """Whether speeds are raised where little is known: a planner then learns by itself, and needs no probes."""

    def __init__(self, new_belief: type[Belief]) -> None:
        """`new_belief` is the class of what is believed of one type."""
        self._new_belief = new_belief
        self._types: dict[str, Belief] = {}
        self._kinds: dict[str, JobKind] = {}
        self.doubted: list[Progress] = []
        self._unseen = {kind: form_grid(form, form.unseen_coefficients) for kind, form in FORMS.items()}
        for grid in self._unseen.values():
            grid.setflags(write=False)

    def new_belief(self, kind: JobKind) -> Belief:
        """What is believed of a type of this kind of which nothing was seen."""
        return self._new_belief(FORMS[kind])

    def introduce(self, jobs: Iterable[Job]) -> None:
        """Learn of what kind the types of these jobs are; a type keeps the kind with which it was first met.

        Before a type was introduced or observed it is taken for a parameter-server type.
        """
        for job in jobs:
            self._kinds.setdefault(job.job_type, job.kind)

    def observe(self, progress: Sequence[Progress]) -> None:
        """Take in what jobs did; entries without any time, or with tasks that cannot train, say nothing about speed.

        `doubted` are afterwards those that are too far from what is believed of their type.
        """
        self.doubted = []
        for entry in progress:
            ps, workers = entry.allocation.ps, entry.allocation.workers
            belief = self._types.get(entry.job_type)
            form = FORMS[self._kind_of(entry)] if belief is None else belief.form
            if not (form.has_cell(ps, workers) and is_possible(entry.samples, entry.seconds)):
                continue
            if belief is None:
                belief = self._types[entry.job_type] = self._new_belief(form)
            if not belief.observe((ps, workers), entry.samples, entry.seconds):
                self.doubted.append(entry)

    def samples_per_second(self, job_type: str, ps: int, workers: int) -> float:
        """Believed speed in samples/s; 0 for allocations that cannot train and dead cells."""
        return speed_at(self.grid(job_type), ps, workers)

    def grid(self, job_type: str) -> Grid:
        """Believed speeds in samples/s, of its kind's shape [ps, workers]; the same array until the belief changes."""
        belief = self._types.get(job_type)
        return self._unseen[self._kinds.get(job_type, JobKind.PS)] if belief is None else belief.grid()

    def allocations_seen(self, job_type: str) -> frozenset[Allocation]:
        """The allocations in which this type was observed."""
        belief = self._types.get(job_type)
        return frozenset() if belief is None else frozenset(Allocation(workers, ps) for ps, workers in belief.cells)

    def beliefs_by_type(self) -> Mapping[str, Belief]:
        """What is believed of the types that were observed, or reported."""
        return MappingProxyType(self._types)

    def statistics(self) -> tuple[SpeedStatistic, ...]:
        """What was observed here, and nothing that came from others, as it may be shared; sorted.

        What no statistic can say is left out: a name of hundreds of characters, a speed beyond all computers. So is
        what more workers than the usual 16 gave: programs from before jobs had more refuse a report, or a policy file,
        of it.
        """
        statistics = (
            _statistic_of(job_type, belief.form.kind, index, cell)
            for job_type, belief in sorted(self._types.items())
            for index, cell in sorted(belief.cells.items())
            if cell.samples > 0 and index[1] <= MAX_TASKS_PER_ROLE
        )
        return tuple(entry for entry in statistics if entry is not None)

    def snapshot(self) -> dict[str, object]:
        """Everything observed and fitted, as JSON-able values; `restore` is its inverse."""
        return {job_type: belief.snapshot() for job_type, belief in sorted(self._types.items())}

    def restore(self, snapshot: Mapping[str, object]) -> None:
        """Replace what is believed by a snapshot.

        Raises:
            BadInput: the snapshot was not written by `snapshot`; nothing is changed.
        """
        try:
            self._types = {
                job_type: self._new_belief.restored(entry)  # type: ignore[arg-type]  # anything may have been read
                for job_type, entry in snapshot.items()
            }
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise BadInput(f"not a snapshot of speed beliefs: {error!r}; delete it to start from the prior") from error

    def checkpoint(self) -> dict[str, Any]:
        """All that later beliefs follow from, as JSON-able values: the snapshot, and the kinds of types."""
        kinds = {job_type: kind.value for job_type, kind in sorted(self._kinds.items())}
        return {"kinds": kinds, "types": self.snapshot()}

    def go_on_from(self, checkpoint: Mapping[str, Any]) -> None:
        """Be, bit for bit, what was believed at a checkpoint of beliefs that were built with the same priors.

        Raises:
            BadInput: it is no checkpoint.
        """
        try:
            kinds = {job_type: JobKind(kind) for job_type, kind in checkpoint["kinds"].items()}
            types = checkpoint["types"]
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise BadInput(f"not a checkpoint of speed beliefs: {error!r}") from error
        self._kinds = kinds
        self.restore(types)

    def digest(self) -> str:
        """SHA-256 over what a checkpoint holds, hex; a few microseconds where little has changed since the last."""
        total = hashlib.sha256()
        for job_type, kind in sorted(self._kinds.items()):
            total.update(f"{job_type}\0{kind.value}\0".encode())
        for job_type, belief in sorted(self._types.items()):
            total.update(f"\0{job_type}\0{belief.form.kind.value}\0".encode())
            total.update(belief.digest())
        return total.hexdigest()

    def _kind_of(self, entry: Progress) -> JobKind:
        """The kind of a type that was never observed; one that trains without servers needs no introduction."""
        known = self._kinds.get(entry.job_type)
        if known is None:
            return JobKind.ALLREDUCE if entry.allocation.ps == 0 and entry.samples > 0 else JobKind.PS
        return known


def _statistic_of(job_type: str, kind: JobKind, index: tuple[int, int], cell: Cell) -> SpeedStatistic | None:
    # The mean of the log lies below the log of the mean, by half the variance.
    mean = math.log(cell.samples) - math.log(cell.seconds) - NOISE**2 / cell.count / 2
    try:
        return SpeedStatistic(job_type, kind, *index, mean, cell.count)
    except ValueError:
        return None


Beliefs = BeliefsByType[Any]


def beliefs_of(policy: object) -> Beliefs | None:
    """The beliefs about speed of a policy; None if its decisions follow from the state alone."""
    found: Beliefs | None = getattr(policy, "beliefs", None)
    return found


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


def type_of_kind(
    job_type: str,
    kind: JobKind,
    kind_of: Callable[[str], JobKind | None],
    given: Callable[[], Collection[str]] = tuple,
) -> str:
    """The name under which jobs of this type and kind are known: the type's own, or one with the kind behind it.

    The longer one where the type's own is that of the other kind, or where only the longer one is known, and no user
    gave that. `kind_of` says of what kind a name is known to be, if it is; `given` are the names that users gave, asked
    for only where one could be meant.
    """
    name = job_type
    while (known := kind_of(name)) is None or known.uses_ps is not kind.uses_ps:
        apart = f"{name}-{kind.value}"
        if known is None and (kind_of(apart) is None or apart in given()):
            break
        name = apart
    return name


def measured_kinds(beliefs: Beliefs) -> Callable[[str], JobKind | None]:
    """Of what kind a name is known to be by what was measured of it so far: the `kind_of` of `type_of_kind`."""

    def kind_of(name: str) -> JobKind | None:
        belief = beliefs.beliefs_by_type().get(name)
        return None if belief is None else belief.form.kind

    return kind_of
