"""Sections of a coordinator's state as JSON, for its journal."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError

from elastic_runtime.coordinator.errors import JournalDamaged
from elastic_runtime.coordinator.rules.state import State

_SECTIONS: dict[str, TypeAdapter[Any]] = {
    name: TypeAdapter(section) for name, section in get_type_hints(State).items() if name != "return"
}


def encode(record: Mapping[str, Any]) -> bytes:
    """A record's sections."""
    parts = (json.dumps(name).encode() + b":" + _SECTIONS[name].dump_json(value) for name, value in record.items())
    return b"{" + b",".join(parts) + b"}"


def decode(body: bytes) -> dict[str, Any]:
    """What `encode` wrote.

    Raises:
        JournalDamaged: it is of another version.
    """
    try:
        parts = json.loads(body)
        return {name: _SECTIONS[name].validate_python(value) for name, value in parts.items()}
    except (ValueError, ValidationError, KeyError, AttributeError) as error:
        raise JournalDamaged(f"a record that this version cannot read ({type(error).__name__})") from error


def restore(records: list[bytes]) -> State | None:
    """The state after all records, each of which replaces the sections that it has; None if there are none.

    Raises:
        JournalDamaged: see `decode`.
    """
    if not records:
        return None
    state = State()
    for body in records:
        for name, value in decode(body).items():
            setattr(state, name, value)
    return state


def whole(state: State) -> dict[str, Any]:
    """A record of all sections."""
    return {field.name: getattr(state, field.name) for field in fields(State)}
