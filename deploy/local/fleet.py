"""The fleet's life: learner, agents, until there is no time left; then what came of it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from deploy.local.canary_power import CanaryPower, canary_power
from deploy.local.configs import (
    FleetSettings,
    administrator_file,
    enrollment_file,
    write_agent_config,
    write_learner_config,
)
from deploy.local.display import Display
from deploy.local.plan import ClusterPlan
from deploy.local.processes import DemoFailed, Processes
from deploy.local.rollouts import (
    RolloutEnd,
    Rollouts,
    both_rollouts,
    operator,
    why_none,
    write_plan,
)
from deploy.local.waiting import LearningTime, ProgressDeadline
from deploy.local.watch import FleetNow, LearnerWatch
from deploy.local.worse_version import publish_worse
from policy_net.exchange.generated import fleet_pb2

START_SECONDS = 120.0
"""How long what starts may get nothing done, not a second of the processor; it takes two to four on an idle machine."""

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
        report: what the learner told at the end.
        published: the numbers of all versions.
        versions: those that are judged, from the first to the last that the fleet made.
        rollouts: how they ended; none where none was made.
        canary_power: what the canary stage of the first one is worth; None where it saw too little.
    """

    last: FleetNow
    report: fleet_pb2.GetReportReply
    published: tuple[int, ...]
    versions: tuple[PublishedVersion, ...]
    interventions: dict[str, int]
    rollouts: tuple[RolloutEnd, ...] = ()
    canary_power: CanaryPower | None = None


def run_fleet(
    plan: Sequence[ClusterPlan],
    folder: Path,
    v1: Path,
    processes: Processes,
    display: Display,
    settings: FleetSettings,
) -> FleetResult:
    """Let the clusters schedule and learn until the settings' time or updates, or all their work, is done.

    Raises:
        DemoFailed: a process ended with an error, or the learner never answered.
    """
    display.phase("starting a learner and " + ", ".join(cluster.name for cluster in plan))
    fleet = _Fleet(plan, folder, v1, processes, settings)
    fleet.start_learner()
    wait_until(fleet.administrator.exists, processes)
    watch = LearnerWatch(fleet.address, fleet.administrator)
    try:
        wait_until(lambda: watch.now() is not None, processes)
        display.phase(
            f"to look in: policyctl fleet --learner {fleet.address} --cert {fleet.administrator}, or http://{fleet.page}/"
        )
        enroll(fleet.clusters, folder, fleet.address, fleet.administrator, processes)
        fleet.start_agents()
        display.phase(f"{len(plan)} clusters schedule their jobs and improve one policy")
        _watch_until_done(watch, fleet.agents, processes, display, settings)
        worse, rollouts = fleet.roll_out(watch, display) if settings.rollouts else (0, ())
        display.phase("stopping the agents")
        processes.stop(fleet.agents)
        processes.check()
        last = watch.now()
        if last is None:
            raise DemoFailed(f"the learner does not answer any more (see {processes.log_of('learner')})")
        if last.updates_accepted == 0:
            raise DemoFailed(f"no update reached the learner (see {folder}/agent-*.log)")
        cards, report = watch.versions(), watch.report()
        learned = [card for card in cards if card.version != worse]
        versions = tuple(download(watch, card, folder / "versions") for card in spread(learned, JUDGED_VERSIONS))
    finally:
        watch.close()
    processes.stop(["learner"])
    power = canary_power(rollouts[0], folder / "learner") if rollouts else None
    interventions = {cluster.name: _interventions(folder, cluster.name, last) for cluster in plan}
    published = tuple(card.version for card in cards)
    return FleetResult(last, report, published, versions, interventions, rollouts, power)


class _Fleet:
    """The processes of the fleet: a learner, and an agent for every cluster."""

    def __init__(
        self, plan: Sequence[ClusterPlan], folder: Path, v1: Path, processes: Processes, settings: FleetSettings
    ) -> None:
        self._plan, self._folder, self._v1, self._settings = plan, folder, v1, settings
        self._processes = processes
        self._enroll_port = processes.port()
        self.address, self.page = (f"127.0.0.1:{processes.port()}" for _ in range(2))
        self.administrator = administrator_file(folder)
        self.clusters = [cluster.name for cluster in plan]
        self.agents = [f"agent-{name}" for name in self.clusters]

    def start_learner(self, *, by_rollouts: bool = False) -> None:
        """Start the learner; see `write_learner_config`."""
        path = self._folder / "learner.yaml"
        learner = write_learner_config(
            path, self._v1, self.address, self._enroll_port, self.page, self._settings, by_rollouts=by_rollouts
        )
        self._processes.start("learner", "global_learner.cli", ["serve", "--config", str(learner)])

    def start_agents(self, *, by_rollouts: bool = False) -> None:
        """Start an agent for every cluster; see `write_agent_config`."""
        for cluster, agent in zip(self._plan, self.agents, strict=True):
            source, world = cluster.lasting if by_rollouts and cluster.lasting else (cluster.source, cluster.own)
            config = write_agent_config(
                self._folder / f"{agent}.yaml",
                cluster.name,
                self.address,
                source,
                world,
                self._settings,
                by_rollouts=by_rollouts,
            )
            self._processes.start(agent, "cluster_agent.cli", ["run", "--config", str(config)])

    def roll_out(self, watch: LearnerWatch, display: Display) -> tuple[int, tuple[RolloutEnd, ...]]:
        """The worse version, and how both rollouts ended; 0 and none where there can be none, which is said.

        Raises:
            DemoFailed: see `Rollouts.run`.
        """
        processes = self._processes
        none = why_none(self.clusters, len(watch.versions()), all(map(processes.is_running, self.agents)))
        if none:
            display.say(f"no rollouts: {none}")
            return 0, ()
        display.phase("two rollouts: nothing acts unjudged from here on, and all clusters go back to v1")
        processes.stop(self.agents)
        processes.stop(["learner"])
        made, worse = publish_worse(self._folder / "learner")
        self.start_learner(by_rollouts=True)
        wait_until(lambda: watch.now() is not None, processes)
        for agent in self.agents:  # of other jobs, and so of another simulation; with all else the agent goes on
            (self._folder / agent / CLUSTER_STATE).unlink(missing_ok=True)
        self.start_agents(by_rollouts=True)
        with operator(self.address, self.administrator) as client:
            plan = write_plan(self._folder / "rollout.yaml")
            return worse, both_rollouts(Rollouts(client, self.clusters, plan, processes, display), made, worse)


def enroll(clusters: Sequence[str], folder: Path, address: str, administrator: Path, processes: Processes) -> None:
    """Invite every cluster, as its platform's owner would; its agent does the rest.

    Raises:
        DemoFailed: the learner invites nobody.
    """
    names = []
    for cluster in clusters:
        names.append(f"enroll-{cluster}")
        out = enrollment_file(folder, cluster)
        options = ["--learner", address, "--cert", str(administrator), "--out", str(out)]
        processes.start(names[-1], "global_learner.policyctl.cli", ["cluster", "enroll", cluster, *options])
    wait_until(lambda: not any(processes.is_running(name) for name in names), processes)
    processes.check()


def wait_until(ready: Callable[[], bool], processes: Processes) -> None:
    """Wait for what processes are to bring about.

    Raises:
        DemoFailed: one of them ended with an error, or it took too long.
    """
    deadline = ProgressDeadline(START_SECONDS)
    while not ready():
        processes.check()
        if deadline.passed(int(processes.cpu_seconds())):
            raise DemoFailed(
                f"the learner did not answer within {deadline.waited_seconds:.0f} s (see {processes.log_of('learner')})"
            )
        time.sleep(POLL_SECONDS / 5)


def _watch_until_done(
    watch: LearnerWatch, agents: Sequence[str], processes: Processes, display: Display, settings: FleetSettings
) -> None:
    began = time.monotonic()
    learning = LearningTime(settings.seconds, settings.updates, settings.publish_every_steps, START_SECONDS)
    while any(processes.is_running(name) for name in agents):
        processes.check()
        now = watch.now()
        if now is not None:
            display.fleet(now, time.monotonic() - began)
        step = 0 if now is None else now.head_step
        display.progress(learning.share(step))
        if learning.over(step):
            return
        time.sleep(POLL_SECONDS)


def spread(cards: Sequence[fleet_pb2.VersionCard], count: int) -> list[fleet_pb2.VersionCard]:
    """At most `count` versions, evenly spaced, with the first and the last."""
    if len(cards) <= count:
        return list(cards)
    return [cards[round(index * (len(cards) - 1) / (count - 1))] for index in range(count)]


def download(watch: LearnerWatch, card: fleet_pb2.VersionCard, folder: Path) -> PublishedVersion:
    """A version's policy file, in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"v{card.version}.safetensors"
    file.write_bytes(watch.policy_file(card.version))
    return PublishedVersion(card.version, card.head_step, file)


def _interventions(folder: Path, cluster: str, last: FleetNow) -> int:
    """Times the guard stepped in, from the agent's own summary; from its last heartbeat if it left none."""
    summary = folder / f"agent-{cluster}" / "summary.json"
    if summary.exists():
        return sum(json.loads(summary.read_text(encoding="utf-8"))["guard_interventions"].values())
    return sum(view.interventions for view in last.clusters if view.name == cluster)
