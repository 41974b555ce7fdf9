"""The fleet's life: its first version, learner and agents until there is no time left, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from deploy.demonstration.configs import FleetSettings, learner_content
from deploy.demonstration.frame import START_SECONDS, DemoLearner, Demonstration, LearnerWatch, ProgressDeadline
from deploy.local.plan import ClusterPlan, simulated_agent
from deploy.local.rollouts import CanaryPower, RolloutEnd, Rollouts, canary_power, publish_worse, why_none
from global_learner.report.load import LoadScope
from global_learner.report.reported_load import reported_load
from policy_net.exchange.generated import fleet_pb2
from policy_net.exchange.policy_file import write_policy_file

JUDGED_VERSIONS = 6
"""Versions on the learning curve: its shape needs no more, and each costs a replay per cluster and workload."""

CLUSTER_STATE = "cluster.json"
"""In an agent's state directory: the simulated cluster, which an agent of other jobs refuses."""
_POLL_SECONDS = 0.5


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
        load: of the clusters while they learned.
        published: the numbers of all versions.
        versions: those that are judged, from the first to the last that the fleet made.
        rollouts: how they ended; none where none was made.
        canary_power: what the canary stage of the first one is worth; None where it saw too little.
    """

    report: fleet_pb2.GetReportReply
    load: Sequence[LoadScope]
    published: tuple[int, ...]
    versions: tuple[PublishedVersion, ...]
    rollouts: tuple[RolloutEnd, ...] = ()
    canary_power: CanaryPower | None = None


def run_fleet(
    plan: Sequence[ClusterPlan], v1: Path, demo: Demonstration, settings: FleetSettings, name: str = ""
) -> FleetResult:
    """Let the clusters schedule and learn until the settings' time or updates, or all their work, is done.

    Args:
        name: of a fleet beside the demo's own: of its folder, and before the names of its processes. Its clusters are
            not shown meanwhile.

    Raises:
        DemoFailed: a process ended with an error, or the learner never answered.
    """
    folder, processes, display = demo.folder / name, demo.processes, demo.display
    clusters, before = [cluster.name for cluster in plan], f"{name}-" if name else ""
    learner = DemoLearner(demo, folder, f"{before}learner")
    agents = [f"{before}agent-{cluster}" for cluster in clusters]
    display.phase(f"starting a learner and {', '.join(clusters)}")
    with learner.running(learner_content(v1, learner, settings)) as watch:
        polled_at = f"policyctl fleet --learner {learner.address} --cert {learner.administrator}"
        display.phase(f"to look in: {polled_at}, or http://{learner.page}/")
        learner.enroll(clusters, watch)
        for cluster, agent in zip(plan, agents, strict=True):
            learner.start_agent(agent, simulated_agent(cluster, learner, settings))
        display.phase(f"{len(plan)} clusters schedule their jobs and improve one policy")
        watch_learning(watch, agents, demo, settings, shown=not name)
        learned = watch.ask(fleet_pb2.GetReportRequest())
        load = reported_load(learned.fleet.clusters, learned.made_unix_seconds)
        rollouts = _roll_out(plan, v1, learner, watch, demo, settings) if settings.speedup is None else ()
        display.phase("stopping the agents")
        processes.stop(agents)
        processes.check()
        cards, report = watch.versions(), watch.ask(fleet_pb2.GetReportRequest())
        worse = [end.version for end in rollouts[1:]]
        versions = download(watch, [card for card in cards if card.version not in worse], folder / "versions")
    power = canary_power(rollouts[0], folder / "learner") if rollouts else None
    return FleetResult(report, load, tuple(card.version for card in cards), versions, rollouts, power)


def _roll_out(
    plan: Sequence[ClusterPlan],
    v1: Path,
    learner: DemoLearner,
    watch: LearnerWatch,
    demo: Demonstration,
    settings: FleetSettings,
) -> tuple[RolloutEnd, ...]:
    """How both rollouts ended; none where there can be none, which is said.

    Raises:
        DemoFailed: see `Rollouts.run`.
    """
    clusters, agents = [cluster.name for cluster in plan], [f"agent-{cluster.name}" for cluster in plan]
    none = why_none(clusters, len(watch.versions()), all(map(demo.processes.is_running, agents)))
    if none:
        demo.display.say(f"no rollouts: {none}")
        return ()
    demo.display.phase("two rollouts: nothing acts unjudged from here on, and all clusters go back to v1")
    demo.processes.stop(agents)
    with learner.away(learner_content(v1, learner, settings, by_rollouts=True), watch):
        made, worse = publish_worse(learner.folder / "learner")
    for cluster, agent in zip(plan, agents, strict=True):
        # of other jobs, and so of another simulation; with all else the agent goes on
        (learner.folder / agent / CLUSTER_STATE).unlink(missing_ok=True)
        learner.start_agent(agent, simulated_agent(cluster, learner, settings, by_rollouts=True))
    return Rollouts(watch, clusters, demo).run_both(made, worse)


def learned_enough(settings: FleetSettings, updates: int, seconds: float, stuck: bool) -> bool:
    """Whether so many updates or seconds are enough; where little of a processor is left, a fleet has as long as its
    first version takes, unless updates are stuck."""
    first = min(settings.publish_every_steps, settings.updates)
    return updates >= settings.updates or (seconds >= settings.seconds and (updates >= first or stuck))


def watch_learning(
    watch: LearnerWatch, agents: Sequence[str], demo: Demonstration, settings: FleetSettings, *, shown: bool
) -> None:
    """Wait until agents have learned for as long as the settings say, or have ended; the clusters are `shown` or not.

    Raises:
        DemoFailed: a process ended with an error.
    """
    deadline = ProgressDeadline(START_SECONDS)
    for elapsed in demo.polls(_POLL_SECONDS):
        now = watch.now()
        if now is not None and shown:
            demo.display.fleet(now, elapsed)
        step = 0 if now is None else now.head_step
        demo.display.progress(max(elapsed / settings.seconds, step / settings.updates))
        over = learned_enough(settings, step, elapsed, deadline.passed(step))
        if over or not any(map(demo.processes.is_running, agents)):
            return


def download(watch: LearnerWatch, cards: Sequence[fleet_pb2.VersionCard], folder: Path) -> tuple[PublishedVersion, ...]:
    """Policy files of versions evenly spaced, the first and the last among them."""
    folder.mkdir(parents=True, exist_ok=True)
    if len(cards) > JUDGED_VERSIONS:
        cards = [cards[round(index * (len(cards) - 1) / (JUDGED_VERSIONS - 1))] for index in range(JUDGED_VERSIONS)]
    found = [PublishedVersion(card.version, card.head_step, folder / f"v{card.version}.safetensors") for card in cards]
    for each in found:
        write_policy_file(each.file, watch.policy(each.version))
    return tuple(found)
