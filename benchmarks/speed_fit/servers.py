"""The synchronous PS models: DL2's measurements against `policy_net.laboratory.speeds.fitted_speeds`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from policy_net.domain import SpeedModel
from policy_net.laboratory.speeds.fitted_speeds import SpeedConstants
from policy_net.laboratory.speeds.measured_speeds import COUNTS, best_surface
from policy_net.laboratory.speeds.speed import fitted_grid
from policy_net.throughput.parametric import SpeedPoint

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class FitQuality:
    """How one model's constants compare with its table, over the cells that can train.

    Attributes:
        median_error, mean_error: |fit − table| / table.
        best_point_ratio: the table's speed where the fit is fastest, over the table's best speed.
        best_ps, best_workers: where the fit is fastest.
    """

    model: str
    median_error: float
    mean_error: float
    best_point_ratio: float
    best_ps: int
    best_workers: int


def judge(model: str, fit: Array, table: Array) -> FitQuality:
    """Compare two grids, both (17, 17) [ps, workers] in samples/s."""
    alive = table > 0
    errors = np.abs(fit[alive] - table[alive]) / table[alive]
    ps, workers = (int(index) for index in np.unravel_index(int(fit.argmax()), fit.shape))
    ratio = float(table[ps, workers] / table.max())
    return FitQuality(model, float(np.median(errors)), float(errors.mean()), ratio, ps, workers)


def judge_all(constants: Mapping[str, SpeedConstants], table: SpeedModel) -> list[FitQuality]:
    """One row per model."""
    return [judge(name, fitted_grid(values), table.grid(name)) for name, values in constants.items()]


def fit_model(table: Array) -> SpeedConstants:
    """Fit one model's constants to its grid, (17, 17) [ps, workers] in samples/s."""
    return best_surface(
        [SpeedPoint(int(ps), int(workers), float(table[ps, workers])) for ps in COUNTS for workers in COUNTS]
    )


def write_module(constants: Mapping[str, SpeedConstants], out: Path, template: Path) -> None:
    """Write the constants as Python, keeping the words of the shipped module up to its table."""
    head, marker, _ = template.read_text(encoding="utf-8").partition("FITTED_SPEEDS:")
    lines = [f"{head}{marker} Mapping[str, SpeedConstants] = MappingProxyType(", "    {"]
    for name, values in constants.items():
        lines += [
            f'        "{name}": SpeedConstants(',
            *_numbers("servers", values.servers),
            *_numbers("workers", values.workers),
            "            interaction=(",
            *(f"                ({', '.join(map(str, row))})," for row in values.interaction),
            "            ),",
            "        ),",
        ]
    out.write_text("\n".join([*lines, "    }", ")", "# fmt: on", ""]), encoding="utf-8")


def _numbers(name: str, values: Sequence[float]) -> list[str]:
    rows = [values[start : start + 8] for start in range(0, len(values), 8)]
    return [
        f"            {name}=(",
        *(f"                {', '.join(map(str, row))}," for row in rows),
        "            ),",
    ]
