"""Hears what clusters tell of speeds: check it, keep it, count it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from global_learner.beliefs.belief_store import BeliefBook, Told
from global_learner.beliefs.check import checked_report
from global_learner.beliefs.priors import PriorsSource
from global_learner.beliefs.settings import BeliefSettings
from global_learner.errors import BeliefsRefused
from global_learner.registry.registry_thread import RegistryThread
from global_learner.telemetry import Telemetry
from policy_net.exchange.generated import fleet_pb2

_NOTHING = Told(0, 0)


class FleetBeliefs:
    """All that a learner has to do with beliefs.

    Attributes:
        priors: what the next version says.
    """

    def __init__(
        self,
        book: BeliefBook,
        priors: PriorsSource,
        settings: BeliefSettings,
        thread: RegistryThread,
        telemetry: Telemetry,
        wall_clock: Callable[[], float],
    ) -> None:
        self.priors = priors
        self._book = book
        self._settings = settings
        self._thread = thread
        self._telemetry = telemetry
        self._wall_clock = wall_clock
        telemetry.job_types.set_function(lambda: book.types)

    async def hear(
        self, cluster: str, incarnation: int, revision: int, types: Sequence[fleet_pb2.TypeStatistics]
    ) -> bool:
        """Keep what a registered cluster has seen of speeds, on disk; False if it is here already.

        Raises:
            BeliefsRefused: it cannot be true, or is too much; nothing is changed.
        """
        try:
            statistics = checked_report(revision, types, self._settings)
        except BeliefsRefused as refused:
            self._telemetry.belief_reports.labels(refused.reason).inc()
            raise
        taken = await self._thread.call(
            self._book.report, cluster, incarnation, revision, statistics, self._wall_clock()
        )
        self._telemetry.belief_reports.labels("taken" if taken else "repeated").inc()
        return taken

    def told(self, cluster: str) -> Told:
        """What is held of a cluster."""
        return self._book.told.get(cluster, _NOTHING)
