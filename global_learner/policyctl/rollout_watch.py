"""Watching of a rollout: a line for every change, and patience while no learner answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from foundation.backoff import Backoff
from global_learner.errors import LearnerError, RolledBack, Unknown, Unreachable
from global_learner.policyctl.rollout_views import line_of, rollout_facts
from policy_net.exchange.generated import fleet_pb2

_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 1.0, 15.0
"""Between two tries while no learner answers: a failover takes ten seconds, a restart mostly less."""
_DAY_SECONDS = 86_400.0
_OVER = ("done", "rolled-back")


@dataclass(frozen=True, slots=True)
class WatchPatience:
    """How long a rollout is watched.

    Attributes:
        every_seconds: between two looks.
        away_seconds: no learner may answer before it is given up; 0 gives up at once.
        give_up_days: to watch at all; None: until the rollout's end.
    """

    every_seconds: float
    away_seconds: float
    give_up_days: float | None = None


class RolloutWatch:
    """Watches one rollout to its end.

    Args:
        ask: the rollout as it stands; raises `Unreachable` where no learner answers.
        say: prints a line about the rollout.
        remark: prints a line about the learner.
        clock: seconds that only grow.
        sleep: waits so many seconds.
        seed: of the waits' randomness.
    """

    def __init__(
        self,
        ask: Callable[[], fleet_pb2.Rollout],
        patience: WatchPatience,
        say: Callable[[str], None],
        remark: Callable[[str], None],
        clock: Callable[[], float],
        sleep: Callable[[float], None],
        seed: int | str,
    ) -> None:
        self._ask = ask
        self._patience = patience
        self._say = say
        self._remark = remark
        self._clock = clock
        self._sleep = sleep
        self._backoff = Backoff(seed, _FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS)

    def watch(self, first: fleet_pb2.Rollout) -> None:
        """Print a line for every change until the rollout is done.

        Args:
            first: as it stood at the first look.

        Raises:
            RolledBack: its version was taken back.
            Unreachable: no learner answered for too long.
            Unknown: the learner that answers knows no such rollout any more.
            LearnerError: it still runs, and the days are over.
        """
        days = self._patience.give_up_days
        until = None if days is None else self._clock() + _DAY_SECONDS * days
        rollout, last = first, ""
        while True:
            line = line_of(rollout_facts(rollout))
            if line != last:
                self._say(line)
            last = line
            if rollout.phase in _OVER:
                break
            if until is not None and self._clock() >= until:
                raise LearnerError(f"rollout {rollout.number} is {rollout.phase} after {days:g} days; it goes on")
            self._sleep(self._patience.every_seconds)
            rollout = self._next(rollout)
        if rollout.phase == "rolled-back":
            version = f"v{rollout.candidate_version}"
            raise RolledBack(f"rollout {rollout.number} of {version} was rolled back: {rollout.reason}")

    def _next(self, before: fleet_pb2.Rollout) -> fleet_pb2.Rollout:
        """The rollout as it stands now; where no learner answers, as soon as one does."""
        away_since = self._clock()
        said = False
        while True:
            try:
                rollout = self._ask()
            except Unreachable as error:
                left = self._patience.away_seconds - (self._clock() - away_since)
                if left <= 0.0:
                    where = f"rollout {before.number} of v{before.candidate_version} was {before.phase} when last seen"
                    raise Unreachable(f"{where}; {error}") from error
                if not said:
                    minutes = self._patience.away_seconds / 60.0
                    self._remark(f"no learner answers; waiting for one, for {minutes:g} minutes at most")
                said = True
                self._sleep(min(self._backoff.next_seconds(), left))
                continue
            except Unknown as error:
                raise Unknown(
                    f"the learner no longer knows rollout {before.number} of v{before.candidate_version}, which was "
                    f"{before.phase} when last seen: its state was replaced, or it is another learner"
                ) from error
            if said:
                self._remark("a learner answers again")
            self._backoff.reset()
            return rollout
