"""Looks at a learner again and again, for `policyctl … --watch`, with patience while no learner answers.

A look that is watched has the deadline of a call, and a learner that does not answer for a minute is given up.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from global_learner.errors import Unreachable

_POLL_SECONDS = 2.0
"""Between two tries while no learner answers, however seldom is looked otherwise."""
AWAY_SECONDS = 60.0
"""A failover takes ten seconds, a restart mostly less."""

Found = TypeVar("Found")


def polls(
    once: Callable[[], Found],
    every_seconds: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Found]:
    """What is found, again and again, without an end.

    Args:
        once: one look; raises `Unreachable` where no learner answers.

    Raises:
        Unreachable: at the first look, or for longer than `AWAY_SECONDS`.
        LearnerError: what else the learner says.
    """
    yield once()
    while True:
        yield _next(once, every_seconds, clock, sleep)


def _next(
    once: Callable[[], Found], every_seconds: float, clock: Callable[[], float], sleep: Callable[[float], None]
) -> Found:
    """What is found after the pause; where no learner answers, as soon as one does."""
    sleep(every_seconds)
    away_since: float | None = None
    while True:
        try:
            found = once()
        except Unreachable as error:
            if away_since is None:
                away_since = clock()
                _remark(f"no learner answers; waiting for one, for {AWAY_SECONDS:g} s at most")
            if clock() - away_since >= AWAY_SECONDS:
                raise Unreachable(f"no learner has answered for {AWAY_SECONDS:g} s; {error}") from error
            sleep(min(every_seconds, _POLL_SECONDS))
            continue
        if away_since is not None:
            _remark("a learner answers again")
        return found


def _remark(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
