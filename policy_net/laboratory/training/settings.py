"""Settings of offline training: what `policy-net train --config` takes, and what `policy-net tune` chooses.

Source: DL2 §4 and §6.1 where the paper gives a figure.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import Field

from policy_net.exchange.spec import OTHER_TYPE, PolicySpec
from policy_net.laboratory.training import OFFLINE_LEARNING_RATE, Dl2Method, SetMethod
from policy_net.learning.settings import (
    REPLAY_SAMPLES,
    ActorCriticSettings,
    GroupSettings,
    ImitationSettings,
    TwinSettings,
)
from policy_net.settings import Constant, Section

DEFAULT_JOBS_PER_BATCH = 20
"""Source: DL2 §6.1 (J = 20)."""
DEFAULT_IMITATION_STEPS = 4000


class Dl2Settings(Section):
    """A `dl2` policy's network, its warm start, and how it is trained."""

    method: Dl2Method = Field(
        Dl2Method.GROUPS, description="decisions drawn in one state against each other, or the paper's actor-critic"
    )

    neurons: int = Field(256, ge=1, le=4096, description="of each hidden layer")
    layers: int = Field(2, ge=1, le=8, description="hidden layers of the actor, and of a critic")
    jobs_per_batch: int = Field(DEFAULT_JOBS_PER_BATCH, ge=1, le=1024, description="J, the jobs one inference sees")
    bundles: Constant[bool] = Field(
        True, description="whether one action may give a worker and a parameter server together"
    )
    learning_rate: float = Field(OFFLINE_LEARNING_RATE, ge=0.0, description="Adam's, of the actor-critic")
    exploration: Constant[float] = Field(
        0.1, ge=0.0, le=1.0, description="ε, how often a lopsided allocation is repaired while it learns (paper: 0.4)"
    )
    replay_samples: Constant[int] = Field(REPLAY_SAMPLES, ge=1, description="micro-actions that are kept to learn from")
    imitate: str | None = Field(
        None, description="scheduler that the warm start imitates, as `--imitate` names it; unset: there is none"
    )
    imitation_steps: int = Field(DEFAULT_IMITATION_STEPS, ge=1, description="mini-batches of the warm start")
    imitation: Constant[ImitationSettings] = Field(ImitationSettings(), description="the warm start")
    groups: GroupSettings = Field(GroupSettings(), description="one update from groups of decisions")
    actor_critic: ActorCriticSettings = Field(ActorCriticSettings(), description="one update of the actor-critic")

    @property
    def hidden(self) -> tuple[int, ...]:
        """Widths of the hidden layers."""
        return (self.neurons,) * self.layers

    def spec(self, job_types: tuple[str, ...], jobs_per_batch: int | None = None) -> PolicySpec:
        """The spec of such a network, by the paper where the paper's critic learns; J may be another one."""
        return PolicySpec(
            jobs_per_batch=jobs_per_batch or self.jobs_per_batch,
            job_types=(OTHER_TYPE, *job_types),
            hidden=self.hidden,
            bundles=self.bundles,
            critic=self.method is Dl2Method.ACTOR_CRITIC,
            reserves=self.method is Dl2Method.GROUPS,
        )


class SetStart(StrEnum):
    """What replays in a twin begin with: the shipped `set`, or its speeds alone with a network that says nothing."""

    SET = "set"
    PLANNER = "planner"


class SetTwinSettings(Section):
    """A fleet that learns from twins, in one process; see `training.set_training`.

    What an agent or a learner can be told too has the same name there (`learning.twin`, `optimizer`).
    """

    start: SetStart = Field(
        SetStart.SET, description="the shipped `set`, or the planner alone with `neurons` of its own; not with `--from`"
    )
    prices: Constant[bool] = Field(True, description="whether prices are learned; not with `--from`")
    sessions: Constant[bool] = Field(True, description="whether the model of sessions is learned; not with `--from`")
    window_jobs: int = Field(500, ge=20, le=100_000, description="consecutive jobs of one replay, at most")
    speed_spread: Constant[float] = Field(
        0.15,
        ge=0.0,
        le=2.0,
        description="deviation of the log of a factor that a type's speed has in a window",
    )
    pairs: int = Field(4, ge=1, le=1024, description="pairs of mirrored replays of one update; each costs two")
    perturbation: Constant[float] = Field(1.0, gt=0.0, le=10.0, description="size of a perturbation, in spreads")
    largest_difference: Constant[float] = Field(
        0.1, gt=0.0, le=10.0, description="bound on half the log ratio of a pair's mean JCTs"
    )
    learning_rate: float = Field(0.3, ge=0.0, le=10.0, description="Adam's first step, in spreads")
    decay_share: Constant[float] = Field(
        0.5, gt=0.0, le=100.0, description="share of all updates after which a step is half as long, and so on"
    )
    trust_radius: float = Field(
        5.0, ge=0.0, le=1e6, description="no parameter moves further, in spreads, from where it began; 0: no limit"
    )
    average_updates: Constant[float] = Field(
        50.0, ge=1.0, le=1e6, description="time constant of the average of the weights, in updates; 1: the newest alone"
    )

    @property
    def gradient(self) -> TwinSettings:
        """The replays of one update."""
        return TwinSettings(
            pairs=self.pairs, perturbation=self.perturbation, largest_difference=self.largest_difference
        )

    @property
    def average_decay(self) -> float:
        """The share of itself that the average keeps at each update."""
        return 1.0 - 1.0 / self.average_updates


class SetSettings(Section):
    """A `set` policy's network and how it is trained: by evolution in simulation, or by replays in a twin."""

    method: SetMethod = Field(
        SetMethod.EVOLUTION, description="evolution of the network alone, or replays that move prices and sessions too"
    )
    neurons: int = Field(0, ge=0, le=4096, description="of the hidden layer; 0: there is none")
    pairs: Constant[int] = Field(16, ge=1, le=1024, description="evolution: pairs of mirrored replays of a generation")
    sigma: Constant[float] = Field(0.2, gt=0.0, le=10.0, description="evolution: standard deviation of a perturbation")
    learning_rate: Constant[float] = Field(0.06, ge=0.0, description="evolution: Adam's")
    twin: SetTwinSettings = Field(SetTwinSettings(), description="replays in a twin")

    @property
    def hidden(self) -> tuple[int, ...]:
        """Widths of the hidden layers."""
        return (self.neurons,) if self.neurons else ()


class TrainingSettings(Section):
    """What a training file says; a section of the other kind of policy is not looked at."""

    policy: Literal["dl2", "set"] = Field("dl2", description="the kind of policy to train")
    dl2: Dl2Settings = Field(Dl2Settings(), description="of a `dl2` policy")
    set: SetSettings = Field(SetSettings(), description="of a `set` policy")
