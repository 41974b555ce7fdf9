"""The same fleet as processes: a real learner and an agent for every cluster, whose twins replay its past.

Agents push as they come, over mutual TLS, each at the head that it has; so some are stale, and a seed does not give the
same bits again. What an agent's machine would share among its own work, all agents here share among each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.policy_quality.cells import Durations
from benchmarks.policy_quality.worlds import CPUS_PER_NODE, GPUS_PER_NODE
from benchmarks.twin_learning.fleet import AVERAGE_DECAY, Past, Training
from deploy.local.display import Display
from deploy.local.lessons.fleet import LessonSettings, run_lessons
from deploy.local.lessons.pasts import SPEED_NOISE
from deploy.local.lessons.pasts import Past as AgentsPast
from deploy.local.plan import ClusterPlan
from deploy.local.processes import Processes
from policy_net.domain import CapacityMode
from policy_net.errors import BadInput
from policy_net.exchange.policy_file import PolicyFile, read_policy_file
from policy_net.laboratory.commands.world_options import WorldOptions
from policy_net.laboratory.workloads.workload import JobKindChoice

FEWEST_AGENTS = 2
LONGEST_SECONDS_PER_UPDATE = 60.0


def train_by_agents(pasts: Sequence[Past], training: Training, folder: Path) -> tuple[PolicyFile, int]:
    """What such a fleet publishes last, and of how many updates; it begins with `set`, prices and sessions.

    Raises:
        BadInput: too few clusters; or no version came in time.
        DemoFailed: a process ended with an error, or the learner never answered.
    """
    if len(pasts) < FEWEST_AGENTS:
        raise BadInput(f"--agents: {len(pasts)} cluster has a window to teach with, and a fleet has two or more")
    settings = LessonSettings(
        updates=training.updates,
        seconds=LONGEST_SECONDS_PER_UPDATE * training.updates,
        learning_rate=training.learning_rate,
        decay_steps=max(1, training.updates // 2),
        average_decay=AVERAGE_DECAY,
        every_steps=max(1, training.updates // 8),
        pairs=training.pairs,
        permute=training.permute,
    )
    own = [_agents_past(past, number, training.window_jobs) for number, past in enumerate(pasts)]
    with Processes(folder) as processes, Display(own[0].later.own.slot_seconds) as display:
        versions = run_lessons(own, folder / "fleet", processes, display, settings)
    if not versions[-1].head_step:
        raise BadInput(f"--agents: no version within {settings.seconds:.0f} s; the machine is too busy for it")
    return read_policy_file(versions[-1].file), versions[-1].head_step


def _agents_past(past: Past, number: int, window_jobs: int) -> AgentsPast:
    """A cluster is a cluster once for every setting that it teaches in, and has a name for each."""
    own = WorldOptions(
        nodes=past.nodes,
        gpus_per_node=GPUS_PER_NODE,
        cpus_per_node=CPUS_PER_NODE,
        capacity=CapacityMode.POOLED,
        job_kind=JobKindChoice(past.job_kind),
        durations="known" if past.durations is Durations.KNOWN else "unknown",
        speed_noise=SPEED_NOISE,
        seed=number,
    )
    return AgentsPast(
        past.recording, ClusterPlan(f"{past.cluster}-{number}", str(past.recording), own, (), window_jobs, past.nodes)
    )
