"""The configuration files of the fleet's processes: the same YAML that an operator would write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from policy_net.laboratory.commands.world_options import WorldOptions


@dataclass(frozen=True)  # without slots, so that the command line can name a default
class FleetSettings:
    """What the demo sets otherwise than the programs' own defaults, and why.

    Attributes:
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


def write_learner_config(
    path: Path,
    policy_file: Path,
    listen: str,
    enroll_port: int,
    page: str,
    settings: FleetSettings,
    *,
    by_rollouts: bool = False,
) -> Path:
    """Write a learner's configuration beside its state directory.

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
    return write_yaml(
        path,
        {
            "state_dir": "learner",
            "initial_policy": str(policy_file.resolve()),
            "listen": listen,
            "identity": {"enroll_port": enroll_port},
            # By what decisions bring, every second; twins have a fleet of their own (`lessons`).
            "optimizer": {
                "units": "weights",
                "learning_rate": settings.learning_rate,
                "decay_steps": settings.decay_steps,
            },
            "publish": publish,
            # Clusters in lockstep live through hours in a second: as many as the machine lets them.
            "rollouts": {"period_seconds": 0.5, "real_time_factor": 1e9},
            "telemetry": {"http_listen": page},
        },
    )


def write_agent_config(
    path: Path,
    cluster: str,
    learner: str,
    source: str,
    world: WorldOptions,
    settings: FleetSettings,
    *,
    by_rollouts: bool = False,
) -> Path:
    """Write an agent's configuration beside its state directory.

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
    return write_yaml(
        path,
        {
            "cluster": cluster,
            "state_dir": f"agent-{cluster}",
            "learner": {
                "address": learner,
                "heartbeat_seconds": settings.heartbeat_seconds,
                "job_timelines": settings.job_timelines,
                "twin_cpu_percent": 100 if by_rollouts else 0,
                "enrollment_file": enrollment_file(path.parent, cluster).name,
            },
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
            "learning": {"enabled": not by_rollouts, "source": "live", "seed": world.seed},
            "sharing": {"every_seconds": settings.sharing_seconds},
            # Versions come by the second; whoever looks at the logs afterwards wants every one of them.
            "decision_log": {"keep_policies": 1000},
            "telemetry": {"log_level": "warning"},
        },
    )


def administrator_file(folder: Path) -> Path:
    """Where the learner of this folder puts the identity file of its administrator."""
    return folder / "learner" / "identity" / "admin.pem"


def enrollment_file(folder: Path, cluster: str) -> Path:
    """Where a cluster's agent looks for its token."""
    return folder / f"{cluster}.enrollment"


def write_yaml(path: Path, content: dict[str, Any]) -> Path:
    """A configuration file; returns its path."""
    path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return path
