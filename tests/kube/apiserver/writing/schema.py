"""Schemas of OpenAPI v3 as CRDs have them: what they add to an object, take away from it, and find wrong in it."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from apiserver.controllers.requests import amount

Json = dict[str, Any]
_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}


def complete(schema: Json, value: Any, *, prunes: bool = True) -> None:
    """Give a value its defaults, and take away what the schema does not know; in place."""
    if isinstance(value, list):
        for each in value:
            complete(schema.get("items") or {}, each, prunes=prunes)
    if not isinstance(value, dict):
        return
    if schema.get("x-kubernetes-embedded-resource"):
        schema = {**schema, "properties": {**_EMBEDDED, **(schema.get("properties") or {})}}
    known = schema.get("properties") or {}
    more = schema.get("additionalProperties")
    keeps = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
    if prunes and not more and not keeps:
        for name in [name for name in value if name not in known]:
            del value[name]
    for name, inner in known.items():
        if name in value and value[name] is None and not inner.get("nullable"):
            del value[name]
        if name not in value and "default" in inner:
            value[name] = copy.deepcopy(inner["default"])
        if name in value:
            complete(inner, value[name], prunes=prunes)
    if isinstance(more, dict):
        for name in value:
            if name not in known:
                complete(more, value[name], prunes=prunes)


_EMBEDDED: Json = {
    "apiVersion": {"type": "string"},
    "kind": {"type": "string"},
    "metadata": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
}


def unknown_fields(schema: Json, value: Any, where: str = "") -> list[str]:
    """Paths of the fields that pruning takes away."""
    if isinstance(value, list):
        items = schema.get("items") or {}
        return [path for number, each in enumerate(value) for path in unknown_fields(items, each, f"{where}[{number}]")]
    if not isinstance(value, dict):
        return []
    known, more = schema.get("properties") or {}, schema.get("additionalProperties")
    found = []
    for name, inner in value.items():
        here = f"{where}.{name}".lstrip(".")
        if name in known:
            found += unknown_fields(known[name], inner, here)
        elif isinstance(more, dict):
            found += unknown_fields(more, inner, here)
        elif not more and not schema.get("x-kubernetes-preserve-unknown-fields"):
            found.append(here)
    return found


def wrong_fields(schema: Json, value: Any, where: str = "") -> list[Json]:
    """What is wrong with a value, as causes of a Status."""
    return list(_wrong(schema, value, where))


def cause(reason: str, message: str, field: str) -> Json:
    return {"reason": reason, "message": message, "field": field or "<nil>"}


def _wrong(schema: Json, value: Any, where: str) -> Iterator[Json]:
    if value is None and schema.get("nullable"):
        return
    if schema.get("x-kubernetes-int-or-string"):
        if not isinstance(value, int | str) or isinstance(value, bool):
            yield _of_wrong_type(value, where, "integer,string")
        return
    if schema.get("format") == "quantity":
        if not _is_quantity(value):
            text = f"Invalid value: {json.dumps(value)}: quantities must match the regular expression"
            yield cause("FieldValueInvalid", text, where)
        return
    kinds = _TYPES.get(schema.get("type", ""), (object,))
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds and object not in kinds):
        yield _of_wrong_type(value, where, schema["type"])
        return
    if "enum" in schema and value not in schema["enum"]:
        allowed = ", ".join(json.dumps(each) for each in schema["enum"])
        yield cause(
            "FieldValueNotSupported", f"Unsupported value: {json.dumps(value)}: supported values: {allowed}", where
        )
    for text in _out_of_bounds(schema, value):
        reason = "FieldValueInvalid"
        if "at most" in text:
            reason = "FieldValueTooLong" if "chars" in text else "FieldValueTooMany"
        yield cause(reason, f"Invalid value: {json.dumps(value)}: {where} in body {text}", where)
    if isinstance(value, list):
        for number, each in enumerate(value):
            yield from _wrong(schema.get("items") or {}, each, f"{where}[{number}]")
        yield from _doubled(schema, value, where)
    if isinstance(value, dict):
        yield from _wrong_inside(schema, value, where)
    for inner in schema.get("allOf") or ():
        yield from _wrong(inner, value, where)
    for name, how in (("anyOf", "at least"), ("oneOf", "only")):
        fitting = sum(not wrong_fields(each, value, where) for each in schema.get(name) or ())
        if name in schema and (fitting == 0 or (fitting > 1 and name == "oneOf")):
            text = f'Invalid value: "{_kind(value)}": must validate {how} one schema ({name})'
            yield cause("FieldValueInvalid", text, where)
    if "not" in schema and not wrong_fields(schema["not"], value, where):
        yield cause("FieldValueInvalid", f'Invalid value: "{_kind(value)}": must not validate the schema (not)', where)


def _wrong_inside(schema: Json, value: Json, where: str) -> Iterator[Json]:
    for name in schema.get("required", ()):
        if name not in value:
            yield cause("FieldValueRequired", "Required value", f"{where}.{name}".lstrip("."))
    known, more = schema.get("properties") or {}, schema.get("additionalProperties")
    for name, each in value.items():
        inner = known.get(name, more)
        if isinstance(inner, dict):
            yield from _wrong(inner, each, f"{where}.{name}".lstrip("."))


def _of_wrong_type(value: Any, where: str, wanted: str) -> Json:
    text = f'Invalid value: "{_kind(value)}": {where} in body must be of type {wanted}: "{_kind(value)}"'
    return cause("FieldValueTypeInvalid", text, where)


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    return next(name for name, kinds in _TYPES.items() if type(value) in kinds)


def _out_of_bounds(schema: Json, value: Any) -> Iterator[str]:
    if isinstance(value, int | float) and not isinstance(value, bool):
        least, most = schema.get("minimum"), schema.get("maximum")
        if least is not None and (value < least or (schema.get("exclusiveMinimum") and value == least)):
            yield f"should be greater than {'' if schema.get('exclusiveMinimum') else 'or equal to '}{least}"
        if most is not None and (value > most or (schema.get("exclusiveMaximum") and value == most)):
            yield f"should be less than {'' if schema.get('exclusiveMaximum') else 'or equal to '}{most}"
        if "multipleOf" in schema and value % schema["multipleOf"]:
            yield f"should be a multiple of {schema['multipleOf']}"
    elif isinstance(value, str):
        yield from _sizes(schema, len(value), "Length", "at least {} chars long", "at most {} chars long")
        if "pattern" in schema and not re.search(_to_the_end(schema["pattern"]), value):
            yield f"should match '{schema['pattern']}'"
        if schema.get("format") == "date-time" and not _is_time(value):
            yield f"must be of type date-time: {json.dumps(value)}"
    elif isinstance(value, list):
        yield from _sizes(schema, len(value), "Items", "have at least {} items", "have at most {} items")
    elif isinstance(value, dict):
        yield from _sizes(schema, len(value), "Properties", "have at least {} properties", "have at most {} properties")


def _sizes(schema: Json, size: int, what: str, short: str, long: str) -> Iterator[str]:
    verb = "should be " if what == "Length" else "should "
    if size < schema.get(f"min{what}", 0):
        yield verb + short.format(schema[f"min{what}"])
    if size > schema.get(f"max{what}", size):
        yield verb + long.format(schema[f"max{what}"])


def _doubled(schema: Json, value: list[Any], where: str) -> Iterator[Json]:
    """Items of a list that may be there once only."""
    keys = schema.get("x-kubernetes-list-map-keys") or ()
    if schema.get("x-kubernetes-list-type") not in ("map", "set"):
        return
    seen = []
    for number, each in enumerate(value):
        key = {name: each.get(name) for name in keys} if keys and isinstance(each, dict) else each
        if key in seen:
            yield cause("FieldValueDuplicate", f"Duplicate value: {json.dumps(key)}", f"{where}[{number}]")
        seen.append(key)


def _is_quantity(value: Any) -> bool:
    try:
        return not isinstance(value, dict | list) and amount(value) is not None
    except ValueError:
        return False


def _is_time(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def _to_the_end(pattern: str) -> str:
    """A pattern of Go's, whose `$` is the text's end, in Python, whose `$` stands before a last line break too."""
    return re.sub(r"(?<!\\)\$$", r"\\Z", pattern)
