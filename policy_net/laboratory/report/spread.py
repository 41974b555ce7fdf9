"""Spread of an answer over assumptions: how jobs train, what models they are, how they can be resized.

Every assumption is first changed by itself, then together with the others, up to a number of replays that follows from
the workload alone, so that the same command gives the same range everywhere. The compiled twin simulates a case of a
thousand jobs in a tenth of a second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from policy_net.errors import PolicyNetError
from policy_net.laboratory.workloads.workload import JobKindChoice

STALLS_SECONDS = ((0.0, 0.0), (30.0, 60.0), (120.0, 300.0))
"""(resize, resume): none; a checkpoint that is written and read; a new container and a large model as well."""
KINDS = (JobKindChoice.ALLREDUCE, JobKindChoice.PS, JobKindChoice.ASYNC)
SEEDS = 3
"""Draws of the models, from the given seed on."""
ELASTIC_SHARES = (1.0, 0.5)
"""Shares of the jobs that can be resized, which no log says."""
COMPILED_JOBS, OTHER_JOBS = 60_000, 3_000
"""Jobs that are replayed again for a range, all cases together, by the twin and by the policy itself: under a minute on
one core, mostly."""


@dataclass(frozen=True, slots=True)
class AssumedCase:
    """One set of assumptions."""

    kind: JobKindChoice
    seed: int
    stall_seconds: tuple[float, float]
    elastic_share: float = 1.0


@dataclass(frozen=True)
class Assumptions:
    """Values of each assumption, one where the user stated it; `base` is the case of the answer itself."""

    base: AssumedCase
    kinds: tuple[JobKindChoice, ...] = KINDS
    stalls_seconds: tuple[tuple[float, float], ...] = STALLS_SECONDS
    seeds: int = SEEDS
    elastic_shares: tuple[float, ...] = (1.0,)

    @property
    def each(self) -> Mapping[str, tuple[AssumedCase, ...]]:
        """By assumption, the cases that change it alone, the base first; those with one value are left out."""
        base = self.base
        values: tuple[tuple[str, str, Iterable[Any]], ...] = (
            (KIND, "kind", self.kinds),
            (MODELS, "seed", range(base.seed, base.seed + self.seeds)),
            (STALLS, "stall_seconds", self.stalls_seconds),
            (ELASTIC, "elastic_share", self.elastic_shares),
        )
        found = {}
        for name, field_name, of_name in values:
            others = (value for value in of_name if value != getattr(base, field_name))
            found[name] = (base, *(replace(base, **{field_name: value}) for value in others))
        return {name: cases for name, cases in found.items() if len(cases) > 1}

    def cases(self) -> Iterator[AssumedCase]:
        """All cases but the base: every assumption by itself, then the others."""
        seen = {self.base}
        alone = [case for of_name in self.each.values() for case in of_name]
        seeds = range(self.base.seed, self.base.seed + self.seeds)
        together = (
            AssumedCase(*values) for values in product(self.kinds, seeds, self.stalls_seconds, self.elastic_shares)
        )
        for case in (*alone, *together):
            if case not in seen:
                seen.add(case)
                yield case


KIND, MODELS, STALLS = "how the jobs train", "which models they are", "how long a resize stops them"
ELASTIC = "how many can be resized"


@dataclass(frozen=True)
class JctSpread:
    """Average completion times over today's, less 1, by case.

    Attributes:
        changes: at least the base's.
        planned: number of all cases, with the base.
        failed: reason why the first case that failed could not be replayed.
    """

    assumptions: Assumptions
    changes: Mapping[AssumedCase, float]
    planned: int
    failed: str = ""

    @property
    def least(self) -> float:
        """The largest saving: the most negative change."""
        return min(self.changes.values())

    @property
    def most(self) -> float:
        """The smallest saving, or the largest loss."""
        return max(self.changes.values())

    @property
    def moved_most_by(self) -> tuple[str, tuple[tuple[AssumedCase, float], ...]] | None:
        """The assumption that moves the answer most when it alone is changed, and what to; None if none was."""
        found: list[tuple[float, str, tuple[tuple[AssumedCase, float], ...]]] = []
        for name, cases in self.assumptions.each.items():
            known = tuple((case, self.changes[case]) for case in cases if case in self.changes)
            if len(known) > 1:
                values = [change for _, change in known]
                found.append((max(values) - min(values), name, known))
        if not found:
            return None
        _, name, known = max(found, key=lambda entry: entry[0])
        return name, known


def spread_of(
    base_change: float,
    assumptions: Assumptions,
    change: Callable[[AssumedCase], float],
    most: int,
    on_case: Callable[[float], None] | None = None,
) -> JctSpread:
    """Changes of the average completion time under at most `most` other cases.

    Args:
        base_change: of the base case.
        change: of another case, found by replays; raises `PolicyNetError` where it cannot be replayed.
        on_case: called after each case with the share that is done.
    """
    cases = list(assumptions.cases())
    changes = {assumptions.base: base_change}
    failed = ""
    chosen = cases[: max(most, 0)]
    for done, case in enumerate(chosen, start=1):
        try:
            changes[case] = change(case)
        except PolicyNetError as error:
            failed = failed or str(error)
        if on_case is not None:
            on_case(done / len(chosen))
    return JctSpread(assumptions, changes, 1 + len(cases), failed)


def usual_cases(jobs: int, *, compiled: bool) -> int:
    """Cases that are replayed by default: with the twin at least all that change one assumption."""
    return max(COMPILED_JOBS // jobs, 2 + 2 + 2 + 1) if compiled else OTHER_JOBS // jobs
