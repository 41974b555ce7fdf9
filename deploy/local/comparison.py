"""The replays that the report needs, on all cores: every policy on the same jobs, every version on unseen ones.

What ships and what was learned are kept apart: v1 and the newest version meet on the same held-out workloads.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from multiprocessing import get_context

import policy_net.baselines  # noqa: F401  (registers drf and optimus)
from deploy.local.fleet import PublishedVersion
from deploy.local.plan import ClusterPlan
from global_learner.report.learning import CurvePoint
from policy_net.domain import PolicyContext
from policy_net.errors import PolicyNetError
from policy_net.laboratory.commands.world_options import WorldOptions
from policy_net.laboratory.report.comparison import recorded_of
from policy_net.laboratory.simulation.metrics import Load, load_of, recorded_load
from policy_net.laboratory.simulation.replay import replay
from policy_net.policy_kinds import load_policy


@dataclass(frozen=True, slots=True)
class Task:
    """One replay: a policy by name or file, and the world that it meets; its load over time if `with_load`."""

    cluster: ClusterPlan
    world: WorldOptions
    policy: str
    with_load: bool = False


@dataclass(frozen=True, slots=True)
class Score:
    """Result of one replay, with its load if that was asked for and all jobs were completed."""

    jobs: int
    completed: int
    avg_jct_seconds: float
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
    result = replay(world.workload, world.environment, policy, truth, record_timeline=task.with_load)
    figures = result.to_json()
    if figures["avg_jct_seconds"] is None:
        raise PolicyNetError(f"{task.cluster.name}: no job was completed under {task.policy}")
    load = None
    if task.with_load and figures["completed"] == figures["jobs"]:
        load = load_of(world.workload, world.environment.gpus, result.timeline)
    return Score(figures["jobs"], figures["completed"], figures["avg_jct_seconds"], load)


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
DRAWN = (BASELINE, "drf", "learned")
"""Those whose load is drawn over time."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The replays' results.

    Attributes:
        own: cluster to policy (the baseline, drf, optimus, v1, learned) to its score on the cluster's own jobs.
        recorded: cluster to the average JCT in seconds under the operator's own scheduler, where a workload's file says
            of every job when it ended.
        recorded_load: cluster to the load over time under it, where the file says when jobs started too.
        curve: versions on held-out workloads, oldest first, over the baseline.
        shipped_whole: cluster to the ratio of the policy as it ships, with what it knows of speeds, as in `curve`;
            empty where the fleet did not begin with it.
        validation_jct_v1, validation_jct_final: average JCT in seconds over all held-out workloads.
    """

    own: dict[str, dict[str, Score]]
    curve: tuple[CurvePoint, ...]
    validation_jct_v1: float
    validation_jct_final: float
    recorded: dict[str, float] = field(default_factory=dict)
    recorded_load: dict[str, Load] = field(default_factory=dict)
    shipped_whole: dict[str, float] = field(default_factory=dict)

    @property
    def own_jct_seconds(self) -> dict[str, dict[str, float]]:
        """Cluster to policy to average JCT, in the order of `POLICY_LABELS`."""
        return {
            cluster: ({RECORDED: self.recorded[cluster]} if cluster in self.recorded else {})
            | {policy: score.avg_jct_seconds for policy, score in scores.items()}
            for cluster, scores in self.own.items()
        }

    @property
    def labels(self) -> dict[str, str]:
        """Those of `POLICY_LABELS` that some cluster has."""
        there = {policy for by in self.own_jct_seconds.values() for policy in by}
        return {policy: label for policy, label in POLICY_LABELS.items() if policy in there}


def compare(
    plan: Sequence[ClusterPlan],
    versions: Sequence[PublishedVersion],
    on_progress: Callable[[float], None],
    shipped: str = "",
) -> Comparison:
    """Replay what is needed and gather it.

    Args:
        shipped: the name of the policy that ships, of which v1 is a part; empty where it is not.

    Raises:
        PolicyNetError: a replay fails, or leaves jobs behind.
    """
    first, newest = str(versions[0].file), str(versions[-1].file)
    policies = {BASELINE: BASELINE, "drf": "drf", "optimus": "optimus", "v1": first, "learned": newest}
    own = {
        (cluster.name, key): Task(cluster, cluster.own, policy, with_load=key in DRAWN)
        for cluster in plan
        for key, policy in policies.items()
    }
    held_out = {
        (cluster.name, world, policy): Task(cluster, world, policy)
        for cluster in plan
        for world in cluster.held_out
        for policy in (BASELINE, *([shipped] if shipped else []), *(str(version.file) for version in versions))
    }
    scores = evaluate([*own.values(), *held_out.values()], on_progress)
    _check_complete(scores)

    def mean(cluster: ClusterPlan, policy: str) -> float:
        return _mean([scores[held_out[cluster.name, world, policy]].avg_jct_seconds for world in cluster.held_out])

    def ratios(policy: str) -> dict[str, float]:
        return {cluster.name: mean(cluster, policy) / mean(cluster, BASELINE) for cluster in plan}

    curve = tuple(CurvePoint(version.version, version.head_step, ratios(str(version.file))) for version in versions)
    recorded = {cluster.name: recorded_times(cluster) for cluster in plan}
    return Comparison(
        own={cluster.name: {policy: scores[own[cluster.name, policy]] for policy in policies} for cluster in plan},
        curve=curve,
        validation_jct_v1=_mean([mean(cluster, first) for cluster in plan]),
        validation_jct_final=_mean([mean(cluster, newest) for cluster in plan]),
        recorded={name: seconds for name, (seconds, _) in recorded.items() if seconds is not None},
        recorded_load={name: load for name, (_, load) in recorded.items() if load is not None},
        shipped_whole=ratios(shipped) if shipped else {},
    )


def recorded_times(cluster: ClusterPlan) -> tuple[float | None, Load | None]:
    """Average JCT and load under the scheduler that really ran the cluster's jobs; None unless recorded of each job."""
    world = cluster.world(cluster.own, cluster.own.speeds())
    recorded = recorded_of(world.workload)
    every = recorded is not None and recorded.jct_jobs == len(world.workload.jobs)
    seconds = recorded.avg_jct_seconds if recorded is not None and every else None
    return seconds, recorded_load(world.workload, world.environment.gpus)


def _check_complete(scores: dict[Task, Score]) -> None:
    for task, score in scores.items():
        if score.completed < score.jobs:
            raise PolicyNetError(
                f"{task.cluster.name}: {task.policy} completed {score.completed} of {score.jobs} jobs only"
            )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
