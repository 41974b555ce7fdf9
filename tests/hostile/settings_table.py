"""The matrix's rows for configuration files: a sound file of each program, with every section that there is.

Every field of the models is attacked by its type. A field in a section that needs more than stands here, or whose bad
values are taken for good ones, fails the tests until it does.
"""

from __future__ import annotations

import copy
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel

from cluster_agent.settings import AgentSettings
from global_learner.settings import LearnerSettings
from policy_net.laboratory.training.settings import TrainingSettings
from policy_net.settings_problems import settings_of

Content = dict[str, Any]
Where = tuple[str | int, ...]

SOUND: dict[type[BaseModel], Content] = {
    LearnerSettings: {"state_dir": "state", "initial_policy": "v1.safetensors", "port_file": "ports.json"},
    AgentSettings: {
        "cluster": "north",
        "state_dir": "state",
        "backend": {"workloads": [{"source": "dl2:jobs=2"}]},
        "policy": {"initial": "drf"},
    },
    TrainingSettings: {"policy": "dl2"},
}
NEEDED: dict[tuple[str, ...], Any] = {
    ("tls",): {"certificate_file": "a.pem", "key_file": "a.key"},
    ("learner",): {"address": "127.0.0.1:7070"},
    ("learner", "tls"): {"ca_file": "ca.pem", "certificate_file": "a.pem", "key_file": "a.key"},
    ("backend", "pace"): {"kind": "lockstep"},
    ("backend", "limits", "maintenance"): [{"from": "22:00", "to": "06:00"}],
    ("rollouts", "prometheus"): [{"address": "http://127.0.0.1:9090"}],
}
"""What a section needs beside the setting that is attacked."""
KINDS: dict[str, str] = {"LockstepPace": "lockstep", "ScaledPace": "scaled", "FreePace": "free"}
ALONGSIDE: dict[str, Content] = {"ScaledPace": {"speedup": 2.0}}


class Attack(NamedTuple):
    """One setting with one bad value."""

    where: Where
    kind: str
    content: Content

    @property
    def label(self) -> str:
        return f"{'.'.join(map(str, self.where))}={self.kind}"


WRONG: dict[str, Any] = {
    "list": [1, 2],
    "section": {"a": 1},
    "nested": {"a": [{"b": [1]}]},
    "nothing": None,
    "nan": float("nan"),
    "infinite": float("inf"),
    "minus-infinite": float("-inf"),
    "negative": -1,
    "huge": 10**40,
    "truth": True,
    "text": "many",
    "empty": "",
    "control": "a\x00b\x1b[31m",
    "long": "x" * 5_000,
    "date": "2026-01-01",
}


def sections(model: type[BaseModel], where: Where = ()) -> Iterator[tuple[Where, type[BaseModel]]]:
    """Every section of a model, and where it stands."""
    yield where, model
    for name, field in settings_of(model).items():
        for section, repeated in _sections(field.annotation):
            yield from sections(section, (*where, name, 0) if repeated else (*where, name))


def attacks(model: type[BaseModel]) -> Iterator[Attack]:
    """Every setting of a program, each with every bad value of its type, one at a time."""
    for where, section in sections(model):
        yield Attack((*where, "no_such_setting"), "unknown", _with(model, where, section, "no_such_setting", 1))
        for name, field in settings_of(section).items():
            for kind, value in WRONG.items():
                if not _may_be(field.annotation, value):
                    yield Attack((*where, name), kind, _with(model, where, section, name, value))


def _may_be(annotation: Any, value: Any) -> bool:
    """Whether a value is of the right type, so that taking it is no fault."""
    if get_origin(annotation) in (Union, types.UnionType):
        return any(_may_be(part, value) for part in get_args(annotation))
    if hasattr(annotation, "__metadata__"):
        return _may_be(annotation.__origin__, value)
    if get_origin(annotation) is dict:
        return isinstance(value, dict) and all(isinstance(item, int) for item in value.values())
    kinds: dict[Any, type] = {type(None): type(None), bool: bool, str: str, Path: str}
    return annotation in kinds and isinstance(value, kinds[annotation])


def _with(model: type[BaseModel], where: Where, section: type[BaseModel], name: str, value: Any) -> Content:
    content = copy.deepcopy(SOUND[model])
    here: Any = content
    for depth, part in enumerate(where):
        needed = copy.deepcopy(NEEDED.get(tuple(str(step) for step in where[: depth + 1]), {}))
        here = here[part] if isinstance(part, int) else here.setdefault(part, needed)
    if section.__name__ in KINDS:
        here.clear()
        here |= {"kind": KINDS[section.__name__], **ALONGSIDE.get(section.__name__, {})}
    here[name] = value
    return content


def _sections(annotation: Any, repeated: bool = False) -> Iterator[tuple[type[BaseModel], bool]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation, repeated
    for argument in get_args(annotation):
        yield from _sections(argument, repeated or get_origin(annotation) is tuple)
