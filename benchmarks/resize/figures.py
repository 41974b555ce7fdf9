"""The paper's two figures of scaling, drawn from a record: how long training stands, and where a resize's time goes.

Source: DL2 §6.3, figures 13 and 14. Deviation: figure 13 is by model size and mode instead of by the number of servers
added, as the size is what a migration has to cope with; figure 14 shows that only its fourth step holds workers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

_MODES = ("rolling", "stop-the-world", "checkpoint-restart")
_COLOURS = {"rolling": "#1b7837", "stop-the-world": "#e08214", "checkpoint-restart": "#7b3294"}
_TARGET_MS = 5.0
_STEPS = {
    "registration": ("Registration", "#4393c3"),
    "assignment": ("Parameter assignment", "#92c5de"),
    "migration": ("Parameter migration, behind the training", "#d9d9d9"),
    "worker_update": ("Worker update: training stands", "#b2182b"),
}
_STYLE = {
    "font.size": 10.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.titlesize": 11.0,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "legend.frameon": False,
}
_DPI = 150

Runs = Sequence[Mapping[str, Any]]


def draw(runs: Runs, folder: Path) -> list[Path]:
    """Write `figure13.png` and `figure14.png`; the paths. What was not measured is left out."""
    folder.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context(_STYLE):  # type: ignore[arg-type]  # its stub names every key
        return [_save(_stalls(runs), folder / "figure13.png"), _save(_phases(runs), folder / "figure14.png")]


def _save(figure: Figure, path: Path) -> Path:
    figure.savefig(path, dpi=_DPI)
    return path


def _stalls(runs: Runs) -> Figure:
    """Bars of the median stall, whiskers up to the 99th percentile, on a logarithmic axis."""
    figure = Figure(figsize=(7.2, 4.0), layout="constrained")
    axes = figure.subplots()
    sizes = sorted({run["model_mb"] for run in runs})
    modes = [mode for mode in _MODES if any(run["mode"] == mode for run in runs)]
    width = 0.8 / len(modes)
    for place, mode in enumerate(modes):
        found = {run["model_mb"]: run for run in runs if run["mode"] == mode}
        there = [size for size in sizes if size in found]
        x = [sizes.index(size) + (place - (len(modes) - 1) / 2) * width for size in there]
        middles = [found[size]["stall_p50_ms"] for size in there]
        highs = [max(0.0, found[size]["stall_p99_ms"] - found[size]["stall_p50_ms"]) for size in there]
        axes.bar(x, middles, width * 0.92, color=_COLOURS[mode], label=mode)
        axes.errorbar(
            x, middles, [[0.0] * len(highs), highs], fmt="none", ecolor="#333333", elinewidth=1.0, capsize=3.0
        )
        for at, middle, high in zip(x, middles, highs, strict=True):
            _label(axes, _duration(middle), at, middle, above=False)
            _label(axes, _duration(middle + high), at, middle + high, above=True)
    axes.set_yscale("log")
    axes.axhline(_TARGET_MS, color="#666666", linewidth=0.8, linestyle="--")
    axes.annotate(
        "target",
        (1.0, _TARGET_MS),
        xycoords=("axes fraction", "data"),
        xytext=(2.0, -3.0),
        textcoords="offset points",
        fontsize=8.5,
        color="#666666",
    )
    _finish(axes, sizes, 4, "training stands for")
    axes.set_title("Adding or removing a parameter server: how long workers wait")
    axes.legend(loc="upper left", ncols=3, bbox_to_anchor=(0.0, 1.0), fontsize=9)
    figure.supxlabel(
        "bars, white figures: median; whiskers, figures above: 99th percentile", fontsize=8.5, color="#555555"
    )
    return figure


def _phases(runs: Runs) -> Figure:
    """The four steps of a rolling resize, one group of bars for each size; logarithmic, as they differ by 10⁴."""
    figure = Figure(figsize=(7.2, 4.0), layout="constrained")
    axes = figure.subplots()
    found = sorted((run for run in runs if run["mode"] == "rolling"), key=lambda run: float(run["model_mb"]))
    _phase_bars(axes, found)
    _finish(axes, [run["model_mb"] for run in found], 8, "time")
    axes.set_title("A rolling resize, step by step")
    axes.legend(loc="upper left", ncols=2, fontsize=9)
    figure.supxlabel(
        "medians over all resizes; registration without the start of the process", fontsize=8.5, color="#555555"
    )
    return figure


def _phase_bars(axes: Axes, found: Runs) -> None:
    width = 0.8 / len(_STEPS)
    for place, (name, (label, colour)) in enumerate(_STEPS.items()):
        x = [index + (place - (len(_STEPS) - 1) / 2) * width for index in range(len(found))]
        values = [1000.0 * run["phases_seconds"][name] for run in found]
        axes.bar(x, values, width * 0.92, color=colour, label=label)
        for at, value in zip(x, values, strict=True):
            _label(axes, _duration(value), at, value, above=True)


def _finish(axes: Axes, sizes: Sequence[float], headroom: float, what: str) -> None:
    """A logarithmic axis of times with room for figures, and one of model sizes."""
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda milliseconds, _: _duration(milliseconds))
    low, high = axes.get_ylim()
    axes.set_ylim(low / 2, high * headroom)
    axes.set_xticks(range(len(sizes)), [f"{size:g} MB" for size in sizes])
    axes.set_xlabel("model size")
    axes.set_ylabel(what)
    axes.grid(axis="y", linewidth=0.4, color="#dddddd")


def _label(axes: Axes, text: str, at: float, value: float, *, above: bool) -> None:
    """A figure over the top of a bar, or inside of it."""
    axes.annotate(
        text,
        (at, value),
        xytext=(0.0, 3.0 if above else -4.0),
        textcoords="offset points",
        ha="center",
        va="bottom" if above else "top",
        fontsize=7.5,
        color="#333333" if above else "white",
    )


def _duration(milliseconds: float) -> str:
    if milliseconds >= 1000.0:
        return f"{milliseconds / 1000.0:.3g} s"
    return f"{milliseconds:.2g} ms" if milliseconds < 10.0 else f"{milliseconds:.0f} ms"
