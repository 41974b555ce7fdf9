"""Configuration files in YAML, read into a checked, frozen model; every fault is one clear line.

The agent and the learner have settings of their own, and this way of reading them in common: an unknown key is an
error, since a misspelt setting that is silently ignored is a cluster that runs otherwise than its operator believes.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from foundation.text import nearest, plain_line
from policy_net.errors import BadInput
from policy_net.strict_yaml import read_yaml

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

Model = TypeVar("Model", bound=BaseModel)
Seconds = Annotated[float, Field(gt=0.0, le=7 * 24 * 3600.0)]
"""A time that something takes: more than none, and a week at most, as longer ones are slips of the pen."""

_LARGEST_BYTES = 1 << 20
"""A configuration has some hundred lines; what is longer is another file, or a device without end."""
_LARGEST_NUMBER = 2.0**53
"""Larger whole numbers are not exact in JSON; larger ones of any kind are slips of the pen."""

HOST_AND_PORT = r"^\S+:\d{1,5}$"
"""The pattern of a setting that names where something listens."""
_IN_WORDS = {HOST_AND_PORT: "write HOST:PORT, such as 127.0.0.1:7070"}
"""What to do about a value that does not match a pattern, which few people read."""
_WANTED = {
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "use a whole number, such as 10"),
    **dict.fromkeys(("float_type", "float_parsing"), "use a number, such as 0.5"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "use true or false"),
}
"""What to do about a value of another type than is wanted, by pydantic's name of the problem."""
_KINDS_OF_VALUE = frozenset({"int", "float", "bool", "str"})
_PROBLEMS_SAID = 3
"""In one line."""

_brief = reprlib.Repr()
"""A wrong value may be megabytes long; its beginning is enough to find it."""
_brief.maxstring = _brief.maxother = _brief.maxlong = 80
_brief.maxdict = _brief.maxlist = _brief.maxtuple = 3
_brief.maxlevel = 2


class Section(BaseModel):
    """A part of a configuration: fixed once read, with known keys only, and numbers that are numbers of something."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _numbers_are_numbers(cls, values: Any) -> Any:
        """YAML reads `yes` and `on` as true, which would count as 1 where a number is wanted."""
        for name, value in values.items() if isinstance(values, dict) else ():
            field = cls.model_fields.get(name) if isinstance(name, str) else None
            if isinstance(value, bool) and field is not None and not _takes_truth(field.annotation):
                shown = str(value).lower()
                raise ValueError(f"{name} = {shown}: YAML takes yes and on for true; use a number, or quotes for text")
            if isinstance(value, (int, float)) and abs(value) > _LARGEST_NUMBER:
                raise ValueError(f"{name} = {_brief.repr(value)}: no number of anything is beyond 2^53")
        return values


def _takes_truth(annotation: Any) -> bool:
    return annotation in (bool, Any) or any(_takes_truth(part) for part in get_args(annotation))


def read_settings_file(path: Path, model: type[Model], least: str) -> Model:
    """Read and check a configuration file.

    Args:
        least: the settings that no file can do without, for the message about an empty one.

    Raises:
        BadInput: not there, no YAML, an unknown key, a wrong type or value.
    """
    content = read_yaml(path, "a YAML configuration file", _LARGEST_BYTES)
    if not isinstance(content, dict):
        raise BadInput(f"{path}: holds no settings; it needs at least {least}")
    return checked_settings(content, model, str(path))


def checked_settings(content: Any, model: type[Model], where: str) -> Model:
    """Check settings that were read from somewhere.

    Args:
        where: they are from, for people.

    Raises:
        BadInput: an unknown key, a wrong type or value.
    """
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise BadInput(f"{where}: {plain_line(_first_problems(error, model))}") from error


def _first_problems(error: ValidationError, model: type[BaseModel]) -> str:
    """The first problems in words, and how many more there are.

    A misspelt key is also a missing one, and of a value that may be of several kinds each says why it is none: one
    problem each. Keys that were written come first, as they say what to do.
    """
    problems = sorted(error.errors(), key=lambda problem: problem["type"] != "extra_forbidden")
    said: dict[str, str] = {}
    meant: set[str] = set()
    for problem in problems:
        # The last part of an unknown setting's place is what was written, whatever it looks like.
        last = len(problem["loc"]) - 1 if problem["type"] == "extra_forbidden" else None
        parts = [part for place, part in enumerate(problem["loc"]) if place == last or not _is_kind_of_value(part)]
        location = _settings_path(tuple(parts), model)
        where = ".".join(_brief.repr(part)[1:-1] if isinstance(part, str) else str(part) for part in location)
        if problem["type"] == "missing" and where in meant:
            continue
        if any(where == other or where.startswith(f"{other}.") for other in said):
            continue
        if problem["type"] == "extra_forbidden":
            near, advice = _suggestion(location, model)
            meant |= {near} if near else set()
            said[where] = f"unknown setting {where}{advice}"
        else:
            said[where] = _in_words(problem, where)
    left = len(said) - _PROBLEMS_SAID
    first, *others = list(said.values())[:_PROBLEMS_SAID]
    for other in others:
        first += f" Also {other}" if first.endswith("?") else f"; also {other}"
    return first + (f" (and {left} more)" if left > 0 else "")


def _is_kind_of_value(part: int | str) -> bool:
    """Whether a part of a problem's place is one of several types that a value may be of, in pydantic's words."""
    return isinstance(part, str) and (part in _KINDS_OF_VALUE or "[" in part or part.startswith("constrained-"))


def _in_words(problem: ErrorDetails, where: str) -> str:
    """One problem of a setting that is known."""
    kind, said = problem["type"], problem["msg"].removeprefix("Value error, ")
    if kind == "missing":
        return f"setting {where} is missing"
    if not where:
        return said
    if kind == "value_error":
        return f"setting {where}: {said}"
    if kind == "union_tag_invalid":
        key = str(problem["ctx"]["discriminator"]).strip("'")
        wrong = _brief.repr(problem["ctx"]["tag"])
        return f"setting {where}.{key} = {wrong}: use one of {problem['ctx']['expected_tags']}"
    if kind == "string_pattern_mismatch":
        said = _IN_WORDS.get(problem["ctx"]["pattern"], said)
    return f"setting {where} = {_brief.repr(problem['input'])}: {_WANTED.get(kind, said)}"


def _settings_path(location: tuple[int | str, ...], model: type[BaseModel]) -> tuple[int | str, ...]:
    """Where a problem is, in words of the file: which of several kinds a section is, pydantic names in between."""
    sections, path = [model], []
    for part in location:
        fields = [section.model_fields[part] for section in sections if part in section.model_fields]
        of_kind = [section for section in sections if part in _kinds(section)]
        if not fields and of_kind:
            sections = of_kind
            continue
        path.append(part)
        if isinstance(part, str):
            sections = [inner for field in fields for inner in _sections(field.annotation)]
    return tuple(path)


def _kinds(section: type[BaseModel]) -> tuple[Any, ...]:
    field = section.model_fields.get("kind")
    return () if field is None else get_args(field.annotation)


def _suggestion(location: tuple[int | str, ...], model: type[BaseModel]) -> tuple[str | None, str]:
    """What an unknown key may have been meant for, and that in words: one like it in its own section, or the same word
    in another.
    """
    *section, key = (str(part) for part in location)
    settings = list(_paths(model, ()))
    own = [path[-1] for path in settings if list(path[:-1]) == [part for part in section if not part.isdigit()]]
    near = nearest(str(key), own, least_likeness=0.7)
    if near is not None:
        return ".".join([*section, near]), f"; did you mean {near}?"
    elsewhere = sorted({".".join(path) for path in settings if path[-1] == key})
    return None, f"; it stands in {elsewhere[0]}" if elsewhere else ""


def _paths(model: type[BaseModel], before: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for name, field in model.model_fields.items():
        path = (*before, field.alias or name)
        yield path
        for section in _sections(field.annotation):
            yield from _paths(section, path)


def _sections(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [section for argument in get_args(annotation) for section in _sections(argument)]
