"""A lesson of the twin: the trainer's question, a line of JSON, and the answer, a gradient or why there is none.

The process that answers (`lesson_process`) reads the decision log of the state directory; neither line tells of a job.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cluster_agent.settings import TwinLearningSettings
from policy_net.exchange.policy_file import PolicyFile
from policy_net.exchange.spec import Spec, Weights, WeightSpec, weights_from_bytes, weights_to_bytes
from policy_net.exchange.statistics import SpeedStatistic
from policy_net.learning.gradient import GradientResult


@dataclass(frozen=True, slots=True)
class LessonQuestion:
    """What is to be learned: `policy` is a file with spec and priors of what acts here, and the head's weights.

    `seed` draws window and directions; `permute` is a control that has nothing to learn from.
    """

    policy: bytes
    state_dir: Path
    settings: TwinLearningSettings
    seed: int
    permute: bool = False

    def to_line(self) -> bytes:
        """One line of JSON."""
        content = {
            "policy": base64.b64encode(self.policy).decode(),
            "state_dir": str(self.state_dir),
            "settings": self.settings.model_dump(mode="json"),
            "seed": self.seed,
            "permute": self.permute,
        }
        return json.dumps(content).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> LessonQuestion:
        """Read it back; a KeyError or ValueError where it is no question."""
        content = json.loads(line)
        return cls(
            base64.b64decode(content["policy"]),
            Path(content["state_dir"]),
            TwinLearningSettings.model_validate(content["settings"]),
            int(content["seed"]),
            bool(content["permute"]),
        )


@dataclass(frozen=True, slots=True)
class TwinAnswer:
    """What the replays said: a gradient, or why there is none; its samples are jobs that were replayed, or actions.

    `agreement` is from 0 to 1, None where too few jobs have ended here to say. Without a `reason` the twin is believed
    in part, and was not this time.
    """

    result: GradientResult | None
    agreement: float | None = None
    reason: str = ""

    def to_line(self) -> str:
        """One line of JSON."""
        content: dict[str, Any] = {"agreement": self.agreement, "reason": self.reason}
        if self.result is not None:
            content["gradient"] = base64.b64encode(weights_to_bytes(self.result.gradient)).decode()
            content["samples"] = self.result.samples
            content["statistics"] = self.result.statistics
        return json.dumps(content, allow_nan=False)

    @classmethod
    def from_line(cls, line: bytes, spec: WeightSpec) -> TwinAnswer:
        """Read it back.

        Raises:
            ValueError, KeyError, PolicyNetError: it is no answer, or one for another spec.
        """
        content = json.loads(line)
        result = None
        if "gradient" in content:
            gradient = weights_from_bytes(base64.b64decode(content["gradient"]), spec)
            if not np.isfinite(gradient).all():
                raise ValueError("its gradient has a figure that is not finite")
            samples = int(content["samples"])
            result = GradientResult(gradient, samples, float(samples), dict(content["statistics"]))
        return cls(result, content["agreement"], str(content["reason"]))


def head_file(spec: Spec, weights: Weights, priors: Sequence[SpeedStatistic]) -> bytes:
    """A head as a policy file, with the priors of what acts."""
    return PolicyFile(spec, weights, {}, tuple(priors)).to_bytes()
