"""Configuration files of the demonstration's learner and agent: the same YAML that an operator would write."""

from __future__ import annotations

from pathlib import Path

import yaml

from deploy.local.configs import FleetSettings, enrollment_file, write_learner_config

CLUSTER = "kubernetes"
_SETTINGS = FleetSettings(
    learning_rate=1e-4, decay_steps=None, publish_every_steps=1, average_decay=0.5, exploration=0.05
)
_SEGMENT_DECISIONS = 5
"""Decisions of an update; 20 unless set, which take some minutes here."""


def write_configs(
    folder: Path, policy: Path, address: str, enroll_port: int, page: str, kubeconfig: Path
) -> tuple[Path, Path]:
    """The learner's and the agent's, beside their state directories.

    Args:
        policy: the first version.
        address: of the learner; `page` is that of its live page.
        kubeconfig: of the agent.
    """
    learner = write_learner_config(folder / "learner.yaml", policy, address, enroll_port, page, _SETTINGS)
    content = {
        "cluster": CLUSTER,
        "state_dir": "agent",
        "learner": {
            "address": address,
            "heartbeat_seconds": _SETTINGS.heartbeat_seconds,
            "enrollment_file": enrollment_file(folder, CLUSTER).name,
        },
        "backend": {
            "kind": "kubernetes",
            "kubeconfig": kubeconfig.name,
            "slot_seconds": 10.0,
            "debounce_seconds": 2.0,
            "lease_namespace": "fedl2",
            # Jobs of a minute: sizes change more often than an operator's would.
            "limits": {"changes_per_hour": 120},
            "training": {},
        },
        # Real jobs: the most probable action, and now and then another one, to find out.
        "policy": {"mode": "greedy", "exploration": _SETTINGS.exploration},
        # Of what decisions bring: some minutes are no past to replay.
        "learning": {
            "source": "live",
            "residual": {"segment_decisions": _SEGMENT_DECISIONS, "minimum_effective_samples": 8.0},
        },
        "telemetry": {"log_level": "info"},
    }
    agent = folder / "agent.yaml"
    agent.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return learner, agent
