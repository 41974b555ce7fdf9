"""An elector: of several agents of one cluster, the one that holds a Lease acts, and knows for how long it may.

The client's own election reads the wall clock and never gives a lease back. Here a lease of others is watched on this
machine's own clock from when it last changed, without the time in which this process was stopped; one's own counts
from *before* the request that renewed it; and whoever has not renewed in time stops writing well before another may
begin. The API has no fencing: a frozen holder that wakes up sees by its clock that it is late, and what it had already
sent carries an epoch that whoever is written to compares.
"""

from __future__ import annotations

import math
import random
import threading
from dataclasses import dataclass
from typing import Any

import structlog

from cluster_agent.kubernetes.api_server import ApiServer, micro_time
from cluster_agent.kubernetes.errors import AlreadyExists, ApiError, Conflict, NotFound
from cluster_agent.kubernetes.resources import LEASES, Json, as_dict
from foundation.clocks import AwakeClock, Clock, UnixClock
from foundation.text import plain_line

_log = structlog.get_logger()

EPOCH = "fedl2.io/epoch"
"""An annotation: rises with every change of holder, also where a Lease was deleted in between."""


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """Durations in seconds; kube-controller-manager's own.

    `lease` less `renew_deadline` is left to a write that is under way at the deadline.

    Raises:
        ValueError: a lease would end before its holder stops.
    """

    lease_seconds: int = 15
    renew_deadline_seconds: float = 10.0
    retry_seconds: float = 2.0

    def __post_init__(self) -> None:
        if not 0 < self.retry_seconds < self.renew_deadline_seconds < self.lease_seconds:
            raise ValueError(f"a lease needs 0 < retry < renew deadline < lease: {self}")


class Elector:
    """One candidate; `step` is called by one thread, all else from any.

    Args:
        store: requests with a deadline below the renew deadline.
        identity: no other process's, ever.
        clock: seconds, which also pass while the machine sleeps (`CLOCK_BOOTTIME`).
        wall_clock: Unix seconds, for people, and for the epoch of a first Lease.
    """

    def __init__(
        self,
        store: ApiServer,
        namespace: str,
        name: str,
        identity: str,
        clock: Clock,
        wall_clock: UnixClock,
        times: LeaseTimes | None = None,
    ) -> None:
        self._store, self._namespace, self._name, self.identity = store, namespace, name, identity
        self._clock, self._wall_clock = clock, wall_clock
        self._times = times or LeaseTimes()
        # A holder is late by the time that passes for all; a watcher that was stopped could not see it renew.
        self._watch = AwakeClock(self._times.renew_deadline_seconds, clock)
        self._random = random.Random(identity)
        self._lock = threading.Lock()
        self._lease: Json | None = None
        self._seen: tuple[str, ...] | None = None
        self._seen_at = -math.inf
        self._renewed_at = -math.inf
        self._epoch = 0
        self._is_leader = False
        self._released = False

    @property
    def epoch(self) -> int:
        """Of the lease that is or was held; 0 before the first."""
        return self._epoch

    @property
    def seconds_left(self) -> float:
        """How long this process may still write; 0 where it may not."""
        with self._lock:
            if not self._is_leader or self._released:
                return 0.0
            return max(0.0, self._renewed_at + self._times.renew_deadline_seconds - self._clock())

    @property
    def holder(self) -> str:
        """Who holds the lease, as last seen; empty where nobody does."""
        return "" if self._lease is None else _holder_of(_spec_of(self._lease))

    def step(self) -> float:
        """Take the lease, renew it, or see who has it; the seconds to wait before the next step.

        What fails is tried again; a lease that could not be renewed in time is lost.
        """
        self._watch()
        if self._released:
            return self._times.retry_seconds
        if self._is_leader and not self.seconds_left:
            self._lose("not renewed in time")
        try:
            self._try()
        except (Conflict, AlreadyExists):
            # Somebody else wrote: look again at once, or nearly.
            self._lease = None
            return 0.1 * self._times.retry_seconds
        except ApiError as error:
            self._lease = None
            _log.warning("lease-unanswered", lease=self._name, error=plain_line(str(error)))
        # Candidates that look at the same moment would all write at the same moment.
        return self._times.retry_seconds * self._random.uniform(0.8, 1.2)

    def release(self) -> None:
        """Give the lease back, so that another may act at once; nothing is written from here on."""
        leads, lease = self.seconds_left > 0, self._lease
        with self._lock:
            self._released, self._is_leader = True, False
        if not leads or lease is None:
            return
        spec = {**_spec_of(lease), "holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": self._now()}
        try:
            self._store.replace(self._path, {**lease, "spec": spec})
        except ApiError as error:
            # It runs out by itself.
            _log.warning("lease-not-released", lease=self._name, error=plain_line(str(error)))

    @property
    def _path(self) -> str:
        return LEASES.path(self._namespace, self._name)

    def _try(self) -> None:
        lease = self._lease if self._is_leader else None
        if lease is None:
            try:
                lease = self._store.get(self._path)
            except NotFound:
                self._on_none()
                return
            self._see(lease)
        spec = _spec_of(lease)
        if self._is_leader and _holder_of(spec) == self.identity:
            try:
                self._write(lease, {**spec, "renewTime": self._now()}, self._epoch)
            except NotFound:
                self._on_none()
        elif self._is_leader:
            self._lose(f"{_holder_of(spec) or 'nobody'} has it")
        elif self._is_free(spec):
            self._acquire(lease)

    def _on_none(self) -> None:
        """Make a first Lease; one that was deleted is waited for as if it were held: its holder may still write."""
        if self._is_leader:
            self._lose("it was deleted")
        if self._seen is None:
            self._acquire(None)
        elif self._seen:
            self._lease, self._seen, self._seen_at = None, (), self._watch()
        elif self._watch() - self._seen_at > self._times.lease_seconds:
            self._acquire(None)

    def _see(self, lease: Json) -> None:
        spec = _spec_of(lease)
        seen = tuple(str(spec.get(name)) for name in ("holderIdentity", "renewTime", "leaseTransitions"))
        self._lease = lease
        if seen != self._seen:
            self._seen, self._seen_at = seen, self._watch()

    def _is_free(self, spec: Json) -> bool:
        if _holder_of(spec) in ("", self.identity):  # its own: the answer to an earlier request was lost
            return True
        stated = spec.get("leaseDurationSeconds")
        seconds = stated if isinstance(stated, int) and stated > 0 else 0
        return self._watch() - self._seen_at > max(seconds, self._times.lease_seconds)

    def _acquire(self, lease: Json | None) -> None:
        old = {} if lease is None else _spec_of(lease)
        transitions = old.get("leaseTransitions")
        now = self._now()
        spec = {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": self._times.lease_seconds,
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": transitions + 1 if isinstance(transitions, int) else 0,
        }
        epoch = max(self._epoch, 0 if lease is None else _epoch_of(lease)) + 1
        self._write(lease, spec, max(epoch, int(self._wall_clock())))
        _log.info("lease-acquired", lease=self._name, holder=self.identity, epoch=self._epoch)

    def _write(self, lease: Json | None, spec: Json, epoch: int) -> None:
        """Write the lease as one's own; it counts from before."""
        requested_at = self._clock()
        metadata: Json = {} if lease is None else dict(lease["metadata"])
        metadata |= {"name": self._name, "namespace": self._namespace}
        metadata["annotations"] = {**(metadata.get("annotations") or {}), EPOCH: str(epoch)}
        body = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": metadata, "spec": spec}
        if lease is None:
            stored = self._store.create(LEASES.path(self._namespace), body)
        else:
            stored = self._store.replace(self._path, body)
        self._see(stored)
        with self._lock:
            self._renewed_at, self._epoch, self._is_leader = requested_at, epoch, True

    def _lose(self, why: str) -> None:
        with self._lock:
            self._is_leader = False
        self._lease = None
        _log.warning("lease-lost", lease=self._name, why=why, epoch=self._epoch)

    def _now(self) -> str:
        return micro_time(self._wall_clock())


def _spec_of(lease: Json) -> Json:
    return as_dict(lease.get("spec"))


def _holder_of(spec: Json) -> str:
    holder: Any = spec.get("holderIdentity")
    return holder if isinstance(holder, str) else ""


def _epoch_of(lease: Json) -> int:
    """The epoch in a lease; 0 where there is none, or somebody wrote nonsense there."""
    epoch = ((lease.get("metadata") or {}).get("annotations") or {}).get(EPOCH)
    return int(epoch) if isinstance(epoch, str) and epoch.isascii() and epoch.isdigit() and len(epoch) < 19 else 0
