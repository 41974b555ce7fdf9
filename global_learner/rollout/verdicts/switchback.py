"""Switchback blocks: a cluster alternates between incumbent and candidate, in pairs whose order is a coin's.

Within a pair the same machines, users and weather serve both versions, so the difference of its two blocks says more
than any comparison of clusters. The order is drawn anew for each pair: whatever the load does, it does to both with
equal probability, and so the difference has the right mean without any model of the load.
What a version leaves behind, it leaves to the next block: a queue, mostly, which is gone after about the time that jobs
take. The first part of every block is therefore not counted (washout), and blocks are as long as the cluster's own jobs
make them.
Source: Bojinov, Simchi-Levi and Zhao, "Design and analysis of switchback experiments", Management Science 69 (2023).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

BLOCK_JCTS = 2.0
"""A block lasts about two mean job completion times, within bounds: an effect on the queue has mostly built up then."""
SHORTEST_BLOCK_SECONDS = 2 * 3600.0
"""Some six ticks of a cluster in which nothing happens."""
LONGEST_BLOCK_SECONDS = 12 * 3600.0
"""A pair then takes a day; with longer ones a stage of two weeks has too few to say anything. What such a block leaves
behind in a slow cluster is priced by its twin."""
WASHOUT_SHARE = 1 / 3
"""Of a block, from its begin, that is not counted."""
_WHOLE_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class Schedule:
    """When the blocks of a cluster begin, from a time on.

    Attributes:
        start_unix_seconds: of the first block.
        block_seconds: of every block.
        washout_seconds: at the begin of every block that are not counted.
    """

    start_unix_seconds: float
    block_seconds: float
    washout_seconds: float

    def block_at(self, now: float) -> int:
        """The number of the block at a time, from 0 on; of a time before the first, 0."""
        return max(0, math.floor((now - self.start_unix_seconds) / self.block_seconds))

    def counted_seconds(self, block: int) -> tuple[float, float]:
        """From when to when a block counts, in Unix seconds."""
        begin = self.start_unix_seconds + block * self.block_seconds
        return begin + self.washout_seconds, begin + self.block_seconds


def schedule_of(mean_jct_seconds: float, start_unix_seconds: float) -> Schedule:
    """The blocks that suit a cluster whose jobs take so long on average.

    Raises:
        ValueError: no finite time above 0.
    """
    if not (math.isfinite(mean_jct_seconds) and mean_jct_seconds > 0.0):
        raise ValueError(f"mean_jct_seconds is {mean_jct_seconds}: use a finite number above 0")
    wanted = math.ceil(BLOCK_JCTS * mean_jct_seconds / _WHOLE_SECONDS) * _WHOLE_SECONDS
    block = min(max(wanted, SHORTEST_BLOCK_SECONDS), LONGEST_BLOCK_SECONDS)
    return Schedule(start_unix_seconds, block, WASHOUT_SHARE * block)
