"""Worlds of a study: which seeds and windows train, which choose, and which judge what was chosen.

A generated workload has a seed of its own, everything else that is drawn (noise, the models of recorded jobs) another;
see `docs/evaluation.md`. What judges is met once, at the end, under the best settings and the default ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Protocol

from policy_net.domain import PlacementEffect, SpeedModel
from policy_net.errors import BadInput
from policy_net.laboratory.training.offline import SEED_IN_SOURCE, Episode
from policy_net.laboratory.workloads.sources import GENERATOR_PREFIX, REFERENCE_PREFIX

FEWEST_WINDOWS = 3
"""One to train on, one to choose by, and one to judge on."""
_SMALLEST_WINDOW = 0.5
"""A last window with a smaller share of its jobs is none."""
_APART = 10_000
"""Worlds of one training; another seed of training has others."""


class WorldPart(StrEnum):
    """What a world is for."""

    TRAINING = "training"
    CHOOSING = "choosing"
    JUDGING = "judging"


GENERATOR_SEEDS: Mapping[WorldPart, range] = MappingProxyType(
    {
        WorldPart.TRAINING: range(9_000_000),
        WorldPart.CHOOSING: range(9_000_000, 9_500_000),
        WorldPart.JUDGING: range(9_900_000, 10_000_000),
    }
)
"""Of `dl2:` workloads. Those that judge here judge nothing else."""
DRAW_SEEDS: Mapping[WorldPart, range] = MappingProxyType(
    {WorldPart.TRAINING: range(1_000), WorldPart.CHOOSING: range(1_000, 2_000), WorldPart.JUDGING: range(2_000, 3_000)}
)
"""Of everything else that is drawn."""


class Loader(Protocol):
    """Makes worlds of sources; it is sent to other processes, which load what it names."""

    def load(self, source: str, seed: int, window: int) -> Episode:
        """A source's jobs and machines; `window` counts for recorded jobs only."""
        ...

    def speeds(self) -> SpeedModel:
        """The simulator's truth."""
        ...

    def placement_effect(self) -> PlacementEffect | None:
        """What places do to speeds."""
        ...


@dataclass(frozen=True)
class TuningWorlds:
    """Numbered worlds of each part: the sources in turns.

    Attributes:
        windows: of each recorded source, to train on, to choose by and to judge on.
    """

    loader: Loader
    sources: tuple[str, ...]
    windows: Mapping[str, tuple[int, int, int]]

    def episode(self, part: WorldPart, number: int) -> Episode:
        """The same world for the same number.

        Raises:
            BadInput: the source cannot be used.
        """
        source = self.sources[number % len(self.sources)]
        seeds = DRAW_SEEDS[part]
        window = self.windows.get(source, (0, 0, 0))[list(WorldPart).index(part)]
        return self.loader.load(seeded(source, part, number), seeds[number % len(seeds)], window)

    def training(self, seed: int, number: int) -> Episode:
        """A world to train on; another seed has other ones."""
        return self.episode(WorldPart.TRAINING, seed * _APART + number)


def seeded(source: str, part: WorldPart, number: int) -> str:
    """A generated source with a seed of this part; other sources are returned as they are."""
    if not source.startswith(GENERATOR_PREFIX):
        return source
    found = SEED_IN_SOURCE.search(source)
    seeds = GENERATOR_SEEDS[part]
    seed = seeds[((int(found[1]) if found else 0) + number) % len(seeds)]
    if found:
        return f"{source[: found.start()]}seed={seed}{source[found.end() :]}"
    return f"{source}{'' if source.endswith((',', ':')) else ','}seed={seed}"


def check_source(source: str) -> None:
    """See that a source may be tuned on.

    Raises:
        BadInput: it is one of those that only judge.
    """
    found = SEED_IN_SOURCE.search(source) if source.startswith(GENERATOR_PREFIX) else None
    most = len(GENERATOR_SEEDS[WorldPart.TRAINING])
    if found and int(found[1]) >= most:
        raise BadInput(f"--workload {source}: seeds from {most} on are there to judge; tune on one below, or on none")
    if source.startswith(REFERENCE_PREFIX):
        raise BadInput(f"--workload {source}: published traces are there to judge; tune on generated or recorded jobs")


def windows_of(source: str, jobs: int, length: int | None) -> tuple[int, int, int]:
    """The window of a recorded source that trains, a middle one that chooses, and the last, which judges.

    Raises:
        BadInput: there are fewer than three.
    """
    if length is None:
        raise BadInput(f"--workload {source}: recorded jobs need --limit-jobs, so that some train and others choose")
    count = jobs // length + (jobs % length >= _SMALLEST_WINDOW * length)
    if count < FEWEST_WINDOWS:
        raise BadInput(
            f"--workload {source}: has {jobs} jobs, and tuning needs {FEWEST_WINDOWS} times --limit-jobs {length}:"
            f" to train, to choose, and to judge; use {max(1, jobs // FEWEST_WINDOWS)}"
        )
    return 0, (count - 1) // 2, count - 1
