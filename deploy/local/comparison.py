"""The replays that the report needs, on all cores: every policy on the same jobs, every version on unseen ones.

What ships and what was learned are kept apart: v1 and the newest version meet on the same held-out workloads.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from statistics import fmean

import policy_net.baselines  # noqa: F401  (registers drf and optimus)
from deploy.local.fleet import FleetResult
from deploy.local.plan import ClusterPlan, DemoPolicy
from global_learner.report.learning import CurvePoint, LessonCurve
from global_learner.report.savings import ReplayComparison
from global_learner.report.words import against
from policy_net.domain import PolicyContext
from policy_net.errors import PolicyNetError
from policy_net.exchange.spec import SET
from policy_net.laboratory.commands.world_options import WorldOptions
from policy_net.laboratory.report.comparison import recorded_of
from policy_net.laboratory.simulation.replay import replay
from policy_net.policy_kinds import load_policy


@dataclass(frozen=True, slots=True)
class Task:
    """One replay: a policy by name or file, and the world that it meets."""

    cluster: ClusterPlan
    world: WorldOptions
    policy: str


def evaluate(tasks: Sequence[Task], on_progress: Callable[[float], None]) -> dict[Task, float]:
    """Average JCT in seconds of every replay, each from a fresh policy.

    Raises:
        PolicyNetError: a replay fails, or leaves jobs behind.
    """
    seconds: dict[Task, float] = {}
    # Spawned, not forked: the demo holds gRPC threads, which do not survive a fork.
    with ProcessPoolExecutor(max_workers=os.cpu_count() or 1, mp_context=get_context("spawn")) as pool:
        futures = {pool.submit(replayed, task): task for task in dict.fromkeys(tasks)}
        try:
            for future in as_completed(futures):
                seconds[futures[future]] = future.result()
                on_progress(len(seconds) / len(futures))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return seconds


def replayed(task: Task) -> float:
    """Average JCT in seconds of one replay."""
    truth = task.world.speeds()
    workload, environment = task.cluster.world(task.world, truth)
    policy = load_policy(task.policy, PolicyContext(seed=task.world.seed))
    figures = replay(workload, environment, policy, truth).to_json()
    if figures["completed"] < figures["jobs"]:
        done = f"completed {figures['completed']} of {figures['jobs']} jobs only"
        raise PolicyNetError(f"{task.cluster.name}: {task.policy} {done}")
    return float(figures["avg_jct_seconds"])


BASELINE = "fifo-easy"
"""What versions are compared with: what most clusters run today."""
RECORDED = "recorded"
POLICY_LABELS = {
    RECORDED: "your own, as recorded",
    BASELINE: "FIFO with EASY backfill",
    "drf": "DRF",
    "optimus": "Optimus",
    "v1": "v1",
    "learned": "newest learned version",
}
"""The compared policies, in the order in which they are shown, as the report calls them."""


def compare(
    plan: Sequence[ClusterPlan],
    fleet: FleetResult,
    policy: DemoPolicy,
    lessons: LessonCurve | None,
    on_progress: Callable[[float], None],
) -> tuple[ReplayComparison, tuple[float, float]]:
    """Replay what is needed and gather it.

    Returns:
        What the page reads, and the average JCT in seconds over all held-out workloads under v1 and the newest version.

    Raises:
        PolicyNetError: a replay fails, or leaves jobs behind.
    """
    files = [str(version.file) for version in fleet.versions]
    policies = {BASELINE: BASELINE, "drf": "drf", "optimus": "optimus", "v1": files[0], "learned": files[-1]}
    own = [Task(cluster, cluster.own, name) for cluster in plan for name in policies.values()]
    shipped = [SET] if policy is DemoPolicy.SET else []
    held_out = [
        Task(cluster, world, name)
        for cluster in plan
        for world in cluster.held_out
        for name in (BASELINE, *shipped, *files)
    ]
    seconds = evaluate([*own, *held_out], on_progress)

    def mean(cluster: ClusterPlan, name: str) -> float:
        return fmean(seconds[Task(cluster, world, name)] for world in cluster.held_out)

    def point(version: int, head_step: int, name: str) -> CurvePoint:
        return CurvePoint(
            version, head_step, {cluster.name: mean(cluster, name) / mean(cluster, BASELINE) for cluster in plan}
        )

    first, note = "the first version", "v1 is DL2's network after a few updates from random weights."
    if shipped:
        first = "the shipped policy"
        note = (
            "v1 is the policy that ships, but without the speeds of these types of jobs, which this fleet has to find"
            " out. With those speeds, and without any learning, it takes"
            f" {against(point(0, 0, SET).mean, POLICY_LABELS[BASELINE])}."
        )
    jct_seconds = {
        cluster.name: recorded_time(cluster)
        | {key: seconds[Task(cluster, cluster.own, name)] for key, name in policies.items()}
        for cluster in plan
    }
    replays = ReplayComparison(
        jct_seconds=jct_seconds,
        labels={key: label for key, label in POLICY_LABELS.items() if any(key in by for by in jct_seconds.values())},
        baseline=BASELINE,
        proposed="learned",
        curve=[point(version.version, version.head_step, str(version.file)) for version in fleet.versions],
        first=first,
        first_note=note,
        load=fleet.load,
        lessons=lessons,
    )
    return replays, (
        fmean(mean(cluster, files[0]) for cluster in plan),
        fmean(mean(cluster, files[-1]) for cluster in plan),
    )


def recorded_time(cluster: ClusterPlan) -> dict[str, float]:
    """Average JCT under the scheduler that really ran the cluster's jobs, by its key; none unless known of each job."""
    workload, _ = cluster.world(cluster.own, cluster.own.speeds())
    recorded = recorded_of(workload)
    if recorded is None or recorded.avg_jct_seconds is None or recorded.jct_jobs < len(workload.jobs):
        return {}
    return {RECORDED: recorded.avg_jct_seconds}
