"""Memory for what follows from a workload and its cluster alone: many schedulers replay one workload.

Workloads and environments never change. They are told apart by identity: to compare a thousand jobs, or to hash them,
costs as much as it would save.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

KEPT = 2
"""Whoever compares schedulers takes one case after another; a case beside it is that of another thread."""

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def kept_for_the_latest(make: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """A function of things that never change, called by position, that remembers its latest results by their identity.

    The things live as long as they are among the latest `KEPT`, so no other thing can take their identity meanwhile.
    Results are given to several callers, who must not change them.
    """
    latest: list[tuple[tuple[object, ...], Result]] = []

    @wraps(make)
    def kept(*things: Parameters.args, **named: Parameters.kwargs) -> Result:
        for known, result in latest:
            if len(known) == len(things) and all(one is other for one, other in zip(known, things, strict=True)):
                return result
        result = make(*things, **named)
        latest[:] = [(things, result), *latest[: KEPT - 1]]
        return result

    return kept
