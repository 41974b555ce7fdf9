"""The findings of a run, as one JSON object."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.policy_quality.cells import RealCell, SyntheticCell
from benchmarks.policy_quality.plan import Grid
from benchmarks.policy_quality.real_report import real_sections
from benchmarks.policy_quality.run import RunResult
from benchmarks.policy_quality.seeds import Part
from benchmarks.policy_quality.store import Figures
from benchmarks.policy_quality.synthetic_report import synthetic_sections


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
