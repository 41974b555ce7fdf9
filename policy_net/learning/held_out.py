"""Which decisions of a log an imitation is judged on, and not trained on.

Whole runs of decisions are held out, spread over the log: neighbouring decisions are nearly alike, so one that stands
between two that were learned from would show nothing; and the end of a log alone may be its quietest part.
"""

from __future__ import annotations

from dataclasses import dataclass

RUNS = 40
EVERY = 5
"""Every fifth of forty runs is held out."""


@dataclass(frozen=True, slots=True)
class Split:
    """How a log of so many decisions is divided.

    Attributes:
        most: of the decisions to learn from, at most about so many are taken, evenly spread.
    """

    decisions: int
    most: int

    def is_held_out(self, position: int) -> bool:
        """Whether the decision at this position judges."""
        return position // max(self.decisions // RUNS, 1) % EVERY == EVERY // 2

    def is_learned(self, position: int) -> bool:
        """Whether the decision at this position is learned from."""
        return not self.is_held_out(position) and position % max(-(-self.decisions // self.most), 1) == 0
