"""The 3J+1 actions of one inference, one to one with their meaning.

Action 3·i + k gives job i of the batch one worker (k = 0), one parameter server (k = 1) or one of each (k = 2); the
last action is void: stop giving to this batch.
Source: DL2 §4.1.
"""

from __future__ import annotations

from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Action:
    """A grant to the job in a column of the batch; void if there is none."""

    column: int
    grant: Grant | None

    @property
    def is_void(self) -> bool:
        """Whether this action stops the batch."""
        return self.grant is None


def void_index(jobs_per_batch: int) -> int:
    """The index of void: 3J."""
    return GRANT_KINDS * jobs_per_batch


def action_from_index(index: int, jobs_per_batch: int) -> Action:
    """What an index means.

    Raises:
        ValueError: the index is not in 0 … 3J.
    """
    void = void_index(jobs_per_batch)
    if not 0 <= index <= void:
        raise ValueError(f"action {index} is outside 0 … {void} (J = {jobs_per_batch})")
    if index == void:
        return Action(-1, None)
    return Action(index // GRANT_KINDS, Grant(index % GRANT_KINDS))


def index_of(action: Action, jobs_per_batch: int) -> int:
    """The inverse of `action_from_index`.

    Raises:
        ValueError: the column is not in the batch.
    """
    if action.grant is None:
        return void_index(jobs_per_batch)
    if not 0 <= action.column < jobs_per_batch:
        raise ValueError(f"column {action.column} is outside 0 … {jobs_per_batch - 1}")
    return GRANT_KINDS * action.column + int(action.grant)
