"""Gradients of policies: what a computer of them gives, and the advantages that every gradient is made of.

Legend: K decision times of a segment, M micro-actions of one of them.
A segment is a run of consecutive decision times. The jobs in it are nearly the same and do nearly the same under the
same allocation, so a job's mean efficiency over the segment is what it would have had anyway: what is above it was
earned by the grants of that decision time. Centring each job on itself takes out how busy the cluster is.
Source: DL2 §4.3 (every sample of a slot gets the slot's reward less a baseline).
Deviation: a grant is credited with what its own job gained, and with a part (`shared_credit`) of what all the others
gained or lost by it. With everything shared, as in the paper, forty grants share one figure and the signal of each
drowns: docs/experiments.md has the figures.

Off-policy correction: experience was gathered under the policy that acted, and its gradient is taken at the head. What
was done counts by the ratio of its probabilities, clipped at 1. Ratios far below 1 leave few *effective samples*.
Source: importance weights, truncated as in V-trace (Espeholt et al., IMPALA, 2018).
Deviation: no products over the choices of a decision time, which are noise for some forty of them; a policy takes each
choice for itself, or all of a decision time by their geometric mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from policy_net.errors import PolicyNetError
from policy_net.exchange.spec import Weights
from policy_net.learning.replay import Experience
from policy_net.learning.reward import SlotUtility

Segment = Sequence[Experience]

_SMALLEST_SCALE = 1e-9
_SCALE_MEMORY = 0.02
"""Weight of the newest update in the running size of advantages: about the last fifty count."""
_LARGEST_ADVANTAGE = 4.0
"""In units of their usual size; one freak interval must not undo an hour of learning."""

_LONGEST_INTERVAL_WEIGHT = 3.0
"""A very long interval counts at most three times as much as an average one: a quiet night is not worth a day."""


class NotEnoughSamples(PolicyNetError):
    """The segments are too short, or too far off-policy, to learn from; wait for more experience."""


@dataclass(frozen=True, slots=True)
class GradientResult:
    """A gradient of the loss (descend along its negative) and what it was made of.

    Attributes:
        surprises: of every decision time, in the order in which they were given, how far it was from what was
            expected; none where nobody looks.
    """

    gradient: Weights
    samples: int
    effective_samples: float
    statistics: dict[str, float]
    surprises: tuple[float, ...] = ()


class Gradients(Protocol):
    """Computes one update at a time, and may remember from one to the next."""

    def gradient(self, head: Weights, segments: Sequence[Segment]) -> GradientResult:
        """The gradient of the loss at `head`; each segment is a run of consecutive decision times.

        Raises:
            NotEnoughSamples: there is nothing to learn from yet, or not at this head.
        """
        ...


class AdvantageScale:
    """The running size of one cluster's advantages: so that clusters of different size and load weigh alike."""

    def __init__(self) -> None:
        self._mean_square = 0.0

    def scaled(self, advantages: NDArray[np.float64]) -> NDArray[np.float64]:
        """Advantages in units of their usual size, clipped; they become part of it."""
        square = float(np.square(advantages).mean())
        if not self._mean_square:  # the first that says anything sets the scale
            self._mean_square = square
        self._mean_square += _SCALE_MEMORY * (square - self._mean_square)
        scale = max(float(np.sqrt(self._mean_square)), _SMALLEST_SCALE)
        return np.clip(advantages / scale, -_LARGEST_ADVANTAGE, _LARGEST_ADVANTAGE)


def utility_advantages(segment: Sequence[Experience], shared_credit: float) -> list[NDArray[np.float64]]:
    """Advantages of all micro-actions of a segment, one array of shape (M,) per decision time.

    Args:
        shared_credit: 0 credits a grant with its own job alone, 1 with the whole cluster; void always has the whole.
    """
    usual = _usual_efficiency(segment)
    seconds_K = np.array([entry.seconds for entry in segment], dtype=np.float64)
    shares_K = np.minimum(seconds_K / max(float(seconds_K.mean()), 1e-9), _LONGEST_INTERVAL_WEIGHT)
    advantages = []
    for entry, share in zip(segment, shares_K, strict=True):
        utility = _utility_of(entry)
        gains = utility.weight * (utility.efficiency - np.array([usual[job_id] for job_id in utility.job_ids]))
        whole = float(gains.sum())
        jobs_M = entry.samples.jobs_M
        own_M = np.where(jobs_M >= 0, gains[jobs_M], whole)
        advantages.append(share * (own_M + shared_credit * (whole - own_M)))
    return advantages


def decision_advantages(segment: Sequence[Experience]) -> NDArray[np.float64]:
    """Advantages of a segment's decision times, shape (K,): gain over the policy's own choice as believed, centred.

    The baseline depends on the state alone, so the gradient stays unbiased; it takes out how busy the hour was, which
    is most of a reward. The mean error of beliefs goes with the centring.
    """
    seconds_K = np.array([entry.seconds for entry in segment], dtype=np.float64)
    shares_K = np.minimum(seconds_K / max(float(seconds_K.mean()), 1e-9), _LONGEST_INTERVAL_WEIGHT)
    gains_K = np.array([_gain_over_plan(_utility_of(entry)) for entry in segment])
    centred_K: NDArray[np.float64] = shares_K * (gains_K - np.average(gains_K, weights=shares_K))
    return centred_K


def _gain_over_plan(utility: SlotUtility) -> float:
    if utility.planned is None:
        raise ValueError("this experience does not say what the policy would have done without chance")
    return float(utility.weight @ (utility.efficiency - utility.planned))


def permute_rewards(segment: Sequence[Experience], generator: np.random.Generator) -> list[Experience]:
    """The segment with its rewards dealt out anew among its decision times: a control that has nothing to learn from.

    Each job's efficiencies are permuted together; where a job was not there in the other decision time, it is given
    its mean over the segment, which teaches nothing.
    """
    usual = _usual_efficiency(segment) if all(entry.utility is not None for entry in segment) else {}
    dealt = []
    for entry, source in zip(segment, generator.permutation(len(segment)), strict=True):
        other = segment[source]
        if entry.utility is None or other.utility is None:
            dealt.append(replace(entry, reward=other.reward))
            continue
        there = dict(zip(other.utility.job_ids, other.utility.efficiency, strict=True))
        efficiency = np.array([there.get(job_id, usual[job_id]) for job_id in entry.utility.job_ids])
        utility = replace(entry.utility, efficiency=efficiency)
        dealt.append(replace(entry, reward=utility.reward, utility=utility))
    return dealt


def _usual_efficiency(segment: Sequence[Experience]) -> dict[str, float]:
    sums: dict[str, float] = {}
    counts: dict[str, int] = {}
    for entry in segment:
        utility = _utility_of(entry)
        for job_id, efficiency in zip(utility.job_ids, utility.efficiency.tolist(), strict=True):
            sums[job_id] = sums.get(job_id, 0.0) + efficiency
            counts[job_id] = counts.get(job_id, 0) + 1
    return {job_id: total / counts[job_id] for job_id, total in sums.items()}


def _utility_of(entry: Experience) -> SlotUtility:
    if entry.utility is None:
        raise ValueError("this experience carries no slot utility: it was recorded for the paper's reward")
    return entry.utility


Floats = NDArray[np.float64]


def clipped_ratios(log_policy_B: Floats, behaviour_B: NDArray[np.floating]) -> Floats:
    """The ratio of each choice, clipped at 1; shape (B,).

    Args:
        log_policy_B: log π of what was chosen, at the head.
    """
    ratios_B: Floats = np.minimum(1.0, np.exp(log_policy_B - np.log(behaviour_B)))
    return ratios_B


def mean_ratio(log_policy_M: Floats, behaviour_M: NDArray[np.floating], chosen_M: NDArray[np.bool_]) -> float:
    """The geometric mean of the ratios of one decision time's choices, not clipped; 1 where nothing was chosen.

    Args:
        log_policy_M: log π of every micro-action, at the head.
    """
    if not chosen_M.any():
        return 1.0
    return float(np.exp(np.mean((log_policy_M - np.log(behaviour_M))[chosen_M])))


def effective_samples(ratios_B: Floats, choices_B: NDArray[np.number] | None = None) -> float:
    """How many samples with weight 1 the weighted ones are worth (Kish's effective sample size).

    Args:
        choices_B: how many choices have this weight; None: one each.

    Returns:
        At most the number of choices; NaN where all weights underflow and nothing was counted, 0 where it was.
    """
    if choices_B is None:
        with np.errstate(invalid="ignore"):
            return float(ratios_B.sum() ** 2 / np.square(ratios_B).sum())
    squares = float((choices_B * ratios_B**2).sum())
    return float((choices_B * ratios_B).sum()) ** 2 / squares if squares > 0.0 else 0.0
