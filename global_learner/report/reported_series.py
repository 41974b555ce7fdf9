"""Curve of load as a cluster told it, to be asked at any moment."""

from __future__ import annotations

import math
from dataclasses import dataclass

from global_learner.report.load import Amount
from policy_net.exchange.generated import fleet_pb2


@dataclass(frozen=True, slots=True)
class Series:
    """One curve as it was told, on the clock of its cluster.

    Attributes:
        told: with one step or more.
    """

    reported: fleet_pb2.LoadCurve

    @property
    def end(self) -> float:
        """When its last step ends."""
        return self.reported.begin_seconds + len(self.reported.gpus) * self.reported.step_seconds

    @property
    def nearly_end(self) -> float:
        """Until when a run that ended is shown: the last job may run alone for days, which says little."""
        return min(self.reported.nearly_done_seconds or self.end, self.end)

    def at(self, seconds: float) -> tuple[Amount, Amount, float] | None:
        """GPUs in use, jobs that wait, GPUs; None where nothing is known."""
        steps = (seconds - self.reported.begin_seconds) / self.reported.step_seconds
        if steps < 0.0 or (steps >= len(self.reported.gpus) and not self.reported.ended):
            return None
        if steps >= len(self.reported.gpus):
            return 0.0, 0.0, max(self.reported.gpus[-1], 0.0)
        index = math.floor(steps)
        used, waiting, gpus = (
            values[index] for values in (self.reported.gpus_used, self.reported.jobs_waiting, self.reported.gpus)
        )
        return None if waiting < 0.0 else (None if used < 0.0 else used, waiting, max(gpus, 0.0))
