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

from cluster_agent.errors import NameContested
from cluster_agent.fleet.learner_client import LearnerClient
from cluster_agent.settings import RetrySettings
from cluster_agent.telemetry import AgentTelemetry
from foundation.backoff import Backoff
from policy_net.errors import LearnerRefused, LearnerUnreachable
from policy_net.exchange.wire import Registration

_log = structlog.get_logger()

_LEAST_SHARE = 0.1
"""Of its bound; no wait at all would be a busy loop."""
_FIRST_SILENCE_SECONDS = 60.0
_LONGEST_SILENCE_SECONDS = 3600.0
_MOST_REASONS = 16
"""Words that change with every refusal must not fill the memory; the oldest are forgotten."""


# Two agents may call themselves the same, each registering over the other. A learner gives every registration of a name
# the next number: an agent that gets one further on than it asked for knows that somebody else registered in between.
# Once, that is a restored learner or an agent that moved; again within half an hour, it is a second agent. Then this
# one takes the name back less and less often, so that neither floods the learner; its cluster is scheduled meanwhile.

_REMEMBERED_SECONDS = 1800.0
"""Longer than two of the longest waits: the other agent's wait is when this one has the name for itself."""
_FIRST_WAIT_SECONDS = 30.0
_LONGEST_WAIT_SECONDS = 300.0


class NameContest:
    """What is known of another agent of this name; the caller's lock keeps threads apart."""

    def __init__(self, cluster: str, clock: Callable[[], float]) -> None:
        self._cluster = cluster
        self._clock = clock
        self._incarnation: int | None = None
        self._attempts = 0
        self._times = 0
        self._latest_seconds = 0.0
        self._not_before = 0.0

    def on_superseded(self) -> None:
        """The learner does not know this agent's incarnation any more: another one may have registered."""
        self._not_before = self._clock() + self._wait_seconds()

    def on_ask(self) -> None:
        """A registration is asked for, whether or not its answer arrives.

        Raises:
            NameContested: it is not time to take the name back yet.
        """
        left_seconds = self._not_before - self._clock()
        if left_seconds > 0:
            raise NameContested(
                f"another agent calls itself {self._cluster}; this one takes the name back in {left_seconds:.0f} s"
            )
        self._attempts += 1

    def on_registered(self, incarnation: int) -> None:
        """Take a new incarnation's number; one that nobody here asked for is another agent's, and said so."""
        now, before = self._clock(), self._incarnation
        is_other = before is not None and incarnation > before + self._attempts
        self._incarnation, self._attempts = incarnation, 0
        if not is_other:
            return
        if now - self._latest_seconds > _REMEMBERED_SECONDS:
            self._times = 0
        self._times += 1
        self._latest_seconds = now
        wait_seconds = self._wait_seconds()
        if wait_seconds:
            # As often as the name is taken back, and so no more often than the waits allow.
            _log.error(
                "name-contested",
                error=f"another agent calls itself {self._cluster}",
                advice="give each cluster a name of its own (cluster: in its configuration), or stop the other agent",
                waits_seconds=wait_seconds,
                scheduling="goes on",
            )

    def _wait_seconds(self) -> float:
        """How long to leave the name alone when it is lost next."""
        if self._times < 2 or self._clock() - self._latest_seconds > _REMEMBERED_SECONDS:
            return 0.0
        return float(min(_FIRST_WAIT_SECONDS * 2.0 ** (self._times - 2), _LONGEST_WAIT_SECONDS))


# A learner is missed for one reason first, and perhaps for another when it is back with other settings: only the last
# says what to mend. A reason is said once an hour at most, and none within ten seconds of another.

_PAUSE_SECONDS = 10.0
_SAME_AGAIN_SECONDS = 3600.0


class Outage:
    """What was said since the learner was lost; used by one thread."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._latest = ""
        self.reported: dict[str, float] = {}
        self._due_seconds = 0.0

    def on_unanswered(self, error: LearnerUnreachable) -> None:
        """The learner did not answer; logged if it is new, or why is."""
        message = str(error)
        reason = message.partition(": ")[2] or message  # the same for every call, whose name stands before it
        now = self._clock()
        if reason == self._latest or (self.reported and now < self._due_seconds):
            return
        again_seconds = self.reported.get(reason)
        is_new = again_seconds is None and len(self.reported) < _MOST_REASONS
        if not is_new and (again_seconds is None or now < again_seconds):
            return
        _log.warning("learner-lost", error=message)
        self._latest, self.reported[reason] = reason, now + _SAME_AGAIN_SECONDS
        self._due_seconds = now + _PAUSE_SECONDS

    def on_answered(self) -> None:
        """The learner answered; logged if it had been lost."""
        if self.reported:
            _log.info("learner-returned")
        self._latest = ""
        self.reported.clear()


class Session:
    """The registration with the learner, made on demand (`registration` makes none); safe to use from any thread."""

    def __init__(
        self,
        learner: LearnerClient,
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
        self.registration: Registration | None = None
        self._lock = threading.Lock()

    def in_rounds(self) -> bool:
        """Whether the learner is known to work in rounds."""
        registration = self.registration
        return registration is not None and registration.rounds

    def registered(self) -> Registration:
        """The registration in force; asks for one if there is none.

        Raises:
            LearnerUnreachable, LearnerRefused: as `LearnerClient.register`.
            NameContested: another agent has the name, and it is not time to take it back yet.
        """
        with self._lock:
            if self.registration is None:
                self._contest.on_ask()
                self.registration = self._learner.register(self._spec_digest, self._job_types)
                self._contest.on_registered(self.registration.incarnation)
                _log.info(
                    "agent-registered",
                    incarnation=self.registration.incarnation,
                    head_step=self.registration.head_step,
                    learning=self.registration.learning,
                )
            return self.registration

    def forget(self, incarnation: int) -> None:
        """The learner does not know this incarnation (any more); a newer one is left alone."""
        with self._lock:
            if self.registration is not None and self.registration.incarnation == incarnation:
                self.registration = None
                self._contest.on_superseded()


@dataclass(frozen=True, slots=True)
class LearnerAccess:
    """How one thread calls the learner; learner, session and telemetry are shared, the waits are its own."""

    learner: LearnerClient
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
    """Log lines about refusals: one when they begin, then fewer and fewer; safe to use from several threads."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.known: dict[str, _Refusal] = {}
        self._lock = threading.Lock()

    def on_refused(self, caller: str, error: LearnerRefused) -> None:
        """A caller (heartbeat, update or round) was refused; logged if it is new, or due again."""
        message = str(error)
        reason = message.partition(": ")[2] or message  # the same for every call, whose name stands before it
        with self._lock:
            now = self._clock()
            refusal = self.known.get(reason)
            if refusal is None:
                if len(self.known) >= _MOST_REASONS:
                    del self.known[next(iter(self.known))]
                self.known[reason] = _Refusal(now + _FIRST_SILENCE_SECONDS, callers={caller})
                _log.error("learner-refused", error=message, scheduling="goes on")
                return
            refusal.callers.add(caller)
            refusal.times += 1
            if now >= refusal.due_seconds:
                refusal.silence_seconds = min(2.0 * refusal.silence_seconds, _LONGEST_SILENCE_SECONDS)
                refusal.due_seconds = now + refusal.silence_seconds
                _log.error("refusal-repeated", error=message, times=refusal.times, scheduling="goes on")

    def on_answered(self, caller: str) -> None:
        """A caller was not refused; the next refusal of what nobody is refused any more is new."""
        with self._lock:
            for reason, refusal in list(self.known.items()):
                refusal.callers.discard(caller)
                if not refusal.callers:
                    del self.known[reason]


class RepeatedWork:
    """A thread that does its work again and again, with waits that the work asks for; the work is the subclass's."""

    def __init__(self, name: str) -> None:
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

    def attempt(self) -> float:
        """Do it once, and raise nothing; how many seconds to wait before the next time."""
        raise NotImplementedError

    def _at_end(self) -> None:
        """Done once after the last time, if anything."""

    def _run(self) -> None:
        while not self._stop.is_set():
            self._stop.wait(self.attempt())
        self._at_end()
