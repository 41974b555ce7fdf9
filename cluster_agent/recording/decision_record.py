"""Lines of the decision log: a decision with all that it followed from, or a checkpoint.

A decision follows from the state, the policy's file, the seed and number, and what the policy believes of speeds. A
checkpoint holds the first of these beliefs whole; every decision's line holds what they have been shown since the
decision before, and the digest that they had when it was made. So beliefs can be followed again from any
checkpoint, and every step of that be checked.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from policy_net.domain import ClusterState, Decision, Progress, Trigger
from policy_net.exchange.log_lines import CHECKPOINT_START, DECISION_START, sealed
from policy_net.exchange.state_codec import canonical_json, encode_decision, encode_progress, encode_state
from policy_net.policy import Samples

LOG_FORMAT = 2
"""Raised whenever the meaning of a line changes; the first had no checkpoints."""


class CheckpointReason(StrEnum):
    """Why there is a checkpoint here."""

    START = "start"
    """An agent started."""
    FILE = "file"
    """A new file began."""
    POLICY = "policy"
    """Another policy became active, with the beliefs that it starts from."""
    BELIEFS = "beliefs"
    """Beliefs were changed by something else than reports, such as what the fleet has told."""
    GAP = "gap"
    """Something before was not written, or a policy could not be looked into."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """How things stand right before a decision.

    Attributes:
        number: of that decision.
        policy: the active policy: name, version, head_step, digest.
        settings: how it is configured to decide.
        busy: whether it was still at an earlier decision, so that its beliefs could not be read.
        beliefs: `Beliefs.checkpoint` of the active policy; None if it has none, or was busy.
        fallback: the fallback's name.
        fallback_beliefs: as `beliefs`.
        beside: the policy that is held beside the active one, with `policy`, `busy` and `beliefs` as above; None if
            there is none, and then it is not in the line.
    """

    number: int
    wall_time_seconds: float
    policy: Mapping[str, object]
    settings: Mapping[str, object]
    busy: bool
    beliefs: Mapping[str, Any] | None
    fallback: str
    fallback_beliefs: Mapping[str, Any] | None
    program: str
    beside: Mapping[str, Any] | None = None

    def to_line(self, reason: CheckpointReason) -> bytes:
        """The line, with its end."""
        rest = {
            "format": LOG_FORMAT,
            "program": self.program,
            "number": self.number,
            "wall_time_seconds": self.wall_time_seconds,
            "policy": dict(self.policy),
            "settings": dict(self.settings),
            "busy": self.busy,
            "beliefs": self.beliefs,
            "fallback": self.fallback,
            "fallback_beliefs": self.fallback_beliefs,
        } | ({} if self.beside is None else {"beside": dict(self.beside)})
        return sealed(f'{CHECKPOINT_START}"{reason.value}",{canonical_json(rest)[1:]}')


@dataclass(frozen=True, slots=True)
class DecisionRecord:
    """One decision, as it is logged.

    Attributes:
        number: counts the agent's decisions from 0, over all of its lives.
        version: the acting version; 0 if it is none (an initial policy, a heuristic).
        digest: of the acting policy's file or weights; a heuristic's is its name.
        previous_reward: of the interval that ended with this decision; None before the first.
        asked: whether the policy was asked at all; not while it is still at an earlier decision.
        beliefs_digest: of what the policy believed before it decided; None if it believes nothing, or was busy.
        observed: what jobs did since the decision before; a checkpoint right before this line has seen it already.
        observed_by: whose beliefs were shown it: `policy`, `fallback`, `beside`, or nobody's.
        rollout: in which it was made, whose turn it was, and in which block; None outside rollouts.
        beside: what the other policy would have done at the decision before (it is asked while the interval lasts);
            None if there was none. Neither is in the line where it is None.
    """

    number: int
    wall_time_seconds: float
    state: ClusterState
    trigger: Trigger
    policy: str
    version: int
    head_step: int
    digest: str
    seed: int
    mode: str
    exploration: float
    decision: Decision
    samples: Samples | None
    interventions: tuple[str, ...]
    decide_seconds: float
    previous_reward: float | None
    asked: bool = True
    beliefs_digest: str | None = None
    observed: tuple[Progress, ...] = ()
    observed_by: tuple[str, ...] = ()
    rollout: Mapping[str, Any] | None = None
    beside: Mapping[str, Any] | None = None

    def to_line(self) -> bytes:
        """The line, with its end."""
        state = canonical_json(encode_state(self.state))
        rest: dict[str, object] = {
            "number": self.number,
            "wall_time_seconds": self.wall_time_seconds,
            "state_digest": hashlib.sha256(state.encode()).hexdigest(),
            "trigger": self.trigger.value,
            "policy": self.policy,
            "version": self.version,
            "head_step": self.head_step,
            "digest": self.digest,
            "seed": self.seed,
            "mode": self.mode,
            "exploration": self.exploration,
            "interventions": list(self.interventions),
            "decide_seconds": self.decide_seconds,
            "previous_reward": _or_null(self.previous_reward),
            "asked": self.asked,
            "beliefs_digest": self.beliefs_digest,
            "observed": [encode_progress(entry) for entry in self.observed],
            "observed_by": list(self.observed_by),
            **encode_samples(self.samples),
        } | encode_decision(self.decision)
        more = {"rollout": self.rollout, "beside": self.beside}
        rest |= {name: dict(value) for name, value in more.items() if value is not None}
        # The state is most of the line: its canonical text is made once, for the digest and for the line.
        return sealed(f"{DECISION_START}{state},{canonical_json(rest)[1:]}")


def encode_samples(samples: Samples | None) -> dict[str, object]:
    """A decision's choices and their probabilities, as JSON values."""
    if samples is None:
        return {"actions": None, "behaviour": None}
    behaviour = [_or_null(value) for value in samples.behaviour_M.tolist()]
    return {"actions": samples.actions_M.tolist(), "behaviour": behaviour}


def _or_null(value: float | None) -> float | None:
    """JSON has no NaN; a figure that is none is logged as null, and the intervention says why."""
    return value if value is not None and math.isfinite(value) else None
