"""What a cluster lived through, kept for learning: decision times in order, the oldest forgotten first.

Source: DL2 §4.3 (a replay of 8192 samples, mini-batches of 256).
Deviation: whole decision times are kept, since advantages are per decision time; the bound still counts samples.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from policy_net.learned import DecisionSamples


@dataclass(frozen=True, slots=True)
class Experience:
    """One decision time.

    Attributes:
        reward: of the interval that followed.
        seconds: that interval's length.
        trainable: False where the guard or the fallback changed the decision; then it never trains the actor.
    """

    samples: DecisionSamples
    reward: float
    seconds: float
    trainable: bool = True


class ExperienceReplay:
    """A bounded window of experience and segments of consecutive decision times drawn from it."""

    def __init__(self, capacity_samples: int = 8192, seed: int = 0) -> None:
        self._capacity_samples = capacity_samples
        self._generator = np.random.default_rng(seed)
        self._entries: deque[Experience] = deque()
        self._samples = 0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def samples(self) -> int:
        """Micro-actions in the window."""
        return self._samples

    def add(self, experience: Experience) -> None:
        """Keep one decision time; decisions without a trainable choice carry no signal and are left out."""
        if not experience.trainable or len(experience.samples) == 0:
            return
        self._entries.append(experience)
        self._samples += len(experience.samples)
        while self._samples > self._capacity_samples and len(self._entries) > 1:
            self._samples -= len(self._entries.popleft().samples)

    def segment(self, decisions: int, *, newest: bool = False) -> list[Experience]:
        """Consecutive decision times, at most `decisions`: the newest, or a window drawn uniformly."""
        length = min(decisions, len(self._entries))
        latest_start = len(self._entries) - length
        start = latest_start if newest or latest_start == 0 else int(self._generator.integers(latest_start + 1))
        return [self._entries[index] for index in range(start, start + length)]
