"""Bad values for a field of any message, from nothing but its descriptor: a new field is attacked by itself."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

MEGABYTE = 1 << 20
STRINGS = {
    "empty": "",
    "parent-path": "../../etc/passwd",
    "absolute-path": "/etc/passwd",
    "nul": "north\x00",
    "newline": "north\nsouth",
    "terminal": "\x1b[2J\x1b[31mnorth\x07",
    "markup": "<script>alert(1)</script>",
    "rich-markup": "[red]north[/red]",
    "sql": "north'; DROP TABLE clusters; --",
    "format": "%s%n{0}{cluster}",
    "upper": "NORTH",
    "unicode": "nörth\u202e\ufeff",
    "long": "n" * 5_000,
    "larger-than-a-message": "n" * (MEGABYTE + 4096),
}
NUMBERS = {"zero": 0, "largest-signed": 2**63 - 1, "beyond-signed": 2**63, "largest": 2**64 - 1}
SMALL_NUMBERS = {"zero": 0, "largest": 2**32 - 1}
FLOATS = {
    "nan": math.nan,
    "infinite": math.inf,
    "minus-infinite": -math.inf,
    "negative": -1.0,
    "largest": 1.7e308,
    "denormal": 5e-324,
}
BYTES = {
    "empty": b"",
    "one": b"\x00",
    "odd-length": b"\x00" * 7,
    "text": b"-----BEGIN CERTIFICATE-----",
    "all-ones": b"\xff" * 512,
    "half-precision": b"\x00\x3c" * 43,
    "double-precision": b"\x00\x00\x00\x00\x00\x00\xf0\x3f" * 43,
    "larger-than-a-message": b"\x00" * (2 * MEGABYTE),
}
MANY = 5_000


class Attack(NamedTuple):
    """One field with one bad value.

    Attributes:
        field: where, as `status.decisions`, or `types[0].kind` in a list.
        kind: which bad value, by its name in the tables above.
    """

    field: str
    kind: str
    message: Message

    @property
    def label(self) -> str:
        return f"{self.field}={self.kind}"


def attacks(good: Message) -> Iterator[Attack]:
    """Every field of a good message, each with every bad value of its kind, one at a time."""
    yield from _attacks(good, good, ())


def _attacks(good: Message, part: Message, path: tuple[str, ...]) -> Iterator[Attack]:
    for field in part.DESCRIPTOR.fields:
        where = ".".join((*path, field.name))
        for kind, value in _values(field):
            changed = type(good)()
            changed.CopyFrom(good)
            _set(_descend(changed, path), field, value)
            yield Attack(where, kind, changed)
        if field.message_type is None or _is_map(field) or len(path) >= 3:
            continue
        if not field.is_repeated:
            yield from _attacks(good, getattr(part, field.name), (*path, field.name))
        elif getattr(part, field.name):
            yield from _attacks(good, getattr(part, field.name)[0], (*path, f"{field.name}[0]"))


def _descend(message: Message, path: tuple[str, ...]) -> Message:
    for name in path:
        plain = name.removesuffix("[0]")
        message = getattr(message, plain) if plain == name else getattr(message, plain)[0]
    return message


def _values(field: FieldDescriptor) -> Iterator[tuple[str, Any]]:
    if _is_map(field):
        value = field.message_type.fields_by_name["value"]
        for kind, bad in _single(value):
            yield f"value-{kind}", {"reason": bad}
        for kind, name in STRINGS.items():
            yield f"key-{kind}", {name: _ordinary(value)}
        yield "many", {f"key-{number}": _ordinary(value) for number in range(MANY)}
    elif field.is_repeated:
        if field.message_type is None:
            for kind, bad in _single(field):
                yield f"item-{kind}", [bad]
            yield "many", [_ordinary(field)] * MANY
        else:
            yield "many-empty", [field.message_type._concrete_class()] * MANY
    elif field.message_type is None:
        yield from _single(field)


def _single(field: FieldDescriptor) -> Iterator[tuple[str, Any]]:
    if field.type == field.TYPE_STRING:
        yield from STRINGS.items()
    elif field.type == field.TYPE_BYTES:
        yield from BYTES.items()
    elif field.cpp_type in (field.CPPTYPE_UINT64, field.CPPTYPE_INT64):
        largest = 2**64 - 1 if field.cpp_type == field.CPPTYPE_UINT64 else 2**63 - 1
        yield from ((kind, value) for kind, value in NUMBERS.items() if value <= largest)
    elif field.cpp_type in (field.CPPTYPE_UINT32, field.CPPTYPE_INT32):
        largest = 2**32 - 1 if field.cpp_type == field.CPPTYPE_UINT32 else 2**31 - 1
        yield from ((kind, min(value, largest)) for kind, value in SMALL_NUMBERS.items())
    elif field.cpp_type in (field.CPPTYPE_DOUBLE, field.CPPTYPE_FLOAT):
        yield from FLOATS.items()
    elif field.cpp_type == field.CPPTYPE_ENUM:
        yield "unknown", 99
    elif field.cpp_type == field.CPPTYPE_BOOL:
        yield from (("true", True), ("false", False))


def _ordinary(field: FieldDescriptor) -> Any:
    return {field.CPPTYPE_STRING: "x", field.CPPTYPE_BOOL: True}.get(field.cpp_type, 1)


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _set(message: Message, field: FieldDescriptor, value: Any) -> None:
    if _is_map(field):
        message.ClearField(field.name)
        getattr(message, field.name).update(value)
    elif field.is_repeated:
        message.ClearField(field.name)
        getattr(message, field.name).extend(value)
    else:
        setattr(message, field.name, value)
