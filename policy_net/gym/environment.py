"""Gymnasium environment `fedl2/ClusterScheduling-v0`: one step is one micro-action, one episode a workload to its end.

A decision is made action by action, as `LearnedPolicy` does with a network: more than J jobs are given to in batches of
J in arrival order, and a batch ends with void or when nothing can be given. The world is set by the options of
`policy-net replay` as keyword arguments.

Legend: J jobs a batch, L type columns, F = J·(L + 5) features, A = 3J + 1 actions.
Source: DL2 §4.1 (state, actions, repeated inference).
Deviation: the reward of a decision comes with the micro-action that completes it; see `GymReward`.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from foundation.text import nearest
from policy_net.dl2.batch import REMAINING_EPOCHS_SCALE, SLOTS_RUN_SCALE, BatchEncoder, JobBatch, batches_of
from policy_net.domain import Allocation, CapacityMode, ClusterState, Decision, Progress
from policy_net.errors import BadInput
from policy_net.exchange.spec import OTHER_TYPE, PolicySpec
from policy_net.laboratory.catalogue import MODEL_NAMES
from policy_net.laboratory.commands.world_options import WorldOptions
from policy_net.laboratory.simulation.engine import Simulation
from policy_net.laboratory.simulation.environment import DecideOn, PlacementStrategy
from policy_net.laboratory.simulation.metrics import summarise
from policy_net.laboratory.workloads.workload import JobKindChoice
from policy_net.learning.reward import slot_utility
from policy_net.throughput.parametric import OnlineFit

DEFAULT_WORKLOAD = "dl2:jobs=30,arrivals=google,sizes=varied"
DECISIONS_PER_JOB = 200
"""Decisions after which an episode is truncated, for every job of its workload; a drained one takes 2 to 15."""

CHOICES: Mapping[str, Callable[[Any], object]] = MappingProxyType(
    {
        "capacity": CapacityMode,
        "decide_on": DecideOn,
        "placement": PlacementStrategy,
        "job_kind": JobKindChoice,
        "speeds_file": Path,
    }
)
"""What the command line makes of these options' texts."""

Observation = NDArray[np.float32]


# Rewards of an agent, paid when a decision has run its course.
#
# `jct`: minus the time that jobs spent in the system, in job-slots. Over an episode that drains the workload, the
# rewards add up to minus the sum of completion times (in slots), whatever happened in between: the figure that people
# care about. `slot-utility`: the reward that our own learner climbs (`policy_net.learning.reward`), about 0 to 1 a
# decision. Denser, but a sum of it over an episode favours slow ones, as they have more decisions: use it with a fixed
# horizon or discounting.


class GymReward(StrEnum):
    """Which figure an agent is paid."""

    JCT = "jct"
    SLOT_UTILITY = "slot-utility"


class JctReward:
    """Minus the job-slots since the decision before, waiting for the first decision included."""

    def __init__(self) -> None:
        self._charged_until: dict[str, float] = {}

    def __call__(self, state: ClusterState, progress: Sequence[Progress], until_seconds: float) -> float:
        """The reward of the interval from `state` to `until_seconds`, the next decision or the end of all jobs."""
        ends = {
            entry.job_id: state.time_seconds + entry.paused_seconds + entry.seconds
            for entry in progress
            if entry.finished
        }
        job_seconds = 0.0
        still_here: dict[str, float] = {}
        for job in state.jobs:
            since = self._charged_until.get(job.job_id, job.submit_time_seconds)
            end = ends.get(job.job_id)
            if end is None:
                still_here[job.job_id] = end = until_seconds
            job_seconds += end - since
        self._charged_until = still_here
        return -job_seconds / state.slot_seconds


class SlotUtilityReward:
    """The slot utility of the interval, against speeds believed from what this episode has shown."""

    def __init__(self) -> None:
        self._beliefs = OnlineFit()

    def __call__(self, state: ClusterState, progress: Sequence[Progress], until_seconds: float) -> float:
        """The reward of the interval from `state` to `until_seconds`."""
        self._beliefs.introduce(state.jobs)
        reward = slot_utility(state, progress, self._beliefs, until_seconds - state.time_seconds).reward
        self._beliefs.observe(progress)
        return reward


def new_reward(kind: GymReward) -> JctReward | SlotUtilityReward:
    """The reward of one episode."""
    return JctReward() if kind is GymReward.JCT else SlotUtilityReward()


class ClusterSchedulingEnv(gymnasium.Env[Observation, np.int64]):
    """A cluster that an agent schedules grant by grant.

    The observation is what the learned policy sees of the batch of jobs that is being given to. An action of those
    that the mask leaves gives a worker, a parameter server or one of each to a job, or (the last one, void) ends the
    batch. Any other action is taken for void and counted in `info["invalid_actions"]`.

    Args:
        workload: as after `--workload`. One without a seed of its own is drawn anew at every reset.
        job_types: types with a column of their own, at most 11; all others share the column `other`.
        reward: `jct` or `slot-utility`, see `GymReward`.
        max_decisions: after so many, the episode is truncated; unless given, 200 for every job of the workload.
        world: whatever else `policy-net replay` has as an option, under `WorldOptions`' names: `nodes=24`,
            `capacity="pooled"`, `decide_on="event"`, `speed_noise=0.1`, …; but for `seed`, which is drawn at reset.

    Raises:
        BadInput: an option cannot be used; at reset, the workload cannot be read or a job can never run.
    """

    metadata = {"render_modes": []}  # noqa: RUF012  (Gymnasium's own annotation is not a ClassVar)

    def __init__(
        self,
        workload: str = DEFAULT_WORKLOAD,
        *,
        jobs_per_batch: int = 20,
        job_types: Sequence[str] = MODEL_NAMES,
        reward: str = GymReward.JCT,
        max_decisions: int | None = None,
        render_mode: None = None,
        **world: Any,
    ) -> None:
        self.render_mode = render_mode
        if reward not in tuple(GymReward):
            raise BadInput(f"reward is {reward!r}; use {' or '.join(GymReward)}")
        if jobs_per_batch < 1:
            raise BadInput(f"jobs_per_batch is {jobs_per_batch}; use 1 or more")
        if max_decisions is not None and max_decisions < 1:
            raise BadInput(f"max_decisions is {max_decisions}; use 1 or more")
        self._source = workload
        self._world = world_options(world)
        self._reward_kind = GymReward(reward)
        self._given_max_decisions = max_decisions
        self.spec_of_policy = PolicySpec(jobs_per_batch=jobs_per_batch, job_types=(OTHER_TYPE, *job_types))
        self._encoder = BatchEncoder(self.spec_of_policy)
        self.observation_space = observation_space(self.spec_of_policy)
        self.action_space = gymnasium.spaces.Discrete(self.spec_of_policy.action_count)
        self._void = self.spec_of_policy.action_count - 1
        self._episode: Simulation | None = None
        self._open: OpenDecision | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode.

        Args:
            seed: of the draws of this and the following episodes.
            options: `world_seed` names the episode instead of drawing it; `workload` takes another source for it.
        """
        super().reset(seed=seed)
        options = options or {}
        unknown = set(options) - {"world_seed", "workload"}
        if unknown:
            raise BadInput(f"reset knows no option {min(unknown)!r}; use world_seed or workload")
        # Drawn even if it is given, so that the episodes after this one do not depend on it.
        drawn = int(self.np_random.integers(2**31))
        world = replace(self._world, seed=int(options.get("world_seed", drawn)))
        speeds = world.speeds()
        loaded = world.workload(str(options.get("workload", self._source)), speeds)
        self._episode = Simulation(loaded, world.environment(loaded), speeds, world.placement_effect())
        self._max_decisions = self._given_max_decisions or DECISIONS_PER_JOB * len(loaded.jobs)
        self._reward = new_reward(self._reward_kind)
        self._invalid_actions = 0
        self._open = None
        self._go_on()
        return self._observation(), self._info()

    def step(self, action: np.int64) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Take one micro-action; the reward is 0 unless it completes a decision."""
        if self._open is None or self._open.batch is None:
            raise gymnasium.error.ResetNeeded("call reset() before step(), and after an episode has ended")
        if not self.action_space.contains(action):
            raise gymnasium.error.InvalidAction(f"action {action!r} is not in {self.action_space}")
        index = int(action)
        if not self._open.batch.mask_A[index]:
            self._invalid_actions += 1
            index = self._void
        self._open.act(index)
        reward = self._go_on() if self._open.batch is None else 0.0
        truncated = self._open is None and not self.simulation.finished
        return self._observation(), reward, self.simulation.finished, truncated, self._info()

    def action_masks(self) -> NDArray[np.bool_]:
        """What is admissible now, shape (A,); after the episode's end, void alone. The name is sb3-contrib's."""
        if self._open is None or self._open.batch is None:
            mask_A = np.zeros(self._void + 1, dtype=np.bool_)
            mask_A[self._void] = True
            return mask_A
        return self._open.batch.mask_A.copy()

    @property
    def simulation(self) -> Simulation:
        """The cluster of this episode, to look into; driving it is the environment's affair."""
        if self._episode is None:
            raise gymnasium.error.ResetNeeded("call reset() first")
        return self._episode

    def _go_on(self) -> float:
        """Put complete decisions into force until there is something to choose; returns what that earned."""
        simulation, earned = self.simulation, 0.0
        while True:
            if self._open is not None and self._open.batch is None:
                state = self._open.state
                progress = simulation.apply(self._open.decision())
                earned += self._reward(state, progress, simulation.time_seconds)
                self._open = None
            if simulation.finished or simulation.counters.decisions >= self._max_decisions:
                return earned
            if self._open is None:
                self._open = OpenDecision(simulation.observe()[0], self._encoder)
            if self._open.batch is not None:
                return earned

    def _observation(self) -> Observation:
        if self._open is None or self._open.batch is None:
            return np.zeros(self.spec_of_policy.feature_count, dtype=np.float32)
        return self._open.batch.features_F.copy()

    def _info(self) -> dict[str, Any]:
        simulation = self.simulation
        info: dict[str, Any] = {
            "action_mask": self.action_masks().astype(np.int8),
            "time_seconds": simulation.time_seconds,
            "decisions": simulation.counters.decisions,
            "invalid_actions": self._invalid_actions,
        }
        if self._open is None:
            figures = summarise(simulation.jobs.outcomes())
            info |= {"completed": figures.completed, "avg_jct_seconds": figures.avg_jct_seconds}
        return info


def observation_space(spec: PolicySpec) -> gymnasium.spaces.Space[Observation]:
    """Bounds that hold for every job: shares, tasks and types lie in [0, 1], logarithms below those of any float."""
    high_JR = np.ones((spec.jobs_per_batch, spec.type_columns + 5), dtype=np.float32)
    largest_log = np.log1p(sys.float_info.max)
    high_JR[:, spec.type_columns] = SLOTS_RUN_SCALE * largest_log
    high_JR[:, spec.type_columns + 1] = REMAINING_EPOCHS_SCALE * largest_log
    return gymnasium.spaces.Box(0.0, high_JR.ravel(), dtype=np.float32)


def world_options(given: Mapping[str, Any]) -> WorldOptions:
    """The options under `WorldOptions`' names, with a seed to be set later.

    Raises:
        BadInput: there is no such option, or a choice is not one of those that there are.
    """
    if "seed" in given:
        raise BadInput("seed is no option of the environment: give it to reset(seed=…), which draws the workload")
    values = dict(given)
    for name, choice in CHOICES.items():
        if values.get(name) is not None:
            try:
                values[name] = choice(values[name])
            except (TypeError, ValueError) as error:
                raise BadInput(f"{name} is {values[name]!r}: {error}") from error
    known = [item.name for item in dataclasses.fields(WorldOptions) if item.name != "seed"]
    for name in values:
        if name not in known:
            near = nearest(name, known)
            meant = f"; did you mean {near}?" if near else "."
            raise BadInput(f"the environment has no option {name}{meant} There are {', '.join(known)}")
    try:
        return WorldOptions(**values)
    except TypeError as error:
        raise BadInput(
            f"{error}; the options are the fields of policy_net.laboratory.commands.world_options.WorldOptions"
        ) from error


class OpenDecision:
    """Batch after batch of the jobs of a state; batches without any choice are passed over."""

    def __init__(self, state: ClusterState, encoder: BatchEncoder) -> None:
        self.state = state
        self._batches = batches_of(state, encoder)
        self._allocation: dict[str, Allocation] = {}
        self.batch: JobBatch | None = None
        self._open_next()

    def act(self, index: int) -> None:
        """Take an admissible action of the present batch."""
        batch = self.batch
        if batch is None:
            raise RuntimeError("the decision is complete: there is nothing more to give")
        if index != batch.void:
            batch.grant(index)
        if index == batch.void or batch.only_void:
            self._allocation.update(batch.allocation())
            self._open_next()

    def decision(self) -> Decision:
        """What has been given; of a complete decision, to all jobs."""
        return Decision(dict(self._allocation))

    def _open_next(self) -> None:
        self.batch = None
        for batch in self._batches:
            if not batch.only_void:
                self.batch = batch
                return
            self._allocation.update(batch.allocation())
