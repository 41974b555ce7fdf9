"""Page of training runs side by side: final figures, settings that differ, and the curve of each figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from foundation.figures import counted, shown
from policy_net.laboratory.report.charts import OTHER_COLOURS, PROPOSED_COLOUR, TODAY_COLOUR, Chart
from policy_net.laboratory.report.page import pictures_of, rendered
from policy_net.laboratory.report.tables import TableRow, TextTable
from policy_net.laboratory.training_runs import (
    TrainingRun,
    differing,
    final_figures,
    heading_of,
    is_unset,
    last_value,
    name_of,
    settings_that_count,
    shown_value,
    unit_of,
)

_COLOURS = (PROPOSED_COLOUR, *OTHER_COLOURS, TODAY_COLOUR)
_LINES = ("-", "--", ":", "-.")
"""Kinds of line, one for as many runs as there are colours."""


def runs_page(runs: Sequence[TrainingRun]) -> str:
    """The page; the same runs give the same bytes."""
    counting = [settings_that_count(run.settings) for run in runs]
    # A setting of a way to train that no run took says nothing of any.
    names = [name for name in differing(runs) if any(name in counts for counts in counting)]
    alike, figures = _alike(runs), final_figures(runs)
    figures = [name for name in figures if name not in alike]
    units = {name: unit_of(name, [run.final.get(name) for run in runs]) for name in figures}
    same = {name: value for name, value in counting[0].items() if name not in differing(runs)} | alike
    return rendered(
        "runs.html",
        title=f"{counted(len(runs), 'training run')} side by side",
        runs=[shown(run.name) for run in runs],
        unfinished=[shown(run.name) for run in runs if not run.final],
        settings=TextTable(
            ("Setting", *(shown(run.name) for run in runs)),
            tuple(
                TableRow(
                    heading_of(name, unit), tuple(shown_value(name, counts.get(name), unit) for counts in counting)
                )
                for name in names
                for unit in [unit_of(name, [counts.get(name) for counts in counting])]
            ),
        ),
        figures=TextTable(
            ("Run", *(heading_of(name, units[name]) for name in figures)),
            tuple(
                TableRow(
                    shown(run.name), tuple(shown_value(name, run.final.get(name), units[name]) for name in figures)
                )
                for run in runs
            ),
        ),
        same=[
            {"name": name_of(name), "value": shown_value(name, value)}
            for name, value in same.items()
            if not is_unset(value)
        ],
        unset=[name_of(name) for name, value in same.items() if is_unset(value)],
        pictures=pictures_of(charts_of_runs(runs)),
    )


def _alike(runs: Sequence[TrainingRun]) -> dict[str, Any]:
    """Facts of the policies that are the same in all runs, and no figures to compare."""
    of_policy = [name for name in final_figures(runs) if name.startswith("spec.")]
    values = {name: [run.final.get(name) for run in runs if run.final] for name in of_policy}
    return {name: found[0] for name, found in values.items() if all(value == found[0] for value in found)}


def charts_of_runs(runs: Sequence[TrainingRun]) -> list[Chart]:
    """A chart a figure, with a line for each run that has it."""
    figures = list(dict.fromkeys(curve.figure for run in runs for curve in run.curves))
    return [_chart(number, figure, runs) for number, figure in enumerate(figures)]


def _chart(number: int, figure: str, runs: Sequence[TrainingRun]) -> Chart:
    lines = [(place, run, curve) for place, run in enumerate(runs) for curve in run.curves if curve.figure == figure]
    ends = [f"{shown(run.name)} {value:.6g}" for _, run, curve in lines if (value := last_value(curve)) is not None]

    def draw(axes: Axes) -> None:
        for place, run, curve in lines:
            axes.plot(
                [step for step, _ in curve.points],
                [value for _, value in curve.points],
                color=_COLOURS[place % len(_COLOURS)],
                linestyle=_LINES[place // len(_COLOURS) % len(_LINES)],
                marker="o" if len(curve.points) == 1 else None,
                label=shown(run.name),
            )
        axes.set_title(shown(figure))
        axes.set_xlabel("step")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
        axes.legend(fontsize=9)

    return Chart(f"curve-{number}", f"{shown(figure)} by step, at the end: {', '.join(ends) or 'nothing finite'}", draw)
