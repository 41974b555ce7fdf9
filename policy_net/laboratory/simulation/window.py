"""A window of a workload: a run of consecutive jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from policy_net.errors import BadInput

Item = TypeVar("Item")


def take_window(jobs: Sequence[Item], length: int | None, window: int, origin: str) -> Sequence[Item]:
    """The `window`-th run (from 0) of `length` jobs; the last run may be shorter; all jobs if `length` is None.

    Raises:
        BadInput: there are not so many windows; `origin` says of what.
    """
    if length is None:
        return jobs
    chosen = jobs[window * length : (window + 1) * length]
    if not chosen:
        count = -(-len(jobs) // length)
        raise BadInput(f"{origin}: window {window} of {length} jobs is beyond its {len(jobs)} jobs; use 0–{count - 1}")
    return chosen
