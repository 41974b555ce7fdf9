"""Charts of a report; every title states what the figures say, good or bad."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from foundation.figures import duration, percent, unit_for
from policy_net.laboratory.report.chart_style import INK, Draw
from policy_net.laboratory.report.comparison import NOTICEABLE_SECONDS, Comparison
from policy_net.laboratory.report.headline import change
from policy_net.laboratory.report.policies import label
from policy_net.laboratory.simulation.replay import ReplayResult

TODAY_COLOUR = "#868c94"
PROPOSED_COLOUR = "#1d5f9e"
OTHER_COLOURS = ("#d98b2b", "#3c8d5a", "#8a5fa8", "#b34757", "#4d8a94")
TITLE_COLUMNS = 44
"""Letters of a title's line above a chart."""
BAR_TITLE_COLUMNS = 32
"""The same above bars, where names of policies stand at the left."""
SPANS = 200
"""Equal spans of time whose averages are drawn of the GPUs in use."""
_QUANTITY = re.compile(r"(\d) (s|min|h|days?)\b")
MARKS_SECONDS = {
    1.0: "1 s", 10.0: "10 s", 60.0: "1 min", 600.0: "10 min", 3600.0: "1 h", 36e3: "10 h", 3456e2: "4 days",
    3456e3: "40 days", 3456e4: "400 days",
}  # fmt: skip
"""Where logarithmic time axes are marked."""


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart of the report; `key` is unique, and `alt` describes it for those who cannot see it."""

    key: str
    alt: str
    draw: Draw


def charts_of(comparison: Comparison) -> tuple[Chart, ...]:
    """Charts of a comparison: some need two policies, one needs GPUs."""
    charts = [_average(comparison), _distribution(comparison)]
    if comparison.gpus:
        charts.append(_gpus(comparison))
    if comparison.compares:
        charts.append(_pairs(comparison))
    return tuple(charts)


def in_lines(title: str, columns: int) -> str:
    """A title in lines; a number and its unit stay together."""
    return textwrap.fill(_QUANTITY.sub("\\1\N{NO-BREAK SPACE}\\2", title), columns)


def colour(comparison: Comparison, result: ReplayResult) -> str:
    """Grey for today, blue for what is proposed, other colours for the others."""
    if result is comparison.proposed:
        return PROPOSED_COLOUR
    if result is comparison.today:
        return TODAY_COLOUR
    others = [each for each in comparison.results if each not in (comparison.today, comparison.proposed)]
    return OTHER_COLOURS[others.index(result) % len(OTHER_COLOURS)]


def _average(comparison: Comparison) -> Chart:
    averages = [comparison.avg_jct_seconds(result) for result in comparison.results]
    unit = unit_for(*averages)
    title = "Average completion time"
    if comparison.compares:
        saved = change(comparison.avg_jct_seconds(comparison.proposed), comparison.avg_jct_seconds(comparison.today))
        title += f": {saved} {'as' if saved == 'the same' else 'than'} under {label(comparison.today.policy)}"
    parts = [
        f"{label(result.policy)} {unit.text(value)}" for result, value in zip(comparison.results, averages, strict=True)
    ]

    def draw(axes: Axes) -> None:
        places = range(len(averages))
        bars = axes.barh(
            places,
            [value / unit.seconds for value in averages],
            0.62,
            color=[colour(comparison, result) for result in comparison.results],
            zorder=2,
        )
        axes.bar_label(bars, [unit.text(value) for value in averages], padding=4, fontsize=10, fontweight="bold")
        axes.set_yticks(places, [label(result.policy) for result in comparison.results])
        axes.invert_yaxis()
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="y", visible=False)
        axes.margins(x=0.16)
        axes.set_xlabel(f"from submission to end, average [{unit.name}]")
        axes.set_title(in_lines(title, BAR_TITLE_COLUMNS))

    return Chart("average", f"Bars: {title}. {'; '.join(parts)}.", draw)


def _distribution(comparison: Comparison) -> Chart:
    title = f"Half of the jobs are done in {duration(float(np.median(_jcts(comparison.proposed))))}"
    if comparison.compares:
        title += f" ({label(comparison.today.policy)}: {duration(float(np.median(_jcts(comparison.today))))})"

    def draw(axes: Axes) -> None:
        for result in comparison.results:
            times = np.sort(_jcts(result))
            axes.step(
                np.append(times[0], times),
                np.arange(len(times) + 1) / len(times),
                where="post",
                color=colour(comparison, result),
                linewidth=2.4 if result in (comparison.today, comparison.proposed) else 1.3,
                zorder=3 if result is comparison.proposed else 2,
                label=label(result.policy),
            )
        axes.set_xscale("log")
        _mark_times(axes, "x", [time for result in comparison.results for time in _jcts(result)])
        axes.set_ylim(0, 1.02)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{share:.0%}"))
        axes.set_xlabel("from submission to end")
        axes.set_ylabel("share of the jobs done")
        axes.set_title(in_lines(title, TITLE_COLUMNS))
        axes.legend(fontsize=9, loc="upper left")

    return Chart("distribution", f"Curves: share of jobs done against time since submission. {title}.", draw)


def _gpus(comparison: Comparison) -> Chart:
    results = [comparison.today, comparison.proposed] if comparison.compares else [comparison.proposed]
    loads = [comparison.load(result) for result in results]
    until = max(load.ends[-1] for load in loads)
    unit = unit_for(until)
    title = f"{percent(comparison.proposed.gpu_utilization or 0.0)} of the GPUs are held"
    if comparison.compares:
        title += f" ({label(comparison.today.policy)}: {percent(comparison.today.gpu_utilization or 0.0)})"
    changes = comparison.environment.changes_nodes
    ceiling = "all GPUs at first" if changes else "all GPUs"
    highest = max(comparison.gpus, *(max(load.used) for load in loads))

    def draw(axes: Axes) -> None:
        edges = np.linspace(0.0, until / unit.seconds, SPANS + 1)
        middles = (edges[:-1] + edges[1:]) / 2
        for result, load in zip(results, loads, strict=True):
            allocated, _ = load.means(SPANS, end_seconds=until)
            mine = colour(comparison, result)
            axes.fill_between(middles, allocated, color=mine, alpha=0.18, linewidth=0, zorder=2)
            axes.plot(middles, allocated, color=mine, linewidth=1.5, label=label(result.policy), zorder=3)
        axes.axhline(comparison.gpus, color=INK, linewidth=1.2, linestyle="--", label=ceiling)
        last = comparison.workload.jobs[-1].submit_time_seconds / unit.seconds
        axes.axvline(last, color=INK, linewidth=1.0, linestyle=":", label="last submission")
        axes.set_xlim(0, until / unit.seconds)
        axes.set_ylim(0, highest * 1.4)
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlabel(f"time since the first submission [{unit.name}]")
        axes.set_ylabel("GPUs")
        axes.set_title(in_lines(title, TITLE_COLUMNS))
        axes.legend(fontsize=9, loc="upper left", ncols=2, columnspacing=1.2, handlelength=1.6)

    there = f"there are{' at first' if changes else ''}"
    return Chart("gpus", f"Lines: GPUs held over time, of {comparison.gpus} {there}. {title} on average.", draw)


def _pairs(comparison: Comparison) -> Chart:
    every = comparison.all_jobs
    today, proposed = label(comparison.today.policy), label(comparison.proposed.policy)
    title = f"{percent(every.earlier_share)} of the jobs are done earlier, {percent(every.later_share)} later"
    alt = f"Dots, one a job: time under {proposed} against time under {today}. {title}."
    return Chart("pairs", alt, partial(_draw_pairs, comparison=comparison, title=title))


def _draw_pairs(axes: Axes, comparison: Comparison, title: str) -> None:
    pairs = comparison.all_jobs.pairs
    groups = {
        "earlier": (PROPOSED_COLOUR, [pair for pair in pairs if pair.delay_seconds < -NOTICEABLE_SECONDS]),
        "the same": (TODAY_COLOUR, [pair for pair in pairs if abs(pair.delay_seconds) <= NOTICEABLE_SECONDS]),
        "later": (OTHER_COLOURS[0], [pair for pair in pairs if pair.delay_seconds > NOTICEABLE_SECONDS]),
    }
    for name, (mine, members) in groups.items():
        axes.scatter(
            [pair.before_seconds for pair in members],
            [pair.after_seconds for pair in members],
            s=16 if len(pairs) <= 2000 else 6,
            color=mine,
            alpha=0.9 if name == "later" else 0.5,
            linewidths=0,
            label=f"{name}: {len(members):,}",
            rasterized=True,  # thousands of dots would make the page slow
            zorder=2,
        )
    times = [time for pair in pairs for time in (pair.before_seconds, pair.after_seconds)]
    ends = [min(times), max(times)]
    axes.plot(ends, ends, color=INK, linewidth=1.0, zorder=3)
    axes.set_xscale("log")
    axes.set_yscale("log")
    _mark_times(axes, "x", times)
    _mark_times(axes, "y", times)
    axes.set_xlabel(f"completion time under {label(comparison.today.policy)}")
    axes.set_ylabel(f"under {label(comparison.proposed.policy)}")
    axes.set_title(in_lines(title, TITLE_COLUMNS))
    axes.legend(fontsize=9, loc="upper left", handletextpad=0.2)


def _mark_times(axes: Axes, which: str, times: Sequence[float]) -> None:
    """A logarithmic axis over these times, marked at times that people know."""
    low, high = max(min(times), 1e-3) / 1.3, max(times) * 1.3
    names = {mark: name for mark, name in MARKS_SECONDS.items() if low <= mark <= high}
    if len(names) < 2:
        names = {float(mark): duration(mark) for mark in np.geomspace(low * 1.1, high / 1.1, 4)}
    axis = axes.xaxis if which == "x" else axes.yaxis
    (axes.set_xlim if which == "x" else axes.set_ylim)(low, high)
    axis.set_minor_locator(NullLocator())
    axis.set_ticks(list(names), list(names.values()))


def _jcts(result: ReplayResult) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.array([job.jct_seconds for job in result.job_results if job.jct_seconds is not None])
