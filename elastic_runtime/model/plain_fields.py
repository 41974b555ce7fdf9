"""Checks of fields of plain data from files and messages; an error names the field."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from elastic_runtime.errors import BadInput


def require_finite(what: str, value: object, least: float = -math.inf, below: float = math.inf) -> float:
    """`value` as a float in [least, below).

    Raises:
        BadInput: it is no number, not finite, or outside.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise BadInput(f"{what} is {value!r}; give a finite number")
    if not least <= value < below:
        bounds = f"at least {least:g}" + ("" if below == math.inf else f" and below {below:g}")
        raise BadInput(f"{what} is {value!r}; it must be {bounds}")
    return float(value)


def require_whole(what: str, value: object, least: int) -> int:
    """`value` as a whole number of at least `least`.

    Raises:
        BadInput: it is none, or less.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise BadInput(f"{what} is {value!r}; give a whole number of at least {least}")
    return value


def require_object(what: str, value: object, names: set[str]) -> dict[str, Any]:
    """`value` as a JSON object that has exactly these fields.

    Raises:
        BadInput: it is no object, lacks a field, or has one that is not known.
    """
    if not isinstance(value, Mapping):
        raise BadInput(f"{what} is no JSON object")
    missing = sorted(names - value.keys())
    unknown = sorted(str(name) for name in value.keys() - names)
    if missing:
        raise BadInput(f"{what} lacks {', '.join(missing)}")
    if unknown:
        raise BadInput(f"{what} has unknown fields: {', '.join(unknown)}")
    return dict(value)


def count_of(value: object) -> int:
    """`value` as a count in a stored document.

    Raises:
        ValueError: it is no whole number, or less than 0.
    """
    if type(value) is not int or value < 0:
        raise ValueError(f"no count: {str(value)[:80]}")
    return value
