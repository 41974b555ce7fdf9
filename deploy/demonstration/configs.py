"""Configurations of a demonstration's learner and agents: the same that an operator would write as YAML."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any

from deploy.demonstration.frame import DemoLearner, enrollment_file
from policy_net.laboratory.commands.world_options import WorldOptions


@dataclass(frozen=True)  # without slots, so that the command line can name a default
class FleetSettings:
    """What the demo sets otherwise than the programs' own defaults, and why.

    Attributes:
        units: what the learner's steps are counted in.
        learning_rate: three times the learner's default, since a demo has minutes, not weeks.
        decay_steps: halves the step after 2,000, so that the end of the run is calmer than its beginning.
        updates: the fleet ends after so many, on a fast machine before its time is over. Beyond about 6,000 the network
            is pulled away from what it had learned (docs/experiments.md), so a demo that ran longer would show less.
        publish_every_steps: often, so that clusters soon act on what they learned.
        average_decay: versions are averages of the head, which is noisy at this rate.
        exploration: probability of a repairing action, or of the runner-up; simulated jobs are there to be tried on.
        heartbeat_seconds: short, for a lively table.
        job_timelines: so many jobs of each cluster can be looked at in the report.
        seconds: the fleet runs at most so long.
        episodes: more rounds through its workload than a cluster gets through in `seconds`, and in rollouts behind
            them, so that the fleet's time ends before its work does.
        rollouts: whether the fleet's life ends with two rollouts. DL2's network, after minutes of learning, is no match
            for Optimus, and would not pass the gate.
        sharing_seconds: clusters tell one another of speeds so often; a minute of a demo is days of its clusters.
    """

    units: str = "weights"
    learning_rate: float = 3e-4
    decay_steps: int | None = 2000
    updates: int = 4500
    publish_every_steps: int = 25
    average_decay: float = 0.99
    exploration: float = 0.1
    heartbeat_seconds: float = 0.5
    job_timelines: int = 8
    seconds: float = 150.0
    episodes: int = 40
    sharing_seconds: float = 5.0
    rollouts: bool = False


ROLLOUT_SPEEDUP = 20_000.0
"""Of the clusters' clocks in rollouts, at most: sixteen slots a second, so that clusters that are not tried leave the
processors to the twins of those that are."""

NEVER_STEPS = 1_000_000_000
"""More head steps than a demo makes."""


class DemoPolicy(StrEnum):
    """Which kind of policy the fleet runs."""

    SET = "set"
    DL2 = "dl2"


FLEETS: Mapping[DemoPolicy, FleetSettings] = MappingProxyType(
    {
        DemoPolicy.DL2: FleetSettings(),
        # The learner's own rate, and a minute: the policy is good from its first decision on, and must stay so.
        DemoPolicy.SET: FleetSettings(
            learning_rate=1e-4,
            decay_steps=None,
            updates=400,
            publish_every_steps=10,
            exploration=0.05,
            seconds=60.0,
            episodes=100,
            rollouts=True,
        ),
    }
)
"""What the demo sets for each kind."""


REAL_JOBS = FleetSettings(learning_rate=1e-4, decay_steps=None, publish_every_steps=1, average_decay=0.5)
"""Of agents whose jobs are real: a version after every update, as a real job takes minutes, and who looks on is to see
one act."""
_REAL_SEGMENT_DECISIONS = 5
"""Decisions of an update there; 20 unless set, which take some minutes."""


def learner_content(
    policy_file: Path, learner: DemoLearner, settings: FleetSettings, *, by_rollouts: bool = False
) -> dict[str, Any]:
    """A learner's configuration.

    Args:
        by_rollouts: nothing new acts but by a rollout, and nothing new is published.
    """
    publish = {
        "every_steps": settings.publish_every_steps,
        "average_decay": settings.average_decay,
        # Nobody is there to release versions; see docs/guide/policyctl.md for how it is done elsewhere.
        "auto_assign": True,
        "keep_versions": 0,
    }
    if by_rollouts:
        publish |= {"every_steps": NEVER_STEPS, "auto_assign": False}
    return {
        "state_dir": "learner",
        "initial_policy": str(policy_file.resolve()),
        "listen": learner.address,
        "identity": {"enroll_port": learner.enroll_port},
        "optimizer": {
            "units": settings.units,
            "learning_rate": settings.learning_rate,
            "decay_steps": settings.decay_steps,
        },
        "publish": publish,
        # Clusters in lockstep live through hours in a second: as many as the machine lets them.
        "rollouts": {"real_time_factor": 1e9},
        "telemetry": {"http_listen": learner.page},
    }


def agent_content(
    cluster: str, learner: DemoLearner, settings: FleetSettings, sections: dict[str, Any], twin_cpu_percent: int = 0
) -> dict[str, Any]:
    """An agent's configuration; `sections` are said besides, or otherwise."""
    return {
        "cluster": cluster,
        "state_dir": f"agent-{cluster}",
        "learner": {
            "address": learner.address,
            "heartbeat_seconds": settings.heartbeat_seconds,
            "job_timelines": settings.job_timelines,
            "twin_cpu_percent": twin_cpu_percent,
            "enrollment_file": enrollment_file(learner.folder, cluster).name,
        },
        "sharing": {"every_seconds": settings.sharing_seconds},
        "telemetry": {"log_level": "warning"},
        **sections,
    }


def simulated_agent(
    cluster: str,
    learner: DemoLearner,
    settings: FleetSettings,
    source: str,
    world: WorldOptions,
    *,
    by_rollouts: bool = False,
) -> dict[str, Any]:
    """The configuration of an agent whose cluster is simulated.

    Args:
        by_rollouts: its cluster schedules as a real one does, at a pace at which the twin keeps up, and learns nothing.
    """
    workload: dict[str, Any] = {
        "source": source,
        "seed": world.seed,
        "window": world.window,
        "arrival_scale": world.arrival_scale,
    }
    if world.limit_jobs is not None:
        workload["limit_jobs"] = world.limit_jobs
    if world.job_kind is not None:
        workload["job_kind"] = world.job_kind.value
    sections = {
        "backend": {
            "kind": "simulated",
            "workloads": [workload],
            "episodes": settings.episodes,
            "environment": {} if world.nodes is None else {"nodes": world.nodes},
            "pace": {"kind": "scaled", "speedup": ROLLOUT_SPEEDUP} if by_rollouts else {"kind": "lockstep"},
            "baseline": not by_rollouts,
            "wait_for_twin": by_rollouts,
        },
        "policy": {"mode": "greedy", "exploration": 0.0, "seed": world.seed}
        if by_rollouts
        else {"mode": "sample", "exploration": settings.exploration, "seed": world.seed},
        # By what decisions bring, every second; twins have a fleet of their own (`lessons`).
        "learning": {"enabled": not by_rollouts, "source": "live"},
        # Versions come by the second; whoever looks at the logs afterwards wants every one of them.
        "decision_log": {"keep_policies": 1000},
    }
    return agent_content(cluster, learner, settings, sections, twin_cpu_percent=100 if by_rollouts else 0)


def real_agent(cluster: str, learner: DemoLearner, settings: FleetSettings, backend: dict[str, Any]) -> dict[str, Any]:
    """The configuration of an agent whose jobs are real."""
    sections = {
        "state_dir": "agent",
        "backend": {"slot_seconds": 10.0, **backend},
        # The most probable action, and now and then another one, to find out.
        "policy": {"mode": "greedy", "exploration": settings.exploration},
        # Of what decisions bring: some minutes are no past to replay.
        "learning": {
            "source": "live",
            "residual": {"segment_decisions": _REAL_SEGMENT_DECISIONS, "minimum_effective_samples": 8.0},
        },
        "telemetry": {"log_level": "info"},
    }
    return agent_content(cluster, learner, settings, sections)
