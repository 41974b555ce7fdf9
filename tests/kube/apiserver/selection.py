"""Label and field selectors, as the API takes them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from apiserver.store import Refused

Json = dict[str, Any]
Matches = Callable[[Json], bool]

_SET = re.compile(r"^\s*(?P<key>[^\s!=,()]+)\s+(?P<op>in|notin)\s*\((?P<values>[^()]*)\)\s*$")
_EQUAL = re.compile(r"^\s*(?P<key>[^\s!=,()]+)\s*(?P<op>==|=|!=)\s*(?P<value>[^\s!=,()]*)\s*$")
_EXISTS = re.compile(r"^\s*(?P<no>!?)\s*(?P<key>[^\s!=,()]+)\s*$")
FIELDS = {
    "pods": ("spec.nodeName", "status.phase", "spec.schedulerName"),
    "events": (
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.kind",
        "involvedObject.namespace",
        "reason",
        "type",
    ),
}


def selected(plural: str, labels: str, fields: str, more_fields: tuple[str, ...] = ()) -> Matches:
    """What an object must be like.

    Raises:
        Refused: 400, a selector makes no sense, or the resource has no such field to select by.
    """
    tests = [_label(part) for part in _split(labels)]
    tests += [_field(plural, part, more_fields) for part in _split(fields)]
    return lambda found: all(test(found) for test in tests)


def _split(text: str) -> list[str]:
    return [part for part in re.split(r",(?![^()]*\))", text) if part.strip()]


def _label(part: str) -> Matches:
    def value(found: Json, key: str) -> str | None:
        return (found["metadata"].get("labels") or {}).get(key)

    if found := _SET.match(part):
        key, values = found["key"], {each.strip() for each in found["values"].split(",")}
        wanted = found["op"] == "in"
        return lambda item: (value(item, key) in values) == wanted
    if found := _EQUAL.match(part):
        key, stated, equal = found["key"], found["value"], found["op"] != "!="
        return lambda item: (value(item, key) == stated) == equal
    if found := _EXISTS.match(part):
        key, there = found["key"], not found["no"]
        return lambda item: (value(item, key) is not None) == there
    raise Refused(400, "BadRequest", f"unable to parse requirement: {part}")


def _field(plural: str, part: str, more: tuple[str, ...]) -> Matches:
    found = _EQUAL.match(part)
    if not found:
        raise Refused(400, "BadRequest", f"invalid field selector: {part}")
    key, stated, equal = found["key"], found["value"], found["op"] != "!="
    if key not in ("metadata.name", "metadata.namespace", *FIELDS.get(plural, ()), *more):
        raise Refused(400, "BadRequest", f"field label not supported: {key}")

    def value(item: Any) -> str:
        for name in key.split("."):
            item = item.get(name) if isinstance(item, dict) else None
        return "" if item is None else str(item).lower() if isinstance(item, bool) else str(item)

    return lambda item: (value(item) == stated) == equal
