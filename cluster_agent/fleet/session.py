"""State that all threads share which call the learner: the registration, and the refusals that were logged.

The heartbeat and the trainer run in threads of their own and share one session, so that a learner which asks for a new
registration gets one, not two. Heartbeats, updates and rounds are each asked again after a refusal, for as long as the
agent runs, and of a cluster that was turned out all of them are refused in the same words. Logged each time, that would
bury everything else.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import structlog

from cluster_agent.fleet.learner_protocol import LearnerCalls
from cluster_agent.fleet.name_contest import NameContest
from cluster_agent.fleet.outage import Outage
from cluster_agent.settings import RetrySettings
from cluster_agent.telemetry import AgentTelemetry
from foundation.backoff import Backoff
from policy_net.errors import LearnerRefused
from policy_net.exchange.learner_answers import Registration

_log = structlog.get_logger()

_LEAST_SHARE = 0.1
"""Of its bound; no wait at all would be a busy loop."""
_FIRST_SILENCE_SECONDS = 60.0
_LONGEST_SILENCE_SECONDS = 3600.0
_MOST_REASONS = 16
"""Words that change with every refusal must not fill the memory; the oldest are forgotten."""


class Session:
    """The registration with the learner, made on demand; safe to use from several threads."""

    def __init__(
        self,
        learner: LearnerCalls,
        spec_digest: str,
        job_types: Sequence[str],
        clock: Callable[[], float] = time.monotonic,
        cluster: str = "this cluster",
    ) -> None:
        self.refusals = Refusals(clock)
        self.outage = Outage(clock)
        self._contest = NameContest(cluster, clock)
        self._learner = learner
        self._spec_digest = spec_digest
        self._job_types = job_types
        self._registration: Registration | None = None
        self._lock = threading.Lock()

    @property
    def current(self) -> Registration | None:
        """The registration in force, without asking for one."""
        return self._registration

    def in_rounds(self) -> bool:
        """Whether the learner is known to work in rounds."""
        current = self._registration
        return current is not None and current.rounds

    def registered(self) -> Registration:
        """The registration in force; asks for one if there is none.

        Raises:
            LearnerUnreachable, LearnerRefused: as `LearnerCalls.register`.
            NameContested: another agent has the name, and it is not time to take it back yet.
        """
        with self._lock:
            if self._registration is None:
                self._contest.on_ask()
                self._registration = self._learner.register(self._spec_digest, self._job_types)
                self._contest.on_registered(self._registration.incarnation)
                _log.info(
                    "agent-registered",
                    incarnation=self._registration.incarnation,
                    head_step=self._registration.head_step,
                    learning=self._registration.learning,
                )
            return self._registration

    def forget(self, incarnation: int) -> None:
        """The learner does not know this incarnation (any more); a newer one is left alone."""
        with self._lock:
            if self._registration is not None and self._registration.incarnation == incarnation:
                self._registration = None
                self._contest.on_superseded()


@dataclass(frozen=True, slots=True)
class LearnerAccess:
    """How one thread calls the learner; learner, session and telemetry are shared, the waits are its own."""

    learner: LearnerCalls
    session: Session
    telemetry: AgentTelemetry
    backoff: Backoff


def retry_backoff(settings: RetrySettings, seed: str) -> Backoff:
    """Waits of one thread of one cluster: with other seeds others, or a fleet would knock all at once."""
    return Backoff(seed, settings.initial_seconds, settings.maximum_seconds, _LEAST_SHARE)


@dataclass(slots=True)
class _Refusal:
    due_seconds: float
    silence_seconds: float = _FIRST_SILENCE_SECONDS
    times: int = 1
    callers: set[str] = field(default_factory=set)


class Refusals:
    """Log lines about refusals: one when they begin, then fewer and fewer; safe to use from several threads.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._known: dict[str, _Refusal] = {}
        self._lock = threading.Lock()

    def on_refused(self, caller: str, error: LearnerRefused) -> None:
        """A caller (heartbeat, update or round) was refused; logged if it is new, or due again."""
        said = str(error)
        reason = said.partition(": ")[2] or said  # the same for every call, whose name stands before it
        with self._lock:
            now = self._clock()
            refusal = self._known.get(reason)
            if refusal is None:
                if len(self._known) >= _MOST_REASONS:
                    del self._known[next(iter(self._known))]
                self._known[reason] = _Refusal(now + _FIRST_SILENCE_SECONDS, callers={caller})
                _log.error("learner-refused", error=said, scheduling="goes on")
                return
            refusal.callers.add(caller)
            refusal.times += 1
            if now >= refusal.due_seconds:
                refusal.silence_seconds = min(2.0 * refusal.silence_seconds, _LONGEST_SILENCE_SECONDS)
                refusal.due_seconds = now + refusal.silence_seconds
                _log.error("refusal-repeated", error=said, times=refusal.times, scheduling="goes on")

    def on_answered(self, caller: str) -> None:
        """A caller was not refused; the next refusal of what nobody is refused any more is new."""
        with self._lock:
            for reason, refusal in list(self._known.items()):
                refusal.callers.discard(caller)
                if not refusal.callers:
                    del self._known[reason]


class RepeatedWork:
    """A thread that does its work again and again, with waits that the work asks for; the work is the subclass's."""

    def __init__(self, name: str) -> None:
        """`name` is the thread's."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin, in a thread of its own."""
        self._thread.start()

    def finish(self, seconds: float) -> None:
        """Stop, after what is under way and what is done at the end; waits at most so long for it."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(seconds)

    def _attempt(self) -> float:
        """Do it once, and raise nothing; how many seconds to wait before the next time."""
        raise NotImplementedError

    def _at_end(self) -> None:
        """Done once after the last time, if anything."""

    def _run(self) -> None:
        while not self._stop.is_set():
            self._stop.wait(self._attempt())
        self._at_end()
