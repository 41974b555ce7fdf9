"""A policy behind the agent's guard in a simulated cluster."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.exceptional_decisions.damage import DAMAGES
from benchmarks.policy_quality.cells import Cell
from benchmarks.policy_quality.worlds import build_world
from cluster_agent.guard import Guard, Intervention, Proposal
from cluster_agent.monitor import DecisionMonitor
from policy_net.baselines.drf import DrfPolicy
from policy_net.dl2.policy import LearnedPolicy
from policy_net.domain import ClusterState, Decision, Progress, Trigger
from policy_net.exchange.policy_file import PolicyFile
from policy_net.exchange.shipped import shipped_file
from policy_net.exchange.spec import SET
from policy_net.laboratory.simulation.replay import replay
from policy_net.policy import SchedulerPolicy
from policy_net.set_policy.policy import set_policy_of
from policy_net.throughput.parametric import OnlineFit


@dataclass(frozen=True)
class Task:
    """A replay of a policy in a cell."""

    cell: Cell
    policy: str
    damage: str = "none"
    monitored: bool = True


@dataclass
class Watched:
    """A policy behind the agent's guard; it is its own monitor, to measure the agent's."""

    policy: SchedulerPolicy
    kind: str
    task: Task
    decisions: int = 0
    alarms: list[int] = field(default_factory=list)
    seconds: float = 0.0
    detail: str = ""

    def __post_init__(self) -> None:
        self.name, self._fit = self.policy.name, OnlineFit()
        self._monitor = DecisionMonitor(self._fit)
        self._guard = Guard(DrfPolicy(), 1e9, monitor=self if self.task.monitored else None)

    def surprise(self, decision: Decision, state: ClusterState, kind: str, *, acts: bool = True) -> str:
        """See `Monitor.surprise`."""
        began = time.process_time()
        found = self._monitor.surprise(decision, state, kind, acts=acts)
        self.seconds += time.process_time() - began
        return found

    def decide(self, state: ClusterState, trigger: Trigger) -> Decision:
        """What the guard lets through."""
        guarded = self._guard.decide(Proposal(self.policy.decide(state, trigger), None, 0.0), state, trigger, self.kind)
        if Intervention.EXCEPTIONAL in guarded.interventions:
            self.alarms.append(self.decisions)
            self.detail = self.detail or guarded.detail
        self.decisions += 1
        return guarded.decision

    def observe(self, progress: Sequence[Progress]) -> None:
        """Show it to the policy, and to the agent's beliefs."""
        self.policy.observe(progress)
        self._fit.observe(progress)


@cache
def damaged(policy: str, damage: str) -> PolicyFile:
    """A shipped policy's file with this damage."""
    return DAMAGES[damage](shipped_file(policy))


def measured(task: Task, data: Path) -> dict[str, Any]:
    """Replay it; the figures of a row."""
    world, file = build_world(task.cell, data), damaged(task.policy, task.damage)
    learned = file.spec.policy
    own = set_policy_of(file, task.policy) if learned == SET else LearnedPolicy(file.network_spec, file.weights)
    watched = Watched(own, learned, task)
    jct = replay(world.workload, world.environment, watched, world.speeds, compiled=False).to_json()["avg_jct_seconds"]
    return {
        "cluster": getattr(task.cell, "cluster", "generated"),
        **{name: getattr(task, name) for name in ("policy", "damage", "monitored")},
        "decisions": watched.decisions,
        "alarms": len(watched.alarms),
        "first": watched.alarms[0] if watched.alarms else None,
        "detail": watched.detail,
        "avg_jct_seconds": round(jct, 1),
        "microseconds": round(1e6 * watched.seconds / watched.decisions, 1),
    }
