"""Paired comparison: log-ratios of the same workload under two policies, and bootstrap intervals over clusters.

A cluster (or a made-up workload) is the unit that was drawn at random, so it is what is drawn again; windows and model
seeds of a cluster are averaged first and never count as further evidence.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import numpy as np

RESAMPLES = 10_000
CONFIDENCE = 0.95
BOOTSTRAP_SEED = 0
NOTABLE = 0.05
"""A policy wins on a cluster if its mean JCT is lower by at least this share."""

DECIMALS = 4
"""Of the figures that are written; more than they are worth."""

Unit = TypeVar("Unit", bound=Hashable)
Pair = TypeVar("Pair", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Comparison:
    """One policy over a reference; ratios below 1 favour the policy.

    Attributes:
        units: clusters, or made-up workloads, that were compared.
        median, mean: over the units, of the ratio; the mean is geometric.
        interval: of the geometric mean; None with fewer than two units.
        worst: the highest ratio of a unit.
        wins, losses: units where the policy is notably better, or notably worse.
    """

    units: int
    median: float
    mean: float
    interval: tuple[float, float] | None
    worst: float
    wins: int
    losses: int


def unit_log_ratios(
    figures: Mapping[Pair, float], reference: Mapping[Pair, float], unit_of: Mapping[Pair, Unit]
) -> dict[Unit, float]:
    """Mean log-ratio of every unit, over the pairs that both have; a unit without a pair is left out."""
    by_unit: dict[Unit, list[float]] = {}
    for pair, value in figures.items():
        other = reference.get(pair)
        if other is not None:
            by_unit.setdefault(unit_of[pair], []).append(math.log(value / other))
    return {unit: math.fsum(ratios) / len(ratios) for unit, ratios in by_unit.items()}


def compare(log_ratios: Sequence[float]) -> Comparison | None:
    """Summarise the units' log-ratios; None without any."""
    if not log_ratios:
        return None
    values = np.array(log_ratios)
    return Comparison(
        units=len(values),
        median=float(np.exp(np.median(values))),
        mean=float(np.exp(values.mean())),
        interval=bootstrap_interval(values.tolist()),
        worst=float(np.exp(values.max())),
        wins=int((values <= math.log(1 - NOTABLE)).sum()),
        losses=int((values >= math.log(1 + NOTABLE)).sum()),
    )


def bootstrap_interval(log_ratios: Sequence[float]) -> tuple[float, float] | None:
    """Percentile interval of the geometric mean ratio over resampled units; None for fewer than two."""
    count = len(log_ratios)
    if count < 2:
        return None
    draws = np.random.default_rng(BOOTSTRAP_SEED).integers(count, size=(RESAMPLES, count))
    means = np.array(log_ratios)[draws].mean(axis=1)
    low, high = np.exp(np.percentile(means, [50 * (1 - CONFIDENCE), 50 * (1 + CONFIDENCE)]))
    return float(low), float(high)


def best_of_each(by_policy: Mapping[str, Mapping[Unit, float]]) -> dict[Unit, float]:
    """The lowest log-ratio of every unit that all the policies have: the best of them, chosen in hindsight."""
    if not by_policy:
        return {}
    shared = set.intersection(*(set(ratios) for ratios in by_policy.values()))
    return {unit: min(ratios[unit] for ratios in by_policy.values()) for unit in shared}


def comparison_json(log_ratios: Iterable[float]) -> dict[str, Any] | None:
    """The fields of `compare`, rounded; None without any unit."""
    comparison = compare(list(log_ratios))
    if comparison is None:
        return None
    fields = asdict(comparison)
    for name, value in fields.items():
        if isinstance(value, float):
            fields[name] = round(value, DECIMALS)
        elif isinstance(value, tuple):
            fields[name] = [round(bound, DECIMALS) for bound in value]
    return fields
