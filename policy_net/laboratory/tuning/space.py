"""Space of settings that tuning searches, for each kind of policy, and the file that narrows it.

A parameter is a setting of `training.settings`, under a name of its own. Defaults are those of training; every study
begins with them. All of a kind's settings are here, which a test holds; of `dl2` those of the actor-critic. A space
file says which parameters a study varies and within which bounds; every study keeps its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field

from foundation.files import write_whole
from foundation.text import nearest
from policy_net.errors import BadInput
from policy_net.laboratory.training import Dl2Method, SetMethod
from policy_net.laboratory.training.settings import DEFAULT_IMITATION_STEPS, TrainingSettings
from policy_net.settings import Section, read_settings_file

Value = float | int | str | bool
Values = Mapping[str, Value]
"""One value for each parameter that varies."""

TEACHERS = ("drf", "fifo", "las", "marginal", "optimus", "srtf", "tetris")
"""Schedulers that a warm start may imitate. Those that need the true speeds are left out: no cluster has them."""


@dataclass(frozen=True, slots=True)
class TunedParameter:
    """One setting and the values that it may have.

    Attributes:
        name: as `--vary` takes it.
        path: the setting's place in a training file.
        low, high: bounds, both included, where it is a number; whole numbers stand for a whole number.
        log: whether it is searched by its logarithm.
        choices: its values, where it is no number.
    """

    name: str
    path: tuple[str, ...]
    low: float = 0
    high: float = 0
    log: bool = False
    choices: tuple[Value, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether its values are whole numbers."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    def default(self, settings: TrainingSettings) -> Value:
        """Its value in some settings."""
        found: Any = settings
        for part in self.path:
            found = getattr(found, part)
        return found.value if hasattr(found, "value") else found  # type: ignore[no-any-return]  # of an enumeration


def _dl2(imitation_steps: int) -> tuple[TunedParameter, ...]:
    least = max(1, imitation_steps // 8)
    return (
        TunedParameter("neurons", ("dl2", "neurons"), 32, 512, log=True),
        TunedParameter("layers", ("dl2", "layers"), 1, 3),
        TunedParameter("jobs_per_batch", ("dl2", "jobs_per_batch"), 5, 40, log=True),
        TunedParameter("imitate", ("dl2", "imitate"), choices=TEACHERS),
        TunedParameter("imitation_steps", ("dl2", "imitation_steps"), least, max(imitation_steps, least + 1), log=True),
        TunedParameter("learning_rate", ("dl2", "learning_rate"), 3e-5, 3e-3, log=True),
        TunedParameter("reward", ("dl2", "actor_critic", "reward"), choices=("slot-utility", "paper", "own-job")),
    )


_SET = (
    TunedParameter("start", ("set", "twin", "start"), choices=("set", "planner")),
    TunedParameter("neurons", ("set", "neurons"), choices=(0, 8, 16)),  # of the planner's network; the shipped has none
    TunedParameter("pairs", ("set", "twin", "pairs"), 1, 32, log=True),
    TunedParameter("window_jobs", ("set", "twin", "window_jobs"), 100, 1000, log=True),
    TunedParameter("learning_rate", ("set", "twin", "learning_rate"), 0.02, 1.5, log=True),
    TunedParameter("trust_radius", ("set", "twin", "trust_radius"), 0.5, 20.0, log=True),
)


@dataclass(frozen=True, slots=True)
class Space:
    """What a study searches; the values of a trial are put into the settings `base`."""

    policy: str
    parameters: tuple[TunedParameter, ...]
    base: TrainingSettings

    @property
    def defaults(self) -> dict[str, Value]:
        """The values that training has without any tuning."""
        return {item.name: item.default(self.base) for item in self.parameters}

    def settings(self, values: Values) -> TrainingSettings:
        """Settings of training with these values."""
        content = self.base.model_dump(mode="json")
        for item in self.parameters:
            *sections, key = item.path
            section = content
            for name in sections:
                section = section[name]
            section[key] = values[item.name]
        return TrainingSettings.model_validate(content)

    def to_json(self) -> dict[str, Any]:
        """What two studies of the same space agree in."""
        found = [asdict(item) | {"path": list(item.path), "choices": list(item.choices)} for item in self.parameters]
        return {"policy": self.policy, "parameters": found, "base": self.base.model_dump(mode="json")}


def space_of(
    policy: str,
    vary: Sequence[str] = (),
    imitation_steps: int = DEFAULT_IMITATION_STEPS,
    imitate: str | None = None,
) -> Space:
    """The space of a kind of policy, dl2 or set.

    Args:
        vary: names of the only parameters that vary; all do if there is none.
        imitation_steps: the most mini-batches of a warm start, and the default.
        imitate: the one scheduler that every trial imitates; `drf` is the default of several if there is none.

    Raises:
        BadInput: a kind of policy or a parameter that nobody knows.
    """
    known = {"dl2": _dl2(imitation_steps), "set": _SET}.get(policy)
    if known is None:
        raise BadInput(f"--policy {policy}: use dl2 or set")
    if imitate is not None:
        known = tuple(item for item in known if item.name != "imitate")
    dl2 = {
        "method": Dl2Method.ACTOR_CRITIC,
        "imitation_steps": imitation_steps,
        "imitate": imitate or TEACHERS[0],
    }
    base = TrainingSettings.model_validate({"policy": policy, "dl2": dl2, "set": {"method": SetMethod.TWIN}})
    return Space(policy, _chosen(known, vary, policy), base)


def _chosen(known: Sequence[TunedParameter], vary: Iterable[str], policy: str) -> tuple[TunedParameter, ...]:
    names = [item.name for item in known]
    chosen = set(vary)
    for name in sorted(chosen - set(names)):
        raise BadInput(f"--vary {name}: a {policy} policy has no such parameter; {_meant(name, names)}")
    return tuple(item for item in known if not chosen or item.name in chosen)


def _meant(name: str, names: Iterable[str]) -> str:
    near = nearest(name, names)
    return f"did you mean {near}?" if near else f"use {', '.join(names)}"


FILE = "space.yaml"
_NUMBER = ("low", "high", "log")
_HEADING = "# What this study searches; another study takes a part of it with `policy-net tune --space`.\n"


class _Content(Section):
    policy: Literal["dl2", "set"]
    method: Literal["twin"] | None = None  # files of before say it
    parameters: dict[str, Any] = Field(min_length=1)


def read_space_file(path: Path, space: Space) -> Space:
    """The part of a space that a file names; what it does not name stays at its default.

    Raises:
        BadInput: it cannot be read, is for another kind of policy, or a parameter or a bound is none of the space's.
    """
    content = read_settings_file(path, _Content, "policy and parameters")
    if content.policy != space.policy:
        raise BadInput(
            f"{path}: is a space of {content.policy}, and this study is of {space.policy}; say the same in both"
        )
    known = {item.name: item for item in space.parameters}
    for name in content.parameters:
        if name not in known:
            raise BadInput(f"{path}: parameters.{name}: there is no such parameter; {_meant(name, known)}")
    defaults = space.defaults
    narrowed = tuple(
        _narrowed(item, content.parameters[item.name], defaults[item.name], f"{path}: parameters.{item.name}")
        for item in space.parameters
        if item.name in content.parameters
    )
    return replace(space, parameters=narrowed)


def write_space_file(folder: Path, space: Space) -> Path:
    """Write the whole space of a study into its folder.

    Raises:
        OSError: the disk refuses.
    """
    parameters = {
        item.name: list(item.choices) if item.choices else {name: getattr(item, name) for name in _NUMBER}
        for item in space.parameters
    }
    content = {"policy": space.policy, "parameters": parameters}
    path = folder / FILE
    write_whole(path, _HEADING + yaml.safe_dump(content, sort_keys=False, default_flow_style=None))
    return path


def _narrowed(item: TunedParameter, value: Any, default: Value, where: str) -> TunedParameter:
    if item.choices:
        return replace(item, choices=_choices(item, value, default, where))
    if not isinstance(value, Mapping) or set(value) - set(_NUMBER) or not {"low", "high"} <= set(value):
        raise BadInput(
            f"{where}: is a number; say {{low: {item.low:g}, high: {item.high:g}}}, with log: true or without"
        )
    low, high = (_number(item, value[name], f"{where}.{name}") for name in ("low", "high"))
    log = value.get("log", item.log)
    if not isinstance(log, bool):
        raise BadInput(f"{where}.log: say true or false")
    if not low < high:
        raise BadInput(f"{where}: low {low:g} is not below high {high:g}; to hold it at its default leave it out")
    if log and low <= 0:
        raise BadInput(f"{where}: low {low:g} has no logarithm; use a larger one, or log: false")
    if not low <= float(default) <= high:
        raise BadInput(f"{where}: {low:g} to {high:g} is without its default {default}, with which a study begins")
    return replace(item, low=low, high=high, log=log)


def _choices(item: TunedParameter, value: Any, default: Value, where: str) -> tuple[Value, ...]:
    shown = ", ".join(map(_in_yaml, item.choices))
    if not isinstance(value, list) or len(value) < 2:
        raise BadInput(f"{where}: say a list of two or more of {shown}")
    # Of equal types too: true is no 1.
    known = [(type(choice), choice) for choice in item.choices]
    chosen = [(type(choice), choice) for choice in value if isinstance(choice, (bool, int, float, str))]
    if len(chosen) < len(value) or any(choice not in known for choice in chosen):
        raise BadInput(f"{where}: use some of {shown}")
    if len(set(chosen)) < len(chosen):
        raise BadInput(f"{where}: says a value twice")
    if (type(default), default) not in chosen:
        raise BadInput(f"{where}: is without its default {_in_yaml(default)}, with which a study begins")
    return tuple(choice for choice in item.choices if (type(choice), choice) in chosen)


def _number(item: TunedParameter, value: Any, where: str) -> float:
    fits = isinstance(value, int) or (isinstance(value, float) and not item.whole and math.isfinite(value))
    if isinstance(value, bool) or not fits:
        raise BadInput(f"{where}: use a {'whole ' if item.whole else ''}number from {item.low:g} to {item.high:g}")
    if not item.low <= value <= item.high:
        raise BadInput(f"{where}: {value:g} is not from {item.low:g} to {item.high:g}, what is searched at most")
    return int(value) if item.whole else float(value)


def _in_yaml(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
