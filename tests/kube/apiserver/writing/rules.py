"""Rules of a schema, `x-kubernetes-validations`, held against an object.

A rule that reads `oldSelf` is asked only where there was something before. Items of lists with keys are compared with
those of the same keys; those of other lists with nothing.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Any

from apiserver.writing.expressions import CelError, Node, parsed
from apiserver.writing.schema import cause

Json = dict[str, Any]
_NONE = object()
_OLD = re.compile(r"\boldSelf\b")
_STARTS = {"FieldValueForbidden": "Forbidden", "FieldValueRequired": "Required value"}


def broken_rules(schema: Json, value: Any, before: Any = None) -> list[Json]:
    """Causes of a Status, for every rule that does not hold.

    Args:
        before: what was there; None where the object is new.
    """
    return list(_broken(schema, value, _NONE if before is None else before, ""))


def has_rules(schema: Any) -> bool:
    """Whether a schema has rules, anywhere in it."""
    if isinstance(schema, list):
        return any(map(has_rules, schema))
    return isinstance(schema, dict) and (
        bool(schema.get("x-kubernetes-validations")) or any(map(has_rules, schema.values()))
    )


def _broken(schema: Json, value: Any, before: Any, where: str) -> Iterator[Json]:
    if value is None:
        return
    for rule in schema.get("x-kubernetes-validations") or ():
        if before is _NONE and _OLD.search(rule["rule"]):
            continue
        scope = {"self": value, **({} if before is _NONE else {"oldSelf": before})}
        yield from _held(rule, scope, value, where)
    if isinstance(value, dict):
        known, more = schema.get("properties") or {}, schema.get("additionalProperties")
        for name, each in value.items():
            inner = known.get(name, more)
            was = before.get(name, _NONE) if isinstance(before, dict) else _NONE
            if isinstance(inner, dict):
                yield from _broken(inner, each, was, f"{where}.{name}".lstrip("."))
    elif isinstance(value, list):
        keys = schema.get("x-kubernetes-list-map-keys") or ()
        for number, each in enumerate(value):
            was = _NONE
            if keys and isinstance(before, list):
                was = next((old for old in before if all(old.get(key) == each.get(key) for key in keys)), _NONE)
            yield from _broken(schema.get("items") or {}, each, was, f"{where}[{number}]")


def _held(rule: Json, scope: Json, value: Any, where: str) -> Iterator[Json]:
    kind = _kind(value)
    try:
        if _parsed(rule["rule"])(scope) is True:
            return
        text = rule.get("message") or f"failed rule: {rule['rule']}"
        if "messageExpression" in rule:
            text = str(_parsed(rule["messageExpression"])(scope))
    except CelError as error:
        text = f"{error} evaluating rule: {rule.get('message') or rule['rule']}"
    reason = rule.get("reason", "FieldValueInvalid")
    start = _STARTS.get(reason) or f'Invalid value: "{kind}"'
    yield cause(reason, f"{start}: {text}", f"{where}{rule.get('fieldPath', '')}".lstrip("."))


@functools.lru_cache(maxsize=1024)
def _parsed(text: str) -> Node:
    return parsed(text)


def _kind(value: Any) -> str:
    kinds = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer", float: "number"}
    return kinds.get(type(value), "object")
