"""Comparison of the shipped speeds with measurements: `python -m benchmarks.speed_fit --grid FILE [--profiles FOLDER]`.

`--grid` is a speed table (columns model, num_ps, num_workers, samples_per_s) of the synchronous PS models; `--profiles`
holds the published profiles of all-reduce scaling, locality and GPU types; `--steps` DL2's measurements with their
batches, which the asynchronous speeds are derived from. With `-o json` the synchronous rows alone are a list, as ever;
with profiles or steps, an object with one list per part. `--refit OUT.py` fits the synchronous models anew, judges the
new constants, and writes them as a module that can take the place of `policy_net/laboratory/speeds/fitted_speeds.py`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.speed_fit import allreduce, gpus, places, queues
from benchmarks.speed_fit.quality import FitError
from benchmarks.speed_fit.servers import FitQuality, fit_model, judge_all, write_module
from policy_net.errors import BadInput
from policy_net.laboratory.speeds import fitted_speeds
from policy_net.laboratory.speeds.fitted_speeds import FITTED_SPEEDS
from policy_net.laboratory.speeds.speed import read_speed_table


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the comparison; exit code 2 if a file cannot be used."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed_fit", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--grid", type=Path, required=True, metavar="FILE", help="speeds of PS models")
    parser.add_argument("--profiles", type=Path, metavar="FOLDER", help="published profiles of all else")
    parser.add_argument("--steps", type=Path, metavar="FILE", help="measured PS speeds with their batches")
    parser.add_argument("--refit", type=Path, metavar="OUT.py", help="fit --grid anew and write the constants here")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    options = parser.parse_args(arguments)
    try:
        servers = _servers(options.grid, options.refit)
        parts: dict[str, list[FitError]] = {}
        if options.profiles:
            parts["allreduce"] = allreduce.report(options.profiles)
            parts["allreduce_beyond_16"] = allreduce.report(options.profiles, beyond=True)
            parts["locality"] = places.report(options.profiles)
            parts["gpu_types"] = gpus.report(options.profiles)
        if options.steps:
            parts["async"] = queues.report(options.steps)
    except BadInput as error:
        print(error, file=sys.stderr)
        return 2
    if options.output == "json":
        rows = [asdict(item) for item in servers]
        everything = {"ps": rows} | {name: [asdict(item) for item in part] for name, part in parts.items()}
        print(json.dumps(everything if parts else rows, indent=2))
        return 0
    _print_servers(servers)
    for name, part in parts.items():
        _print_part(name, part)
    return 0


def _servers(grid: Path, refit: Path | None) -> list[FitQuality]:
    table = read_speed_table(grid)
    names = table.model_names if refit else tuple(FITTED_SPEEDS)
    measured = {name: table.grid(name) for name in names}
    constants = FITTED_SPEEDS
    if refit:
        constants = {name: fit_model(values) for name, values in measured.items()}
        shipped = Path(fitted_speeds.__file__)
        write_module(constants, refit, shipped)
    return judge_all(constants, table)


def _print_servers(rows: Sequence[FitQuality]) -> None:
    print(f"{'model':<26}{'median error':>14}{'mean error':>12}{'best point':>12}{'(PSs, workers)':>17}")
    for row in rows:
        place = f"({row.best_ps}, {row.best_workers})"
        print(
            f"{row.model:<26}{row.median_error:>14.2%}{row.mean_error:>12.2%}{row.best_point_ratio:>12.2%}{place:>17}"
        )


def _print_part(name: str, rows: Sequence[FitError]) -> None:
    print(f"\n{name:<26}{'points':>8}{'median error':>14}{'largest':>10}{'held out':>18}   how")
    for row in rows:
        held_out = "–"
        if row.held_out_median_error is not None and row.held_out_max_error is not None:
            held_out = f"{row.held_out_median_error:.1%}, {row.held_out_max_error:.1%}"
        errors = f"{row.median_error:>14.1%}{row.max_error:>10.1%}{held_out:>18}"
        print(f"{row.what:<26}{row.points:>8}{errors}   {row.held_out}".rstrip())


if __name__ == "__main__":
    sys.exit(main())
