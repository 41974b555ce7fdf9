"""Job-aware exploration: where an allocation looks lopsided, sometimes try what would repair it.

Source: DL2 §4.3: (i) several workers and no parameter server, (ii) several parameter servers and no worker, (iii) more
than ten times as many of one as of the other; then, with probability ε (0.4 in the preprint), the repairing action.
"""

from __future__ import annotations

from dataclasses import dataclass

from policy_net.dl2.action import GRANT_KINDS, Grant
from policy_net.dl2.batch import Batch

LOPSIDED_RATIO = 10
"""Source: DL2 §4.3."""


@dataclass(frozen=True, slots=True)
class JobAwareExploration:
    """An `Explorer` for `LearnedPolicy`; of several lopsided jobs the first by arrival is repaired."""

    epsilon: float = 0.4

    def propose(self, batch: Batch) -> int | None:
        """The repairing action, if there is one and it is admissible."""
        for column, (workers, ps) in enumerate(zip(batch.workers, batch.ps, strict=True)):
            if workers <= 1 and ps <= 1:
                continue
            if workers > LOPSIDED_RATIO * ps:
                index = GRANT_KINDS * column + Grant.PS
            elif ps > LOPSIDED_RATIO * workers:
                index = GRANT_KINDS * column + Grant.WORKER
            else:
                continue
            if batch.mask_A[index]:
                return int(index)
        return None
