"""The schedulers that are compared, what they may know, and where each applies."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.policy_quality.cells import Cell, Disturbance, Durations, SyntheticCell
from policy_net.domain import CapacityMode
from policy_net.policy import policy_names

REFERENCE_ON_REAL = "fifo"
"""What clusters do: jobs of the requested size in order of arrival."""
REFERENCE_ON_SYNTHETIC = "drf"
"""Made-up jobs ask for no size of their own, so DL2's reference stands in."""

PUBLISHED = ("fifo", "fifo-backfill", "las", "srtf", "drf", "tetris", "optimus")
"""Schedulers of others that a cluster could run: no knowledge of the truth."""
HEURISTICS = (*PUBLISHED, "drf-peak", "optimus-sr", "marginal")
"""The same with our own plain improvements: the bar for whoever claims that learning pays."""

TRUTH_KNOWING = frozenset({"oracle", "optimus-true-table"})
"""Given the simulator's speeds: yardsticks that no cluster can run."""

PS_ONLY = frozenset({"optimus-fitted"})
"""Given measured speeds of parameter-server jobs only."""

WITHOUT_PRIORS = "set-fresh"
"""What priors are worth hardly depends on placing or on declarations, so it is not measured everywhere."""

REFERENCE_COST = 50.0
"""CPU time of what the compiled twin does not replay, relative to what it does, roughly."""


def default_policies(*, has_measured_points: bool) -> list[str]:
    """Every registered scheduler that can run, references first and those who know the truth last."""
    names = [name for name in policy_names() if has_measured_points or name not in PS_ONLY]
    order = {name: place for place, name in enumerate(HEURISTICS)}
    return sorted(names, key=lambda name: (name in TRUTH_KNOWING, order.get(name, len(order)), name))


def applies(policy: str, cell: Cell) -> bool:
    """Whether a policy can run in a cell at all, or would only repeat another's figures there."""
    if policy == WITHOUT_PRIORS and not _shows_priors(cell):
        return False
    if isinstance(cell, SyntheticCell):
        return True
    return policy not in PS_ONLY


def _shows_priors(cell: Cell) -> bool:
    if isinstance(cell, SyntheticCell):
        return cell.capacity is CapacityMode.POOLED or cell.disturbance is not Disturbance.NONE
    return cell.capacity is CapacityMode.POOLED and cell.job_kind == "mix" and cell.durations is not Durations.LOGNORMAL


def rough_cost(policy: str, cell: Cell) -> float:
    """About how long a cell takes, in any unit, so that what takes long is begun first."""
    return cell.jobs * (1.0 if policy in policy_names() else REFERENCE_COST)


def missing_references(policies: Sequence[str]) -> list[str]:
    """The references that a comparison needs and a list of policies lacks."""
    return [name for name in (REFERENCE_ON_REAL, REFERENCE_ON_SYNTHETIC) if name not in policies]
