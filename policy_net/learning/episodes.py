"""Workloads without end: the same sources again and again, each time drawn with another seed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from policy_net.laboratory.simulation.environment import Environment
from policy_net.laboratory.workloads.workload import Workload

Episode = tuple[Workload, Environment]

_SEED_IN_SOURCE = re.compile(r"(?<=[:,])seed=(\d+)")


def source_of_episode(source: str, round_number: int) -> str:
    """The source with its own seed moved on by `round_number`; sources without one are returned as they are."""
    return _SEED_IN_SOURCE.sub(lambda found: f"seed={int(found[1]) + round_number}", source)


def endless_episodes(sources: Sequence[str], load: Callable[[str, int], Episode]) -> Iterator[Episode]:
    """Cycle through the sources for ever.

    Args:
        load: makes an episode of a source and a round number, which moves whatever seed is not part of the source.
    """
    round_number = 0
    while True:
        for source in sources:
            yield load(source_of_episode(source, round_number), round_number)
        round_number += 1
