"""Command `policy-net fit-speed`: a full speed table for `--speeds` from measured speeds, and how well it fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foundation.files import check_replaceable
from foundation.output import Form, Output, show
from policy_net.errors import BadInput

if TYPE_CHECKING:
    from foundation.tables import FittedTable
    from policy_net.laboratory.speeds.measured_speeds import FitQuality


def fit_speed(
    table: Annotated[
        Path,
        typer.Option(
            "--table",
            metavar="FILE",
            help="Measured speeds (csv): model,num_ps (0: all-reduce),num_workers,samples_per_s.",
        ),
    ],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Where the full table goes, for --speeds.")
    ] = None,
    output: Output = Form.TABLE,
) -> None:
    """Fit speeds to measurements, which may have gaps, and write the full table."""
    if out is not None:
        _check_name(out, table)
    # Help and refusals of options wait for no fit.
    from policy_net.laboratory.speeds.measured_speeds import read_points, refit  # noqa: PLC0415
    from policy_net.laboratory.speeds.speed import write_speed_table  # noqa: PLC0415

    speeds, qualities = refit(read_points(table), str(table))
    if out is not None:
        try:
            write_speed_table(speeds, out)
        except OSError as error:
            raise BadInput(f"--out {out}: cannot be written: {error.strerror}; give the path of a new file") from error
    facts = [asdict(quality) for quality in qualities]
    show(output, facts, lambda: quality_table(str(table), qualities), facts)


def _check_name(out: Path, table: Path) -> None:
    try:
        check_replaceable(out)
        same = out.exists() and table.exists() and out.samefile(table)
    except OSError as error:
        shown = str(out)[:200]
        raise BadInput(f"--out {shown}: cannot be written ({error.strerror}); give the path of a new file") from error
    if same:
        raise BadInput(f"--out {out}: is the table of measurements itself; give the path of a new file")


def quality_table(title: str, qualities: Sequence[FitQuality]) -> FittedTable:
    """Quality of each model's fit."""
    from foundation.tables import Column, FittedTable  # noqa: PLC0415

    columns = (
        Column("model", 0),
        Column("fastest at", 1),
        Column("median\nerror", 0),
        Column("largest\nerror", 2),
        Column("held\nout", 3),
        Column("form", 5),
        Column("points", 4),
        Column("left\nout", 6),
    )
    rows = [
        (
            item.model,
            f"{item.best_workers} workers" + (f", {item.best_ps} PSs" if item.best_ps else ""),
            f"{item.median_error:.1%}",
            f"{item.max_error:.1%}",
            "–" if item.held_out_median_error is None else f"{item.held_out_median_error:.1%}",
            item.form,
            str(item.points),
            str(item.left_out),
        )
        for item in qualities
    ]
    return FittedTable(title, columns, rows)
