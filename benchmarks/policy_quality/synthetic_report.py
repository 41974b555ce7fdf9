"""Figures of the made-up workloads: mean completion times in slots, and every policy against DRF."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.policy_quality.cells import SyntheticCell
from benchmarks.policy_quality.policies import REFERENCE_ON_SYNTHETIC
from benchmarks.policy_quality.statistics import DECIMALS, comparison_json, unit_log_ratios
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
