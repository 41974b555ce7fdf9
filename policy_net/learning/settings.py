"""Settings of learning: every knob of imitation and of the actor-critic, with its unit and why that default."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from policy_net.domain import RewardKind
from policy_net.settings import Constant, Section

REPLAY_SAMPLES = 32_768
"""Kept by a cluster to learn from. Four times the paper's: about a thousand decision times, so that quiet nights do not
wash out busy days."""


class Baseline(StrEnum):
    """What the paper's rewards are compared with; see `actor_critic.py`."""

    CRITIC = "critic"
    MOVING_AVERAGE = "moving-average"


class ReplayDraw(StrEnum):
    """Which experience an update is made of; see `learning.replay`.

    Answers to a learner's rounds note no surprises: with `prioritised` they are drawn as with `uniform`.
    """

    UNIFORM = "uniform"
    PRIORITISED = "prioritised"
    NEWEST = "newest"


class ImitationLoss(StrEnum):
    """How far the policy is from what was demonstrated; see `laboratory.training.imitation`."""

    CROSS_ENTROPY = "cross-entropy"
    MEAN_SQUARE = "mean-square"
    ABSOLUTE_DIFFERENCE = "absolute-difference"


class ActorCriticSettings(Section):
    """One policy-gradient update. Source: DL2 §4.3 where the paper gives a figure."""

    reward: RewardKind = Field(
        RewardKind.SLOT_UTILITY,
        description="what is climbed; `paper` is Σ epochs/total, `own-job` the part of the grant's own job of it",
    )
    discount: Constant[float] = Field(
        0.9, ge=0.0, lt=1.0, description="γ of the paper's reward; the slot utility is not discounted across slots"
    )
    baseline: Constant[Baseline] = Field(
        Baseline.CRITIC,
        description="what the paper's rewards are compared with: the critic, or an average of late rewards",
    )
    replay: Constant[ReplayDraw] = Field(
        ReplayDraw.UNIFORM,
        description="which experience an update is made of: any, what surprised most, or the newest (no replay)",
    )
    batch_samples: Constant[int] = Field(
        1024, ge=1, description="micro-actions per update, drawn from the segments (paper: 256)"
    )
    segments: Constant[int] = Field(
        6, ge=1, description="runs of decision times per update, drawn from all over the replay"
    )
    segment_decisions: Constant[int] = Field(
        6, ge=2, description="consecutive decision times of a run; a job is compared with itself within it"
    )
    shared_credit: Constant[float] = Field(
        0.3, ge=0.0, le=1.0, description="how much of what other jobs gain or lose is credited to a grant (paper: 1)"
    )
    entropy_weight: Constant[float] = Field(
        0.01, ge=0.0, description="β, on the entropy over its maximum; the paper's 0.1 is on raw rewards"
    )
    value_weight: Constant[float] = Field(
        0.5, ge=0.0, description="weight of the critic's squared error; the critic serves the paper's reward"
    )
    minimum_effective_samples: Constant[float] = Field(
        16.0, ge=1.0, description="learning pauses while importance weighting leaves fewer samples than this"
    )


class GroupSettings(Section):
    """One update from groups of decisions; see `learning.group_gradient`."""

    draws: Constant[int] = Field(20, ge=2, description="K, decisions that are drawn in one state")
    every_decisions: Constant[int] = Field(10, ge=1, description="a group is drawn in every so many-th state")
    exploration: Constant[float] = Field(
        0.0, ge=0.0, le=1.0, description="ε, how often a lopsided allocation is repaired in a draw"
    )
    micro_actions: int = Field(50_000, ge=1, description="micro-actions that an update is made of, at least")
    windows: Constant[int] = Field(1, ge=1, description="replays that an update is made of, at least")
    epochs: Constant[int] = Field(2, ge=1, description="how often an update goes over them")
    batch_samples: Constant[int] = Field(2048, ge=1, description="micro-actions per step")
    learning_rate: float = Field(1e-3, ge=0.0, description="Adam's, at the beginning")
    last_rate_share: Constant[float] = Field(0.1, gt=0.0, le=1.0, description="share of it that is left at the end")
    own_share: Constant[float] = Field(0.7, ge=0.0, le=1.0, description="how much of a grant's credit is its own job's")
    own_until: Constant[float] = Field(
        0.05, ge=0.0, le=1.0, description="share of the training with credit of one's own; it is fast, and ends early"
    )


class ResidualSettings(Section):
    """One policy-gradient update of the `set` policy; see `learning.residual_gradient`."""

    segments: Constant[int] = Field(
        1, ge=1, description="newest runs of decision times per update; each decision is learned from so many times"
    )
    segment_decisions: int = Field(
        20,
        ge=2,
        description="decision times of a run, whose advantages are centred together; an update comes every so many",
    )
    utility_exponent: Constant[float] = Field(
        0.25,
        gt=0.0,
        le=1.0,
        description="of the reward, (rate / remaining work)^this; 0.25 is the planner's own, more favours short jobs",
    )
    minimum_effective_samples: float = Field(
        64.0, ge=1.0, description="learning pauses while importance weighting leaves fewer picks than this"
    )
    minimum_ratio: Constant[float] = Field(
        0.1, ge=0.0, le=1.0, description="learning pauses while the mean probability ratio is below this"
    )


class TwinSettings(Section):
    """One gradient from replays of a window; see `learning.twin_gradient`."""

    pairs: int = Field(8, ge=1, le=1024, description="pairs of mirrored replays of one gradient; each costs two")
    largest_difference: Constant[float] = Field(
        0.1, gt=0.0, le=10.0, description="bound on half the log ratio of a pair's mean JCTs"
    )
    perturbation: Constant[float] = Field(
        1.0, gt=0.0, le=10.0, description="size of a perturbation, in spreads: what can just be noticed"
    )


class ImitationSettings(Section):
    """Supervised warm start. Source: DL2 §4.2 (cross-entropy, Adam 0.005, batch 256)."""

    learning_rate: float = Field(0.003, gt=0.0, description="Adam, decayed to a twentieth (paper: 0.005)")
    batch_samples: int = Field(256, ge=1, description="micro-states per step (paper: 256)")
    loss: ImitationLoss = Field(
        ImitationLoss.CROSS_ENTROPY, description="distance from what was demonstrated; the other two are in DL2 §6.5.2"
    )
    micro_states: Constant[int] = Field(
        150_000, ge=1, description="demonstrated grants to learn from; of J = 24 they take a quarter of a gigabyte"
    )
    softness: float = Field(
        0.2,
        ge=0.0,
        lt=1.0,
        description="share of the target spread over all admissible grants: a sharp start stalls RL",
    )
