"""Replays of every policy on the same jobs to completion, on all cores: what the report compares."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context

import policy_net.baselines  # noqa: F401  (registers drf and optimus)
from deploy.local.plan import ClusterPlan
from policy_net.domain import PolicyContext
from policy_net.errors import PolicyNetError
from policy_net.laboratory.commands.world_options import WorldOptions
from policy_net.laboratory.simulation.metrics import Load, load_of
from policy_net.laboratory.simulation.replay import replay
from policy_net.policy_kinds import load_policy


@dataclass(frozen=True, slots=True)
class Task:
    """One replay: a policy by name or file, and the world that it meets."""

    cluster: ClusterPlan
    world: WorldOptions
    policy: str
    record_timeline: bool = False


@dataclass(frozen=True, slots=True)
class Score:
    """What one replay came to; timelines as in `ReplayResult`, and the load that they make, if recorded."""

    jobs: int
    completed: int
    avg_jct_seconds: float
    timeline: dict[str, list[tuple[float, int, int]]]
    job_types: dict[str, str]
    submit_seconds: dict[str, float]
    load: Load | None = None


def evaluate(tasks: Sequence[Task], on_progress: Callable[[float], None]) -> dict[Task, Score]:
    """Replay all tasks, each from a fresh policy.

    Raises:
        PolicyNetError: a replay fails.
    """
    scores: dict[Task, Score] = {}
    # Spawned, not forked: the demo holds gRPC threads, which do not survive a fork.
    with ProcessPoolExecutor(max_workers=os.cpu_count() or 1, mp_context=get_context("spawn")) as pool:
        futures = {pool.submit(score, task): task for task in dict.fromkeys(tasks)}
        try:
            for future in as_completed(futures):
                scores[futures[future]] = future.result()
                on_progress(len(scores) / len(futures))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return scores


def score(task: Task) -> Score:
    """One replay."""
    truth = task.world.speeds()
    world = task.cluster.world(task.world, truth)
    policy = load_policy(task.policy, PolicyContext(seed=task.world.seed))
    result = replay(world.workload, world.environment, policy, truth, record_timeline=task.record_timeline)
    figures = result.to_json()
    if figures["avg_jct_seconds"] is None:
        raise PolicyNetError(f"{task.cluster.name}: no job was completed under {task.policy}")
    return Score(
        jobs=figures["jobs"],
        completed=figures["completed"],
        avg_jct_seconds=figures["avg_jct_seconds"],
        timeline=result.timeline,
        job_types={job.job_id: job.job_type for job in world.workload.jobs},
        submit_seconds={job.job_id: job.submit_time_seconds for job in world.workload.jobs},
        load=load_of(world.workload, world.environment.gpus, result.timeline)
        if task.record_timeline and figures["completed"] == figures["jobs"]
        else None,
    )
