"""Problems of settings, and of whatever else people write in files, in words: what is wrong, and what to write instead.

Pydantic's own texts are for programmers, and speak of dictionaries and instances; nobody who edits a file should have
to read them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from dataclasses import field as attribute
from enum import Enum
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Final, get_args

from pydantic import BaseModel, ValidationError

from foundation.text import nearest
from policy_net.strict_yaml import brief

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo
    from pydantic_core import ErrorDetails

HOST_AND_PORT: Final = r"^\S+:\d{1,5}$"
"""The pattern of a setting that names where something listens."""
CLUSTER_NAME: Final = r"^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$"
"""The pattern of a cluster's name."""
WRITE_HOST_AND_PORT: Final = "write HOST:PORT, such as 127.0.0.1:7070"
_IN_WORDS = {
    HOST_AND_PORT: WRITE_HOST_AND_PORT,
    CLUSTER_NAME: "use lower case letters, digits, - and . between them, 63 at most",
}
"""What to do about a value that does not match a pattern, which few people read."""
CONSTANT: Final = "constant"
"""Marks fields that no file sets; see `policy_net.settings.Constant`."""
_KINDS_OF_VALUE = frozenset({"int", "float", "bool", "str"})
_OF_NAME = "[key]"
"""Where the problem is the name itself, where any name may stand."""
_PROBLEMS_SAID = 3
"""In one line."""
_SECTION_WANTED = frozenset({"model_type", "model_attributes_type", "dataclass_type", "dict_type", "mapping_type"})
_LIST_WANTED = frozenset({"tuple_type", "list_type", "set_type", "frozen_set_type", "iterable_type"})
_BOUNDS = {
    "greater_than": ("above", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("below", "lt"),
    "less_than_equal": ("at most", "le"),
}
"""Pydantic's name of a problem, the bound in words, and where it stands in the problem."""
_SCALARS = (str, int, float)
_IN_BRIEF: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    Path: "a path",
}
"""What to give where nothing stands."""


@dataclass(frozen=True)
class FileWords:
    """How a kind of file is spoken of.

    Attributes:
        noun: what it calls that which has a name and a value.
        json: whether it is JSON, where names and text stand in quotes, rather than YAML.
        patterns: what to do about a value that does not match a pattern, beside those that settings share.
    """

    noun: str = "setting"
    json: bool = False
    patterns: Mapping[str, str] = attribute(default_factory=dict)

    def name(self, name: str) -> str:
        """A name as it is written."""
        return json.dumps(name) if self.json else name

    def value(self, value: Any) -> str:
        """A value as it is written, its beginning if it is long."""
        shown = in_yaml(value)
        return json.dumps(shown, ensure_ascii=False) if self.json and isinstance(value, str) else shown

    @property
    def section(self) -> str:
        """What holds names and values."""
        return "an object" if self.json else "a section"


SETTINGS = FileWords()


def first_problems(error: ValidationError, model: type[BaseModel], words: FileWords = SETTINGS) -> str:
    """The first problems in words, and how many more there are.

    A misspelt key is also a missing one, and of a value that may be of several kinds each says why it is none: one
    problem each. Keys that were written come first, as they say what to do.

    Args:
        model: what the file should have been.
        words: how the file is spoken of.
    """
    problems = sorted(error.errors(), key=lambda problem: problem["type"] != "extra_forbidden")
    said: dict[str, str] = {}
    meant: set[str] = set()
    for problem in problems:
        # The last part of an unknown setting's place is what was written, whatever it looks like.
        last = len(problem["loc"]) - 1 if problem["type"] == "extra_forbidden" else None
        parts = [part for place, part in enumerate(problem["loc"]) if place == last or not _is_kind_of_value(part)]
        if problem["loc"][-1:] == (_OF_NAME,):
            parts.pop()
        location = _settings_path(tuple(parts), model)
        where = ".".join(brief.repr(part)[1:-1] if isinstance(part, str) else str(part) for part in location)
        wrong = any(other.startswith(f"{where}.") for other in said)  # its entries, which are said and not counted
        if (problem["type"] == "missing" and where in meant) or (problem["type"] == "too_short" and wrong):
            continue
        if any(where == other or where.startswith(f"{other}.") for other in said):
            continue
        if problem["type"] == "extra_forbidden":
            near, advice = _suggestion(location, model)
            meant |= {near} if near else set()
            said[where] = f"unknown {words.noun} {where}{advice}"
        else:
            said[where] = _in_words(problem, where, location, model, words)
    left = len(said) - _PROBLEMS_SAID
    first, *others = list(said.values())[:_PROBLEMS_SAID]
    for other in others:
        first += f" Also {other}" if first.endswith("?") else f"; also {other}"
    return first + (f" (and {left} more)" if left > 0 else "")


def _is_kind_of_value(part: int | str) -> bool:
    """Whether a part of a problem's place is one of several types that a value may be of, in pydantic's words."""
    return isinstance(part, str) and (part in _KINDS_OF_VALUE or "[" in part or part.startswith("constrained-"))


def _in_words(
    problem: ErrorDetails, where: str, location: tuple[int | str, ...], model: type[BaseModel], words: FileWords
) -> str:
    """One problem of a setting that is known."""
    kind, said = problem["type"], problem["msg"].removeprefix("Value error, ")
    found = _field_at(location, model)
    if kind == "missing":
        return f"{words.noun} {where} is missing{_to_give(found, location, words)}"
    if kind == "value_error":
        return f"{words.noun} {where}: {said}" if where else said
    if not where:
        return _of_the_whole(problem, said, model, words)
    if kind.startswith("union_tag_"):
        return f"{words.noun} {where}.{_of_which_kind(problem, found)}"
    wanted = _wanted(problem, location, found, words)
    if problem["loc"][-1] == _OF_NAME:
        return f"a name in {where}, {_shown(problem['input'])}: {wanted}"
    return f"{words.noun} {where} = {_shown(problem['input'])}: {wanted}"


def _of_which_kind(problem: ErrorDetails, field: FieldInfo | None) -> str:
    """What is wrong with the name of a section's kind, or that there is none."""
    details = problem["ctx"]
    key = str(details["discriminator"]).strip("'")
    if problem["type"] == "union_tag_invalid":
        return f"{key} = {brief.repr(details['tag'])}: use one of {details['expected_tags']}"
    kinds = [repr(name) for section in _sections_of(field) for name in _kinds(section)]
    return f"{key} is missing: use one of {', '.join(kinds)}"


def _to_give(field: FieldInfo | None, location: tuple[int | str, ...], words: FileWords) -> str:
    """What to write where nothing stands; empty where its name says all."""
    name = words.name(str(location[-1]))
    if (sections := _sections_of(field)) and field is not None:
        section = _section_for(None, sections, words)
        return f"; write {name}: {f'[{section}]' if _of_list(field.annotation) else section}"
    wanted = None if field is None else _IN_BRIEF.get(field.annotation or object)
    return f"; give {wanted}" if wanted else ""


def _of_list(annotation: Any) -> bool:
    return getattr(annotation, "__origin__", None) in (tuple, list)


def _of_the_whole(problem: ErrorDetails, said: str, model: type[BaseModel], words: FileWords) -> str:
    """A problem of all that there is, rather than of one part of it."""
    if problem["type"] == "json_invalid":
        return f"no JSON ({problem['ctx']['error']})"
    if problem["type"] in _SECTION_WANTED:
        return f"{_shown(problem['input'])} is not {words.section}; write {_section_for(None, [model], words)}"
    return said


def _shown(value: Any) -> str:
    """What was written, as YAML has it."""
    return in_yaml(value) if isinstance(value, bool) else "nothing" if value is None else brief.repr(value)


def _wanted(problem: ErrorDetails, location: tuple[int | str, ...], field: FieldInfo | None, words: FileWords) -> str:
    """What to write in place of a value of another type, or beyond what it may be."""
    kind, value = problem["type"], problem["input"]
    name = f"{words.name(location[-1])}: " if isinstance(location[-1], str) else ""
    if kind in _SECTION_WANTED:
        sections = _sections_of(field)
        usual = f"{{{words.name('NAME')}: {words.value('VALUE')}}}"
        return f"is {words.section}; write {name}{_section_for(value, sections, words) if sections else usual}"
    if kind in _LIST_WANTED:
        return f"is a list; write {name}{_list_for(value, _sections_of(field), words)}"
    if kind in ("string_type", "string_pattern_mismatch"):
        pattern = _pattern(problem, field)
        if advice := words.patterns.get(pattern) or _IN_WORDS.get(pattern):
            return advice
    if kind in ("string_type", "path_type"):
        return _text_for(value, field, "text" if kind == "string_type" else "the path of a file or folder")
    return _number_for(kind, field) or _within(problem) or problem["msg"].replace("Input should", "it should")


def _number_for(kind: str, field: FieldInfo | None) -> str:
    """What to do where a number or a truth is wanted; empty where neither is."""
    if kind.startswith("int_"):
        return f"use a whole number, such as {_default_in_yaml(field, int) or 10}"
    if kind.startswith("float_"):
        return f"use a number, such as {_default_in_yaml(field, int, float) or 0.5}"
    return "use true or false" if kind.startswith("bool_") else ""


def _within(problem: ErrorDetails) -> str:
    """What a value of the right type may be; empty where the problem is another one."""
    kind, details = problem["type"], problem.get("ctx", {})
    if kind in _BOUNDS:
        word, bound = _BOUNDS[kind]
        return f"must be {word} {in_yaml(details[bound])}"
    if kind in ("literal_error", "enum"):
        return f"use {details['expected']}"
    if kind == "finite_number":
        return "use a finite number"
    if kind in ("too_short", "string_too_short"):
        return f"needs {_counted(details['min_length'], kind)} or more"
    return f"may have {_counted(details['max_length'], kind)} at most" if kind.endswith("too_long") else ""


def _counted(number: int, kind: str) -> str:
    noun = "letter" if kind.startswith("string") else "entry"
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun.replace('entry', 'entrie')}s"


def _pattern(problem: ErrorDetails, field: FieldInfo | None) -> str:
    """The pattern that a text should have; empty for none."""
    if "pattern" in problem.get("ctx", {}):
        return str(problem["ctx"]["pattern"])
    metadata = [] if field is None else [*field.metadata, *_metadata(field.annotation)]
    found = [str(part.pattern) for part in metadata if getattr(part, "pattern", None)]
    return found[0] if found else ""


def _metadata(annotation: Any) -> list[Any]:
    """What `Annotated` says of a type's parts: of the items of a list, or of what may also be nothing."""
    own = [
        entry for part in getattr(annotation, "__metadata__", ()) for entry in (part, *getattr(part, "metadata", ()))
    ]
    return own + [entry for argument in get_args(annotation) for entry in _metadata(argument)]


def _text_for(value: Any, field: FieldInfo | None, wanted: str) -> str:
    usual = _default_in_yaml(field, str, PurePath)
    if usual:
        return f"use {wanted}, such as {usual}"
    if isinstance(value, (int, float)):
        return f'use {wanted}, in quotes where it is a number: "{brief.repr(value)}"'
    return f"use {wanted}"


def _list_for(value: Any, sections: list[type[BaseModel]], words: FileWords) -> str:
    if sections:
        return f"[{_section_for(value, sections, words)}]"
    return f"[{words.value(value)}]" if isinstance(value, _SCALARS) and value != "" else "[…]"


def _section_for(value: Any, sections: list[type[BaseModel]], words: FileWords) -> str:
    """A section as it could be written: with the value in it, if it is one of its main setting, and what it needs."""
    kinds = {kind: section for section in sections for kind in _kinds(section)}
    section = kinds.get(value, sections[0]) if isinstance(value, str) else sections[0]
    example: dict[str, str] = {}
    if len(sections) > 1 and kinds:
        example["kind"] = value if value in list(kinds) else next(iter(kinds))
    elif (main := _taking(section, value)) is not None:
        example[main] = words.value(value)
    for name, field in settings_of(section).items():
        if field.is_required():
            example.setdefault(field.alias or name, "…")
    for name, field in settings_of(section).items():
        usual = _default_in_yaml(field, *_SCALARS, PurePath, Enum)
        if not example and usual:
            example[field.alias or name] = usual
    if not example:
        example[next(iter(settings_of(section)))] = "…"
    return f"{{{', '.join(f'{words.name(name)}: {shown}' for name, shown in example.items())}}}"


def _taking(section: type[BaseModel], value: Any) -> str | None:
    """The setting of a section that somebody meant who wrote its value alone: the first, or one of few words."""
    if not isinstance(value, _SCALARS) or value == "":
        return None
    for place, (name, field) in enumerate(settings_of(section).items()):
        if place and not _of_few_words(field.annotation):
            continue
        try:
            section.model_validate({field.alias or name: value})
        except ValidationError as error:
            if any(problem["loc"][:1] in ((), (field.alias or name,)) for problem in error.errors()):
                continue
        return field.alias or name
    return None


def _of_few_words(annotation: Any) -> bool:
    if isinstance(annotation, type):
        return annotation is bool or issubclass(annotation, Enum)
    parts = get_args(annotation)
    return bool(parts) and all(isinstance(part, str) for part in parts)


def _default_in_yaml(field: FieldInfo | None, *types: type) -> str:
    """What a setting is unless set, if it is of one of these types, and no truth; otherwise empty."""
    usual = None if field is None else field.default
    return in_yaml(usual) if isinstance(usual, types) and usual != "" and str(usual) != "." else ""


def in_yaml(value: Any) -> str:
    """A value as a file has it, its beginning if it is long."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, float):
        return repr(value).removesuffix(".0")
    return brief.repr(str(value))[1:-1]


def _sections_of(field: FieldInfo | None) -> list[type[BaseModel]]:
    return [] if field is None else sections_in(field.annotation)


def _field_at(location: tuple[int | str, ...], model: type[BaseModel]) -> FieldInfo | None:
    """The setting at a path of the file; of a list's item, the list."""
    sections, found = [model], None
    for part in location:
        if isinstance(part, str):
            fields = [_fields(section)[part] for section in sections if part in _fields(section)]
            found = fields[0] if fields else None
            sections = [inner for field in fields for inner in sections_in(field.annotation)]
    return found


def _fields(section: type[BaseModel]) -> dict[str, FieldInfo]:
    return {field.alias or name: field for name, field in section.model_fields.items()}


def _settings_path(location: tuple[int | str, ...], model: type[BaseModel]) -> tuple[int | str, ...]:
    """Where a problem is, in words of the file: which of several kinds a section is, pydantic names in between."""
    sections, path = [model], []
    for part in location:
        fields = [_fields(section)[str(part)] for section in sections if part in _fields(section)]
        of_kind = [section for section in sections if part in _kinds(section)]
        if not fields and of_kind:
            sections = of_kind
            continue
        path.append(part)
        if isinstance(part, str):
            sections = [inner for field in fields for inner in sections_in(field.annotation)]
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


def settings_of(section: type[BaseModel]) -> dict[str, FieldInfo]:
    """The fields of a section that a file may set."""
    return {name: field for name, field in section.model_fields.items() if CONSTANT not in field.metadata}


def _paths(model: type[BaseModel], before: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for name, field in settings_of(model).items():
        path = (*before, field.alias or name)
        yield path
        for section in sections_in(field.annotation):
            yield from _paths(section, path)


def sections_in(annotation: Any) -> list[type[BaseModel]]:
    """The sections that a setting of this type may be, or may hold in a list."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [section for argument in get_args(annotation) for section in sections_in(argument)]
