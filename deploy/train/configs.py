"""Configuration files of the demonstration's learner and agent: the same YAML that an operator would write."""

from __future__ import annotations

from pathlib import Path

import yaml

from deploy.local.configs import FleetSettings, enrollment_file, write_learner_config

CLUSTER = "this-machine"
SETTINGS = FleetSettings(
    learning_rate=1e-4, decay_steps=None, publish_every_steps=1, average_decay=0.5, exploration=0.02
)
"""A version after every update: a real job takes minutes, and who looks on is to see one act."""

_SEGMENT_DECISIONS = 5
"""Decisions of an update; 20 unless set, which take some minutes here."""


def write_configs(folder: Path, policy: Path, address: str, enroll_port: int, page: str) -> tuple[Path, Path]:
    """The learner's and the agent's, beside their state directories.

    Args:
        policy: the first version.
        address: of the learner; `page` is that of its live page.
    """
    learner = write_learner_config(folder / "learner.yaml", policy, address, enroll_port, page, SETTINGS)
    content = {
        "cluster": CLUSTER,
        "state_dir": "agent",
        "learner": {
            "address": address,
            "heartbeat_seconds": SETTINGS.heartbeat_seconds,
            "job_timelines": SETTINGS.job_timelines,
            "enrollment_file": enrollment_file(folder, CLUSTER).name,
        },
        "backend": {
            "kind": "local",
            "slot_seconds": 10.0,
            "debounce_seconds": 3.0,
            "socket": "s/jobs.sock",
        },
        # Real jobs: the most probable action, and now and then another one, to find out.
        "policy": {"mode": "greedy", "exploration": SETTINGS.exploration},
        # Of what decisions bring: some minutes are no past to replay.
        "learning": {
            "source": "live",
            "residual": {"segment_decisions": _SEGMENT_DECISIONS, "minimum_effective_samples": 8.0},
        },
        "sharing": {"every_seconds": SETTINGS.sharing_seconds},
        "telemetry": {"log_level": "info"},
    }
    agent = folder / "agent.yaml"
    agent.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return learner, agent
