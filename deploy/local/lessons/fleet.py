"""The lessons' fleet: a learner that counts in spreads, and agents whose twins replay their clusters' recorded past.

Learner, agents, twins, pushes and versions are the real ones. What is set otherwise than the programs' own defaults is
that a lesson may take a whole core, and that a version is made every few updates: a demonstration has a minute, not
weeks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from deploy.local.configs import FleetSettings, agent_content, learner_content
from deploy.local.fleet import PublishedVersion, download, watch_learning
from deploy.local.frame import DemoLearner, Demonstration
from deploy.local.lessons.pasts import Past
from policy_net.exchange.policy_file import write_policy_file
from policy_net.set_policy.policy import default_set_file, extended

SPEEDUP = 60.0
"""The clusters decide meanwhile, a minute in a second: an agent learns of its past once it has decided something."""
JUDGED_VERSIONS = 6
LESSONS = FleetSettings(
    units="spreads",
    # As in docs/results/twin_learning.md.
    learning_rate=0.3,
    decay_steps=40,
    updates=60,
    publish_every_steps=6,
    # Versions average the last ten steps.
    average_decay=0.9,
    seconds=60.0,
    job_timelines=0,
    sharing_seconds=60.0,
)
"""How a fleet learns from recorded pasts, and for how long."""
GRADIENT_PAIRS = 6
"""Half of a gradient's time goes into replays, the rest into the start of its process."""


def run_lessons(pasts: Sequence[Past], demo: Demonstration, settings: FleetSettings) -> tuple[PublishedVersion, ...]:
    """Versions from the first, which has learned nothing, to the last; the first alone if no gradient came in time.

    Raises:
        DemoFailed: a process ended with an error, or the learner never answered.
    """
    learner = DemoLearner(demo, demo.folder / "lessons", "lessons-learner")
    start = learner.folder / "v1.safetensors"
    write_policy_file(start, extended(default_set_file(), "set"))
    settings = replace(settings, publish_every_steps=min(settings.publish_every_steps, settings.updates))
    with learner.running(learner_content(start, learner, settings)) as watch:
        learner.enroll([past.later.name for past in pasts])
        agents = [f"lessons-{past.later.name}" for past in pasts]
        for past, agent in zip(pasts, agents, strict=True):
            learner.start_agent(agent, taught_agent(past, learner, settings))
        watch_learning(watch, agents, demo, settings, shown=False)
        demo.processes.stop(agents)
        demo.processes.check()
        return download(watch, watch.versions(), JUDGED_VERSIONS, learner.folder / "versions")


def taught_agent(past: Past, learner: DemoLearner, settings: FleetSettings) -> dict[str, Any]:
    """The configuration of an agent whose twin replays a recording."""
    first, recording = past.later.own, str(past.recording.resolve())
    assert first.job_kind is not None  # noqa: S101  (narrows the type)
    sections = {
        "backend": {
            "kind": "simulated",
            "workloads": [
                {
                    "source": recording,
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
                "history": [recording],
                "job_kind": first.job_kind.value,
                "window_jobs": past.later.jobs,
                "cpu_percent": 100,
                "work_known": first.durations == "known",
                "gradient": {"pairs": GRADIENT_PAIRS},
            },
        },
    }
    return agent_content(past.later.name, learner, settings, sections)
