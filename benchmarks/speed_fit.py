"""How well the speeds that ship with the package match the measurements, and how their constants were found.

`python -m benchmarks.speed_fit --grid FILE [-o json]` compares the shipped constants with a speed table (columns model,
num_ps, num_workers, samples_per_s). `--refit OUT.py` fits anew, judges the new constants, and writes them as a module
that can take the place of `policy_net/simulation/fitted_speeds.py`.

The fit: least absolute error of log speed (iteratively re-weighted least squares), since a few cells are outliers and
some are dead (speed zero; left out). Schedulers look for the best cell, so a cell weighs floor + (speed/best)^power;
per model, those (power, floor) of a small search are kept that give the least mean error while the true speed at the
fit's best point is at least 97% of the true best.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from policy_net.domain import SpeedModel
from policy_net.errors import BadInput
from policy_net.simulation.fitted_speeds import FITTED_SPEEDS, SpeedConstants
from policy_net.simulation.speed import fitted_grid, read_speed_table

Array = NDArray[np.float64]

COUNTS = np.arange(1, 17)
WORKER_POWERS = 4
INTERACTION_POWERS = 3
IMPORTANCE_POWERS = (2, 4, 6, 8, 12)
IMPORTANCE_FLOORS = (0.01, 0.03, 0.1)
REWEIGHTINGS = 80
SMALLEST_RESIDUAL = 0.01
"""Residuals of log speed below this weigh as in least squares; the measurements are no more exact than that."""
BEST_POINT_GOAL = 0.97
DECIMALS = 5


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


def fit_model(model: str, table: Array) -> SpeedConstants:
    """Fit one model's constants to its grid, (17, 17) [ps, workers] in samples/s."""
    candidates = [_fit(table, *setting) for setting in product(IMPORTANCE_POWERS, IMPORTANCE_FLOORS)]

    def badness(constants: SpeedConstants) -> tuple[bool, float]:
        quality = judge(model, fitted_grid(constants), table)
        return quality.best_point_ratio < BEST_POINT_GOAL, quality.mean_error

    return min(candidates, key=badness)


def _fit(table: Array, power: int, floor: float) -> SpeedConstants:
    """Weighted least absolute error of log speed."""
    ps, workers = (axis.ravel() for axis in np.meshgrid(COUNTS, COUNTS, indexing="ij"))
    log_ps, log_workers = np.log(ps), np.log(workers)
    exponents = range(1, INTERACTION_POWERS + 1)
    columns = [(ps == count).astype(float) for count in COUNTS]
    columns += [log_workers**power_of_workers for power_of_workers in range(1, WORKER_POWERS + 1)]
    columns += [log_ps**i * log_workers**j for i, j in product(exponents, exponents)]
    speed = table[1:, 1:].ravel()
    alive = speed > 0
    features = np.stack(columns, axis=-1)[alive]
    target = np.log(speed[alive])
    importance = np.sqrt(floor + (speed[alive] / speed.max()) ** power)
    weight = importance
    for _ in range(REWEIGHTINGS):
        solution = np.linalg.lstsq(features * weight[:, None], target * weight, rcond=1e-10)[0]
        weight = importance / np.sqrt(np.maximum(np.abs(target - features @ solution), SMALLEST_RESIDUAL))
    values = [round(float(value), DECIMALS) for value in solution]
    servers, rest = values[: len(COUNTS)], values[len(COUNTS) :]
    interaction = np.array(rest[WORKER_POWERS:]).reshape(INTERACTION_POWERS, INTERACTION_POWERS)
    return SpeedConstants(
        tuple(servers), tuple(rest[:WORKER_POWERS]), tuple(tuple(map(float, row)) for row in interaction)
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the comparison; exit code 2 if the table cannot be used."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed_fit", description=__doc__.splitlines()[0])
    parser.add_argument("--grid", type=Path, required=True, help="measured speeds to compare with")
    parser.add_argument("--refit", type=Path, metavar="OUT.py", help="fit anew and write the constants here")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    options = parser.parse_args(arguments)
    try:
        table = read_speed_table(options.grid)
        names = table.model_names if options.refit else tuple(FITTED_SPEEDS)
        measured = {name: table.grid(name) for name in names}
    except BadInput as error:
        print(error, file=sys.stderr)
        return 2
    constants = FITTED_SPEEDS
    if options.refit:
        constants = {name: fit_model(name, grid) for name, grid in measured.items()}
        shipped = Path(__file__).parents[1] / "policy_net" / "simulation" / "fitted_speeds.py"
        write_module(constants, options.refit, shipped)
    rows = judge_all(constants, table)
    if options.output == "json":
        print(json.dumps([asdict(row) for row in rows], indent=2))
        return 0
    print(f"{'model':<26}{'median error':>14}{'mean error':>12}{'best point':>12}{'(PSs, workers)':>17}")
    for row in rows:
        place = f"({row.best_ps}, {row.best_workers})"
        print(
            f"{row.model:<26}{row.median_error:>14.2%}{row.mean_error:>12.2%}{row.best_point_ratio:>12.2%}{place:>17}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
