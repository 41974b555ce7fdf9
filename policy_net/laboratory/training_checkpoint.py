"""Checkpoints of a training in its run's folder, so that one that was interrupted can go on.

What is kept is the policy as it stands, how many steps it has taken, and what the steps began with. The optimiser's
moments and the experience begin anew, on further seeds and worlds, so that the result is not bit for bit that of a
training that was never interrupted.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from policy_net.errors import PolicyFileError
from policy_net.exchange.policy_file import PolicyFile, read_policy_file, write_policy_file

CHECKPOINT_FILE: Final = "checkpoint.safetensors"
START_FILE: Final = "checkpoint-start.safetensors"
EVERY_SECONDS = 20.0
"""Between two: a file takes milliseconds, and so much work is lost at most where the process is killed."""
_DONE = "checkpoint_steps"
_SPENT = "checkpoint_seconds"


@dataclass(frozen=True, slots=True)
class InterruptedTraining:
    """A training that was interrupted: its policy after `done` steps and `spent_seconds`, and what these began with."""

    policy: PolicyFile
    done: int
    start: PolicyFile
    spent_seconds: float = 0.0


class TrainingCheckpoint:
    """Writes the checkpoints of one training.

    Attributes:
        kept: the number of steps of the newest checkpoint on disk; None before the first.
        before_seconds: that the legs before this one took.
    """

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder = folder
        self._clock = clock
        self._began_seconds = self._next_seconds = clock()
        self._latest: tuple[int, Callable[[], PolicyFile]] | None = None
        self._refused = False
        self.kept: int | None = None
        self.before_seconds = 0.0

    @property
    def path(self) -> Path:
        """Path of the newest checkpoint."""
        return self._folder / CHECKPOINT_FILE

    def begin(self, start: PolicyFile) -> None:
        """Keep what the steps begin with."""
        if self._write(self._folder / START_FILE, start):
            self.offer(0, lambda: start)

    def offer(self, done: int, policy: Callable[[], PolicyFile]) -> None:
        """Keep the policy as it stands after so many steps, if it is time."""
        self._latest = (done, policy)
        if self._clock() >= self._next_seconds:
            self.keep()

    def keep(self) -> None:
        """Keep what was offered last."""
        if self._latest is None:
            return
        done, policy = self._latest
        made = policy()
        spent = round(self.before_seconds + self._clock() - self._began_seconds, 3)
        if self._write(self.path, replace(made, card={**made.card, _DONE: done, _SPENT: spent})):
            self.kept = done
        self._next_seconds = self._clock() + EVERY_SECONDS

    def clear(self) -> None:
        """Remove what is of no use once the training has ended."""
        for name in (CHECKPOINT_FILE, START_FILE):
            (self._folder / name).unlink(missing_ok=True)

    def _write(self, path: Path, policy: PolicyFile) -> bool:
        if self._refused:
            return False
        try:
            write_policy_file(path, policy)
        except (OSError, PolicyFileError):  # the training is worth more than its checkpoint; `kept` says what there is
            self._refused = True
        return not self._refused


def read_checkpoint(folder: Path) -> InterruptedTraining | None:
    """What an interrupted training has kept; None if it had not come so far.

    Raises:
        PolicyFileError: it cannot be used.
    """
    if not (folder / CHECKPOINT_FILE).exists():
        return None
    policy, start = read_policy_file(folder / CHECKPOINT_FILE), read_policy_file(folder / START_FILE)
    done, spent = policy.card.get(_DONE), policy.card.get(_SPENT, 0.0)
    if not isinstance(done, int) or done < 0 or not isinstance(spent, int | float) or not 0.0 <= spent < math.inf:
        raise PolicyFileError(
            f"{folder / CHECKPOINT_FILE}: is no checkpoint of a training; begin anew in another folder"
        )
    card = {name: value for name, value in policy.card.items() if name not in (_DONE, _SPENT)}
    return InterruptedTraining(replace(policy, card=card), done, start, float(spent))
