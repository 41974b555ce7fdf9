"""Clusters that are ahead of the learner: they act on a version, or learned at a head, that it does not know.

That is so where an older state of the learner was restored, as from a backup: what it published since is in use, and
would get its number again with other content. Agents tell both in heartbeats. Once for each cluster and what it knows
a line goes into the log and the audit log, and no version gets a number that a cluster knows. A cluster that makes
numbers up fills no disk, at so many lines a minute, and cannot move them further than `MOST_AHEAD`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import structlog

from global_learner.errors import LearnerError, TooOften
from global_learner.service.rate_limits import RateLimits
from policy_net.exchange.generated import fleet_pb2

_log = structlog.get_logger()

MOST_AHEAD = 10_000
"""Versions above the newest one of when the learner began; fifty a day for half a year. What says more is noted, and
not believed."""
_PER_MINUTE, _AT_ONCE = 6.0, 20
"""Lines of one cluster; a sound one is ahead once, until it is told what to act on."""
_LINE = "ahead"

Note = Callable[[str, int, str], Awaitable[object]]
"""Writes that a cluster is ahead, passes the numbers up to this one over, and says what it knows."""


class ClustersAhead:
    """What clusters know that the learner does not; for one event loop.

    Args:
        note: durable when it returns; LearnerError if it cannot be written.
        clock: seconds, never back.
    """

    def __init__(self, note: Note, clock: Callable[[], float]) -> None:
        self._note = note
        self._rates = RateLimits({_LINE: _PER_MINUTE}, _AT_ONCE, clock)
        self._noted: dict[str, tuple[int, bool]] = {}
        self._begun_at: int | None = None

    async def on_status(
        self, cluster: str, status: fleet_pb2.ClusterStatus, newest_version: int, head_step: int
    ) -> None:
        """Take what a cluster says in a heartbeat; never fails for want of room.

        Args:
            cluster: its name, which is registered.
            status: what it says.
            newest_version: of this learner.
            head_step: of this learner.
        """
        version = status.acting_version if status.acting_version > newest_version else 0
        is_head = status.learning_step > head_step
        if not (version or is_head) or self._noted.get(cluster) == (version, is_head):
            return
        if self._begun_at is None:
            self._begun_at = newest_version
        # From where this learner began: else each version that it publishes would let numbers go as far again.
        believed = version <= self._begun_at + MOST_AHEAD
        try:
            self._rates.take(cluster, _LINE)
            await self._note(
                cluster,
                version if believed else 0,
                _words(status, version, newest_version, head_step, believed=believed),
            )
        except TooOften:
            return
        except LearnerError as error:
            _log.error("cluster-ahead-not-noted", cluster=cluster, reason=str(error), advice="tried again")
            return
        self._noted[cluster] = (version, is_head)
        _log.error(
            "cluster-ahead",
            cluster=cluster,
            acting_version=status.acting_version,
            newest_version=newest_version,
            learning_step=status.learning_step,
            head_step=head_step,
            advice="was an older state of the learner restored? see `policyctl fleet`",
        )


def _words(
    status: fleet_pb2.ClusterStatus, version: int, newest_version: int, head_step: int, *, believed: bool
) -> str:
    """What a cluster knows, and what comes of it."""
    said = []
    if version:
        said.append(f"acts on v{version}, and the newest here is v{newest_version}")
        too_far = f"no version is so far ahead: the next number stays v{newest_version + 1}"
        said.append(f"the next is v{version + 1} or above" if believed else too_far)
    if status.learning_step > head_step:
        said.append(f"learned at head step {status.learning_step}, and the head here is at {head_step}")
    return "; ".join(said)
