"""Command `policy-net runs`: training runs side by side, as a table, for programs, and as a page to pass on."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foundation.files import check_replaceable, write_whole
from foundation.output import Form, Output, show
from foundation.output import watch as show_again
from policy_net.errors import BadInput

if TYPE_CHECKING:
    from foundation.tables import FittedTable
    from policy_net.laboratory.training_runs import TrainingRun

MOST_RUNS = 24
"""More lines in one chart cannot be told apart."""


def runs_command(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Folders that `policy-net train --run` has written.")
    ],
    report: Annotated[
        Path | None, typer.Option("--report", metavar="FILE", help="Write a page of them, one file of HTML.")
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Look again and again, until all have ended or until Ctrl-C.")
    ] = False,
    every_seconds: Annotated[
        float, typer.Option("--every", min=0.1, max=3600.0, help="Seconds between two looks.")
    ] = 10.0,
    output: Output = Form.TABLE,
) -> None:
    """Compare training runs: what came of each, which settings differ, and how each figure went."""
    if len(folders) > MOST_RUNS:
        raise BadInput(f"{len(folders)} runs are too many to compare: name {MOST_RUNS} at most")
    if watch and report is not None:
        raise BadInput("--report and --watch do not go together: a page is written once")
    if watch:
        show_again(_polls(folders, every_seconds), lambda runs: runs_table(runs, None), output, _runs_in_csv, _facts)
        return
    runs = _read(folders)
    if report is not None:
        _write_page(runs, report)
    show(output, _facts(runs), lambda: runs_table(runs, report), lambda: _runs_in_csv(runs))


def _read(folders: Sequence[Path]) -> list[TrainingRun]:
    from policy_net.laboratory.training_runs import named_apart, read_run  # noqa: PLC0415

    return named_apart([(folder, read_run(folder)) for folder in folders])


def _polls(folders: Sequence[Path], every_seconds: float) -> Iterator[list[TrainingRun]]:
    while True:
        runs = _read(folders)
        yield runs
        if all(run.final for run in runs):
            return
        time.sleep(every_seconds)


def _facts(runs: Sequence[TrainingRun]) -> list[dict[str, Any]]:
    return [run_facts(run) for run in runs]


def state_of(run: TrainingRun) -> str:
    """State of a run by its folder, which does not say whether its process still runs."""
    return "ended" if run.final else "not ended"


def run_facts(run: TrainingRun) -> dict[str, Any]:
    """A run as JSON shows it."""
    from policy_net.laboratory.training_runs import steps_done  # noqa: PLC0415

    done, steps = steps_done(run) or (None, None)
    return {
        "run": run.name,
        "ended": bool(run.final),
        "state": state_of(run),
        "steps_done": done,
        "steps": steps,
        "settings": dict(run.settings),
        "final": dict(run.final),
        "curves": {
            curve.figure: [[step, value if math.isfinite(value) else None] for step, value in curve.points]
            for curve in run.curves
        },
    }


def _write_page(runs: list[TrainingRun], page: Path) -> None:
    # Loads matplotlib and takes half a second: only who wants a page waits.
    from policy_net.laboratory.report.runs_page import runs_page  # noqa: PLC0415

    try:
        check_replaceable(page)
        write_whole(page, runs_page(runs))
    except OSError as error:
        raise BadInput(f"--report {page}: cannot be written ({error.strerror}); name another file") from error


def _runs_in_csv(runs: Sequence[TrainingRun]) -> FittedTable:
    from foundation.tables import Column, FittedTable  # noqa: PLC0415
    from policy_net.laboratory.training_runs import differing, final_figures  # noqa: PLC0415

    settings, figures = differing(runs), final_figures(runs)
    rows = []
    for run in runs:
        cells = [*(run.settings.get(name) for name in settings), *(run.final.get(name) for name in figures)]
        rows.append([run.name, state_of(run), *("" if cell is None else str(cell) for cell in cells)])
    return FittedTable("", [Column(name) for name in ("run", "state", *settings, *figures)], rows)


def runs_table(runs: Sequence[TrainingRun], report: Path | None) -> FittedTable:
    """Runs side by side: ends of their curves, final figures, and differing settings."""
    from foundation.tables import Column, FittedTable, in_words  # noqa: PLC0415
    from policy_net.laboratory.training_runs import (  # noqa: PLC0415
        WARM_START,
        differing,
        final_figures,
        heading_of,
        last_value,
        name_of,
        settings_that_count,
        shown_value,
        steps_done,
        unit_of,
    )

    figures = list(dict.fromkeys(curve.figure for run in runs for curve in run.curves))
    finals = final_figures(runs)
    # Where there is little room, what most of the runs have stays longest, and a warm start before its training goes.
    lacking = {
        name: 2 * sum(all(curve.figure != name for curve in run.curves) for run in runs) + name.startswith(WARM_START)
        for name in figures
    }
    going_on = any(not run.final for run in runs)
    columns = [
        Column("run"),
        Column("state", 0, text=True),
        *([Column("steps", 0)] if going_on else []),
        *(Column(name.replace(": ", ":\n"), 1 + lacking[name]) for name in figures),
    ]
    units = {name: unit_of(name, [run.final.get(name) for run in runs]) for name in finals}
    columns += [Column(heading_of(name, units[name]), 3 + 2 * len(runs) + place) for place, name in enumerate(finals)]
    columns.append(Column("differs in", words=True))
    counting = [settings_that_count(run.settings) for run in runs]
    names = differing(runs)
    rows = []
    for run, counts in zip(runs, counting, strict=True):
        ends = {curve.figure: last_value(curve) for curve in run.curves}
        differs = ", ".join(f"{name_of(name)} {shown_value(name, counts[name])}" for name in names if name in counts)
        curves = [in_words(ends.get(figure)) for figure in figures]
        came = [shown_value(name, run.final.get(name), units[name]) for name in finals]
        steps = steps_done(run)
        done = ["–" if steps is None else f"{steps[0]:,} of {steps[1]:,}"] if going_on else []
        rows.append([run.name, state_of(run), *done, *curves, *came, differs])
    below = ["a figure that has a curve is the mean of its last tenth"] if figures else []
    if "validation_change" in finals:
        below.append("validation change is of average JCTs, as a share of those before training: below 0 is better")
    return FittedTable("", columns, rows, below + ([f"page: {report}"] if report is not None else []))
