"""Problems of settings, and of whatever else people write in files, in words: what is wrong, and what to write instead.

Pydantic finds them; its own texts are for programmers, and speak of dictionaries and instances.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path, PurePath
from types import MappingProxyType
from typing import Any, Final, NamedTuple, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from foundation.text import nearest
from policy_net.strict_yaml import brief

HOST_AND_PORT: Final = r"^\S+:\d{1,5}$"
"""The pattern of a setting that names where something listens."""
CLUSTER_NAME: Final = r"^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$"
"""The pattern of a cluster's name."""
WRITE_HOST_AND_PORT: Final = "write HOST:PORT, such as 127.0.0.1:7070"
_CLUSTER_NAME_IN_WORDS = "use lower case letters, digits, - and . between them, 63 at most"
CONSTANT: Final = "constant"
"""Marks fields that no file sets; see `policy_net.settings.Constant`."""

_ADVICE = {
    "greater_than": "must be above {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be below {lt}",
    "less_than_equal": "must be at most {le}",
    "literal_error": "use {expected}",
    "enum": "use {expected}",
    "finite_number": "use a finite number",
    "too_short": "needs {min_length:,} or more entries",
    "string_too_short": "needs {min_length:,} or more letters",
    "too_long": "may have {max_length:,} entries at most",
    "string_too_long": "may have {max_length:,} letters at most",
}
"""What to do, by pydantic's name of a problem, with its figures."""
_TYPES: dict[str, tuple[type, str, tuple[type, ...], str]] = {
    "int": (int, "a whole number", (int,), "10"),
    "float": (float, "a number", (int, float), "0.5"),
    "bool": (bool, "true or false", (), ""),
    "string": (str, "text", (str, PurePath), ""),
    "path": (Path, "the path of a file or folder", (str, PurePath), ""),
}
"""By the first word of a problem's name: the wanted type, in words, the types of a fitting default, and an example."""
_TYPE_IN_PLACE = re.compile(r"int|float|bool|str|constrained-.*|.*\[.*")
"""Part of a problem's place, where a value may be of several types."""
_OF_NAME = "[key]"
"""The same of a problem with a name, where any name may stand."""
_MOST_PROBLEMS = 3
_SCALARS = (str, int, float)
Settings = dict[tuple[str, ...], FieldInfo]


class FileWords(NamedTuple):
    """How a kind of file is spoken of.

    Attributes:
        noun: for that which has a name and a value.
        json: whether it is JSON, where names and text stand in quotes, rather than YAML.
        patterns: what to write where a pattern is not matched, besides those of all settings.
    """

    noun: str = "setting"
    json: bool = False
    patterns: Mapping[str, str] = MappingProxyType({})

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
        if any(where == other or where.startswith(f"{other}.") for other in messages):
            continue
        if kind == "missing" and where in meant:
            continue
        if kind == "too_short" and any(other.startswith(f"{where}.") for other in messages):
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
        kinds = [kind for section in _sections_of(known.get(names)) for kind in _kinds(section)]
        if part not in kinds or (*names, part) in known:
            path.append(part)
    return path


def _in_words(
    problem: ErrorDetails, where: str, field: FieldInfo | None, model: type[BaseModel], words: FileWords
) -> str:
    kind, value, details = problem["type"], problem["input"], problem.get("ctx", {})
    subject, last, sections = f"{words.noun} {where}", where.rpartition(".")[2], _sections_of(field)
    name = "" if last.isdigit() else f"{words.written(last)}: "
    a_section, is_section = "an object" if words.json else "a section", kind.startswith(("model_", "dict_"))
    shown = in_yaml(value) if isinstance(value, bool) else "nothing" if value is None else brief.repr(value)
    if kind == "value_error" or not where:
        message = f"no JSON ({details['error']})" if kind == "json_invalid" else problem["msg"]
        if is_section:
            message = f"{shown} is not {a_section}; write {_section_for(None, [model], words)}"
        return (f"{subject}: " if where else "") + message.removeprefix("Value error, ")
    if kind.startswith("union_tag_"):
        tags = ", ".join(repr(tag) for section in sections for tag in _kinds(section))
        found = f"= {brief.repr(details['tag'])}" if "tag" in details else "is missing"
        return f"{subject}.kind {found}: use one of {tags}"
    example = _section_for(value if kind != "missing" else None, sections, words) if sections else ""
    if kind == "missing":
        annotation = None if field is None else field.annotation
        to_write = f"; write {name}{f'[{example}]' if get_origin(annotation) is tuple else example}" if example else ""
        to_give = [f"; give {what}" for expected, what, *_ in _TYPES.values() if expected is annotation]
        return f"{subject} is missing{to_write or ''.join(to_give)}"
    if is_section:
        usual = f"{{{words.written('NAME')}: {words.written('VALUE')}}}"
        advice = f"is {a_section}; write {name}{example or usual}"
    elif kind in ("tuple_type", "list_type"):
        entry = words.written(value) if isinstance(value, _SCALARS) and value != "" else "…"
        advice = f"is a list; write {name}[{example or entry}]"
    else:
        advice = _advice(problem, field, words)
    return (
        f"a name in {where}, {shown}: {advice}" if problem["loc"][-1] == _OF_NAME else f"{subject} = {shown}: {advice}"
    )


def _advice(problem: ErrorDetails, field: FieldInfo | None, words: FileWords) -> str:
    kind, value, details = problem["type"], problem["input"], problem.get("ctx", {})
    if kind in ("string_type", "string_pattern_mismatch"):
        patterns = {HOST_AND_PORT: WRITE_HOST_AND_PORT, CLUSTER_NAME: _CLUSTER_NAME_IN_WORDS, **words.patterns}
        for pattern, advice in patterns.items():
            # Of a value that is no text only the field says which pattern it has, in what it shows of its type's parts.
            if pattern == details["pattern"] if "pattern" in details else repr(pattern) in repr(field):
                return advice
    if kind in _ADVICE:
        return _ADVICE[kind].format_map(
            {key: in_yaml(each) if isinstance(each, float) else each for key, each in details.items()}
        )
    first = kind.partition("_")[0]
    if first not in _TYPES or kind == "string_pattern_mismatch":
        return problem["msg"].replace("Input should", "it should")
    expected, what, defaults, example = _TYPES[first]
    if example := _default_in_yaml(field, *defaults) or example:
        return f"use {what}, such as {example}"
    quoted = expected is not bool and isinstance(value, (int, float))
    return f'use {what}, in quotes where it is a number: "{brief.repr(value)}"' if quoted else f"use {what}"


def _section_for(value: Any, sections: list[type[BaseModel]], words: FileWords) -> str:
    """A section as it could be written: with the value in it, if it is one of its main setting, and what it needs."""
    kinds = {kind: section for section in sections for kind in _kinds(section)}
    section = kinds.get(value, sections[0]) if isinstance(value, str) else sections[0]
    fields = {field.alias or name: field for name, field in settings_of(section).items()}
    if len(sections) > 1 and kinds:
        given = {"kind": value if value in list(kinds) else next(iter(kinds))}
    else:
        given = {name: words.written(value) for name in _taking(section, value)}
    needed = {name: given.get(name, "…") for name, field in fields.items() if name in given or field.is_required()}
    defaults = {name: _default_in_yaml(field, *_SCALARS, PurePath, Enum) for name, field in fields.items()}
    usual = [(name, shown) for name, shown in defaults.items() if shown] or [(next(iter(fields)), "…")]
    return f"{{{', '.join(f'{words.written(name)}: {shown}' for name, shown in needed.items() or usual[:1])}}}"


def _taking(section: type[BaseModel], value: Any) -> list[str]:
    """The setting of a section that somebody meant who wrote its value alone: the first, or one of few words."""
    for place, (name, field) in enumerate(settings_of(section).items()):
        expected, parts = field.annotation, get_args(field.annotation)
        of_few_words = (
            issubclass(expected, (bool, Enum))
            if isinstance(expected, type)
            else isinstance(next(iter(parts), None), str)
        )
        if not isinstance(value, _SCALARS) or value == "" or (place and not of_few_words):
            continue
        key = field.alias or name
        try:
            section.model_validate({key: value})
        except ValidationError as error:
            if any(problem["loc"][:1] in ((), (key,)) for problem in error.errors()):
                continue
        return [key]
    return []


def _default_in_yaml(field: FieldInfo | None, *types: type) -> str:
    """The default of a setting, if it is of one of these types and says something; otherwise empty."""
    usual = None if field is None else field.default
    return in_yaml(usual) if isinstance(usual, types) and str(usual) not in ("", ".") else ""


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


def _sections_of(field: FieldInfo | None) -> list[type[BaseModel]]:
    return [] if field is None else sections_in(field.annotation)


def _kinds(section: type[BaseModel]) -> tuple[Any, ...]:
    field = section.model_fields.get("kind")
    return () if field is None else get_args(field.annotation)
