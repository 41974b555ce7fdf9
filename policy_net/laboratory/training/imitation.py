"""Imitation, the warm start: a policy learns to allocate like an existing scheduler before any reward is seen.

Legend: M micro-states, F features, A actions.
Source: DL2 §4.2 (supervised, cross-entropy, against the decisions of the cluster's scheduler), §6.5.2 (other losses).
Deviation: the target is soft. A scheduler says how many tasks each job should have, not in which order they are
granted, so the target is uniform over the grants that bring the least served jobs nearer to their share; and a part of
it is spread over everything admissible, since a sharp start leaves reinforcement learning nothing to try.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from policy_net.dl2.action import GRANT_KINDS, Grant
from policy_net.dl2.batch import BatchEncoder, JobBatch, batches_of
from policy_net.dl2.network import actor_logits, tensors_of
from policy_net.domain import Allocation, PlacementEffect, PolicyContext, Progress, SpeedModel
from policy_net.exchange.spec import PolicySpec, Weights
from policy_net.laboratory.logged import LoggedDecision
from policy_net.laboratory.simulation.engine import Simulation
from policy_net.laboratory.simulation.environment import Environment
from policy_net.laboratory.training.offline import Episode
from policy_net.laboratory.workloads.workload import Workload
from policy_net.learning.settings import ImitationLoss, ImitationSettings
from policy_net.policy import SchedulerPolicy, build_policy

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Demonstrations:
    """Micro-states and what the teacher would do there.

    Attributes:
        features_MF: float32.
        masks_MA: bool.
        targets_MA: float32, rows sum to 1, zero where the mask is False.
    """

    features_MF: NDArray[np.float32]
    masks_MA: NDArray[np.bool_]
    targets_MA: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.features_MF)


def watch(
    teacher: SchedulerPolicy,
    workload: Workload,
    environment: Environment,
    speeds: SpeedModel,
    placement_effect: PlacementEffect | None = None,
) -> list[LoggedDecision]:
    """Every decision of one workload under the teacher, with what jobs did before it, as a log has it."""
    simulation = Simulation(workload, environment, speeds, placement_effect)
    seen: list[LoggedDecision] = []
    observed: tuple[Progress, ...] = ()
    while not simulation.finished:
        state, trigger = simulation.observe()
        decision = teacher.decide(state, trigger)
        seen.append(LoggedDecision(state, dict(decision.allocation), observed))
        observed = tuple(simulation.apply(decision))
        teacher.observe(observed)
    return seen


def watch_in_turns(
    teacher: str,
    episodes: Iterator[Episode],
    count: int,
    speeds: SpeedModel,
    placement_effect: PlacementEffect | None = None,
    *,
    seed: int = 0,
    on_watched: Callable[[], None] | None = None,
) -> list[LoggedDecision]:
    """Decisions of `count` episodes, each under a new teacher of this name with a seed of its own.

    Raises:
        UnknownPolicy: nobody has this name.
    """
    seen: list[LoggedDecision] = []
    for number in range(count):
        scheduler = build_policy(teacher, PolicyContext(seed=seed + number, true_speeds=speeds))
        workload, environment = next(episodes)
        seen += watch(scheduler, workload, environment, speeds, placement_effect)
        if on_watched is not None:
            on_watched()
    return seen


def demonstrate(
    seen: Sequence[LoggedDecision], spec: PolicySpec, settings: ImitationSettings, seed: int
) -> Demonstrations:
    """Walk through decisions one soft grant after another, so that slips are demonstrated too.

    Decisions are taken in random order until `settings.micro_states` have been met, which bounds time and memory.
    """
    generator = np.random.default_rng(seed)
    encoder = BatchEncoder(spec)
    features: list[NDArray[np.float32]] = []
    masks: list[NDArray[np.bool_]] = []
    targets: list[NDArray[np.float32]] = []
    for position in generator.permutation(len(seen)).tolist():
        if len(features) >= settings.micro_states:
            break
        decision = seen[position]
        for batch in batches_of(decision.state, encoder):
            desired = [decision.of(job_id) for job_id in batch.allocation()]
            while not batch.only_void:
                target_A = _soft_target(batch, desired, settings.softness)
                features.append(batch.features_F.copy())
                masks.append(batch.mask_A.copy())
                targets.append(target_A.astype(np.float32))
                index = int(generator.choice(len(target_A), p=target_A))
                if index == batch.void:
                    break
                batch.grant(index)
    return Demonstrations(np.stack(features), np.stack(masks), np.stack(targets))


def _soft_target(batch: JobBatch, desired: Sequence[Allocation], softness: float) -> NDArray[np.float64]:
    sharp_A = np.zeros(len(batch.mask_A))
    spread_A = batch.mask_A.astype(np.float64)
    helpful = _helpful_grants(batch, desired)
    if helpful:
        sharp_A[helpful] = 1.0
    elif batch.mask_A[batch.void]:
        sharp_A[batch.void] = 1.0
    else:
        sharp_A = spread_A.copy()  # the teacher would idle; the mask does not
    target_A: NDArray[np.float64] = (1.0 - softness) * sharp_A / sharp_A.sum() + softness * spread_A / spread_A.sum()
    return target_A


def _helpful_grants(batch: JobBatch, desired: Sequence[Allocation]) -> list[int]:
    """The admissible grants to the jobs that are served least of what the teacher wants for them.

    Of a job that lacks both roles that is a bundle; where the policy knows none, either of both.
    """
    least = 1.0
    helpful: list[int] = []
    for column, target in enumerate(desired):
        workers, ps = batch.workers[column], batch.ps[column]
        lacks_worker, lacks_ps = workers < target.workers, ps < target.ps
        if not (lacks_worker or lacks_ps):
            continue
        if lacks_worker and lacks_ps:
            grants = (Grant.BUNDLE,) if batch.bundles else (Grant.WORKER, Grant.PS)
        else:
            grants = (Grant.WORKER,) if lacks_worker else (Grant.PS,)
        indices = [index for grant in grants if batch.mask_A[index := GRANT_KINDS * column + grant]]
        if not indices:
            continue
        served = (min(workers, target.workers) + min(ps, target.ps)) / target.tasks
        if served < least - 1e-9:
            least, helpful = served, []
        if served <= least + 1e-9:
            helpful += indices
    return helpful


def imitate(
    start: Weights,
    spec: PolicySpec,
    demonstrations: Demonstrations,
    settings: ImitationSettings,
    *,
    steps: int,
    seed: int,
    on_step: Callable[[int, float], None] | None = None,
) -> Weights:
    """Minimise the loss over the demonstrations by `steps` mini-batches of Adam; returns new weights."""
    import torch  # noqa: PLC0415  (two thirds of every program's start, and few of them train)

    generator = np.random.default_rng(seed)
    flat, tensors = tensors_of(start, spec, requires_grad=True)
    optimizer = torch.optim.Adam([flat], lr=settings.learning_rate, fused=True)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, total_iters=max(steps, 1))
    for step in range(steps):
        rows = generator.integers(len(demonstrations), size=settings.batch_samples)
        masks_BA = torch.from_numpy(demonstrations.masks_MA[rows])
        targets_BA = torch.from_numpy(demonstrations.targets_MA[rows])
        logits_BA = actor_logits(torch.from_numpy(demonstrations.features_MF[rows]), tensors, spec)
        log_policy_BA = torch.log_softmax(logits_BA.masked_fill(~masks_BA, -torch.inf), dim=1)
        loss = _distance(log_policy_BA.masked_fill(~masks_BA, 0.0), targets_BA, masks_BA, settings.loss)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # torch's own annotation is incomplete
        optimizer.step()
        schedule.step()
        if on_step is not None:
            on_step(step, float(loss.item()))
    return flat.detach().numpy().copy()


def _distance(
    log_policy_BA: torch.Tensor, targets_BA: torch.Tensor, masks_BA: torch.Tensor, loss: ImitationLoss
) -> torch.Tensor:
    """The loss of one mini-batch; log probabilities of what is not admissible are given as 0."""
    if loss is ImitationLoss.CROSS_ENTROPY:
        return -(targets_BA * log_policy_BA).sum(dim=1).mean()
    errors_BA = (log_policy_BA.exp() - targets_BA).masked_fill(~masks_BA, 0.0)
    return (errors_BA.square() if loss is ImitationLoss.MEAN_SQUARE else errors_BA.abs()).sum(dim=1).mean()
