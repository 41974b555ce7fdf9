"""Windows that teach a `set` policy in a trial: of workloads to train on, each read once, and how many of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from policy_net.laboratory.training.settings import SetTwinSettings
from policy_net.laboratory.training.twin_windows import TwinWindow
from policy_net.laboratory.tuning.worlds import TuningWorlds

JOBS_A_STEP = 16_000
"""Replayed jobs of a step, the same whatever the settings: 32 replays of 500 jobs."""
SMALLEST_REPLAY = 100
"""Jobs that a replay of fewer counts as: it has a beginning and an end, too."""
WORLDS_OF_A_SOURCE = 64
"""That windows are drawn from: speeds are drawn for every window anew, and a recording takes long to read."""


def twin_updates(steps: int, settings: SetTwinSettings, jobs: Sequence[int]) -> int:
    """Updates in a twin that cost as much as so many steps, whatever the settings.

    Args:
        jobs: of a workload of each source.
    """
    of_a_replay = sum(max(SMALLEST_REPLAY, min(settings.window_jobs, count)) for count in jobs) / len(jobs)
    return round(steps * JOBS_A_STEP / (2 * settings.pairs * of_a_replay))


class TaughtWindows:
    """What trials of one seed are taught with; a draw is the same for the same generator.

    Attributes:
        jobs: of a workload of each source.
    """

    def __init__(self, worlds: TuningWorlds, seed: int) -> None:
        self._worlds, self._seed = worlds, seed
        self._read: dict[int, TwinWindow] = {}
        self.jobs = tuple(len(self._numbered(number).workload.jobs) for number in range(len(worlds.sources)))

    def draw(self, generator: np.random.Generator) -> TwinWindow:
        """Any of them; sources are as likely as each other."""
        return self._numbered(int(generator.integers(WORLDS_OF_A_SOURCE * len(self._worlds.sources))))

    def _numbered(self, number: int) -> TwinWindow:
        if number not in self._read:
            loader = self._worlds.loader
            episode = self._worlds.training(self._seed, number)
            self._read[number] = TwinWindow(*episode, loader.speeds(), loader.placement_effect())
        return self._read[number]
