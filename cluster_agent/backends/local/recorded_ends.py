"""Ends of jobs that the agent of this machine knows of and has not logged.

An end is logged with the interval in which it is seen. While only jobs run about which there is nothing to decide, such
as scripts of one size, there is none; the table of jobs has their ends all the same.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from cluster_agent.backends.local.job_table import SUBMITTED, ends_in
from policy_net.laboratory.workloads.decided import RecordedJobs


def with_ends_since(recorded: RecordedJobs, log: Path) -> RecordedJobs:
    """The jobs of a decision log with the ends that its agent knows of.

    Args:
        log: a state directory, or a decision log in one; of another kind of agent it changes nothing.

    Returns:
        The same, ended as late as the last of these ends.
    """
    ends = _ends((log if log.is_dir() else log.parent) / SUBMITTED)
    known = dict(recorded.jct_seconds)
    for spec in recorded.workload.jobs:
        submitted = recorded.start_seconds + spec.submit_time_seconds
        # A second job of a name has a number in the log; the time of its submission tells them apart.
        ended = ends.get((re.sub(r" \(\d+\)$", "", spec.job_id), round(submitted)))
        if ended is not None and spec.job_id not in known:
            known[spec.job_id] = ended - submitted
    newest = max([recorded.end_seconds, *ends.values()])
    return replace(recorded, jct_seconds=known, end_seconds=newest)


def _ends(table: Path) -> dict[tuple[str, int], float]:
    """When jobs of a table ended, by name and second of submission."""
    return {(record.name, round(record.submitted_unix_seconds)): record.ended_unix_seconds for record in ends_in(table)}
