"""The findings of a run, as one JSON object."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.policy_quality.cells import RealCell, SyntheticCell
from benchmarks.policy_quality.plan import Grid
from benchmarks.policy_quality.policies import HEURISTICS, PUBLISHED, REFERENCE_ON_REAL, REFERENCE_ON_SYNTHETIC
from benchmarks.policy_quality.run import RunResult
from benchmarks.policy_quality.seeds import Part
from benchmarks.policy_quality.statistics import DECIMALS, best_of_each, comparison_json, unit_log_ratios
from benchmarks.policy_quality.store import Figures
from policy_net.laboratory.catalogue import SLOT_SECONDS

Results = Mapping[SyntheticCell, Mapping[str, Figures]]
"""Figures by cell and policy."""

Json = dict[str, Any]


def synthetic_sections(results: Results, policies: Sequence[str]) -> list[Json]:
    """One section for every size of cluster, kind of job sizes, capacity and disturbance, in order of occurrence."""
    by_conditions: dict[tuple[Any, ...], dict[SyntheticCell, Mapping[str, Figures]]] = {}
    for cell, of_policies in results.items():
        conditions = (cell.nodes, cell.jobs, cell.sizes, cell.capacity, cell.disturbance)
        by_conditions.setdefault(conditions, {})[cell] = of_policies
    return [_section(of_conditions, policies) for of_conditions in by_conditions.values()]


def _section(results: Results, policies: Sequence[str]) -> Json:
    first = next(iter(results))
    return {
        "nodes": first.nodes,
        "jobs": first.jobs,
        "sizes": first.sizes,
        "capacity": first.capacity.value,
        "disturbance": first.disturbance.value,
        "workloads": len(results),
        "policies": [_row(results, name) for name in policies if any(name in row for row in results.values())],
    }


def _row(results: Results, policy: str) -> Json:
    own, reference = (_values(results, name, "avg_jct_seconds") for name in (policy, REFERENCE_ON_SYNTHETIC))
    longest = _values(results, policy, "max_jct_seconds")
    # Every made-up workload was drawn on its own, so each is a unit.
    ratios = unit_log_ratios(own, reference, {cell: cell.seed for cell in results})
    return {
        "policy": policy,
        "workloads": len(own),
        "avg_jct_slots": round(float(np.mean(list(own.values()))) / SLOT_SECONDS, DECIMALS),
        "max_jct_slots": round(float(np.mean(list(longest.values()))) / SLOT_SECONDS, DECIMALS),
        "over_drf": comparison_json(ratios.values()),
    }


def _values(results: Results, policy: str, figure: str) -> dict[SyntheticCell, float]:
    return {cell: float(row[policy][figure]) for cell, row in results.items() if policy in row}


RealResults = Mapping[RealCell, Mapping[str, Figures]]
"""Figures by cell and policy."""


def real_sections(results: RealResults, policies: Sequence[str]) -> list[Json]:
    """One section for every set of conditions, in the order in which they first occur."""
    by_conditions: dict[tuple[Any, ...], dict[RealCell, Mapping[str, Figures]]] = {}
    for cell, of_policies in results.items():
        conditions = (cell.job_kind, cell.load, cell.durations, cell.capacity, cell.locality)
        by_conditions.setdefault(conditions, {})[cell] = of_policies
    return [_Section(of_conditions, policies).to_json() for of_conditions in by_conditions.values()]


class _Section:
    """The cells of one set of conditions."""

    def __init__(self, results: RealResults, policies: Sequence[str]) -> None:
        self._results = results
        self._cluster_of = {cell: cell.cluster for cell in results}
        self._policies = [name for name in policies if any(name in row for row in results.values())]
        self._over_fifo = {name: self._log_ratios(name, "avg_jct_seconds") for name in self._policies}

    def to_json(self) -> Json:
        first = next(iter(self._results))
        best = self._best_single()
        return {
            "job_kind": first.job_kind,
            "load": first.load,
            "durations": first.durations.value,
            "capacity": first.capacity.value,
            "locality": first.locality,
            "clusters": len(set(self._cluster_of.values())),
            "cells": len(self._results),
            "jobs": sum(cell.jobs for cell in self._results),
            "windows": sorted({cell.part.value for cell in self._results}),
            "best_heuristic": best,
            "policies": [self._row(name, best) for name in self._policies],
        }

    def _row(self, name: str, best: str | None) -> Json:
        own = self._over_fifo[name]
        single = {} if best is None else self._over_fifo[best]
        return {
            "policy": name,
            "cells": len(self._values(name, "avg_jct_seconds")),
            "over_fifo": comparison_json(own.values()),
            "over_fifo_without_longest_1_percent": comparison_json(
                self._log_ratios(name, "avg_jct_without_longest_seconds").values()
            ),
            "p99_jct_over_fifo": comparison_json(self._log_ratios(name, "p99_jct_seconds").values()),
            "max_jct_over_fifo": comparison_json(self._log_ratios(name, "max_jct_seconds").values()),
            "over_best_heuristic": comparison_json(_differences(own, single)),
            "over_best_published_in_hindsight": comparison_json(_differences(own, self._best_in_hindsight(PUBLISHED))),
            "over_best_heuristic_in_hindsight": comparison_json(_differences(own, self._best_in_hindsight(HEURISTICS))),
            "avg_bounded_slowdown": self._median(name, "avg_bounded_slowdown"),
            "p99_bounded_slowdown": self._median(name, "p99_bounded_slowdown"),
            "starved_share": self._share(name, "starved_jobs"),
            "gpu_utilization": self._median(name, "gpu_utilization"),
            "over_fifo_by_cluster": {
                cluster: round(math.exp(ratio), DECIMALS) for cluster, ratio in sorted(own.items())
            },
        }

    def _values(self, policy: str, figure: str) -> dict[RealCell, float]:
        return {
            cell: float(row[policy][figure])
            for cell, row in self._results.items()
            if policy in row and row[policy][figure] is not None
        }

    def _log_ratios(self, policy: str, figure: str) -> dict[str, float]:
        reference = self._values(REFERENCE_ON_REAL, figure)
        return unit_log_ratios(self._values(policy, figure), reference, self._cluster_of)

    def _best_single(self) -> str | None:
        """The heuristic with the lowest geometric mean over the clusters."""
        means = {name: np.mean(list(self._over_fifo[name].values())) for name in self._present(HEURISTICS)}
        return min(means, key=lambda name: means[name]) if means else None

    def _best_in_hindsight(self, names: Iterable[str]) -> dict[str, float]:
        return best_of_each({name: self._over_fifo[name] for name in self._present(names)})

    def _present(self, names: Iterable[str]) -> list[str]:
        return [name for name in names if self._over_fifo.get(name)]

    def _median(self, policy: str, figure: str) -> float | None:
        """The median over the clusters of the mean over a cluster's cells."""
        by_cluster: dict[str, list[float]] = {}
        for cell, value in self._values(policy, figure).items():
            by_cluster.setdefault(cell.cluster, []).append(value)
        if not by_cluster:
            return None
        return round(float(np.median([np.mean(values) for values in by_cluster.values()])), DECIMALS)

    def _share(self, policy: str, figure: str) -> float | None:
        values = self._values(policy, figure)
        return round(sum(values.values()) / sum(cell.jobs for cell in values), DECIMALS) if values else None


def _differences(own: Mapping[str, float], other: Mapping[str, float]) -> list[float]:
    return [own[cluster] - other[cluster] for cluster in sorted(own) if cluster in other]


def build_report(grid: Grid, result: RunResult, policies: Sequence[str], wall_seconds: float) -> dict[str, Any]:
    """Compare the policies.

    `real` is of the windows that judge; `real_all_windows` is of all of them, where a run had others too.
    """
    real: dict[RealCell, dict[str, Figures]] = {}
    synthetic: dict[SyntheticCell, dict[str, Figures]] = {}
    for task, figures in result.figures.items():
        if isinstance(task.cell, RealCell):
            real.setdefault(task.cell, {})[task.policy_label] = figures
        else:
            synthetic.setdefault(task.cell, {})[task.policy_label] = figures
    judged: Mapping[RealCell, Mapping[str, Figures]] = {
        cell: row for cell, row in real.items() if cell.part is Part.TEST
    }
    return {
        "grid": grid.name,
        "description": grid.describe(),
        "policies": list(policies),
        "real": real_sections(judged, policies),
        "real_all_windows": real_sections(real, policies) if len(real) > len(judged) else [],
        "synthetic": synthetic_sections(synthetic, policies),
        "cells": len(result.figures),
        "cells_found_in_store": result.resumed,
        "failures": [
            {"policy": task.policy_label, "cell": str(task.cell), "reason": reason}
            for task, reason in result.failures.items()
        ],
        "wall_seconds": round(wall_seconds, 1),
        "cpu_seconds": round(sum(figures["cpu_seconds"] for figures in result.figures.values()), 1),
    }
