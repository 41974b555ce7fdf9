"""Charts of a reproduction: bars, curves, or the steps of one job, as PNG; the same figures give the same bytes."""

from __future__ import annotations

import io
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from policy_net.laboratory.report.chart_style import look
from policy_net.laboratory.reproduction.experiment import Experiment, Picture, Point
from policy_net.laboratory.reproduction.results import mean_and_spread

_SIZE_INCHES = (7.0, 4.0)
_DOTS_PER_INCH = 110
_MARKS = "osD^vP"
_WIDE = 5.0
"""Curves whose largest figure is so many times the smallest have a logarithmic axis."""
_COLOURS = ("#1d5f9e", "#868c94", "#d98b2b", "#3c8d5a", "#8a5fa8", "#b34757")


def picture_of(experiment: Experiment, points: Sequence[Point]) -> bytes:
    """A PNG of the experiment; lines without figures are left out."""
    with look():
        data = io.BytesIO()
        figure_of(experiment, points).savefig(data, format="png", metadata={"Software": None})
    return data.getvalue()


def figure_of(experiment: Experiment, points: Sequence[Point]) -> Figure:
    """The same before it is drawn, in the style that holds."""
    figure = Figure(figsize=_SIZE_INCHES, dpi=_DOTS_PER_INCH, layout="constrained")
    axes = figure.subplots()
    axes.set_title(f"{experiment.name}: {experiment.title}")
    if experiment.picture is Picture.STEPS:
        _steps(axes, points)
    elif experiment.picture is Picture.CURVES:
        _curves(axes, points)
    else:
        _bars(axes, points)
    if experiment.axis:
        axes.set_xlabel(experiment.axis)
    return figure


def _bars(axes: Axes, points: Sequence[Point]) -> None:
    shown = [(point.label, mean, spread) for point in points for mean, spread in [mean_and_spread(point)] if mean]
    places = range(len(shown))
    axes.barh(places, [mean for _, mean, _ in shown], color=_COLOURS[0], xerr=[spread or 0.0 for *_, spread in shown])
    axes.set_yticks(places, [label for label, *_ in shown])
    axes.invert_yaxis()
    for place, (_, mean, _) in zip(places, shown, strict=True):
        axes.text(0.0, place, f" {mean:.1f}", va="center", color="white")
    axes.set_xlabel("average completion time, slots")


def _curves(axes: Axes, points: Sequence[Point]) -> None:
    labels = list(dict.fromkeys(point.label for point in points))
    means = [mean for mean, _ in map(mean_and_spread, points) if mean is not None]
    if means and max(means) > _WIDE * min(means):
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda slots, _: f"{slots:,g}"))  # no powers: math is not drawn
        axes.yaxis.set_minor_locator(NullLocator())
    for number, label in enumerate(labels):
        of_label = [(point.at, *mean_and_spread(point)) for point in points if point.label == label]
        shown = [(at, mean, spread or 0.0) for at, mean, spread in of_label if mean is not None and at is not None]
        axes.errorbar(
            [at for at, _, _ in shown],
            [mean for _, mean, _ in shown],
            yerr=[spread for *_, spread in shown],
            label=label,
            marker=_MARKS[number % len(_MARKS)],
            color=_COLOURS[number % len(_COLOURS)],
            capsize=2.0,
        )
    axes.set_ylabel("average completion time, slots")
    if len(labels) > 1:
        axes.legend()


def _steps(axes: Axes, points: Sequence[Point]) -> None:
    timeline = next((point.timeline for point in points if point.timeline), ())
    slots = [slot for slot, _, _ in timeline]
    axes.step(slots, [workers for _, workers, _ in timeline], where="post", label="workers", color=_COLOURS[0])
    axes.step(slots, [ps for _, _, ps in timeline], where="post", label="parameter servers", color=_COLOURS[2], ls="--")
    axes.set_ylabel("tasks")
    axes.legend()
