"""Reports to the learner on the speeds that this cluster has seen: each time all of them, in place of the last report.

What is told is `SpeedStatistic`s: job type, kind, PSs, workers, mean log speed, count; see the guide's page on beliefs.
Whatever goes wrong here is counted and tried again later: neither heartbeats nor decisions depend on it.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from cluster_agent.fleet.learner_protocol import LearnerCalls
from cluster_agent.settings import SharingSettings
from cluster_agent.telemetry import AgentTelemetry
from policy_net.errors import LearnerRefused, LearnerUnreachable
from policy_net.exchange.learner_answers import Registration
from policy_net.exchange.statistics import SpeedStatistic, most_observed

_log = structlog.get_logger()

Statistics = tuple[SpeedStatistic, ...]


class Sharing:
    """Used by the heartbeat's thread alone; `statistics` (what this cluster has seen) is callable from any thread."""

    def __init__(
        self,
        learner: LearnerCalls,
        settings: SharingSettings,
        statistics: Callable[[], Statistics],
        telemetry: AgentTelemetry,
        clock: Callable[[], float],
    ) -> None:
        self._learner = learner
        self._settings = settings
        self._statistics = statistics
        self._telemetry = telemetry
        self._clock = clock
        self._incarnation = 0
        self._revision = 0
        self._reported: Statistics | None = None
        self._due_seconds = 0.0

    def beat(self, registration: Registration, *, last: bool = False) -> None:
        """Tell what there is to tell, if it is time; `last` does not wait for the time."""
        if registration.incarnation != self._incarnation:
            # Perhaps another learner: what was told to this one is not known.
            self._incarnation, self._revision, self._reported = registration.incarnation, 0, None
            self._due_seconds = self._clock()
        if self._clock() < self._due_seconds and not last:
            return
        self._due_seconds = self._clock() + self._settings.every_seconds
        statistics = self._to_report()
        # With sharing off nothing is told once, which takes back what was told before; else there is no hurry to.
        if statistics == self._reported or (not statistics and self._settings.enabled and self._reported is None):
            return
        self._revision += 1
        outcome = "refused"
        try:
            answer = self._learner.share_beliefs(registration, self._revision, statistics)
        except LearnerRefused as error:
            _log.warning("beliefs-not-taken", statistics=len(statistics), error=str(error))
        except LearnerUnreachable as error:
            outcome = "unanswered"
            _log.debug("beliefs-unanswered", error=str(error))
        else:
            outcome = "taken" if answer.taken else "repeated"
            self._reported = statistics
            if answer.left_out:
                _log.warning(
                    "job-types-left-out", count=len(answer.left_out), reason="the fleet's vocabulary has no more room"
                )
        self._telemetry.belief_reports.labels(outcome).inc()

    def _to_report(self) -> Statistics:
        if not self._settings.enabled:
            return ()
        # For a name that cannot be printed the learner would refuse the whole report.
        reported = (entry for entry in self._statistics() if entry.job_type.isprintable())
        return most_observed([entry for entry in reported if self._settings.shares(entry.job_type)])
