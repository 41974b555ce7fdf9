"""Heartbeats: what a cluster may say of itself and its jobs, and what is noted of it in the log and the audit log."""

from __future__ import annotations

import math
import re
from collections.abc import Awaitable, Callable, Hashable

import structlog

from global_learner.errors import BadRequest, LearnerError, TooOften
from global_learner.service.lanes import RateLimits
from global_learner.telemetry import OTHER_REFUSAL, LearnerTelemetry
from policy_net.exchange.generated import fleet_pb2
from policy_net.exchange.rollout_assignment import AssignmentRole
from policy_net.exchange.signed_documents import VERSION_REFUSALS

_log = structlog.get_logger()

# What a heartbeat may say. It is kept, and shown to whoever asks for the fleet: bounded, so that a thousand clusters
# find room, in words that fit a line, and in numbers that can be drawn.

MOST_JOBS = 16
MOST_POINTS = 128
MOST_INTERVENTIONS = 32
MOST_SCHEDULERS = 6
"""As the cluster ran, FIFO with EASY backfill, the fallback, what was recorded, and room for two more."""
MOST_STEPS = 256
_SHORTEST_STEP_SECONDS = 1e-3
_MOST_GPUS = 1e7
_LONGEST_NAME_CHARACTERS = 253
_MAX_INTERVENTION_REASONS = 64
_WORD = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_LARGEST_SECONDS = 1e12
"""Thirty thousand years; a figure beyond it fills a person's screen with noughts."""
_LARGEST_NUMBER = 2**63 - 1
"""Of a version or a step: as databases keep them."""
_LATEST_SECONDS = 2.5e11
"""Of a day that a page names: calendars end soon after."""
_LONGEST_SECONDS = 1e10
"""Three centuries: longer ones are no times, and would make numbers that nobody can draw."""


def check_status(status: fleet_pb2.ClusterStatus) -> None:
    """Check everything in a heartbeat's status, and drop what this program does not know: it must not be kept with it.

    Raises:
        BadRequest: too much of something, out of order, or a value that no agent sends.
    """
    status.DiscardUnknownFields()  # type: ignore[attr-defined]  # protobuf's stubs forgot it
    _check_words_and_numbers(status)
    if len(status.job_timelines) > MOST_JOBS:
        raise BadRequest(f"status.job_timelines has {len(status.job_timelines)} jobs; at most {MOST_JOBS} are taken")
    for timeline in status.job_timelines:
        _check_timeline(timeline)
    _check_schedulers("status", status)
    if status.HasField("replayed"):
        past = status.replayed
        _check_job_times("status.replayed", past, "avg_jct_seconds", "twin_jct_seconds")
        if not (0.0 <= past.begin_seconds <= past.end_seconds - 1.0 and past.end_seconds <= _LATEST_SECONDS):
            raise BadRequest(
                "status.replayed: its days must end a second or more after they began, not in ages to come"
            )
        _check_schedulers("status.replayed", past)


def _check_words_and_numbers(status: fleet_pb2.ClusterStatus) -> None:
    if not 0.0 <= status.time_seconds <= _LARGEST_SECONDS:
        raise BadRequest(
            f"status.time_seconds is {status.time_seconds:g}; it must be a number of seconds, at most "
            f"{_LARGEST_SECONDS:g}"
        )
    _check_job_times("status", status, "avg_jct_seconds", "baseline_jct_seconds")
    for name in ("acting_version", "refused_version", "learning_step"):
        if getattr(status, name) > _LARGEST_NUMBER:
            raise BadRequest(f"status.{name} is {getattr(status, name)}; at most {_LARGEST_NUMBER} is taken")
    reasons = status.guard_interventions
    if len(reasons) > _MAX_INTERVENTION_REASONS or not all(_WORD.fullmatch(reason) for reason in reasons):
        raise BadRequest(
            f"status.guard_interventions has more than {_MAX_INTERVENTION_REASONS} reasons, or one that is no word of "
            "at most 63 lower-case letters, digits and '-'"
        )
    if bool(status.refused_version) is not bool(status.refused_reason) or (
        status.refused_reason and not _WORD.fullmatch(status.refused_reason)
    ):
        raise BadRequest("status.refused_reason must be a word of lower-case letters where there is a refused_version")
    if status.rollout_role not in ("", *AssignmentRole):
        raise BadRequest(f"status.rollout_role is none of {', '.join(AssignmentRole)}, and not empty")
    if status.baseline_policy and not _WORD.fullmatch(status.baseline_policy):
        raise BadRequest("status.baseline_policy is no scheduler's name; it is a word of lower-case letters")


def _check_job_times(where: str, reported: fleet_pb2.ClusterStatus | fleet_pb2.ReplayedPast, *names: str) -> None:
    for name in names:
        if not _is_time(getattr(reported, name)):
            raise BadRequest(f"{where}.{name} is {getattr(reported, name)}; no job takes that long")


def _check_timeline(timeline: fleet_pb2.JobTimeline) -> None:
    where = f"status.job_timelines, job {timeline.number}"
    if len(timeline.held) > MOST_POINTS or len(timeline.interventions) > MOST_INTERVENTIONS:
        raise BadRequest(f"{where}: more than {MOST_POINTS} points, or more than {MOST_INTERVENTIONS} interventions")
    names = (timeline.job_type, *(intervention.reason for intervention in timeline.interventions))
    if any(len(name) > _LONGEST_NAME_CHARACTERS for name in names):
        raise BadRequest(f"{where}: a name has more than {_LONGEST_NAME_CHARACTERS} characters")
    for moments in (timeline.held, timeline.interventions):
        times = [0.0, *(moment.seconds for moment in moments)]
        if not all(map(_is_time, times)) or times != sorted(times):
            raise BadRequest(f"{where}: its times must be finite seconds since the submission, in order")
    if not _is_time(timeline.seconds):
        raise BadRequest(f"{where}: {timeline.seconds} is no time in the system")


def _check_schedulers(where: str, reported: fleet_pb2.ClusterStatus | fleet_pb2.ReplayedPast) -> None:
    """Check the curves of load, and what jobs take under other schedulers."""
    for name, entries in (("load", reported.load), ("baselines", reported.baselines)):
        if len(entries) > MOST_SCHEDULERS:
            raise BadRequest(f"{where}.{name} is of {len(entries)} schedulers; at most {MOST_SCHEDULERS} are taken")
        policies = [entry.policy for entry in entries]
        if len(set(policies)) < len(policies) or not all(
            policy == "" or _WORD.fullmatch(policy) for policy in policies
        ):
            raise BadRequest(f"{where}.{name} has a scheduler twice, or one that is no word of lower-case letters")
    for baseline in reported.baselines:
        if not (baseline.policy and _is_time(baseline.avg_jct_seconds)):
            raise BadRequest(f"{where}.baselines has {baseline.avg_jct_seconds} s for {baseline.policy!r}")
    for curve in reported.load:
        _check_curve(f"{where}.load, scheduler {curve.policy!r}", curve)


def _check_curve(where: str, curve: fleet_pb2.LoadCurve) -> None:
    series = (curve.gpus_used, curve.jobs_waiting, curve.gpus)
    steps = len(curve.gpus)
    if not 1 <= steps <= MOST_STEPS or any(len(values) != steps for values in series):
        raise BadRequest(f"{where}: has {steps} steps, or not as many of each; 1 to {MOST_STEPS} are taken")
    is_timed = all(0.0 <= moment <= _LARGEST_SECONDS for moment in (curve.begin_seconds, curve.nearly_done_seconds))
    if not (is_timed and _SHORTEST_STEP_SECONDS <= curve.step_seconds <= _LONGEST_SECONDS):
        raise BadRequest(f"{where}: it begins at 0 s or later, and a step is {_SHORTEST_STEP_SECONDS:g} s or longer")
    for values in series:
        if not math.isfinite(sum(values)) or min(values) < -1.0 or max(values) > _MOST_GPUS:
            raise BadRequest(f"{where}: its amounts must be numbers of at most {_MOST_GPUS:g}, or -1 for not known")


def _is_time(seconds: float) -> bool:
    return math.isfinite(seconds) and 0.0 <= seconds <= _LONGEST_SECONDS


MOST_AHEAD = 10_000
"""Versions above the newest one of when the learner began; fifty a day for half a year. What says more is noted, and
not believed."""
_PER_MINUTE, _AT_ONCE = 6.0, 20
"""Lines of one cluster in the audit log; a sound agent has one of a kind now and then."""
_LINE = "line"

Note = Callable[[str, int, str], Awaitable[object]]
"""Writes down of a cluster what is to be said of a version; durable when it returns, LearnerError if it cannot be."""


class _NotedOnce:
    """Lines about clusters in the audit log, each once; for one event loop.

    Agents repeat what they say with every heartbeat, so a line that could not be written, or not yet, is written later:
    a cluster that makes things up fills no disk, at so many lines a minute.
    """

    def __init__(self, note: Note, failed: str, clock: Callable[[], float]) -> None:
        self._note = note
        self._failed = failed
        self._rates = RateLimits({_LINE: _PER_MINUTE}, _AT_ONCE, clock)
        self._noted: dict[str, Hashable] = {}

    def holds(self, cluster: str, what: Hashable) -> bool:
        """Whether this was noted of the cluster last."""
        return self._noted.get(cluster) == what

    async def note(self, cluster: str, what: Hashable, version: int, text: str) -> bool:
        """Note it; False if it cannot be noted now, which never fails the heartbeat."""
        try:
            self._rates.take(cluster, _LINE)
            await self._note(cluster, version, text)
        except TooOften:
            return False
        except LearnerError as error:
            _log.error(self._failed, cluster=cluster, version=version, reason=str(error), advice="tried again")
            return False
        self._noted[cluster] = what
        return True


class ClustersAhead:
    """Clusters that act on a version, or learned at a head, that the learner does not know; for one event loop.

    That is so where an older state of the learner was restored, as from a backup: what it published since is in use,
    and would get its number again with other content. No version gets a number that a cluster knows (`note` passes
    these over); one that makes numbers up cannot move them further than `MOST_AHEAD`.
    """

    def __init__(self, note: Note, clock: Callable[[], float]) -> None:
        self._lines = _NotedOnce(note, "cluster-ahead-not-noted", clock)
        self._begun_at: int | None = None

    async def on_status(
        self, cluster: str, status: fleet_pb2.ClusterStatus, newest_version: int, head_step: int
    ) -> None:
        """Take what a registered cluster says, beside this learner's newest version and head."""
        version = status.acting_version if status.acting_version > newest_version else 0
        is_head = status.learning_step > head_step
        if not (version or is_head) or self._lines.holds(cluster, (version, is_head)):
            return
        if self._begun_at is None:
            self._begun_at = newest_version
        # From where this learner began: else each version that it publishes would let numbers go as far again.
        believed = version <= self._begun_at + MOST_AHEAD
        remarks = []
        if version:
            remarks.append(f"acts on v{version}, and the newest here is v{newest_version}")
            too_far = f"no version is so far ahead: the next number stays v{newest_version + 1}"
            remarks.append(f"the next is v{version + 1} or above" if believed else too_far)
        if is_head:
            remarks.append(f"learned at head step {status.learning_step}, and the head here is at {head_step}")
        if await self._lines.note(cluster, (version, is_head), version if believed else 0, "; ".join(remarks)):
            _log.error(
                "cluster-ahead",
                cluster=cluster,
                acting_version=status.acting_version,
                newest_version=newest_version,
                learning_step=status.learning_step,
                head_step=head_step,
                advice="was an older state of the learner restored? see `policyctl fleet`",
            )


class VersionRefusals:
    """Versions that clusters refuse now: counted, logged, and kept in the audit log; for one event loop."""

    def __init__(self, note: Note, telemetry: LearnerTelemetry, clock: Callable[[], float]) -> None:
        self._lines = _NotedOnce(note, "refusal-not-noted", clock)
        self._telemetry = telemetry
        self._reported: dict[str, tuple[int, str]] = {}

    async def on_status(self, cluster: str, status: fleet_pb2.ClusterStatus) -> None:
        """Take what a registered cluster says."""
        if not status.refused_version:
            if self._reported.pop(cluster, None) is not None:
                self._telemetry.on_refused_version(cluster, 0)
            return
        word = status.refused_reason if status.refused_reason in VERSION_REFUSALS else OTHER_REFUSAL
        version = status.refused_version
        self._telemetry.on_refused_version(cluster, version, word)
        if self._reported.get(cluster) != (version, status.refused_reason):
            self._reported[cluster] = (version, status.refused_reason)
            self._telemetry.refused_versions.labels(word).inc()
            _log.warning("version-refused", cluster=cluster, version=version, reason=status.refused_reason)
        if not self._lines.holds(cluster, (version, word)):
            await self._lines.note(cluster, (version, word), version, word)
