"""The 3J+1 actions of one inference, one to one with their meaning.

Action 3·i + k gives job i of the batch one worker (k = 0), one parameter server (k = 1) or one of each (k = 2); the
last action is void: stop giving to this batch.
Source: DL2 §4.1.
"""

from __future__ import annotations

from enum import IntEnum

GRANT_KINDS = 3


class Grant(IntEnum):
    """What one action gives to a job."""

    WORKER = 0
    PS = 1
    BUNDLE = 2

    @property
    def workers(self) -> int:
        """How many workers it gives."""
        return 0 if self is Grant.PS else 1

    @property
    def ps(self) -> int:
        """How many parameter servers it gives."""
        return 0 if self is Grant.WORKER else 1


def void_index(jobs_per_batch: int) -> int:
    """The index of void: 3J."""
    return GRANT_KINDS * jobs_per_batch
