"""The lessons' fleet: a learner that counts in spreads, and agents whose twins replay their clusters' recorded past.

Learner, agents, twins, pushes and versions are the real ones. What is set otherwise than the programs' own defaults is
that a lesson may take a whole core, and that a version is made every few updates: a demonstration has a minute, not
weeks.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy.local.configs import administrator_file, enrollment_file, write_yaml
from deploy.local.display import Display
from deploy.local.fleet import POLL_SECONDS, PublishedVersion, download, enroll, spread, wait_until
from deploy.local.lessons.pasts import Past
from deploy.local.processes import Processes
from deploy.local.waiting import LearningTime
from deploy.local.watch import LearnerWatch
from policy_net.exchange.policy_file import write_policy_file
from policy_net.set_policy.extended import extended
from policy_net.set_policy.policy import default_set_file

SPEEDUP = 60.0
"""The clusters decide meanwhile, a minute in a second: an agent learns of its past once it has decided something."""
STILL_SECONDS = 120.0
"""How long, once the time is over, there may be no update more before the first version: lessons take what nobody else
wants of the processors, which may be nothing."""
JUDGED_VERSIONS = 6


@dataclass(frozen=True)  # without slots, so that the command line can name a default
class LessonSettings:
    """How a fleet learns from recorded pasts, and for how long.

    Attributes:
        updates: the fleet ends after so many; 0 for no lessons.
        seconds: or after so long, on a slow machine; there not before the first version, if updates come at all.
        learning_rate: of the first step, in spreads, as in docs/results/twin_learning.md; it halves in `decay_steps`.
        average_decay: versions average the last ten steps.
        every_steps: a version after so many updates.
        pairs: of a gradient; half of its time goes into replays, the rest into the start of its process.
    """

    updates: int = 60
    seconds: float = 60.0
    learning_rate: float = 0.3
    decay_steps: int = 40
    average_decay: float = 0.9
    every_steps: int = 6
    pairs: int = 6


def run_lessons(
    pasts: Sequence[Past], folder: Path, processes: Processes, display: Display, settings: LessonSettings
) -> tuple[PublishedVersion, ...]:
    """Versions from the first, which has learned nothing, to the last; the first alone if no gradient came in time.

    Raises:
        DemoFailed: a process ended with an error, or the learner never answered.
    """
    folder.mkdir(parents=True, exist_ok=True)
    start = folder / "v1.safetensors"
    write_policy_file(start, extended(default_set_file(), "set"))
    address, enroll_port = f"127.0.0.1:{processes.port()}", processes.port()
    learner = write_yaml(folder / "learner.yaml", learner_config(start, address, enroll_port, settings))
    processes.start("lessons-learner", "global_learner.cli", ["serve", "--config", str(learner)])
    administrator = administrator_file(folder)
    wait_until(administrator.exists, processes)
    watch = LearnerWatch(address, administrator)
    try:
        wait_until(lambda: watch.now() is not None, processes)
        enroll([past.later.name for past in pasts], folder, address, administrator, processes)
        agents = []
        for past in pasts:
            name = past.later.name
            config = write_yaml(
                folder / f"agent-{name}.yaml", agent_config(past, address, enrollment_file(folder, name), settings)
            )
            agents.append(f"lessons-{name}")
            processes.start(agents[-1], "cluster_agent.cli", ["run", "--config", str(config)])
        _watch(watch, agents, processes, display, settings)
        processes.stop(agents)
        processes.check()
        cards = spread(watch.versions(), JUDGED_VERSIONS)
        versions = tuple(download(watch, card, folder / "versions") for card in cards)
    finally:
        watch.close()
    processes.stop(["lessons-learner"])
    return versions


def _watch(
    watch: LearnerWatch, agents: Sequence[str], processes: Processes, display: Display, settings: LessonSettings
) -> None:
    learning = LearningTime(settings.seconds, settings.updates, settings.every_steps, STILL_SECONDS)
    while any(map(processes.is_running, agents)):
        processes.check()
        now = watch.now()
        done = 0 if now is None else now.updates_accepted
        display.progress(learning.share(done))
        if learning.over(done):
            return
        time.sleep(POLL_SECONDS)


def learner_config(start: Path, address: str, enroll_port: int, settings: LessonSettings) -> dict[str, Any]:
    """What the learner's file says; paths are beside it."""
    return {
        "state_dir": "learner",
        "initial_policy": str(start.resolve()),
        "listen": address,
        "identity": {"enroll_port": enroll_port},
        "optimizer": {"units": "spreads", "learning_rate": settings.learning_rate, "decay_steps": settings.decay_steps},
        "publish": {
            "every_steps": min(settings.every_steps, settings.updates),
            "average_decay": settings.average_decay,
            "auto_assign": True,
            "keep_versions": 0,
        },
    }


def agent_config(past: Past, address: str, enrollment: Path, settings: LessonSettings) -> dict[str, Any]:
    """What an agent's file says."""
    first = past.later.own
    assert first.job_kind is not None  # noqa: S101  (narrows the type)
    return {
        "cluster": past.later.name,
        "state_dir": f"agent-{past.later.name}",
        "learner": {
            "address": address,
            "heartbeat_seconds": POLL_SECONDS,
            "twin_cpu_percent": 0,
            "enrollment_file": enrollment.name,
        },
        "backend": {
            "kind": "simulated",
            "workloads": [
                {
                    "source": str(past.recording.resolve()),
                    "seed": first.seed,
                    "job_kind": first.job_kind.value,
                    "durations": first.durations,
                }
            ],
            "environment": {
                "nodes": past.later.nodes,
                "gpus_per_node": first.gpus_per_node,
                "cpus_per_node": first.cpus_per_node,
                "capacity_mode": first.capacity.value,
            },
            "pace": {"kind": "scaled", "speedup": SPEEDUP},
            "baseline": False,
        },
        "learning": {
            "source": "twin",
            "flush_seconds": 1.0,
            "twin": {
                "history": [str(past.recording.resolve())],
                "job_kind": first.job_kind.value,
                "window_jobs": past.later.jobs,
                "cpu_percent": 100,
                "work_known": first.durations == "known",
                "gradient": {"pairs": settings.pairs},
            },
        },
        "telemetry": {"log_level": "warning"},
    }
