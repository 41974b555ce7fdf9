"""Past days of a cluster, as they were and as they would have been: its decision log, replayed by the simulator.

Three averages of the same jobs: as recorded; simulated at the sizes that they asked for, whoever fits first; and
simulated under the policy that advises. The first two differ by what the simulation leaves out; the last two are
comparable, as both are simulated with the same jobs, speeds and nodes. Kinds and speeds of the jobs are in the log; how
long a resize would stop them is not, so the answer has the range over that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cluster_agent.backends.local.recorded_ends import with_ends_since
from cluster_agent.errors import JobRefused
from cluster_agent.jobs.forecast import can_run
from cluster_agent.recording.last_decision import policy_from_file
from cluster_agent.recording.log_reading import last_decision
from foundation.figures import counted, duration, percent
from policy_net.domain import PolicyContext, SpeedModel
from policy_net.errors import BadInput
from policy_net.laboratory.report import Comparison, check_folder, headline, write_report
from policy_net.laboratory.report.spread import AssumedCase, Assumptions, spread_of
from policy_net.laboratory.simulation.environment import DecideOn, Environment
from policy_net.laboratory.simulation.replay import ReplayResult, replay
from policy_net.laboratory.workloads.decided import RecordedJobs, read_recorded
from policy_net.laboratory.workloads.workload import JobKindChoice, Workload, WorkloadJob
from policy_net.policy import DEFAULT_POLICY, SchedulerPolicy, build_policy
from policy_net.policy_kinds import load_policy

AS_IT_WAS = "fifo-backfill"
"""Every job as large as it asked for, whoever fits first: what kube-scheduler does."""

MOST_CASES = 2
"""Of longer stalls."""
_DAY_SECONDS = 86_400.0
_FAR, _TOO_FAR = 1.25, 2.0
"""A simulation that is so many times off what was recorded is to be believed less, or not at all."""
_DEBOUNCE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Past:
    """What is reported on: jobs that ended in `days` before the log's newest decision; `policy` may be empty."""

    log: Path
    days: float
    policy: str = ""
    folder: Path | None = None


def past_week(past: Past) -> dict[str, Any]:
    """The three averages, and what to know about them; plain JSON values.

    Raises:
        BadInput: the log, the policy or the folder cannot be used.
        JobRefused: no job has ended in those days.
    """
    recorded = with_ends_since(read_recorded(past.log), past.log)
    since = recorded.end_seconds - past.days * _DAY_SECONDS
    ended = [spec for spec in recorded.workload.jobs if _end_of(recorded, spec) >= since]
    environment = _environment(recorded)
    jobs = [spec for spec in ended if can_run(spec, environment, recorded.speeds)]
    if not jobs:
        raise JobRefused(
            f"{past.log}: no job has ended in the last {past.days:g} days of it; wait, or look further back with --days"
        )
    notes = _notes(recorded, len(jobs), len(ended) - len(jobs))
    average = math.fsum(recorded.jct_seconds[job.job_id] for job in jobs) / len(jobs)
    first = jobs[0].submit_time_seconds
    shifted = tuple(replace(job, submit_time_seconds=job.submit_time_seconds - first) for job in jobs)
    workload = Workload(
        past.log.resolve().name,
        shifted,
        (*notes, f"as recorded, they were done in {duration(average)} on average"),
        suggested_nodes=environment.nodes,
        records={job.job_id: recorded.workload.records[job.job_id] for job in shifted},
    )
    if past.folder is not None:
        check_folder(past.folder, 1)
    policy = _policy(past)
    results = [
        replay(workload, environment, each, recorded.speeds, record_timeline=past.folder is not None)
        for each in (build_policy(AS_IT_WAS, PolicyContext()), policy)
    ]
    requested, advised = (_average(result) for result in results)
    notes += [note for note in recorded.workload.notes if "episodes" in note]
    off = _times_off(average, requested, advised)
    if off > _FAR:
        notes.append(f"caution: {_unlike_the_record(average, requested, advised, policy.name)}")
    comparison = _with_range(Comparison(workload, environment, tuple(results)), past, recorded.speeds)
    page = None
    if past.folder is not None:
        page, _ = write_report([comparison], past.folder)
    return {
        "log": str(past.log),
        "days": past.days,
        "untilUnixSeconds": recorded.end_seconds,
        "jobs": len(jobs),
        "nodes": environment.nodes,
        "gpus": environment.gpus,
        "recorded": {"avgJctSeconds": average},
        "requested": {"policy": AS_IT_WAS, "avgJctSeconds": requested},
        "advised": {"policy": policy.name, "avgJctSeconds": advised},
        "answer": headline(comparison) if off <= _TOO_FAR else _no_answer(average, requested, advised, policy.name),
        "page": None if page is None else str(page),
        "notes": notes,
    }


def _times_off(average: float, requested: float, advised: float) -> float:
    """How many times the nearer of both simulations is off the record, whichever of them the cluster resembled."""
    return min(max(simulated / average, average / simulated) for simulated in (requested, advised))


def _unlike_the_record(average: float, requested: float, advised: float, policy: str) -> str:
    """By which way both simulations are off, and what that may come from."""
    nearer, how = min(
        (requested, "at the sizes asked for"),
        (advised, f"under {policy}"),
        key=lambda way: max(way[0] / average, average / way[0]),
    )
    why = (
        "something else than sizes made them wait: other work on the nodes, quotas, or pauses"
        if nearer < average
        else "the nodes had more room than is taken here, or the jobs ran in another order"
    )
    return (
        f"simulated {how}, which is the nearer of both, they take {percent(abs(nearer / average - 1))}"
        f" {'less' if nearer < average else 'more'} than was recorded; {why}"
    )


def _no_answer(average: float, requested: float, advised: float, policy: str) -> str:
    return (
        f"No answer: these jobs were done in {duration(average)} on average, and simulated in {duration(requested)} at"
        f" the sizes that they asked for and in {duration(advised)} under {policy}. What is so far from the record says"
        " nothing about it."
    )


def _with_range(comparison: Comparison, past: Past, speeds: SpeedModel) -> Comparison:
    """The comparison with its answer where resizes stop jobs."""
    if not comparison.compares:
        return comparison
    base = AssumedCase(JobKindChoice.ALLREDUCE, 0, (0.0, 0.0))
    assumptions = Assumptions(base, kinds=(base.kind,), seeds=1)  # the log says the kinds and the speeds

    def change(case: AssumedCase) -> float:
        resize, resume = case.stall_seconds
        environment = replace(comparison.environment, resize_seconds=resize, resume_seconds=resume)
        queue, advised = (
            _average(replay(comparison.workload, environment, policy, speeds))
            for policy in (build_policy(AS_IT_WAS, PolicyContext()), _policy(past))
        )
        return advised / queue - 1

    base_change = _average(comparison.proposed) / _average(comparison.today) - 1
    return replace(comparison, spread=spread_of(base_change, assumptions, change, MOST_CASES))


def _end_of(recorded: RecordedJobs, spec: WorkloadJob) -> float:
    """In the log's own time; before all times of a job that has not ended."""
    jct = recorded.jct_seconds.get(spec.job_id)
    return -math.inf if jct is None else recorded.start_seconds + spec.submit_time_seconds + jct


def _environment(recorded: RecordedJobs) -> Environment:
    capacities = [free_capacity for free_capacity in recorded.usual_nodes if free_capacity.cpu_milli > 0]
    if not capacities:
        raise BadInput("the log shows no node with any room for its jobs")
    return Environment(
        nodes=len(capacities),
        node_sizes=tuple(capacities),
        slot_seconds=recorded.slot_seconds,
        decide_on=DecideOn.EVENT,
        debounce_seconds=min(_DEBOUNCE_SECONDS, recorded.slot_seconds),
    )


def _notes(recorded: RecordedJobs, jobs: int, too_large: int) -> list[str]:
    notes = [f"{counted(jobs, 'job')} that ended, with the work that they did and the speeds that the log shows"]
    if len(recorded.capacities) > 1:
        notes.append("what was free for them changed; nodes are as they were in the middle of the time, by GPUs")
    if too_large:
        notes.append(f"{counted(too_large, 'job')} left out: too large for those nodes")
    if recorded.left_out:
        notes.append(f"{counted(recorded.left_out, 'job')} left out: their ends were not seen, or their work not said")
    return notes


def _policy(past: Past) -> SchedulerPolicy:
    """The policy that is asked, as new: it learns speeds while the jobs run, as an agent does."""
    if past.policy:
        return load_policy(past.policy, PolicyContext())
    folder = past.log if past.log.is_dir() else past.log.parent
    line = last_decision(folder)
    if line is None:
        return load_policy(DEFAULT_POLICY, PolicyContext())
    return policy_from_file(folder, line) or load_policy(str(line["policy"]), PolicyContext())


def _average(result: ReplayResult) -> float:
    seconds = [outcome.jct_seconds for outcome in result.outcomes if outcome.jct_seconds is not None]
    return math.fsum(seconds) / len(seconds)
