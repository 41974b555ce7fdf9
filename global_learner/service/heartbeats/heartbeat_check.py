"""Check of a heartbeat: what a cluster may say of itself and its jobs.

It is kept, and shown to whoever asks for the fleet: bounded, so that a thousand clusters find room, in words that fit a
line, and in numbers that can be drawn.
"""

from __future__ import annotations

import math
import re

from global_learner.errors import BadRequest
from policy_net.exchange.generated import fleet_pb2
from policy_net.exchange.rollout_assignment import AssignmentRole

MOST_JOBS = 16
MOST_POINTS = 128
MOST_INTERVENTIONS = 32
MOST_SCHEDULERS = 6
"""As the cluster ran, FIFO with EASY backfill, the fallback, what was recorded, and room for two more."""
MOST_STEPS = 256
_SHORTEST_STEP_SECONDS = 1e-3
_MOST_GPUS = 1e7
LONGEST_NAME_CHARACTERS = 253
_MAX_INTERVENTION_REASONS = 64
_WORD = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_LARGEST_SECONDS = 1e12
_LARGEST_NUMBER = 2**63 - 1
"""Of a version or a step: as databases keep them."""
_LATEST_SECONDS = 2.5e11
"""Of a day that a page names: calendars end soon after."""
"""Thirty thousand years; a figure beyond it fills a person's screen with noughts."""
LONGEST_SECONDS = 1e10
"""Three centuries: longer ones are no times, and would make numbers that nobody can draw."""


def check_status(status: fleet_pb2.ClusterStatus) -> None:
    """Check everything in a heartbeat's status, and drop what this program does not know: it must not be kept with it.

    Raises:
        BadRequest: too much of something, or a value that no agent sends.
    """
    status.DiscardUnknownFields()  # type: ignore[attr-defined]  # protobuf's stubs forgot it
    _check_words_and_times(status)
    check_timelines(status)
    check_load(status)
    check_replayed(status)


def check_timelines(status: fleet_pb2.ClusterStatus) -> None:
    """Check the timelines, the baseline's name and the average times of a heartbeat.

    Raises:
        BadRequest: too many, too long, or out of order.
    """
    if len(status.baseline_policy) > LONGEST_NAME_CHARACTERS:
        raise BadRequest(f"status.baseline_policy has more than {LONGEST_NAME_CHARACTERS} characters")
    for name in ("avg_jct_seconds", "baseline_jct_seconds"):
        if not _is_time(getattr(status, name)):
            raise BadRequest(f"status.{name} is {getattr(status, name)}; no job takes that long")
    if len(status.job_timelines) > MOST_JOBS:
        raise BadRequest(f"status.job_timelines has {len(status.job_timelines)} jobs; at most {MOST_JOBS} are taken")
    for timeline in status.job_timelines:
        _check(timeline)


def check_load(status: fleet_pb2.ClusterStatus) -> None:
    """Check the curves of load, and what jobs take under other schedulers.

    Raises:
        BadRequest: too many, too long, of no scheduler, or with a number that no agent sends.
    """
    _check_schedulers("status", status)


def check_replayed(status: fleet_pb2.ClusterStatus) -> None:
    """Check what a cluster says of replays of its past.

    Raises:
        BadRequest: as `check_load`, or days that end before they begin, or a time that no job takes.
    """
    if not status.HasField("replayed"):
        return
    past = status.replayed
    for name in ("avg_jct_seconds", "twin_jct_seconds"):
        if not _is_time(getattr(past, name)):
            raise BadRequest(f"status.replayed.{name} is {getattr(past, name)}; no job takes that long")
    if not (0.0 <= past.begin_seconds <= past.end_seconds - 1.0 and past.end_seconds <= _LATEST_SECONDS):
        raise BadRequest("status.replayed: its days must end a second or more after they began, not in ages to come")
    _check_schedulers("status.replayed", past)


def _check_schedulers(where: str, reported: fleet_pb2.ClusterStatus | fleet_pb2.ReplayedPast) -> None:
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
    if not (is_timed and _SHORTEST_STEP_SECONDS <= curve.step_seconds <= LONGEST_SECONDS):
        raise BadRequest(f"{where}: it begins at 0 s or later, and a step is {_SHORTEST_STEP_SECONDS:g} s or longer")
    for values in series:
        if not math.isfinite(sum(values)) or min(values) < -1.0 or max(values) > _MOST_GPUS:
            raise BadRequest(f"{where}: its amounts must be numbers of at most {_MOST_GPUS:g}, or -1 for not known")


def _check_words_and_times(status: fleet_pb2.ClusterStatus) -> None:
    for name in ("time_seconds", "avg_jct_seconds", "baseline_jct_seconds"):
        value = getattr(status, name)
        if not 0.0 <= value <= _LARGEST_SECONDS:
            raise BadRequest(
                f"status.{name} is {value:g}; it must be a number of seconds, at most {_LARGEST_SECONDS:g}"
            )
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


def _check(timeline: fleet_pb2.JobTimeline) -> None:
    where = f"status.job_timelines, job {timeline.number}"
    if len(timeline.held) > MOST_POINTS or len(timeline.interventions) > MOST_INTERVENTIONS:
        raise BadRequest(f"{where}: more than {MOST_POINTS} points, or more than {MOST_INTERVENTIONS} interventions")
    names = (timeline.job_type, *(intervention.reason for intervention in timeline.interventions))
    if any(len(name) > LONGEST_NAME_CHARACTERS for name in names):
        raise BadRequest(f"{where}: a name has more than {LONGEST_NAME_CHARACTERS} characters")
    for moments in (timeline.held, timeline.interventions):
        times = [0.0, *(moment.seconds for moment in moments)]
        if not all(map(_is_time, times)) or times != sorted(times):
            raise BadRequest(f"{where}: its times must be finite seconds since the submission, in order")
    if not _is_time(timeline.seconds):
        raise BadRequest(f"{where}: {timeline.seconds} is no time in the system")


def _is_time(seconds: float) -> bool:
    return math.isfinite(seconds) and 0.0 <= seconds <= LONGEST_SECONDS
