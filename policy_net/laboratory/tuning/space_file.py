"""Space file: which parameters a study varies and within which bounds, as people write it and every study keeps it.

It only narrows what `tuning.space` declares, so that each value that is proposed is a setting that training takes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field

from foundation.files import write_whole
from foundation.text import nearest
from policy_net.errors import BadInput
from policy_net.laboratory.training import SetMethod
from policy_net.laboratory.tuning.space import Space, TunedParameter, Value
from policy_net.settings import Section, read_settings_file

FILE = "space.yaml"
_NUMBER = ("low", "high", "log")
_HEADING = "# What this study searches; another study takes a part of it with `policy-net tune --space`.\n"


class _Content(Section):
    """What a file says, its parameters unread."""

    policy: Literal["dl2", "set"]
    method: SetMethod | None = None
    parameters: dict[str, Any] = Field(min_length=1)


def read_space_file(path: Path, space: Space) -> Space:
    """The part of a space that a file names; what it does not name stays at its default.

    Raises:
        BadInput: it cannot be read, is for another kind of policy, or a parameter or a bound is none of the space's.
    """
    content = read_settings_file(path, _Content, "policy and parameters")
    method = space.base.set.method if space.policy == "set" else None
    if content.policy != space.policy or content.method not in (None, method):
        theirs, ours = (
            " by ".join(filter(None, pair)) for pair in ((content.policy, content.method), (space.policy, method))
        )
        raise BadInput(f"{path}: is a space of {theirs}, and this study is of {ours}; say the same in both")
    known = {item.name: item for item in space.parameters}
    for name in content.parameters:
        if name not in known:
            near = nearest(name, known)
            meant = f"did you mean {near}?" if near else f"use {', '.join(known)}"
            raise BadInput(f"{path}: parameters.{name}: there is no such parameter; {meant}")
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
    method = {"method": space.base.set.method.value} if space.policy == "set" else {}
    content = {"policy": space.policy, **method, "parameters": parameters}
    path = folder / FILE
    write_whole(path, _HEADING + yaml.safe_dump(content, sort_keys=False, default_flow_style=None))
    return path


def _narrowed(item: TunedParameter, said: Any, default: Value, where: str) -> TunedParameter:
    if item.choices:
        return replace(item, choices=_choices(item, said, default, where))
    if not isinstance(said, Mapping) or set(said) - set(_NUMBER) or not {"low", "high"} <= set(said):
        raise BadInput(
            f"{where}: is a number; say {{low: {item.low:g}, high: {item.high:g}}}, with log: true or without"
        )
    low, high = (_number(item, said[name], f"{where}.{name}") for name in ("low", "high"))
    log = said.get("log", item.log)
    if not isinstance(log, bool):
        raise BadInput(f"{where}.log: say true or false")
    if not low < high:
        raise BadInput(f"{where}: low {low:g} is not below high {high:g}; to hold it at its default leave it out")
    if log and low <= 0:
        raise BadInput(f"{where}: low {low:g} has no logarithm; use a larger one, or log: false")
    if not low <= float(default) <= high:
        raise BadInput(f"{where}: {low:g} to {high:g} is without its default {default}, with which a study begins")
    return replace(item, low=low, high=high, log=log)


def _choices(item: TunedParameter, said: Any, default: Value, where: str) -> tuple[Value, ...]:
    shown = ", ".join(map(_in_yaml, item.choices))
    if not isinstance(said, list) or len(said) < 2:
        raise BadInput(f"{where}: say a list of two or more of {shown}")
    # Of equal types too: true is no 1.
    known = [(type(choice), choice) for choice in item.choices]
    chosen = [(type(choice), choice) for choice in said if isinstance(choice, (bool, int, float, str))]
    if len(chosen) < len(said) or any(choice not in known for choice in chosen):
        raise BadInput(f"{where}: use some of {shown}")
    if len(set(chosen)) < len(chosen):
        raise BadInput(f"{where}: says a value twice")
    if (type(default), default) not in chosen:
        raise BadInput(f"{where}: is without its default {_in_yaml(default)}, with which a study begins")
    return tuple(choice for choice in item.choices if (type(choice), choice) in chosen)


def _number(item: TunedParameter, said: Any, where: str) -> float:
    fits = isinstance(said, int) or (isinstance(said, float) and not item.whole and math.isfinite(said))
    if isinstance(said, bool) or not fits:
        raise BadInput(f"{where}: use a {'whole ' if item.whole else ''}number from {item.low:g} to {item.high:g}")
    if not item.low <= said <= item.high:
        raise BadInput(f"{where}: {said:g} is not from {item.low:g} to {item.high:g}, what is searched at most")
    return int(said) if item.whole else float(said)


def _in_yaml(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
