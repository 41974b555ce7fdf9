"""Configurations of a demonstration's learner and agents: the same that an operator would write as YAML."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy.demonstration.frame import DemoLearner, enrollment_file


@dataclass(frozen=True)  # without slots, so that the command line can name a default
class FleetSettings:
    """How a demonstration's fleet learns otherwise than by the programs' own defaults, and how long.

    Attributes:
        learning_rate: a demo has minutes, not weeks.
        units: what the learner's steps are counted in.
        decay_steps: updates that halve the step; None: it stays.
        average_decay: versions are averages of the head, which is noisy at this rate.
        publish_every_steps: often, so that clusters soon act on what they learned.
        updates: the fleet ends after so many, on a fast machine before its time is over.
        seconds: the fleet runs at most so long.
        episodes: more rounds through its workload than a cluster gets through in `seconds`, and in rollouts behind
            them, so that the fleet's time ends before its work does.
        speedup: of the clusters' clocks, whose twins teach; None: clusters live as fast as they decide, and learn of
            what that brings.
    """

    learning_rate: float = 1e-4
    units: str = "weights"
    decay_steps: int | None = None
    average_decay: float = 0.99
    publish_every_steps: int = 10
    updates: int = 400
    seconds: float = 60.0
    episodes: int = 100
    speedup: float | None = None


REAL_JOBS = FleetSettings(publish_every_steps=1, average_decay=0.5)
"""Of agents whose jobs are real: a version after every update, as a real job takes minutes, and who looks on is to see
one act."""


def learner_content(
    policy_file: Path, learner: DemoLearner, settings: FleetSettings, *, by_rollouts: bool = False
) -> dict[str, Any]:
    """A learner's configuration.

    Args:
        by_rollouts: nothing new acts but by a rollout, and nothing new is published.
    """
    publish = {
        "every_steps": min(settings.publish_every_steps, settings.updates),
        "average_decay": settings.average_decay,
        # Nobody is there to release versions; see docs/guide/policyctl.md for how it is done elsewhere.
        "auto_assign": True,
        "keep_versions": 0,
    }
    if by_rollouts:
        publish |= {"every_steps": 10**9, "auto_assign": False}
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
    cluster: str, learner: DemoLearner, sections: dict[str, Any], twin_cpu_percent: int = 0
) -> dict[str, Any]:
    """An agent's configuration; `sections` are said besides, or otherwise."""
    return {
        "cluster": cluster,
        "state_dir": f"agent-{cluster}",
        "learner": {
            "address": learner.address,
            "heartbeat_seconds": 0.5,  # for a lively table
            "job_timelines": 8,  # jobs that can be looked at in the report
            "twin_cpu_percent": twin_cpu_percent,
            "enrollment_file": enrollment_file(learner.folder, cluster).name,
        },
        "sharing": {"every_seconds": 5.0},  # a minute of a demo is days of its clusters
        "telemetry": {"log_level": "warning"},
        **sections,
    }


def real_agent(cluster: str, learner: DemoLearner, backend: dict[str, Any]) -> dict[str, Any]:
    """The configuration of an agent whose jobs are real."""
    sections = {
        "state_dir": "agent",
        "backend": {"slot_seconds": 10.0, **backend},
        # The most probable action, and now and then another one, to find out.
        "policy": {"mode": "greedy", "exploration": 0.02},
        # Of what decisions bring: some minutes are no past to replay.
        "learning": {
            "source": "live",
            # 20 decisions make an update unless set, which take some minutes
            "residual": {"segment_decisions": 5, "minimum_effective_samples": 8.0},
        },
        "telemetry": {"log_level": "info"},
    }
    return agent_content(cluster, learner, sections)
