"""Folders of training runs: what was asked for, how it went step by step, and what came of it.

A run's folder holds `run.json`, written with its first figure and again when it ends, and `curve.jsonl`, a line for
every stretch of steps as soon as it is over: of a run that was killed everything is there but the end. Tables and pages
show settings and figures in words: times in a unit that fits, shares in %.
"""

from __future__ import annotations

import errno
import json
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from foundation.figures import Unit, flat, shown, unit_for
from foundation.files import write_whole
from foundation.text import parse_json
from policy_net.errors import BadInput

RUN_FILE: Final = "run.json"
CURVE_FILE: Final = "curve.jsonl"
FORMAT = 1
POINTS = 200
"""Of a curve at most; each is the mean of a stretch of steps."""
_LARGEST_FILE_BYTES = 64 << 20
_REQUESTED = ("evolution", "seed", "workloads", "imitated", "imitation_steps", "learning_rate", "reward", "file")
"""On the card of a policy what was asked for, which stands among the settings."""

WARM_START: Final = "imitation:"
"""Begins what the figures of a warm start are called."""
_REPORTING = (
    "validation_change",
    "validation_standard_error",
    "residual_published",
    "updates",
    "generations",
    "seconds",
)


@dataclass(frozen=True, slots=True)
class Curve:
    """One figure's curve: last step of each stretch, and the figure's mean over it. `figure` names it with its unit."""

    figure: str
    points: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """One run as its folder tells it.

    Attributes:
        settings: what was asked for, by dotted name.
        final: what came of it; empty of a run that has not ended.
    """

    name: str
    settings: Mapping[str, Any]
    final: Mapping[str, Any]
    curves: tuple[Curve, ...]


class RunRecorder:
    """Writes a run's folder while it goes on; from its first figure on, so that what is refused before leaves none.

    Args:
        settings: what was asked for, however deep.
        resume: go on with the run that the folder holds, which must have been asked for with the same settings.

    Attributes:
        before_seconds: that the legs before this one took, of a run that was interrupted; the end's seconds count them.

    Raises:
        BadInput: the folder cannot be written, or holds another run, or none to go on with.
    """

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, Any],
        clock: Callable[[], float] = time.monotonic,
        *,
        resume: bool = False,
    ) -> None:
        self._folder = folder
        self._settings = flat(settings)
        self._clock = clock
        self._began_seconds = clock()
        self.before_seconds = 0.0
        self._stretches: dict[str, list[tuple[int, float]]] = {}
        self._refused: OSError | None = None
        self._begun = False
        if resume and (folder / RUN_FILE).exists():  # one that was interrupted before its first figure begins anew
            self._check_resumable()
            self._begun = True
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if not resume and ((folder / RUN_FILE).exists() or (folder / CURVE_FILE).exists()):
                raise BadInput(
                    f"--run {folder}: holds a run already; name another folder, or go on with it by --resume"
                )
            if not os.access(folder, os.W_OK | os.X_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        except OSError as error:
            raise BadInput(f"--run {folder}: cannot be written ({error.strerror}); name another folder") from error

    def _check_resumable(self) -> None:
        curves = self._folder / CURVE_FILE
        if curves.exists():  # a line that a full disk or a loss of power has torn would be gone on with
            whole = curves.read_bytes().rpartition(b"\n")
            if whole[2]:
                curves.write_bytes(whole[0] + whole[1])
        found = read_run(self._folder)
        if found.final:
            raise BadInput(f"--resume: the run in {self._folder} has ended; name another folder to train anew")
        requested = json.loads(json.dumps(self._settings))
        names = [name for name in {**requested, **found.settings} if requested.get(name) != found.settings.get(name)]
        other = next((name for name in names if name != "max_seconds"), None)
        if other is not None:
            raise BadInput(
                f"--resume: the run in {self._folder} was begun with {other} {found.settings.get(other)}, not"
                f" {requested.get(other)}; give the options that it was begun with"
            )

    def point(self, figure: str, step: int, steps: int, value: float) -> None:
        """Take one step's figure; steps count from 1, and there are to be `steps`."""
        stretch = self._stretches.setdefault(figure, [])
        stretch.append((step, value))
        if len(stretch) >= max(1, math.ceil(steps / POINTS)) or step >= steps:
            self._close(figure)

    def end(self, final: Mapping[str, Any]) -> None:
        """Write what came of the run.

        Raises:
            OSError: the disk refuses, or has refused a part of a curve; the training went on without.
        """
        for figure in list(self._stretches):
            self._close(figure)
        if self._refused is not None:
            raise self._refused
        self._begin()
        spent = self.before_seconds + self._clock() - self._began_seconds
        self._write({**flat(final), "seconds": round(spent, 3)})

    def _close(self, figure: str) -> None:
        stretch = self._stretches[figure]
        if not stretch:
            return
        mean = math.fsum(value for _, value in stretch) / len(stretch)
        line = json.dumps({"figure": figure, "step": stretch[-1][0], "value": mean if math.isfinite(mean) else None})
        stretch.clear()
        if self._refused is not None:
            return
        try:
            self._begin()
            with (self._folder / CURVE_FILE).open("a", encoding="utf-8") as stream:
                stream.write(f"{line}\n")
        except OSError as error:  # hours of training are worth more than their curve
            self._refused = error

    def begin(self) -> None:
        """Say what is trained before the first figure, as where a checkpoint is kept before it."""
        try:
            self._begin()
        except OSError as error:
            self._refused = error

    def _begin(self) -> None:
        if not self._begun:
            (self._folder / CURVE_FILE).touch()
            self._write({})
            self._begun = True

    def _write(self, final: Mapping[str, Any]) -> None:
        content = {"format": FORMAT, "settings": self._settings, "final": dict(final)}
        write_whole(self._folder / RUN_FILE, json.dumps(content, indent=1) + "\n")


def read_run(folder: Path) -> TrainingRun:
    """A run's folder.

    Raises:
        BadInput: it is none, or damaged.
    """
    try:
        content = parse_json(_text(folder / RUN_FILE))
        settings, final = dict(content["settings"]), dict(content["final"])
        if content["format"] != FORMAT:
            raise BadInput(f"{folder / RUN_FILE}: is of format {content['format']!r}; this program reads {FORMAT}")
        lines = _text(folder / CURVE_FILE).split("\n")
        curves = _curves([parse_json(line) for line in lines[:-1]])  # what has no end was being written
    except OSError as error:
        raise BadInput(
            f"{folder}: holds no run ({error.strerror}); name a folder that `policy-net train --run` has written"
        ) from error
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise BadInput(f"{folder}: holds no run that can be read; `policy-net train --run` writes one") from error
    return TrainingRun(folder.resolve().name, settings, final, curves)


def _curves(lines: list[Any]) -> tuple[Curve, ...]:
    points: dict[str, list[tuple[int, float]]] = {}
    for line in lines:
        value, step = line["value"], int(line["step"])
        of_figure = points.setdefault(str(line["figure"]), [])
        while of_figure and of_figure[-1][0] >= step:  # a run that was resumed went that way once more
            of_figure.pop()
        of_figure.append((step, math.nan if value is None else float(value)))
    return tuple(Curve(figure, tuple(found)) for figure, found in points.items())


def _text(path: Path) -> str:
    with path.open("rb") as stream:
        return stream.read(_LARGEST_FILE_BYTES).decode("utf-8")


def steps_done(run: TrainingRun) -> tuple[int, int] | None:
    """How many steps, updates or generations a run has written, of how many; None where it says no number.

    The warm start's own steps are none of these. A curve has at most `POINTS` stretches, the last of which may not be
    written yet.
    """
    steps = run.settings.get("steps")
    if not isinstance(steps, int):
        return None
    counting = [curve for curve in run.curves if not curve.figure.startswith(WARM_START) and curve.points]
    return max((curve.points[-1][0] for curve in counting), default=0), steps


def named_apart(found: Sequence[tuple[Path, TrainingRun]]) -> list[TrainingRun]:
    """The runs; those whose folders have the same name are called by the whole path that was typed."""
    names = Counter(run.name for _, run in found)
    return [run if names[run.name] == 1 else replace(run, name=str(folder)) for folder, run in found]


def final_figures(runs: Sequence[TrainingRun]) -> list[str]:
    """Names of what came of the runs, without what repeats a setting; what says most is first."""
    names = dict.fromkeys([*_REPORTING, *(name for run in runs for name in run.final)])
    names = dict.fromkeys(name for name in names if any(name in run.final for run in runs))
    return [name for name in names if name.partition(".")[0] not in _REQUESTED and name not in runs[0].settings]


def differing(runs: Sequence[TrainingRun]) -> list[str]:
    """Names of the settings that are not the same in all runs, in the order in which they are first met."""
    names = list(dict.fromkeys(name for run in runs for name in run.settings))
    return [name for name in names if len({json.dumps(run.settings.get(name)) for run in runs}) > 1]


def last_value(curve: Curve) -> float | None:
    """The mean of a curve's last tenth, which hardly depends on one stretch; None where nothing is finite."""
    values = [value for _, value in curve.points[-max(1, len(curve.points) // 10) :] if math.isfinite(value)]
    return math.fsum(values) / len(values) if values else None


NOT_SET: Final = "–"
_SECTIONS: Final = {
    "training": "",
    "training.twin": "twin",
    "training.imitation": "warm start",
    "training.actor_critic": "actor-critic",
    "world": "simulation",
    "spec": "policy",
    "evolution": "evolution",
    "twin": "twin",
}
"""What stands before a setting of a section, so that settings of the same name are told apart."""
_NAMES: Final = {
    "seconds": "took",
    "max_seconds": "time limit",
    "imitate": "imitated",
    "from": "began with",
    "parent": "parent policy",
    "spec.policy": "kind of policy",
    "spec.hidden": "policy: hidden layers",
    "spec.set_feature_version": "policy: version of the features",
    "spec.feature_version": "policy: version of the features",
    "world.seed": "simulation: seed",
    "world.node_mtbf_hours": "simulation: time between a node's failures",
    "world.debounce_seconds": "simulation: pause between decisions",
    "world.slot_seconds": "simulation: length of a slot",
    "world.resize_seconds": "simulation: stall of a resize",
    "world.resume_seconds": "simulation: stall of a resume",
    "world.start_seconds": "simulation: stall of a start",
    "world.checkpoint_seconds": "simulation: time between checkpoints",
    "world.node_repair_hours": "simulation: repair of a node",
    "residual_published": "network kept",
}
_SECONDS_IN: Final = {"seconds": 1.0, "hours": 3600.0}
_SHARES: Final = frozenset({"validation_change", "validation_standard_error"})
_OF_EVOLUTION: Final = frozenset({"training.pairs", "training.sigma", "training.learning_rate"})


def name_of(key: str) -> str:
    """A setting's or figure's name in words, without its unit."""
    if key in _NAMES:
        return _NAMES[key]
    section, _, name = key.rpartition(".")
    words = name.replace("_", " ").replace("jct", "JCT").removesuffix(" seconds").removesuffix(" hours")
    before = _SECTIONS.get(section, section.replace("_", " ").replace(".", ", "))
    return shown(f"{before}: {words}" if before else words)


def heading_of(key: str, unit: Unit | None) -> str:
    """A figure's name in words over a column, with the unit of its times."""
    return name_of(key) if unit is None else f"{name_of(key)} [{unit.name}]"


def unit_of(key: str, values: Sequence[Any]) -> Unit | None:
    """The unit of all times of a setting or figure; None of what is no time, or where nothing is known."""
    scale = _scale(key)
    known = [value * scale for value in values if scale and _is_number(value)]
    return unit_for(*known) if known else None


def shown_value(key: str, value: Any, unit: Unit | None = None) -> str:
    """A value in words: a time as a number of this unit, or with its own where there is none."""
    if is_unset(value):
        return NOT_SET
    if isinstance(value, bool):
        return "yes" if value else "no"
    scale = _scale(key)
    if scale and _is_number(value):
        return unit.number(value * scale) if unit is not None else unit_for(value * scale).text(value * scale)
    if key in _SHARES and _is_number(value):
        return f"{100 * value:.2g}%".replace("-", "\N{MINUS SIGN}")
    if isinstance(value, float):
        return f"{value:,.6g}".replace("-", "\N{MINUS SIGN}")
    return shown(str(value))


def is_unset(value: Any) -> bool:
    """Whether there is nothing to say."""
    return value is None or value in ("", [])


def settings_that_count(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Those of a run without the ones of a way to train that was not taken."""
    method = settings.get("training.method")
    idle = {name for name in settings if method == "evolution" and name.startswith("training.twin.")}
    if method == "twin":
        idle |= _OF_EVOLUTION
    return {name: value for name, value in settings.items() if name not in idle}


def _scale(key: str) -> float:
    """Seconds in the unit that the name ends with; 0 where that is none."""
    return _SECONDS_IN.get(key.rpartition(".")[2].rpartition("_")[2], 0.0)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
