"""Events: what an agent reports on an object, for `kubectl describe`.

Reports never wait: events stand in a short queue for a thread of their own, one that nobody can take is counted and
dropped, and the same one again within some minutes is the first event with a higher count.
"""

from __future__ import annotations

import itertools
import queue
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

import structlog

from cluster_agent.kubernetes.api_server import ApiServer, ContentType, whole_time
from cluster_agent.kubernetes.errors import AlreadyExists, ApiError, NotFound
from cluster_agent.kubernetes.resources import EVENTS, Json
from foundation.clocks import Clock, UnixClock
from foundation.text import plain_line

_log = structlog.get_logger()

_QUEUE_EVENTS = 200
_REMEMBERED = 1000
_SAME_SECONDS = 600.0
"""For this long the same is the same; a server forgets events after an hour."""
_LONGEST_MESSAGE = 1000
"""A server takes 1,024 bytes."""


class EventType(StrEnum):
    """What kubectl colours."""

    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True, slots=True)
class About:
    """The object that an event is about."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str = ""


@dataclass(frozen=True, slots=True)
class _Reported:
    path: str
    count: int
    at: float


_Key = tuple[About, str, str]


@dataclass(frozen=True, slots=True)
class _Once:
    """An event with a name of its own; `then` is called with whether it stands there now."""

    name: str
    then: Callable[[bool], None]


class EventRecorder:
    """Reports on objects; `record` from any thread, `step` by one.

    Args:
        instance: who reports.
        on_reported: called with the kind of the object and the reason, whether or not the event comes to be written.
    """

    def __init__(
        self,
        store: ApiServer,
        instance: str,
        clock: Clock,
        wall_clock: UnixClock,
        on_reported: Callable[[str, str], None] = lambda *_: None,
    ) -> None:
        self._store, self._instance, self._clock, self._wall_clock = store, instance, clock, wall_clock
        self.count = on_reported
        self._waiting: queue.Queue[tuple[_Key, EventType, _Once | None]] = queue.Queue(_QUEUE_EVENTS)
        self._reported: OrderedDict[_Key, _Reported] = OrderedDict()
        self._numbers = itertools.count(int(wall_clock() * 1e6))
        self.dropped = 0

    def record(self, about: About, reason: str, message: str, event_type: EventType = EventType.NORMAL) -> None:
        """Report something on an object, the reason in CamelCase; never waits, never fails."""
        self.count(about.kind, reason)
        try:
            self._waiting.put_nowait(((about, reason, plain_line(message, _LONGEST_MESSAGE)), event_type, None))
        except queue.Full:
            self.dropped += 1

    def report_once(self, about: About, name: str, reason: str, message: str, then: Callable[[bool], None]) -> None:
        """Report something under a name of its own, however often and by whomever; never waits, never fails.

        Args:
            name: of the event, the same whenever this is reported.
            then: called once, from any thread, with whether the event stands there now; must not block.
        """
        key = about, reason, plain_line(message, _LONGEST_MESSAGE)
        try:
            self._waiting.put_nowait((key, EventType.NORMAL, _Once(name, then)))
        except queue.Full:
            self.dropped += 1
            then(False)

    def step(self, timeout_seconds: float) -> bool:
        """Send the next event that waits; False where none came in time."""
        try:
            key, event_type, once = self._waiting.get(timeout=timeout_seconds)
        except queue.Empty:
            return False
        try:
            if once is None:
                self._send(key, event_type)
            else:
                self._send_once(key, once)
        except ApiError as error:
            self.dropped += 1
            if once is not None:
                once.then(False)
            _log.warning("kubernetes-event", error=plain_line(str(error)))
        return True

    def run(self, is_stopping: Callable[[], bool]) -> None:
        """Send events until told to stop, and then those that still wait."""
        while self.step(0.5) or not is_stopping():
            pass

    def _send(self, key: _Key, event_type: EventType) -> None:
        now = self._clock()
        reported = self._reported.pop(key, None)
        if reported is not None and now - reported.at < _SAME_SECONDS:
            reported = replace(reported, count=reported.count + 1)
            try:
                patch = {"count": reported.count, "lastTimestamp": self._time()}
                self._store.patch(reported.path, patch, ContentType.MERGE_PATCH)
            except NotFound:  # somebody tidied up
                reported = None
        else:
            reported = None
        if reported is None:
            reported = self._create(key, event_type, now)
        self._reported[key] = reported
        if len(self._reported) > _REMEMBERED:
            self._reported.popitem(last=False)

    def _send_once(self, key: _Key, once: _Once) -> None:
        try:
            self._create(key, EventType.NORMAL, self._clock(), once.name)
        except AlreadyExists:  # it was told before, by this agent or another
            pass
        else:
            self.count(key[0].kind, key[1])
        once.then(True)

    def _create(self, key: _Key, event_type: EventType, now: float, name: str = "") -> _Reported:
        about, reason, message = key
        namespace = about.namespace or "default"
        # Names are at most 253 letters long; those of objects may be that themselves.
        name = name or f"{about.name[:200].rstrip('.-')}.{next(self._numbers):x}"
        time = self._time()
        body: Json = {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": {
                "apiVersion": about.api_version,
                "kind": about.kind,
                "name": about.name,
                **({"namespace": about.namespace} if about.namespace else {}),
                **({"uid": about.uid} if about.uid else {}),
            },
            "reason": reason,
            "message": message,
            "type": event_type,
            "count": 1,
            "firstTimestamp": time,
            "lastTimestamp": time,
            "source": {"component": "fedl2-agent"},
            "reportingComponent": "fedl2.io/agent",
            "reportingInstance": self._instance,
        }
        self._store.create(EVENTS.path(namespace), body)
        return _Reported(EVENTS.path(namespace, name), 1, now)

    def _time(self) -> str:
        return whole_time(self._wall_clock())
