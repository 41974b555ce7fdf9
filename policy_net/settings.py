"""Configuration files in YAML, read into a checked, frozen model; every fault is one clear line.

An unknown key is an error: a misspelt setting that is silently ignored is a cluster that runs otherwise than its
operator believes.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from foundation.text import plain_line
from policy_net.errors import BadInput
from policy_net.settings_problems import CONSTANT, first_problems, in_yaml, sections_in, settings_of
from policy_net.strict_yaml import brief, read_yaml

_LOGGER = logging.getLogger(__name__)
Model = TypeVar("Model", bound=BaseModel)
Seconds = Annotated[float, Field(gt=0.0, le=7 * 24 * 3600.0)]
"""A time that something takes: more than none, and a week at most, as longer ones are slips of the pen."""

Value = TypeVar("Value")
Constant = Annotated[Value, CONSTANT]
"""The type of a field that no file sets, as nobody would turn it; code gives another value, in a test or an experiment.
Files of before may still hold it: it is named, and left out."""


def text_of(pattern: str, advice: str) -> BeforeValidator:
    """The rule of a setting whose text has a pattern; what to write is said of other values."""

    def checked(value: Any) -> str:
        if not isinstance(value, str) or not re.fullmatch(pattern, value):
            raise PydanticCustomError("no_such_text", advice)
        return value

    return BeforeValidator(checked)


def _host_and_port(value: Any) -> str:
    if (
        not isinstance(value, str)
        or not re.fullmatch(r"\S+:[0-9]{1,5}", value)
        or int(value.rpartition(":")[2]) > 65_535
    ):
        raise PydanticCustomError("no_such_text", "write HOST:PORT, such as 127.0.0.1:7070")
    return value


Address = Annotated[str, BeforeValidator(_host_and_port)]
"""HOST:PORT, where something listens."""
ClusterName = Annotated[
    str,
    text_of(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?", "use lower case letters, digits, - and . between them, 63 at most"),
]

_LARGEST_BYTES = 1 << 20
"""A configuration has some hundred lines; what is longer is another file, or a device without end."""
_LARGEST_NUMBER = 2.0**53
"""Larger whole numbers are not exact in JSON; larger ones of any kind are slips of the pen."""


class Section(BaseModel):
    """A part of a configuration: fixed once read, with known keys only, and numbers that are numbers of something."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _numbers_are_numbers(cls, values: Any) -> Any:
        """YAML reads `yes` and `on` as true, which would count as 1 where a number is wanted."""
        for name, value in values.items() if isinstance(values, dict) else ():
            field = cls.model_fields.get(name) if isinstance(name, str) else None
            # A section in whose place yes or on stands is met with what to write there.
            of_number = field is not None and not sections_in(field.annotation) and not _takes_truth(field.annotation)
            if isinstance(value, bool) and of_number:
                shown = str(value).lower()
                raise ValueError(f"{name} = {shown}: YAML takes yes and on for true; use a number, or quotes for text")
            if isinstance(value, (int, float)) and abs(value) > _LARGEST_NUMBER:
                raise ValueError(f"{name} = {brief.repr(value)}: no number of anything is beyond 2^53")
        return values


def _takes_truth(annotation: Any) -> bool:
    return annotation in (bool, Any) or any(_takes_truth(part) for part in get_args(annotation))


@dataclass(frozen=True, slots=True)
class OtherFile:
    """A configuration file of another program, which is easily given instead.

    Attributes:
        names: settings that it has, and this program's has not, at its top.
        message: whose it is, and which program reads it.
    """

    names: frozenset[str]
    message: str


AGENTS_FILE: Final = OtherFile(
    frozenset({"cluster", "backend"}), "is an agent's file; `cluster-agent run --config` reads it"
)
LEARNERS_FILE: Final = OtherFile(
    frozenset({"initial_policy", "listen"}), "is a learner's file; `global-learner serve --config` reads it"
)


def read_settings_file(path: Path, model: type[Model], least: str, other: OtherFile | None = None) -> Model:
    """Read and check a configuration file; what became a constant is named in a warning, and counts no more.

    Args:
        other: whose file it may be instead, where it has settings of that one, and none that only this one has.

    Raises:
        BadInput: not there, no YAML, another program's, an unknown key, a wrong type or value.
    """
    content = read_yaml(path, "a YAML configuration file", _LARGEST_BYTES)
    if not isinstance(content, dict):
        raise BadInput(f"{path}: holds no settings; it needs at least {least}")
    needed = {field.alias or name for name, field in model.model_fields.items() if field.is_required()}
    if other is not None and other.names & content.keys() and not (needed - {"state_dir", "policy"}) & content.keys():
        raise BadInput(f"{path}: {other.message}")
    constants = list(_taken_out(content, model, ""))
    if constants:
        _LOGGER.warning(
            "%s: no settings any more, take them out before the next release, which refuses them: %s",
            path,
            ", ".join(constants),
        )
    return checked_settings(content, model, str(path))


def _taken_out(content: dict[Any, Any], section: type[BaseModel], where: str) -> Iterator[str]:
    """Take constants out of what was read; each, and what it is now."""
    for name, field in section.model_fields.items():
        value = content.get(field.alias or name)
        if name in content and CONSTANT in field.metadata:
            now = field.get_default(call_default_factory=True)
            if isinstance(now, BaseModel) and not (
                isinstance(value, dict) and set(value) <= set(type(now).model_fields)
            ):
                continue  # a slip of the pen, which the check refuses
            del content[name]
            if not isinstance(now, BaseModel):
                yield f"{where}{name} (it is {'not set' if now is None else in_yaml(now)})"
                continue
            known = [inner for inner in type(now).model_fields if isinstance(value, dict) and inner in value]
            yield from (f"{where}{name}.{inner} (it is {in_yaml(getattr(now, inner))})" for inner in known)
            continue
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, dict):
                for inner in sections_in(field.annotation):
                    kind = inner.model_fields.get("kind")
                    if kind is None or each.get("kind", kind.default) == kind.default:
                        yield from _taken_out(each, inner, f"{where}{name}.")


def settings_of_file(section: BaseModel) -> dict[str, Any]:
    """A section as a file may hold it, JSON-able: without constants."""
    found = {}
    for name, field in settings_of(type(section)).items():
        value = getattr(section, name)
        is_section = isinstance(value, BaseModel)
        found[field.alias or name] = (
            settings_of_file(value) if is_section else section.model_dump(mode="json", include={name})[name]
        )
    return found


def checked_settings(content: Any, model: type[Model], where: str) -> Model:
    """Check settings that were read from somewhere.

    Raises:
        BadInput: an unknown key, a wrong type or value.
    """
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise BadInput(f"{where}: {plain_line(first_problems(error, model))}") from error
