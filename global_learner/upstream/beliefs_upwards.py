"""Reports of a region to the learner above on the speeds that its clusters told: all of them, merged into one.

A merged report is no larger for a hundred clusters than for one, and counts above as one cluster's. It takes the place
of the region's last one there, so that nothing is counted twice; its number is the time, as a region keeps its
registration over restarts and numbers must rise within one. What `beliefs.min_clusters` keeps from versions is kept
from it too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from global_learner.beliefs.intake import FleetBeliefs
from policy_net.exchange.fleet_client import FleetClient
from policy_net.exchange.learner_answers import Registration
from policy_net.exchange.statistics import SpeedStatistic, most_observed

_log = structlog.get_logger()

EVERY_SECONDS = 60.0
"""As agents do by default: `ShareBeliefs` is bounded to once a minute."""


class BeliefsUpwards:
    """Used by the uplink's task alone.

    Args:
        clock: monotonic seconds.
        wall_clock: Unix seconds.
    """

    def __init__(
        self,
        beliefs: FleetBeliefs,
        client: FleetClient,
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
    ) -> None:
        self._beliefs = beliefs
        self._client = client
        self._clock = clock
        self._wall_clock = wall_clock
        self._incarnation = 0
        self._reported: tuple[SpeedStatistic, ...] | None = None
        self._due_seconds = clock()

    async def share(self, registration: Registration) -> None:
        """Tell what there is to tell, if it is time.

        Raises:
            LearnerUnreachable, LearnerRefused: it was not taken; it is told again in time.
        """
        if registration.incarnation != self._incarnation:
            self._incarnation, self._reported = registration.incarnation, None
        elif self._clock() < self._due_seconds:
            return
        self._due_seconds = self._clock() + EVERY_SECONDS
        statistics = most_observed(await self._beliefs.reported())
        if statistics == self._reported or (not statistics and self._reported is None):
            return
        revision = int(1000.0 * self._wall_clock())
        answer = await asyncio.to_thread(self._client.share_beliefs, registration, revision, statistics)
        self._reported = statistics
        _log.info("beliefs-passed-up", statistics=len(statistics), types_left_out=len(answer.left_out))
