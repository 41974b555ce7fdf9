"""The fleet's life: learner, agents, until there is no time left; then what came of it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

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
from deploy.local.rollouts import RolloutEnd, Rollouts, both_rollouts, operator, why_none, write_plan
from deploy.local.watch import FleetNow, LearnerWatch
from deploy.local.worse_version import publish_worse
from policy_net.exchange.generated import fleet_pb2

START_SECONDS = 120.0
"""How long the learner may take to answer for the first time; it takes two to four on an idle machine."""

JUDGED_VERSIONS = 8
"""Versions on the learning curve: its shape needs no more, and each costs a replay per cluster and workload."""

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
    """

    last: FleetNow
    report: fleet_pb2.GetReportReply
    published: tuple[int, ...]
    versions: tuple[PublishedVersion, ...]
    interventions: dict[str, int]
    rollouts: tuple[RolloutEnd, ...] = ()


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
    address, page, enroll_port = f"127.0.0.1:{processes.port()}", f"127.0.0.1:{processes.port()}", processes.port()

    def start_learner(*, by_rollouts: bool) -> None:
        learner = write_learner_config(
            folder / "learner.yaml", v1, address, enroll_port, page, settings, by_rollouts=by_rollouts
        )
        processes.start("learner", "global_learner.cli", ["serve", "--config", str(learner)])

    start_learner(by_rollouts=False)
    administrator = administrator_file(folder)
    wait_until(administrator.exists, processes)
    watch = LearnerWatch(address, administrator)
    try:
        wait_until(lambda: watch.now() is not None, processes)
        display.phase(f"to look in: policyctl fleet --learner {address} --cert {administrator}, or http://{page}/")
        clusters = [cluster.name for cluster in plan]
        enroll(clusters, folder, address, administrator, processes)
        names = _start_agents(plan, folder, address, settings, processes)
        display.phase(f"{len(plan)} clusters schedule their jobs and improve one policy")
        _watch_until_done(watch, names, processes, display, settings.seconds, settings.updates)
        worse = 0
        rollouts: tuple[RolloutEnd, ...] = ()
        working = all(processes.is_running(name) for name in names)
        none = why_none(clusters, len(watch.versions()), working) if settings.rollouts else ""
        if none:
            display.say(f"no rollouts: {none}")
        elif settings.rollouts:
            display.phase("two rollouts: nothing acts unjudged from here on, and all clusters go back to v1")
            processes.stop(["learner"])
            made, worse = publish_worse(folder / "learner")
            start_learner(by_rollouts=True)
            wait_until(lambda: watch.now() is not None, processes)
            with operator(address, administrator) as client:
                by_plan = write_plan(folder / "rollout.yaml")
                rollouts = both_rollouts(Rollouts(client, clusters, by_plan, processes, display), made, worse)
        display.phase("stopping the agents")
        processes.stop(names)
        processes.check()
        last = watch.now()
        if last is None:
            raise DemoFailed(f"the learner does not answer any more (see {processes.log_of('learner')})")
        if last.updates_accepted == 0:
            raise DemoFailed(f"no update reached the learner in {settings.seconds:.0f} s (see {folder}/agent-*.log)")
        cards, report = watch.versions(), watch.report()
        learned = [card for card in cards if card.version != worse]
        versions = tuple(download(watch, card, folder / "versions") for card in spread(learned, JUDGED_VERSIONS))
    finally:
        watch.close()
    processes.stop(["learner"])
    interventions = {cluster.name: _interventions(folder, cluster.name, last) for cluster in plan}
    return FleetResult(last, report, tuple(card.version for card in cards), versions, interventions, rollouts)


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
    deadline = time.monotonic() + START_SECONDS
    while not ready():
        processes.check()
        if time.monotonic() > deadline:
            raise DemoFailed(
                f"the learner did not answer within {START_SECONDS:.0f} s (see {processes.log_of('learner')})"
            )
        time.sleep(POLL_SECONDS / 5)


def _watch_until_done(
    watch: LearnerWatch, agents: Sequence[str], processes: Processes, display: Display, seconds: float, updates: int
) -> None:
    began = time.monotonic()
    while (elapsed := time.monotonic() - began) < seconds and any(processes.is_running(name) for name in agents):
        processes.check()
        now = watch.now()
        taken = 0.0
        if now is not None:
            display.fleet(now, elapsed)
            taken = now.head_step / updates
        display.progress(max(elapsed / seconds, taken))
        if taken >= 1.0:
            return
        time.sleep(POLL_SECONDS)


def _start_agents(
    plan: Sequence[ClusterPlan], folder: Path, address: str, settings: FleetSettings, processes: Processes
) -> list[str]:
    """An agent for every cluster; the names of their processes."""
    names = []
    for cluster in plan:
        config = folder / f"agent-{cluster.name}.yaml"
        write_agent_config(config, cluster.name, address, cluster.source, cluster.own, settings)
        names.append(f"agent-{cluster.name}")
        processes.start(names[-1], "cluster_agent.cli", ["run", "--config", str(config)])
    return names


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
