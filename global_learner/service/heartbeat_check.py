"""What a cluster may say of its jobs: bounded, so that a thousand clusters find room, and numbers that can be drawn."""

from __future__ import annotations

import math

from global_learner.errors import BadRequest
from policy_net.exchange.generated import fleet_pb2

MOST_JOBS = 16
MOST_POINTS = 128
MOST_INTERVENTIONS = 32
LONGEST_NAME_CHARACTERS = 253
LONGEST_SECONDS = 1e10
"""Three centuries: longer ones are no times, and would make numbers that nobody can draw."""


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
