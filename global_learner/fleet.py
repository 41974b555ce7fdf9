"""Fleet of clusters as the learner sees them now, in memory.

Registrations come from the registry, the counters from the last snapshot, the rest from heartbeats.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from global_learner.errors import Rejection, UnknownIncarnation
from global_learner.registry.assignments import AssignmentChange, ClusterRegistration, LastHeard
from policy_net.exchange.generated.fleet_pb2 import ClusterStatus, Comparison
from policy_net.exchange.rollout_assignment import RolloutAssignment

_LIVE_SECONDS = 60.0
"""Thirty heartbeats."""
_TAKES_PART_SECONDS = 3600.0
"""Three slots of DL2's: a cluster without jobs is waited for no longer than that."""
_TAKEN_OVER_TIMES = 3
"""A restored learner or an agent that was moved does it once or twice."""
_TAKEN_OVER_WITHIN_SECONDS = 1800.0
_CONTEST_LASTS_SECONDS = 660.0
"""Each of two agents takes a name back every ten minutes at least, however long they have done so."""


@dataclass(slots=True)
class ClusterEntry:
    """One cluster. Seconds are on the fleet's clock; None if something has not happened since the start."""

    cluster: str
    incarnation: int
    assigned_version: int
    heard_seconds: float | None = None
    applied_seconds: float | None = None
    status: ClusterStatus | None = None
    compared: Comparison | None = None
    """What its jobs took beside another scheduler, as it told last; see `report.savings.latest_comparison`."""
    duplicates: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    held: bool = False
    """An operator assigned its version."""
    rollout: int = 0
    """The running rollout that decides what it acts on; 0: none does."""
    rollout_assignment: RolloutAssignment | None = None
    """What that asks of it besides its version."""
    is_answered: bool = False
    """An answer to it said what it is to act on now."""
    status_is_new: bool = False
    """Its status is of after such an answer: one that was under way before says what it did not know better."""
    heard_before: LastHeard | None = None
    earlier_heard: bool = False
    """Who has an earlier incarnation called after a later one was given: it lives, and so does another agent."""
    taken_over_seconds: deque[float] = field(default_factory=lambda: deque(maxlen=_TAKEN_OVER_TIMES))
    """When, in the last registrations of a row, somebody called with an earlier incarnation before each."""


def last_reported(entry: ClusterEntry) -> tuple[int, bool]:
    """The version that a cluster said last that it acts on, and whether it had finished; before the start, too."""
    if entry.status is not None:
        return entry.status.acting_version, entry.status.finished
    before = entry.heard_before
    return (0, False) if before is None else (before.acting_version, before.finished)


class Fleet:
    """All registered clusters, by name."""

    def __init__(
        self,
        registrations: Iterable[ClusterRegistration],
        counters: Mapping[str, Any],
        clock: Callable[[], float],
        wall_clock: Callable[[], float] = time.time,
    ):
        self.clock = clock
        self._wall_clock = wall_clock
        self._began_seconds = clock()
        self._entries: dict[str, ClusterEntry] = {}
        for registration in registrations:
            self.on_registered(registration, heard=False)
            # Who took part before a restart is waited for as if it had just been heard.
            self._entries[registration.cluster].applied_seconds = self._began_seconds
            self._entries[registration.cluster].heard_before = registration.heard
        for name, counted in counters.get("clusters", {}).items():
            if name in self._entries:
                self._entries[name].duplicates = counted["duplicates"]
                self._entries[name].rejected.update(counted["rejected"])

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, cluster: str) -> ClusterEntry | None:
        """A cluster, if it is registered."""
        return self._entries.get(cluster)

    def entries(self) -> list[ClusterEntry]:
        """All clusters, by name."""
        return [self._entries[name] for name in sorted(self._entries)]

    def on_registered(self, registration: ClusterRegistration, heard: bool = True) -> None:
        """Note a registration; counters and the last status stay."""
        entry = self._entries.setdefault(
            registration.cluster, ClusterEntry(registration.cluster, 0, registration.assigned_version)
        )
        entry.incarnation = registration.incarnation
        self._assign(entry, registration)
        if heard:
            entry.heard_seconds = self.clock()
            if entry.earlier_heard:
                entry.taken_over_seconds.append(entry.heard_seconds)
                entry.earlier_heard = False
            elif not self.is_contested(entry):
                # As of one agent that registers anew: now and then a call of its was under way meanwhile.
                entry.taken_over_seconds.clear()
            entry.is_answered = True  # by the answer to its registration

    def on_rollout_assignments(self, registrations: Iterable[ClusterRegistration]) -> None:
        """Take over what a rollout assigned to these clusters."""
        for registration in registrations:
            entry = self._entries.get(registration.cluster)
            if entry is not None:
                self._assign(entry, registration)

    def _assign(self, entry: ClusterEntry, now: ClusterRegistration) -> None:
        if (entry.assigned_version, entry.rollout_assignment) != (now.assigned_version, now.rollout_assignment):
            entry.is_answered = entry.status_is_new = False
        entry.assigned_version, entry.held = now.assigned_version, now.held
        entry.rollout, entry.rollout_assignment = now.rollout, now.rollout_assignment

    def forget(self, cluster: str) -> bool:
        """Show a cluster no longer, until it registers again; False if it is not registered."""
        return self._entries.pop(cluster, None) is not None

    def on_heard(self, cluster: str, incarnation: int) -> ClusterEntry | None:
        """Note that a cluster was heard; None if this incarnation is not the registered one."""
        entry = self._entries.get(cluster)
        if entry is None:
            return None
        if entry.incarnation != incarnation:
            entry.earlier_heard |= 0 < incarnation < entry.incarnation
            return None
        entry.heard_seconds = self.clock()
        return entry

    def check_registered(self, cluster: str, incarnation: int) -> None:
        """Note that a cluster was heard.

        Raises:
            UnknownIncarnation: this incarnation is not the registered one.
        """
        if self.on_heard(cluster, incarnation) is None:
            raise UnknownIncarnation(f"cluster {cluster} is not registered with incarnation {incarnation}; register")

    def is_contested(self, entry: ClusterEntry) -> bool:
        """Whether two agents use this name, and take it from each other again and again.

        An agent that ends and begins does not count: it never calls by the number that it had before.
        """
        times, now = entry.taken_over_seconds, self.clock()
        return (
            len(times) == _TAKEN_OVER_TIMES
            and times[-1] - times[0] <= _TAKEN_OVER_WITHIN_SECONDS
            and now - times[-1] <= _CONTEST_LASTS_SECONDS
        )

    def on_status(self, entry: ClusterEntry, status: ClusterStatus) -> None:
        """Note how a cluster says that it is."""
        entry.status, entry.status_is_new = status, entry.is_answered

    def on_answered(self, entry: ClusterEntry) -> None:
        """Note that an answer with all that the cluster is to do is on its way.

        One that is lost counts too: whoever misses it asks again within a heartbeat, and is told then.
        """
        entry.is_answered = True

    def on_applied(self, entry: ClusterEntry) -> None:
        """Note that an update of a cluster's was applied."""
        entry.applied_seconds = self.clock()

    def present(self) -> list[str]:
        """The clusters that take part at present: heard within a minute, an update applied within an hour."""
        heard_since, applied_since = self.clock() - _LIVE_SECONDS, self.clock() - _TAKES_PART_SECONDS
        return [
            name
            for name, entry in self._entries.items()
            if entry.applied_seconds is not None
            and entry.applied_seconds >= applied_since
            and (self._began_seconds if entry.heard_seconds is None else entry.heard_seconds) >= heard_since
        ]

    def on_rejected(self, cluster: str, reason: Rejection) -> None:
        """Count a rejection; of an unregistered name nothing is kept."""
        entry = self._entries.get(cluster)
        if entry is not None:
            entry.rejected[reason] += 1

    def assign_all(self, version: int) -> None:
        """Every cluster of which no operator and no rollout decides acts on this version from now on."""
        for entry in self._entries.values():
            if not entry.held and not entry.rollout:
                entry.assigned_version = version

    def on_assigned(self, assignments: Iterable[AssignmentChange]) -> None:
        """Clusters act on these versions from now on."""
        for assignment in assignments:
            entry = self._entries.get(assignment.cluster)
            if entry is not None:
                entry.assigned_version, entry.held = assignment.to_version, assignment.held

    def silent_seconds(self, entry: ClusterEntry) -> float:
        """How long a cluster has been silent; one that was not heard yet, since the learner's start."""
        return self.clock() - (self._began_seconds if entry.heard_seconds is None else entry.heard_seconds)

    def seconds_since_heard(self, entry: ClusterEntry) -> float:
        """How long a cluster has been silent, over restarts too, as far as it was kept; -1 if it was never heard."""
        if entry.heard_seconds is not None:
            return self.clock() - entry.heard_seconds
        return -1.0 if entry.heard_before is None else max(0.0, self._wall_clock() - entry.heard_before.unix_seconds)

    def heard_since(self, seconds: float) -> list[ClusterEntry]:
        """The clusters that were heard after a moment of the fleet's clock, since the start."""
        return [
            entry
            for entry in self._entries.values()
            if entry.heard_seconds is not None and entry.heard_seconds > seconds
        ]

    def rejections_by_reason(self) -> Counter[str]:
        """Rejected updates of all clusters, by reason."""
        return sum((entry.rejected for entry in self._entries.values()), Counter())

    def counters(self) -> dict[str, Any]:
        """What a snapshot keeps."""
        return {
            "clusters": {
                name: {"duplicates": entry.duplicates, "rejected": dict(entry.rejected)}
                for name, entry in self._entries.items()
            }
        }
