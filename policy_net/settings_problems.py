"""Problems of settings, and of whatever else people write in files, in words: what is wrong, and what to write instead.

Pydantic finds them; its own texts are for programmers, and speak of dictionaries and instances.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path, PurePath
from typing import Any, Final, NamedTuple, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from foundation.text import nearest
from policy_net.strict_yaml import brief

CONSTANT: Final = "constant"
"""Marks fields that no file sets; see `policy_net.settings.Constant`."""

_TYPES = {
    "int": ("a whole number", "10"),
    "float": ("a number", "0.5"),
    "bool": ("true or false", ""),
    "str": ("text", ""),
    "path": ("the path of a file or folder", ""),
}
"""A type in words, and an example, by how the names of its problems begin."""
_OF_TEXT = ("string_too_short", "string_too_long", "string_pattern_mismatch")
"""Problems of text that is one."""
_FITS: dict[type, set[Any]] = {str: {str, Path}, int: {int, float}, float: {float}, bool: {bool}}
"""Types of settings that a value may be meant for."""
_TYPE_IN_PLACE = re.compile(r"int|float|bool|str|constrained-.*|.*\[.*")
"""Part of a problem's place, where a value may be of several types."""
_OF_NAME = "[key]"
"""The same of a problem with a name, where any name may stand."""
_MOST_PROBLEMS = 3
Settings = dict[tuple[str, ...], FieldInfo]


class FileWords(NamedTuple):
    """How a kind of file is spoken of.

    Attributes:
        noun: for that which has a name and a value.
        json: whether it is JSON, where names and text stand in quotes, rather than YAML.
    """

    noun: str = "setting"
    json: bool = False

    def written(self, value: Any) -> str:
        """A name or a value as it is written, its beginning if it is long."""
        quoted = self.json and isinstance(value, str)
        return json.dumps(in_yaml(value), ensure_ascii=False) if quoted else in_yaml(value)


SETTINGS = FileWords()


def first_problems(error: ValidationError, model: type[BaseModel], words: FileWords = SETTINGS) -> str:
    """The first problems in words, and how many more there are; one for each setting, unknown names first."""
    known: Settings = dict(_all_settings(model))
    messages: dict[str, str] = {}
    meant: set[str] = set()
    for problem in sorted(error.errors(), key=lambda problem: problem["type"] != "extra_forbidden"):
        kind, place = problem["type"], list(problem["loc"])
        # Whatever an unknown name looks like, it is what was written.
        last = [place.pop()] if kind == "extra_forbidden" else []
        if place[-1:] == [_OF_NAME]:
            del place[-2:]
        path = _path([part for part in place if not _TYPE_IN_PLACE.fullmatch(str(part))], known)
        path += last
        where = ".".join(brief.repr(part)[1:-1] if isinstance(part, str) else str(part) for part in path)
        is_within = any(where == other or where.startswith(f"{other}.") for other in messages)
        is_without = kind == "too_short" and any(other.startswith(f"{where}.") for other in messages)
        if is_within or is_without or (kind == "missing" and where in meant):
            continue
        if kind == "extra_forbidden":
            near, advice = _suggestion([str(part) for part in path], known)
            meant.add(near)
            messages[where] = f"unknown {words.noun} {where}{advice}"
        else:
            found = known.get(tuple(part for part in path if isinstance(part, str)))
            messages[where] = _in_words(problem, where, found, model, words)
    first, *others = list(messages.values())[:_MOST_PROBLEMS]
    for other in others:
        first += f" Also {other}" if first.endswith("?") else f"; also {other}"
    return first + (f" (and {len(messages) - _MOST_PROBLEMS} more)" if len(messages) > _MOST_PROBLEMS else "")


def _path(place: list[int | str], known: Settings) -> list[int | str]:
    """Where a problem is in the file; pydantic also names which of several kinds a section is."""
    path: list[int | str] = []
    for part in place:
        names = tuple(each for each in path if isinstance(each, str))
        kinds = _kinds(known[names].annotation) if names in known else {}
        if part not in kinds or (*names, part) in known:
            path.append(part)
    return path


def _in_words(
    problem: ErrorDetails, where: str, field: FieldInfo | None, model: type[BaseModel], words: FileWords
) -> str:
    kind, value, details = problem["type"], problem["input"], problem.get("ctx", {})
    shown = in_yaml(value) if isinstance(value, bool) else "nothing" if value is None else brief.repr(value)
    a_section, is_section = "an object" if words.json else "a section", kind.startswith(("model_", "dict_"))
    if not where and is_section:
        return f"{shown} is not {a_section}; write {_section_for(None, model, words)}"
    subject, last = f"{words.noun} {where}", where.rpartition(".")[2]
    if not where or kind == "value_error":
        message = f"no JSON ({details['error']})" if kind == "json_invalid" else problem["msg"]
        return (f"{subject}: " if where else "") + message.removeprefix("Value error, ")
    annotation = field.annotation if field else None
    if kind.startswith("union_tag_"):
        found = f"= {brief.repr(details['tag'])}" if "tag" in details else "is missing"
        return f"{subject}.kind {found}: use one of {', '.join(map(repr, _kinds(annotation)))}"
    is_list = kind in ("tuple_type", "list_type") or (kind == "missing" and get_origin(annotation) is tuple)
    entry = "…"
    if sections_in(annotation):
        entry = _section_for(value if kind != "missing" else None, annotation, words)
    elif is_section:
        entry = f"{{{words.written('NAME')}: {words.written('VALUE')}}}"
    elif isinstance(value, (str, int, float)) and value != "":
        entry = words.written(value)
    write = f"write {'' if last.isdigit() else f'{words.written(last)}: '}{f'[{entry}]' if is_list else entry}"
    if kind == "missing":
        what, _ = _TYPES.get(getattr(annotation, "__name__", "").lower(), ("", ""))
        return f"{subject} is missing" + (f"; {write}" if sections_in(annotation) else f"; give {what}" if what else "")
    if is_section or is_list:
        advice = f"is {a_section if is_section else 'a list'}; {write}"
    else:
        advice = _advice(problem, field)
    return f"{f'a name in {where}, ' if problem['loc'][-1] == _OF_NAME else f'{subject} = '}{shown}: {advice}"


def _advice(problem: ErrorDetails, field: FieldInfo | None) -> str:
    kind, value = problem["type"], problem["input"]
    of_type = next((name for name in _TYPES if kind.startswith(name) and kind not in _OF_TEXT), None)
    if of_type is None:
        return re.sub(r"^\w+ should", "must", problem["msg"]).replace(" after validation", "")
    what, example = _TYPES[of_type]
    if of_type != "bool" and (shown := _default_in_yaml(field) or example):
        return f"use {what}, such as {shown}"
    in_quotes = of_type in ("str", "path") and isinstance(value, (int, float))
    return f"use {what}" + (f', in quotes where it is a number: "{brief.repr(value)}"' if in_quotes else "")


def _section_for(value: Any, annotation: Any, words: FileWords) -> str:
    """A section as it could be written: with the value in its first setting, if it fits there, and what it needs."""
    kinds, sections = _kinds(annotation), sections_in(annotation)
    section = kinds.get(value, sections[0]) if isinstance(value, str) else sections[0]
    fields = {field.alias or name: field for name, field in settings_of(section).items()}
    shown = {name: "…" for name, field in fields.items() if field.is_required()}
    first, field = min(fields.items(), key=lambda each: isinstance(value, bool) and each[1].annotation is not bool)
    if len(sections) > 1 and kinds:
        shown["kind"] = value if isinstance(value, str) and value in kinds else next(iter(kinds))
    elif value != "" and _FITS.get(type(value), set()) & {field.annotation, *get_args(field.annotation)}:
        shown = {first: words.written(value)} | {name: what for name, what in shown.items() if name != first}
    shown = shown or {first: _default_in_yaml(field) or "…"}
    return f"{{{', '.join(f'{words.written(name)}: {what}' for name, what in shown.items())}}}"


def _default_in_yaml(field: FieldInfo | None) -> str:
    """The default of a setting, if it says something; otherwise empty."""
    usual = field.default if field else None
    says_something = isinstance(usual, (str, int, float, PurePath, Enum)) and str(usual) not in ("", ".")
    return in_yaml(usual) if says_something else ""


def in_yaml(value: Any) -> str:
    """A value as a file has it, its beginning if it is long."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return repr(value).removesuffix(".0")
    return brief.repr(str(value.value if isinstance(value, Enum) else value))[1:-1]


def _suggestion(path: list[str], known: Settings) -> tuple[str, str]:
    """The setting that an unknown name may have been meant for, and what to say of it, or where it would be right."""
    *section, key = path
    names = tuple(part for part in section if not part.isdigit())
    near = nearest(key, [path[-1] for path in known if path[:-1] == names], least_likeness=0.7)
    if near is not None:
        return ".".join([*section, near]), f"; did you mean {near}?"
    elsewhere = sorted(".".join(path) for path in known if path[-1] == key)
    return "", f"; it stands in {elsewhere[0]}" if elsewhere else ""


def settings_of(section: type[BaseModel]) -> dict[str, FieldInfo]:
    """The fields of a section that a file may set."""
    return {name: field for name, field in section.model_fields.items() if CONSTANT not in field.metadata}


def _all_settings(model: type[BaseModel], before: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], FieldInfo]]:
    for name, field in settings_of(model).items():
        path = (*before, field.alias or name)
        yield path, field
        for section in sections_in(field.annotation):
            yield from _all_settings(section, path)


def sections_in(annotation: Any) -> list[type[BaseModel]]:
    """The sections that a setting of this type may be, or may hold in a list."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [section for argument in get_args(annotation) for section in sections_in(argument)]


def _kinds(annotation: Any) -> dict[Any, type[BaseModel]]:
    """The sections that a setting of this type may be, by their kinds."""
    with_kind = [section for section in sections_in(annotation) if "kind" in section.model_fields]
    return {kind: section for section in with_kind for kind in get_args(section.model_fields["kind"].annotation)}
