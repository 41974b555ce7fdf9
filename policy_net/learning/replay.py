"""Experience of a cluster, kept for learning: decision times in order, the oldest forgotten first.

Source: DL2 §4.3 (a replay of 8192 samples, which is called prioritised in §6.5.2); Schaul et al. 2016 (proportional
priorities, exponent 0.6).
Deviation: whole decision times are kept, since advantages are per decision time; the bound still counts samples.
Priorities are of runs of decision times, and what is drawn more often counts no less: DL2 says nothing of either.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from policy_net.learning.reward import SlotUtility
from policy_net.learning.settings import REPLAY_SAMPLES, ReplayDraw
from policy_net.policy import Samples

PRIORITY_EXPONENT = 0.6
_SMALLEST_PRIORITY = 1e-6


@dataclass(frozen=True, slots=True)
class Experience:
    """One decision time.

    Attributes:
        reward: of the interval that followed.
        began_seconds: the cluster's time at the decision; None where it is not known, and it is taken to follow.
        utility: which job contributed what to the reward, where it is the slot utility.
        trainable: False where the guard or the fallback changed the decision; then it never trains the actor.
    """

    samples: Samples
    reward: float
    seconds: float
    trainable: bool = True
    utility: SlotUtility | None = None
    began_seconds: float | None = None

    def directly_follows(self, earlier: Experience) -> bool:
        """Whether nothing lies between: no decision that was left out, no other workload."""
        if self.began_seconds is None or earlier.began_seconds is None:
            return True
        return math.isclose(earlier.began_seconds + earlier.seconds, self.began_seconds, rel_tol=1e-9, abs_tol=1e-3)


class ExperienceReplay:
    """A bounded window of experience and segments of consecutive decision times drawn from it."""

    def __init__(self, capacity_samples: int = REPLAY_SAMPLES, seed: int = 0) -> None:
        self._capacity_samples = capacity_samples
        self._generator = np.random.default_rng(seed)
        self.entries: deque[Experience] = deque()
        self.samples = 0
        self.surprises: dict[int, float] = {}
        self._largest_surprise = 1.0

    def __len__(self) -> int:
        return len(self.entries)

    def add(self, experience: Experience) -> None:
        """Keep one decision time; decisions without a trainable choice carry no signal and are left out."""
        if not experience.trainable or len(experience.samples) == 0:
            return
        self.entries.append(experience)
        self.samples += len(experience.samples)
        self.surprises[id(experience)] = self._largest_surprise  # what nobody has learned from yet comes first
        while self.samples > self._capacity_samples and len(self.entries) > 1:
            oldest = self.entries.popleft()
            self.samples -= len(oldest.samples)
            self.surprises.pop(id(oldest), None)

    def draw(self, by: ReplayDraw, count: int, decisions: int) -> list[list[Experience]]:
        """The runs of one update: `segments`, `surprising_segments`, or `newest_segments`."""
        if by is ReplayDraw.NEWEST:
            return self.newest_segments(count, decisions)
        return (
            self.surprising_segments(count, decisions)
            if by is ReplayDraw.PRIORITISED
            else self.segments(count, decisions)
        )

    def revalue(self, segments: Sequence[Sequence[Experience]], surprises: Sequence[float]) -> None:
        """Note how surprising decision times were when they were last learned from; those that are gone do not matter.

        Args:
            surprises: one for each decision time of `segments`, in order; none where they are not known.
        """
        for entry, surprise in zip(itertools.chain.from_iterable(segments), surprises, strict=False):
            if id(entry) in self.surprises:
                self.surprises[id(entry)] = surprise
        self._largest_surprise = max(self.surprises.values(), default=1.0) or 1.0

    def segments(self, count: int, decisions: int) -> list[list[Experience]]:
        """Up to `count` different runs of consecutive decision times, at most `decisions` each, from the whole window.

        Several short runs from all over the window, rather than one long one, keep an update from being about a single
        hour of the cluster: the parameters that other hours need would drift meanwhile.
        """
        length = min(decisions, len(self.entries))
        if length == 0:
            return []
        starts = np.unique(self._generator.integers(len(self.entries) - length + 1, size=count))
        return [self._run(start, length) for start in starts.tolist()]

    def surprising_segments(self, count: int, decisions: int) -> list[list[Experience]]:
        """As `segments`, each run drawn with a probability that grows with the mean surprise of its decision times."""
        length = min(decisions, len(self.entries))
        if length == 0:
            return []
        surprises = np.array([self.surprises.get(id(entry), self._largest_surprise) for entry in self.entries])
        sums = np.concatenate(([0.0], np.cumsum(surprises)))
        priorities = np.maximum((sums[length:] - sums[:-length]) / length, _SMALLEST_PRIORITY) ** PRIORITY_EXPONENT
        starts = np.unique(self._generator.choice(len(priorities), size=count, p=priorities / priorities.sum()))
        return [self._run(start, length) for start in starts.tolist()]

    def newest_segments(self, count: int, decisions: int) -> list[list[Experience]]:
        """The latest decision times in order, at most `count` × `decisions` of them, in runs of at most `decisions`.

        A run also ends at a gap.
        """
        newest = list(itertools.islice(reversed(self.entries), count * decisions))[::-1]
        runs: list[list[Experience]] = []
        for entry in newest:
            if runs and len(runs[-1]) < decisions and entry.directly_follows(runs[-1][-1]):
                runs[-1].append(entry)
            else:
                runs.append([entry])
        return runs

    def _run(self, start: int, length: int) -> list[Experience]:
        """The decision times from `start` on, up to the first gap."""
        run = [self.entries[start]]
        for index in range(start + 1, start + length):
            if not self.entries[index].directly_follows(run[-1]):
                break
            run.append(self.entries[index])
        return run
