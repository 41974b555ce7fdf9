"""Group of decisions drawn in one state, and the policy that draws them.

How well a decision did is mostly how busy the hour was. Drawn in one state, decisions differ by nothing but their
actions, and what is believed of speeds says what each brings: no job has to train for it.

Legend: K draws, N jobs of the state, M micro-actions of all draws.
Source: Kool et al. 2019 (several draws, each against the others' mean); the utility is that of `learning.reward`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from policy_net.baselines.hull import FAIRNESS_EXPONENT
from policy_net.baselines.needs import remaining_samples
from policy_net.dl2.policy import ActingMode, DecisionSamples, GroupChoice, JobAwareExploration, LearnedPolicy
from policy_net.domain import Allocation, ClusterState, Decision, Job, Progress, Trigger, speed_at
from policy_net.exchange.spec import PolicySpec, Weights
from policy_net.placement.capacity import Capacity, open_capacity
from policy_net.throughput.gaussian_process import GaussianProcessBeliefs


@dataclass(frozen=True, slots=True)
class DecisionGroup:
    """Decisions that were drawn in one state.

    Attributes:
        samples: the micro-actions of all draws, one draw after the other; jobs by their place in the state.
        draws_M: int64, of which draw each is.
        utility_KN: float64; believed utility of a job, over the sum of what every job of the state had alone.
        share_KN: float64; dominant share of the cluster that a job has.
    """

    samples: DecisionSamples
    draws_M: NDArray[np.int64]
    utility_KN: NDArray[np.float64]
    share_KN: NDArray[np.float64]


class EnoughDrawn(Exception):
    """As many micro-actions have been drawn as were wanted: the replay may end."""


class DrawingPolicy(LearnedPolicy):
    """Acts as a `LearnedPolicy` that draws, learns speeds as it goes, and keeps groups of decisions.

    Args:
        most: micro-actions that are drawn at most, but for the last group; then `EnoughDrawn` is raised.

    Attributes:
        beliefs: what is learned of speeds, from progress alone.
        groups: that were drawn, until somebody takes them out.
    """

    def __init__(
        self,
        spec: PolicySpec,
        weights: Weights,
        choice: GroupChoice,
        *,
        seed: int = 0,
        beliefs: GaussianProcessBeliefs | None = None,
        most: float = math.inf,
    ) -> None:
        explorer = JobAwareExploration(choice.exploration) if choice.exploration else None
        super().__init__(spec, weights, seed=seed, mode=ActingMode.SAMPLE, explorer=explorer)
        self._choice = choice
        self.beliefs = beliefs if beliefs is not None else GaussianProcessBeliefs()
        self.groups: list[DecisionGroup] = []
        self._most = most

    @property
    def drawn(self) -> int:
        """How many micro-actions there are in the groups."""
        return sum(len(group.samples) for group in self.groups)

    @property
    def choice(self) -> GroupChoice:
        """Which groups are drawn."""
        return self._choice

    def begin(self, every: int, phase: int) -> None:
        """Draw groups in every `every`-th state from now on, from the one of this number on."""
        self._choice = replace(self._choice, every=every, phase=(self.decision_index + phase) % every)

    def decide(self, state: ClusterState, trigger: Trigger) -> Decision:
        """See `LearnedPolicy`; first draws a group, where it is time."""
        self.beliefs.introduce(state.jobs)
        for job in state.jobs:
            self.beliefs.grid(job.job_type)  # fitted when it is time, whether a group is drawn or not
        if state.jobs and self.decision_index % self._choice.every == self._choice.phase:
            self._keep(self._group(state))
        return super().decide(state, trigger)

    def observe(self, progress: Sequence[Progress]) -> None:
        """Learn of speeds."""
        self.beliefs.observe(progress)

    def keep_drawn(
        self,
        features_MF: NDArray[np.float32],
        masks_MA: NDArray[np.bool_],
        actions_M: NDArray[np.int64],
        behaviour_M: NDArray[np.float64],
        jobs_M: NDArray[np.int64],
        draws_M: NDArray[np.int64],
        utility_KN: NDArray[np.float64],
        share_KN: NDArray[np.float64],
    ) -> None:
        """Keep a group that the compiled twin has drawn."""
        samples = DecisionSamples(features_MF, masks_MA, actions_M, behaviour_M, jobs_M)
        self._keep(DecisionGroup(samples, draws_M, utility_KN, share_KN))

    def _keep(self, group: DecisionGroup) -> None:
        self.groups.append(group)
        if self.drawn >= self._most:
            raise EnoughDrawn

    def _group(self, state: ClusterState) -> DecisionGroup:
        drawn = []
        utilities, shares = [], []
        best = np.array([self._utility(job, self._best_speed(job)) for job in state.jobs])
        empty = open_capacity(state)
        for draw in range(1, self._choice.draws + 1):
            decision, samples = self.draw_decision(state, draw)
            drawn.append(samples)
            granted = [decision.allocation[job.job_id] for job in state.jobs]
            utilities.append([self._granted_utility(job, one) for job, one in zip(state.jobs, granted, strict=True)])
            shares.append([_share(job, one, empty) for job, one in zip(state.jobs, granted, strict=True)])
        total = best.sum()
        utility_KN = np.array(utilities) / total if total > 0.0 else np.zeros((len(drawn), len(state.jobs)))
        draws_M = np.repeat(np.arange(len(drawn)), [len(samples) for samples in drawn])
        return DecisionGroup(DecisionSamples.joined(drawn), draws_M, utility_KN, np.array(shares))

    def _granted_utility(self, job: Job, granted: Allocation) -> float:
        if not job.can_train(granted):
            return 0.0
        return self._utility(job, speed_at(self.beliefs.grid(job.job_type), granted.ps, granted.workers))

    def _best_speed(self, job: Job) -> float:
        return float(self.beliefs.grid(job.job_type)[: job.max_ps + 1, : job.max_workers + 1].max())

    def _utility(self, job: Job, speed: float) -> float:
        return (speed / remaining_samples(job)) ** FAIRNESS_EXPONENT if speed > 0.0 else 0.0


def _share(job: Job, granted: Allocation, capacity: Capacity) -> float:
    return capacity.dominant_share(job.worker_demand * granted.workers + job.ps_demand * granted.ps)
