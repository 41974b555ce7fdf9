"""Workloads of a simulated cluster, read and checked before the first decision."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import structlog

from cluster_agent.backend_settings import EpisodeSettings, SimulatedBackendSettings
from cluster_agent.errors import BadAgentConfig
from policy_net.domain import CapacityMode, PlacementEffect, SpeedModel
from policy_net.laboratory.simulation.environment import DecideOn, Environment, PlacementStrategy
from policy_net.laboratory.speeds.placement_effect import default_placement_effect
from policy_net.laboratory.speeds.speed import default_speeds, read_speed_table
from policy_net.laboratory.workloads.loaders.record import MALFORMED
from policy_net.laboratory.workloads.sources import is_recording, load_workload
from policy_net.laboratory.workloads.workload import (
    USUAL_CPUS_PER_NODE,
    USUAL_GPUS_PER_NODE,
    JobKindChoice,
    Machines,
    Workload,
    WorkloadOptions,
    parse_durations,
    with_estimates,
)

_log = structlog.get_logger()

_SAID_BY = "nodes, gpus_per_node and cpus_per_node in backend.environment"


@dataclass(frozen=True, slots=True)
class Episode:
    """One workload and the machines that it meets."""

    workload: Workload
    environment: Environment


@dataclass(frozen=True, slots=True)
class Episodes:
    """All that a simulated cluster will run.

    Attributes:
        speeds: the truth; no policy may see it.
        placement_effect: what places do to it; None if nothing.
        digest: of everything that a saved simulation depends on.
        digest_with_ps: the same if recorded jobs of no stated kind had parameter servers, as they once had.
    """

    items: tuple[Episode, ...]
    speeds: SpeedModel
    digest: str
    placement_effect: PlacementEffect | None = None
    digest_with_ps: str = ""

    @property
    def jobs_total(self) -> int:
        """Jobs of all episodes."""
        return sum(len(episode.workload.jobs) for episode in self.items)

    @property
    def job_types(self) -> tuple[str, ...]:
        """Types of all jobs, in order of appearance."""
        return tuple(dict.fromkeys(job.job_type for episode in self.items for job in episode.workload.jobs))


def load_episodes(settings: SimulatedBackendSettings) -> Episodes:
    """Read every workload.

    Raises:
        BadInput: a source or the speed table cannot be used.
        BadConfig: the number of nodes is neither set nor suggested by the workload, or settings contradict each other.
    """
    speeds = default_speeds() if settings.speeds is None else read_speed_table(settings.speeds)
    count = len(settings.workloads) if settings.episodes is None else settings.episodes
    items = []
    for index in range(count):
        turn, position = divmod(index, len(settings.workloads))
        items.append(_load(settings, settings.workloads[position], turn, speeds))
    depends_on = settings.model_dump(mode="json", exclude={"pace", "baseline", "wait_for_twin"})
    for size in ("gpus_per_node", "cpus_per_node"):  # what was taken counts, be it set or not
        found = list(dict.fromkeys(getattr(episode.environment, size) for episode in items))
        depends_on["environment"][size] = found[0] if len(found) == 1 else found
    of_no_kind = [chosen for chosen in settings.workloads if "job_kind" not in chosen.model_fields_set]
    digest = _digest(depends_on, settings, [chosen for chosen in of_no_kind if not is_recording(chosen.source)])
    machines = settings.environment
    if machines.locality and machines.capacity_mode is CapacityMode.POOLED:
        raise BadAgentConfig("locality needs backend.environment.capacity_mode nodes: pooled tasks lie nowhere")
    effect = default_placement_effect() if machines.locality else None
    return Episodes(tuple(items), speeds, digest, effect, _digest(depends_on, settings, of_no_kind))


def _digest(depends_on: Any, settings: SimulatedBackendSettings, with_ps: Sequence[EpisodeSettings]) -> str:
    """Of what a simulation depends on, where these workloads say `ps`: the setting's value while that was the default.

    Jobs that are not recorded have a kind of their own, so their simulations are the same under either default.
    """
    sources = [
        stated | ({"job_kind": "ps"} if any(chosen is other for other in with_ps) else {})
        for stated, chosen in zip(depends_on["workloads"], settings.workloads, strict=True)
    ]
    return sha256(json.dumps(depends_on | {"workloads": sources}, sort_keys=True).encode()).hexdigest()


def _load(settings: SimulatedBackendSettings, chosen: EpisodeSettings, turn: int, speeds: SpeedModel) -> Episode:
    """The episode of the `turn`-th round through the list; each round has fresh seeds."""
    machines = settings.environment
    options = WorkloadOptions(
        seed=chosen.seed + turn,
        limit_jobs=chosen.limit_jobs,
        window=chosen.window,
        job_kind=JobKindChoice(chosen.job_kind),
        nodes=machines.nodes,
        gpus_per_node=machines.gpus_per_node,
        cpus_per_node=machines.cpus_per_node,
        machine_options=_SAID_BY,
        arrival_scale=chosen.arrival_scale,
        strict=chosen.strict,
        speeds=speeds,
    )
    estimates = parse_durations(chosen.durations, chosen.epoch_error)
    workload = with_estimates(load_workload(chosen.source, options), estimates, options.seed)
    nodes = machines.nodes or workload.suggested_nodes
    if nodes is None:
        raise BadAgentConfig(f"setting backend.environment.nodes is missing, and {chosen.source!r} suggests no number")
    usual = workload.machines or Machines(nodes, USUAL_GPUS_PER_NODE, USUAL_CPUS_PER_NODE)
    slotted = workload.slotted if machines.decide_on is None else machines.decide_on == "slot"
    environment = Environment(
        nodes=nodes,
        gpus_per_node=usual.gpus_per_node if machines.gpus_per_node is None else machines.gpus_per_node,
        cpus_per_node=usual.cpus_per_node if machines.cpus_per_node is None else machines.cpus_per_node,
        slot_seconds=machines.slot_seconds,
        decide_on=DecideOn.SLOT if slotted else DecideOn.EVENT,
        debounce_seconds=machines.debounce_seconds,
        capacity_mode=machines.capacity_mode,
        speed_noise=machines.speed_noise,
        job_noise=machines.job_noise,
        placement=PlacementStrategy(machines.placement),
        resize_seconds=machines.resize_seconds,
        resume_seconds=machines.resume_seconds,
        start_seconds=machines.start_seconds,
        checkpoint_seconds=machines.checkpoint_seconds,
        node_mtbf_seconds=machines.node_mtbf_hours * 3600.0,
        node_repair_seconds=machines.node_repair_hours * 3600.0,
        seed=machines.seed + turn,
    )
    if turn == 0:  # later rounds differ by seeds alone
        _log_workload(workload, environment)
    return Episode(workload, environment)


def _log_workload(workload: Workload, environment: Environment) -> None:
    """Log what a reader must know to believe the figures: machines and notes, and skipped rows as a warning."""
    _log.info(
        "workload-read",
        workload=workload.name,
        jobs=len(workload.jobs),
        nodes=environment.nodes,
        gpus_per_node=environment.gpus_per_node,
        cpus_per_node=environment.cpus_per_node,
        notes=[note for note in workload.notes if not note.startswith(MALFORMED)],
    )
    for note in workload.notes:
        if note.startswith(MALFORMED):
            _log.warning("rows-skipped", workload=workload.name, note=note)
