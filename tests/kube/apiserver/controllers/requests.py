"""Requests of pods and room of nodes, counted as kube-scheduler counts them, exactly: in billionths, as whole numbers.

Independent of the agent's own count on purpose: tests hold one against the other.
"""

from __future__ import annotations

import functools
import math
import re
from fractions import Fraction
from typing import Any

Json = dict[str, Any]
Amounts = dict[str, int]
"""Billionths of each resource."""
ONE = 10**9

_SUFFIXES = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    **{name: Fraction(1000**power) for power, name in enumerate(("k", "M", "G", "T", "P", "E"), 1)},
    **{name: Fraction(1024**power) for power, name in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)},
}
_QUANTITY = re.compile(r"^([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?)([numkMGTPE]|[KMGTPE]i|)$")


def amount(quantity: Any) -> int:
    """A quantity in billionths; what is less counts as one.

    Raises:
        ValueError: it is none.
    """
    return _amount(str(quantity))


@functools.lru_cache(maxsize=4096)
def _amount(text: str) -> int:
    found = _QUANTITY.match(text)
    if found is None:
        raise ValueError(f"{text} is no quantity")
    return math.ceil(Fraction(found[1]) * _SUFFIXES[found[2]] * ONE)


def requests_of(pod: Json) -> Amounts:
    """What a pod takes on its node: its containers and sidecars, or its largest init container, and its overhead.

    A pod-level request counts in place of its containers' sum; each pod counts as one of `pods`.
    """
    spec = pod.get("spec") or {}
    total: Amounts = {}
    for container in spec.get("containers") or ():
        _add(total, _of(container))
    sidecars: Amounts = {}
    most: Amounts = {}
    for container in spec.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            _add(sidecars, _of(container))
            _raise_to(most, sidecars)
        else:
            together = dict(sidecars)
            _add(together, _of(container))
            _raise_to(most, together)
    _add(total, sidecars)
    _raise_to(total, most)
    for name, value in _of(spec).items():
        total[name] = value
    _add(total, {name: amount(value) for name, value in (spec.get("overhead") or {}).items()})
    total["pods"] = ONE
    return total


def room_of(node: Json) -> Amounts:
    """What a node has for pods."""
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    return {name: amount(value) for name, value in allocatable.items()}


def _of(container: Json) -> Amounts:
    resources = container.get("resources") or {}
    # A limit without a request is the request too.
    stated = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {name: amount(value) for name, value in stated.items()}


def _add(total: Amounts, more: Amounts) -> None:
    for name, value in more.items():
        total[name] = total.get(name, 0) + value


def _raise_to(total: Amounts, least: Amounts) -> None:
    for name, value in least.items():
        total[name] = max(total.get(name, 0), value)
