"""The fleet's life: its first version, learner and agents until there is no time left, and what came of it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from deploy.demonstration.configs import FleetSettings, learner_content, simulated_agent
from deploy.demonstration.frame import (
    START_SECONDS,
    DemoLearner,
    Demonstration,
    LearnerWatch,
    ProgressDeadline,
    updates_of,
)
from deploy.demonstration.processes import DemoFailed
from deploy.local.plan import HELD_OUT_SEED, ClusterPlan
from deploy.local.rollouts import CanaryPower, RolloutEnd, Rollouts, both_rollouts, canary_power, why_none, write_plan
from deploy.local.worse_version import publish_worse
from global_learner.registry.registry import Registry
from global_learner.storage.state_dir import StateDir
from policy_net.exchange.generated import fleet_pb2
from policy_net.exchange.policy_file import write_policy_file

WARM_START_SECONDS = 30.0
"""About what the warm start takes: for its progress bar only."""

JOBS_PER_BATCH = 24
"""J of the demo's policy: the real traces' clusters often hold more than DL2's 20 jobs at once."""

IMITATION_STEPS = 4000
"""Enough for v1 to do about as well as DRF."""


def warm_start(plan: Sequence[ClusterPlan], demo: Demonstration, seed: int, steps: int) -> Path:
    """Train v1 by imitating DRF on the fleet's own kind of workloads, none of which it will be judged on.

    Raises:
        DemoFailed: training failed.
    """
    processes, display = demo.processes, demo.display
    display.phase("training v1: imitating DRF")
    out = demo.folder / "v1.safetensors"
    sources = [argument for cluster in plan for argument in ("--workload", cluster.source)]
    world = plan[0].own
    # With a critic: what follows learns from what decisions bring, as minutes are no past to replay.
    options = ["--imitate", "drf", "--imitation-steps", str(steps), "--jobs-per-batch", str(JOBS_PER_BATCH)]
    options += ["--reward", "slot-utility"]
    options += ["--arrival-scale", str(world.arrival_scale)]
    if world.limit_jobs is not None:
        options += ["--limit-jobs", str(world.limit_jobs)]
    processes.start(
        "train",
        "policy_net.cli",
        ["train", *sources, *options, "--seed", str(2 * HELD_OUT_SEED + seed), "--out", str(out)],
    )
    for elapsed in demo.polls():
        if not processes.is_running("train"):
            break
        display.progress(min(elapsed / WARM_START_SECONDS, 0.98))
    processes.check()
    return out


JUDGED_VERSIONS = 8
"""Versions on the learning curve: its shape needs no more, and each costs a replay per cluster and workload."""

CLUSTER_STATE = "cluster.json"
"""In an agent's state directory: the simulated cluster, which an agent of other jobs refuses."""

POLL_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class PublishedVersion:
    """A version and the policy file it was written to."""

    version: int
    head_step: int
    file: Path


@dataclass(frozen=True, slots=True)
class FleetResult:
    """What the fleet left behind.

    Attributes:
        report: the learner's, at the end.
        published: the numbers of all versions.
        versions: those that are judged, from the first to the last that the fleet made.
        rollouts: how they ended; none where none was made.
        canary_power: what the canary stage of the first one is worth; None where it saw too little.
    """

    last: fleet_pb2.GetFleetReply
    report: fleet_pb2.GetReportReply
    published: tuple[int, ...]
    versions: tuple[PublishedVersion, ...]
    interventions: dict[str, int]
    rollouts: tuple[RolloutEnd, ...] = ()
    canary_power: CanaryPower | None = None


def run_fleet(plan: Sequence[ClusterPlan], v1: Path, demo: Demonstration, settings: FleetSettings) -> FleetResult:
    """Let the clusters schedule and learn until the settings' time or updates, or all their work, is done.

    Raises:
        DemoFailed: a process ended with an error, or the learner never answered.
    """
    folder, processes, display = demo.folder, demo.processes, demo.display
    display.phase("starting a learner and " + ", ".join(cluster.name for cluster in plan))
    learner = DemoLearner(demo, folder)
    agents = [f"agent-{cluster.name}" for cluster in plan]
    with learner.running(learner_content(v1, learner, settings)) as watch:
        polled_at = f"policyctl fleet --learner {learner.address} --cert {learner.administrator}"
        display.phase(f"to look in: {polled_at}, or http://{learner.page}/")
        learner.enroll([cluster.name for cluster in plan])
        for cluster, agent in zip(plan, agents, strict=True):
            content = simulated_agent(cluster.name, learner, settings, cluster.source, cluster.own)
            learner.start_agent(agent, content)
        display.phase(f"{len(plan)} clusters schedule their jobs and improve one policy")
        watch_learning(watch, agents, demo, settings, shown=True)
        worse, rollouts = _roll_out(plan, v1, learner, watch, demo, settings) if settings.rollouts else (0, ())
        display.phase("stopping the agents")
        processes.stop(agents)
        processes.check()
        last = watch.fleet()
        if last.updates_accepted == 0:
            raise DemoFailed(f"no update reached the learner (see {folder}/agent-*.log)")
        cards, report = watch.versions(), watch.ask(fleet_pb2.GetReportRequest())
        learned = [card for card in cards if card.version != worse]
        versions = download(watch, learned, JUDGED_VERSIONS, folder / "versions")
    power = canary_power(rollouts[0], folder / "learner") if rollouts else None
    interventions = {cluster.name: _interventions(folder, cluster.name, last) for cluster in plan}
    published = tuple(card.version for card in cards)
    return FleetResult(last, report, published, versions, interventions, rollouts, power)


def _roll_out(
    plan: Sequence[ClusterPlan],
    v1: Path,
    learner: DemoLearner,
    watch: LearnerWatch,
    demo: Demonstration,
    settings: FleetSettings,
) -> tuple[int, tuple[RolloutEnd, ...]]:
    """The worse version, and how both rollouts ended; 0 and none where there can be none, which is said.

    Raises:
        DemoFailed: see `Rollouts.run`.
    """
    clusters, agents = [cluster.name for cluster in plan], [f"agent-{cluster.name}" for cluster in plan]
    none = why_none(clusters, len(watch.versions()), all(map(demo.processes.is_running, agents)))
    if none:
        demo.display.say(f"no rollouts: {none}")
        return 0, ()
    demo.display.phase("two rollouts: nothing acts unjudged from here on, and all clusters go back to v1")
    demo.processes.stop(agents)
    with learner.away(learner_content(v1, learner, settings, by_rollouts=True), watch):
        made, worse = publish_worse(learner.folder / "learner")
    for cluster, agent in zip(plan, agents, strict=True):
        # of other jobs, and so of another simulation; with all else the agent goes on
        (learner.folder / agent / CLUSTER_STATE).unlink(missing_ok=True)
        source, world = cluster.lasting or (cluster.source, cluster.own)
        learner.start_agent(agent, simulated_agent(cluster.name, learner, settings, source, world, by_rollouts=True))
    file = write_plan(demo.folder / "rollout.yaml")
    return worse, both_rollouts(Rollouts(watch, clusters, file, demo), made, worse)


class LearningTime:
    """Time in which a fleet learns: so many updates or seconds; where little of a processor is left, as long as the
    first version takes, if updates come at all.

    Args:
        seconds: after which it is over, once there is a version of the fleet's own.
        updates: after which it is over.
        version_updates: that make a version.
        still_seconds: without an update, until it is over all the same.
    """

    def __init__(
        self,
        seconds: float,
        updates: int,
        version_updates: int,
        still_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._seconds, self._updates, self._first = seconds, updates, min(version_updates, updates)
        self._deadline = ProgressDeadline(still_seconds, clock=clock)

    def share(self, updates: int) -> float:
        """How much of it is over."""
        return max(self._deadline.waited_seconds / self._seconds, updates / self._updates)

    def over(self, updates: int) -> bool:
        """Whether it is over after so many updates."""
        stuck = self._deadline.passed(updates)
        late = self._deadline.waited_seconds >= self._seconds
        return updates >= self._updates or (late and (updates >= self._first or stuck))


def watch_learning(
    watch: LearnerWatch, agents: Sequence[str], demo: Demonstration, settings: FleetSettings, *, shown: bool
) -> None:
    """Wait until agents have learned for as long as the settings say, or have ended.

    Args:
        shown: whether the display shows the clusters.

    Raises:
        DemoFailed: a process ended with an error.
    """
    learning = LearningTime(settings.seconds, settings.updates, settings.publish_every_steps, START_SECONDS)
    for elapsed in demo.polls(POLL_SECONDS):
        now = watch.now()
        if now is not None and shown:
            demo.display.fleet(now, elapsed)
        step = 0 if now is None else now.head_step
        demo.display.progress(learning.share(step))
        if learning.over(step) or not any(map(demo.processes.is_running, agents)):
            return


def download(
    watch: LearnerWatch, cards: Sequence[fleet_pb2.VersionCard], most: int, folder: Path
) -> tuple[PublishedVersion, ...]:
    """Policy files of versions evenly spaced, the first and the last among them."""
    folder.mkdir(parents=True, exist_ok=True)
    if len(cards) > most:
        cards = [cards[round(index * (len(cards) - 1) / (most - 1))] for index in range(most)]
    found = [PublishedVersion(card.version, card.head_step, folder / f"v{card.version}.safetensors") for card in cards]
    for each in found:
        write_policy_file(each.file, watch.policy(each.version))
    return tuple(found)


def _interventions(folder: Path, cluster: str, last: fleet_pb2.GetFleetReply) -> int:
    """Times the guard stepped in, from the agent's own summary; from its last heartbeat if it left none."""
    summary = folder / f"agent-{cluster}" / "summary.json"
    if summary.exists():
        return sum(json.loads(summary.read_text(encoding="utf-8"))["guard_interventions"].values())
    return sum(sum(view.status.guard_interventions.values()) for view in last.clusters if view.cluster == cluster)


def staleness_by_cluster(state_dir: Path, policy_file: Path, clusters: Sequence[str]) -> dict[str, list[int]]:
    """The staleness of every applied update, in head steps, by cluster; those of the demo come first, in their order.

    Raises:
        StateUnusable: a record is damaged.
    """
    staleness: dict[str, list[int]] = {cluster: [] for cluster in clusters}
    for receipt in updates_of(state_dir, policy_file):
        staleness.setdefault(receipt.cluster, []).append(receipt.staleness)
    return staleness


def drop_moments(state_dir: Path) -> int:
    """Remove the moments of all versions but the newest from an ended learner's state; of how many.

    What a demo leaves is for looking at; only a learner that goes on needs moments. Under `dl2` a demo publishes some
    180 versions: 1.4 MB each for the policy, which replaying a decision log needs, and three times that for the
    moments.

    Raises:
        StateUnusable: the learner still runs, or left something unusable.
    """
    with StateDir(state_dir) as state, closing(Registry(state.path, state.commits)) as registry:
        return registry.forget_moments()
