"""Ends of jobs that the agent of this machine knows of and has not logged.

An end is logged with the interval in which it is seen. While only jobs run about which there is nothing to decide, such
as scripts of one size, there is none; the table of jobs has their ends all the same, and what they had trained by then.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from cluster_agent.backends.local.job_table import SUBMITTED, LocalJobRecord, ends_in
from policy_net.laboratory.workloads.decided import RecordedJobs
from policy_net.laboratory.workloads.workload import WorkloadJob


def with_ends_since(recorded: RecordedJobs, log: Path) -> RecordedJobs:
    """The jobs of a decision log with the ends that its agent knows of; that of another kind of agent is unchanged.

    The log then ends as late as the last of these ends. Jobs that are added so have the work that they did; the log has
    no more of them than what they said.
    """
    ended = _ended((log if log.is_dir() else log.parent) / SUBMITTED)
    known, jobs = dict(recorded.jct_seconds), []
    for spec in recorded.workload.jobs:
        submitted = recorded.start_seconds + spec.submit_time_seconds
        # A second job of a name has a number in the log; the time of its submission tells them apart.
        record = ended.get((re.sub(r" \(\d+\)$", "", spec.job_id), round(submitted)))
        if record is not None and spec.job_id not in known:
            known[spec.job_id] = record.ended_unix_seconds - submitted
            spec = _with_work(spec, record)  # noqa: PLW2901
        jobs.append(spec)
    newest = max([recorded.end_seconds, *(record.ended_unix_seconds for record in ended.values())])
    workload = replace(recorded.workload, jobs=tuple(jobs))
    return replace(recorded, workload=workload, jct_seconds=known, end_seconds=newest)


def _with_work(spec: WorkloadJob, record: LocalJobRecord) -> WorkloadJob:
    """The job with what its coordinator counted; as it was where nobody counts, as of scripts of one size."""
    done = record.samples / spec.samples_per_epoch
    return replace(spec, total_epochs=done) if done > 0.0 else spec


def _ended(table: Path) -> dict[tuple[str, int], LocalJobRecord]:
    """The jobs of a table that are done, by name and second of submission."""
    return {(record.name, round(record.submitted_unix_seconds)): record for record in ends_in(table)}
