"""Folder of a reproduction: what tasks leave, claims put to the test, each figure's table and picture, and the summary.

The folder says what its results follow from, and is refused for anything else. A figure that is in the summary is not
made again, unless some of it was lost, or it is of fewer training seeds than are wanted now. The summary is written
anew after every figure, so an interrupted run leaves one of what it has.

A claim is tested on the judging workloads: each gives the change from one line to the other, over the mean of the
training seeds, and the interval is over workloads (Student's, 95%). It says nothing of other training seeds; how far
those lie apart stands beside every figure as a standard deviation.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from foundation.figures import counted
from foundation.files import write_whole
from policy_net.errors import BadInput
from policy_net.laboratory.report.chart_style import look
from policy_net.laboratory.reproduction.experiment import Claim, Experiment, Measure, Picture, Point, Scale
from policy_net.laboratory.tuning.comparing import JctChange, change_between

VERSION = 1
"""Raised whenever older results would not be comparable any more."""
_SEEDS = "seeds"
_SETTINGS, _SUMMARY, _TASKS = "settings.json", "summary.json", "tasks"

COLUMNS = ("line", "at", "avg_jct_slots", "sd_over_seeds", "makespan_slots", "gpu_utilization", "seeds", "failed")
SAME = 0.01
"""A change of so much is none, where the paper says that there is none."""
CLAIM_COLUMNS = ("figure", "what", "paper", "ours", "change", "low", "high", "verdict", "seeds")
ELSEWHERE = (
    "Figures 13 and 14 are times of resizing running jobs, and not of a simulator: `python -m benchmarks.resize`"
    " measures them."
)
CAVEATS = (
    "Jobs, arrivals and durations are generated, as the paper's trace is not public; speeds are those that were"
    " measured for its authors' simulator. So percentages compare, and slots do not.",
    "Our baselines are written from their own papers, and Optimus fits speeds online; see docs/evaluation.md.",
    "Actions that do not fit are masked, features are scaled, warm starts are soft: deviations that"
    " policy_net/dl2 and policy_net/laboratory/training name.",
)

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


@dataclass(frozen=True, slots=True)
class ClaimFinding:
    """A claim and what came of it.

    Attributes:
        change: None where a line has no figure (`failure` says why), or the claim is of a figure itself, its `value`.
        seeds: training seeds that have a figure, of how many; fewer than all flatter the line.
    """

    claim: Claim
    change: JctChange | None = None
    value: float | None = None
    failure: str | None = None
    seeds: tuple[int, int] = (1, 1)

    @property
    def verdict(self) -> str:
        """How ours stands to the paper's, in a few words."""
        if self.failure is not None:
            return "no figure"
        if self.change is None:
            return "a figure of its own"
        change, paper = self.change, self.claim.paper
        low, high = (change.mean if end is None else end for end in (change.low, change.high))
        shown = low > 0.0 or high < 0.0
        if not shown:
            return "no difference shown"
        if paper == 0.0:
            return "other" if abs(change.mean) > SAME else "the same"
        direction = self.claim.direction if paper is None else paper
        if not direction:
            return "a difference"
        return "same direction" if (change.mean > 0.0) == (direction > 0.0) else "opposite direction"

    @property
    def ours(self) -> str:
        """Our figure in words."""
        if self.failure is not None:
            return f"none: {self.failure}"
        found, planned = self.seeds
        only = f" ({found} of {planned} seeds)" if found < planned else ""
        return (str(self.change) if self.change is not None else f"{self.value:.2f}") + only

    @property
    def papers(self) -> str:
        """The paper's figure in words."""
        paper = self.claim.paper
        if paper is None:
            return self.claim.words
        return f"{paper:.2f}" if self.claim.against is None else "the same" if paper == 0.0 else f"{paper:+.1%}"


def findings(experiment: Experiment, points: Sequence[Point]) -> list[ClaimFinding]:
    """Every claim of an experiment."""
    return [_test(claim, points) for claim in experiment.claims]


def _test(claim: Claim, points: Sequence[Point]) -> ClaimFinding:
    of = _find(points, claim.of)
    against = of if claim.against is None else _find(points, claim.against)
    for point in (of, against):
        if not any(point.by_seed[claim.measure]):
            return ClaimFinding(claim, failure=point.failures[0] if point.failures else "nothing to measure")
    seeds = min((_seeds_of(point, claim.measure) for point in (of, against)), key=lambda pair: pair[0] - pair[1])
    if claim.against is None:
        values = [value for row in of.by_seed[claim.measure] for value in row]
        return ClaimFinding(claim, value=float(np.mean(values)), seeds=seeds)
    change = change_between(_logs(of, claim.measure), _logs(against, claim.measure))
    return ClaimFinding(claim, change, seeds=seeds)


def _seeds_of(point: Point, measure: Measure) -> tuple[int, int]:
    found = sum(1 for row in point.by_seed[measure] if row)
    return found, found + len(point.failures)


def _find(points: Sequence[Point], which: tuple[str, float | None]) -> Point:
    return next(point for point in points if (point.label, point.at) == which)


def _logs(point: Point, measure: Measure) -> list[float]:
    """By workload, the mean over the training seeds of the logarithm."""
    logs: list[float] = np.log(point.by_seed[measure]).mean(axis=0).tolist()
    return logs


def best_of(experiment: Experiment, points: Sequence[Point]) -> tuple[str, str] | None:
    """The best line by the paper, and by ours; None where the paper names none, or we have none."""
    if experiment.best is None:
        return None
    candidates, papers = experiment.best
    found = [(mean_and_spread(_find(points, which))[0], which) for which in candidates]
    measured = [(mean, which) for mean, which in found if mean is not None]
    if not measured:
        return None
    return _named(papers), _named(min(measured, key=lambda entry: entry[0])[1])


def _named(which: tuple[str, float | None]) -> str:
    label, at = which
    return label if at is None else f"{at:g}"


def mean_and_spread(point: Point) -> tuple[float | None, float | None]:
    """Mean of the average JCTs in slots, and the standard deviation over training seeds, where there are several."""
    by_seed = [float(np.mean(row)) for row in point.by_seed[Measure.AVG_JCT]]
    if not by_seed:
        return None, None
    return float(np.mean(by_seed)), float(np.std(by_seed, ddof=1)) if len(by_seed) > 1 else None


def row_of(point: Point) -> dict[str, Any]:
    """A line's figures, for csv and JSON."""
    mean, spread = mean_and_spread(point)
    others = {
        measure.value: _rounded(float(np.mean(point.by_seed[measure]))) if point.by_seed[measure] else None
        for measure in (Measure.MAKESPAN, Measure.GPU_UTILIZATION)
    }
    return {
        "line": point.label,
        "at": point.at,
        "avg_jct_slots": _rounded(mean),
        "sd_over_seeds": _rounded(spread),
        **others,
        "seeds": len(point.by_seed[Measure.AVG_JCT]),
        "failed": "; ".join(sorted(set(point.failures))),
    }


def csv_of(points: Sequence[Point]) -> str:
    """The figure's table; of a figure of steps, its steps."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    timeline = next((point.timeline for point in points if point.timeline), ())
    if timeline:
        writer.writerow(("slot", "workers", "ps"))
        writer.writerows(timeline)
        return text.getvalue()
    writer.writerow(COLUMNS)
    for point in points:
        row = row_of(point)
        writer.writerow("" if row[name] is None else row[name] for name in COLUMNS)
    return text.getvalue()


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


class Folder:
    """An open folder.

    Raises:
        BadInput: it holds something else, or cannot be written.
    """

    def __init__(self, path: Path, scale: Scale, seed: int) -> None:
        self.path = path
        self._scale = asdict(scale)
        # How many seeds there are is what may grow: those that are there are the same in any number.
        of_results = {name: value for name, value in self._scale.items() if name != _SEEDS}
        settings: dict[str, Any] = {"version": VERSION, "paper": "dl2", "seed": seed, "scale": of_results}
        try:
            path.mkdir(parents=True, exist_ok=True)
            if not os.access(path, os.W_OK | os.X_OK):
                raise PermissionError(13, "not writable", str(path))
            self._check(settings)
            self.tasks.mkdir(exist_ok=True)
        except OSError as error:
            raise BadInput(f"--out {path}: cannot be written ({error.strerror}); name another folder") from error
        summary = self._read(_SUMMARY)
        before = summary.get("scale", {}).get(_SEEDS, 0)  # when all figures were of as many
        self._figures: dict[str, Any] = {
            name: figure if _SEEDS in figure else {**figure, _SEEDS: before}
            for name, figure in summary.get("figures", {}).items()
        }

    @property
    def tasks(self) -> Path:
        """Where tasks leave what they came to."""
        return self.path / _TASKS

    @property
    def figures(self) -> Mapping[str, Any]:
        """What is in the summary, by the experiment's name."""
        return self._figures

    def is_whole(self, experiment: Experiment) -> bool:
        """Whether the experiment is in the summary, of as many seeds or more, and nothing of it was lost."""
        figure = self._figures.get(experiment.name, {})
        return bool(figure.get("whole")) and figure.get(_SEEDS, 0) >= self._scale[_SEEDS]

    def failures(self, experiment: Experiment) -> list[str]:
        """Why policies of an experiment that is in the summary have no figure, each reason once."""
        rows = self._figures[experiment.name]["rows"]
        return sorted({reason for row in rows for reason in filter(None, str(row["failed"] or "").split("; "))})

    def add(self, experiment: Experiment, points: Sequence[Point]) -> None:
        """Write a figure's table and picture, and put it into the summary."""
        write_whole(self.path / f"{experiment.name}.csv", csv_of(points), durable=False)
        write_whole(self.path / f"{experiment.name}.png", picture_of(experiment, points), durable=False)
        best = best_of(experiment, points)
        self._figures[experiment.name] = {
            "title": experiment.title,
            "rows": [row_of(point) for point in points],
            "claims": [
                {"text": found.claim.text, "paper": found.papers, "ours": found.ours, "verdict": found.verdict}
                | ({} if found.change is None else found.change.to_json())
                for found in findings(experiment, points)
            ],
            "best": None if best is None else {"paper": best[0], "ours": best[1]},
            "why": experiment.why,
            "whole": not any(point.lost for point in points),
            _SEEDS: self._scale[_SEEDS],
        }

    def write_summary(self, order: Sequence[str]) -> None:
        """Write `summary.json`, `summary.md` and `summary.csv`, figures in this order."""
        figures = {name: self._figures[name] for name in order if name in self._figures}
        content = {"scale": self._scale, "elsewhere": ELSEWHERE, "caveats": CAVEATS, "figures": figures}
        write_whole(self.path / _SUMMARY, json.dumps(content, indent=2) + "\n", durable=False)
        write_whole(self.path / "summary.md", markdown(self._scale, figures), durable=False)
        write_whole(self.path / "summary.csv", claims_csv(figures), durable=False)

    def _check(self, settings: dict[str, Any]) -> None:
        """See that the folder is empty or holds results of the same settings, and say of an empty one what it holds."""
        found = self._read(_SETTINGS)
        if not found:
            if any(entry.name != "lock" for entry in self.path.iterdir()):
                raise BadInput(f"--out {self.path}: holds something else than results of this command; name another")
            write_whole(self.path / _SETTINGS, json.dumps(settings, indent=2) + "\n", durable=False)
        elif (found := _without_seeds(found)) != settings:
            differing = [name for name in settings if found.get(name) != settings[name]]
            raise BadInput(
                f"--out {self.path}: holds results of other settings ({', '.join(differing)}); use the same --quick and"
                " --seed, or another folder"
            )

    def _read(self, name: str) -> dict[str, Any]:
        """A file's content; empty where there is no such file."""
        path = self.path / name
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except ValueError:
            content = None
        if not isinstance(content, dict):
            raise BadInput(f"{path}: is damaged; remove it, or name another folder")
        return content


def _without_seeds(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings of a folder, also of one that was begun when they had to be the same."""
    scale = settings.get("scale")
    if not isinstance(scale, dict):
        return settings
    return settings | {"scale": {name: value for name, value in scale.items() if name != _SEEDS}}


def markdown(scale: Mapping[str, Any], figures: Mapping[str, Any]) -> str:
    """The summary as a page."""
    lines = [
        "# DL2, reproduced",
        "",
        f"Scale `{scale['name']}`: {scale['jobs']} jobs on {scale['nodes']} nodes of 2 GPUs and 8 cores,"
        f" {scale['updates']:,} updates after {scale['imitation_steps']:,} mini-batches of imitation"
        f" (by groups of decisions {scale['group_updates']:,} from random weights),"
        f" {_seed_range(figures)}{scale['workloads']} workloads that judge. Changes are of the average"
        " completion time unless a row names something else; negative is sooner. Intervals are 95% over workloads.",
        "",
        *(f"- {caveat}" for caveat in (*CAVEATS, ELSEWHERE)),
        "",
        "| figure | what is compared | paper | ours | verdict | why it differs |",
        "|---|---|---|---|---|---|",
    ]
    for name, figure in figures.items():
        why = figure["why"]
        for claim in _claims_of(figure):
            lines.append(
                f"| {name} | {claim['text']} | {claim['paper']} | {claim['ours']} | {claim['verdict']} | {why} |"
            )
            why = "as above"
    for name, figure in figures.items():
        lines += ["", f"## {name}: {figure['title']}", "", f"Of {counted(figure[_SEEDS], 'training seed')}.", ""]
        lines += [f"![{figure['title']}]({name}.png)", ""]
        lines += ["| line | at | average JCT, slots | sd over seeds | GPU utilisation |", "|---|---|---|---|---|"]
        lines += [_row(row) for row in figure["rows"]]
    return "\n".join(lines) + "\n"


def claims_csv(figures: Mapping[str, Any]) -> str:
    """A row for each claim, with the bounds of its change where it has one, as shares."""
    text = io.StringIO()
    writer = csv.DictWriter(text, CLAIM_COLUMNS, restval="", extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for name, figure in figures.items():
        for claim in _claims_of(figure):
            writer.writerow({"figure": name, "what": claim["text"], "seeds": figure[_SEEDS], **claim})
    return text.getvalue()


def _claims_of(figure: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The claims, and which line is the best where the paper names one."""
    best = figure["best"]
    verdict = "same" if best and best["paper"] == best["ours"] else "other"
    return [*figure["claims"], *([{"text": "the best", "verdict": verdict, **best}] if best else [])]


def _seed_range(figures: Mapping[str, Any]) -> str:
    found = sorted({figure[_SEEDS] for figure in figures.values()})
    if not found:
        return ""
    return f"{counted(found[0], 'training seed')}{f' to {found[-1]}' if len(found) > 1 else ''}, "


def _row(row: Mapping[str, Any]) -> str:
    at = "" if row["at"] is None else f"{row['at']:g}"
    mean, spread, used = row["avg_jct_slots"], row["sd_over_seeds"], row["gpu_utilization"]
    figures = (
        row["failed"] if mean is None else f"{mean:.2f}",
        "–" if spread is None else f"{spread:.2f}",
        "–" if used is None else f"{used:.0%}",
    )
    return f"| {row['line']} | {at} | {' | '.join(figures)} |"
