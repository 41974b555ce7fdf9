"""One cell under one policy: replay it to the end, and keep the figures that comparisons are made of."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import policy_net.baselines  # noqa: F401  (registers the policies' names)
from benchmarks.policy_quality.cells import Cell
from benchmarks.policy_quality.store import Figures, Task
from benchmarks.policy_quality.worlds import World, build_world
from policy_net.domain import PolicyContext, SpeedModel
from policy_net.errors import PolicyNetError
from policy_net.laboratory.simulation.metrics import TAIL_SHARE, JobResult, mean_jct_seconds
from policy_net.laboratory.simulation.replay import replay
from policy_net.laboratory.speeds.measured_speeds import read_measured_points
from policy_net.laboratory.speeds.speed import default_speeds
from policy_net.policy_kinds import load_policy
from policy_net.throughput.parametric import MeasuredFit

KEPT = (
    "jobs",
    "avg_jct_seconds",
    "p99_jct_seconds",
    "max_jct_seconds",
    "avg_bounded_slowdown",
    "p99_bounded_slowdown",
    "starved_jobs",
    "gpu_utilization",
    "gpu_training_share",
)
"""Figures of `policy-net replay` that are kept under the same names."""


class JobsNotCompleted(PolicyNetError):
    """A replay ended before all jobs had: its means are of an easier workload and must not be reported."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """A task, and where its data lie: what a process is sent."""

    task: Task
    data: Path | None


def measured_points_file(data: Path) -> Path:
    """Where the measured speeds lie that `optimus-fitted` is given."""
    return data / "dl2" / "dl2_ps_worker_speed.csv"


def measure(measurement: Measurement) -> Figures:
    """Replay a cell under a fresh policy.

    Raises:
        PolicyNetError: the cell cannot be made or replayed, or not all jobs completed.
    """
    task, data = measurement.task, measurement.data
    began = time.process_time()
    world = _world(task.cell, data)
    policy = load_policy(task.policy, _context(task.cell.noise_seed, world.speeds, data))
    result = replay(
        *(world.workload, world.environment, policy, world.speeds),
        placement_effect=world.placement_effect,
        keep_beliefs=False,
    )
    figures = result.to_json()
    if figures["completed"] != figures["jobs"]:
        raise JobsNotCompleted(f"only {figures['completed']} of {figures['jobs']} jobs completed")
    counters = result.counters
    return {
        **{name: figures[name] for name in KEPT},
        "avg_jct_without_longest_seconds": mean_jct_seconds(result.job_results, longest_alone(result.job_results)),
        "nodes": world.environment.nodes,
        "decisions": counters.decisions,
        "resizes": counters.resizes,
        "resumes": counters.resumes,
        "trimmed_tasks": counters.trimmed_tasks,
        "cpu_seconds": round(time.process_time() - began, 3),
    }


@lru_cache(maxsize=2)
def _world(cell: Cell, data: Path | None) -> World:
    """The world of a cell: a process measures its policies one after another."""
    return build_world(cell, data)


def check_policy(policy: str, data: Path | None) -> None:
    """Whether a policy can be built, before hours are spent on the others.

    Raises:
        BadInput: it cannot.
    """
    load_policy(policy, _context(0, default_speeds(), data))


def _context(seed: int, speeds: SpeedModel, data: Path | None) -> PolicyContext:
    measured = None if data is None else _measured(measured_points_file(data))
    return PolicyContext(seed=seed, true_speeds=speeds, measured_speeds=measured)


def longest_alone(results: tuple[JobResult, ...]) -> frozenset[str]:
    """The 1% of jobs that would take longest undisturbed: the same jobs whatever the policy, so that ratios pair."""
    known = sorted(((result.alone_seconds or 0.0, result.job_id) for result in results), reverse=True)
    return frozenset(job_id for _, job_id in known[: math.ceil(TAIL_SHARE * len(known))])


@lru_cache(maxsize=1)
def _measured(path: Path) -> MeasuredFit | None:
    return read_measured_points(path) if path.is_file() else None
