"""Bodies in the API's own binary form, which some commands of kubectl send: of the few types for which they do.

A body is four bytes of a mark, then the type's name and the object as messages of protobuf. Tables say which number is
which field; what is not in them is dropped.

Source: the generated.proto files of the Kubernetes API.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from apiserver.store import Refused

Json = dict[str, Any]
_MARK = b"k8s\x00"
_Field = tuple[str, Any]
"""Name, and how to read it: "text", "texts", "map", "quantities" (a map of them) or the table of a message."""
_METADATA: dict[int, _Field] = {
    1: ("name", "text"),
    2: ("generateName", "text"),
    3: ("namespace", "text"),
    11: ("labels", "map"),
    12: ("annotations", "map"),
}
_ATTRIBUTES: dict[int, _Field] = {
    number: (name, "text")
    for number, name in enumerate(("namespace", "verb", "group", "version", "resource", "subresource", "name"), 1)
}
_TYPES: dict[str, dict[int, _Field]] = {
    "Namespace": {1: ("metadata", _METADATA)},
    "ResourceQuota": {1: ("metadata", _METADATA), 2: ("spec", {1: ("hard", "quantities")})},
    "ConfigMap": {1: ("metadata", _METADATA), 2: ("data", "map")},
    "ServiceAccount": {1: ("metadata", _METADATA)},
    "SelfSubjectAccessReview": {
        1: ("metadata", _METADATA),
        2: (
            "spec",
            {
                1: ("resourceAttributes", _ATTRIBUTES),
                2: ("nonResourceAttributes", {1: ("path", "text"), 2: ("verb", "text")}),
            },
        ),
    },
    "SelfSubjectReview": {1: ("metadata", _METADATA)},
    "DeleteOptions": {4: ("propagationPolicy", "text")},
}


def decoded(body: bytes) -> Json:
    """An object from its binary form.

    Raises:
        Refused: 400, it is none; 415, it is of a type that is not read here.
    """
    if not body.startswith(_MARK):
        raise Refused(400, "BadRequest", "provided data does not appear to be a protobuf message")
    try:
        whole = dict(_fields(body[len(_MARK) :]))
        kind_of = dict(_fields(whole[1]))
        api_version, kind = kind_of[1].decode(), kind_of[2].decode()
        if kind not in _TYPES:
            line = f"the body of the request was in an unknown format: {kind} is read as JSON only"
            raise Refused(415, "UnsupportedMediaType", line)
        return {"apiVersion": api_version, "kind": kind, **_message(whole.get(2, b""), _TYPES[kind])}
    except (KeyError, IndexError, ValueError, AttributeError, TypeError) as error:
        raise Refused(400, "BadRequest", f"the body cannot be decoded: {error}") from error


def _message(data: bytes, table: dict[int, _Field]) -> Json:
    found: Json = {}
    for number, value in _fields(data):
        name, kind = table.get(number, ("", ""))
        if not name or value in (b"", 0):
            continue
        if kind == "text":
            found[name] = value.decode()
        elif kind in ("map", "quantities"):
            pair = dict(_fields(value))
            text = dict(_fields(pair.get(2, b""))).get(1, b"") if kind == "quantities" else pair.get(2, b"")
            found.setdefault(name, {})[pair[1].decode()] = text.decode()
        else:
            found[name] = _message(value, kind)
    return found


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Numbers and values of a message: bytes, or a number."""
    at = 0
    while at < len(data):
        key, at = _number(data, at)
        if key & 7 == 0:
            value: Any
            value, at = _number(data, at)
        elif key & 7 == 2:
            size, at = _number(data, at)
            if at + size > len(data):
                raise ValueError("it ends too early")
            value, at = data[at : at + size], at + size
        else:
            size = {1: 8, 5: 4}[key & 7]
            value, at = data[at : at + size], at + size
        yield key >> 3, value


def _number(data: bytes, at: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        byte = data[at]
        at += 1
        result |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return result, at
