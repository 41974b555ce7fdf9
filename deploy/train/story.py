"""Story of a run: all that its page and its summary tell, in plain values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from deploy.train.records import Acted, Resize, Speed
from deploy.train.watching import Life
from foundation.figures import counted, duration
from global_learner.storage.receipts import Receipt


@dataclass(frozen=True, slots=True)
class Story:
    """One run.

    Attributes:
        began_unix_seconds: the beginning of all times.
        lives: the jobs, in the order in which they came.
        versions: all that were published.
    """

    began_unix_seconds: float
    seconds: float
    lives: Sequence[Life]
    resizes: Sequence[Resize]
    acted: Sequence[Acted]
    speeds: Sequence[Speed]
    gradients: Sequence[Receipt]
    versions: Sequence[int]
    cores: int

    @property
    def carried_out(self) -> list[Resize]:
        """The resizes that came about."""
        return [resize for resize in self.resizes if resize.done]

    @property
    def suspensions(self) -> int:
        """How often a job gave back all that it had, to go on later."""
        return sum(resize.suspends for resize in self.carried_out)

    @property
    def live(self) -> list[Resize]:
        """Those that changed the size of a job with parameter servers, which trained on meanwhile."""
        return [resize for resize in self.carried_out if resize.live and not resize.by_checkpoint]

    @property
    def checkpointed(self) -> list[Resize]:
        """Those of all-reduce jobs, whose processes ended and began anew."""
        return [resize for resize in self.carried_out if resize.live and resize.by_checkpoint]

    @property
    def done(self) -> list[Life]:
        """The jobs that came to their end."""
        return [life for life in self.lives if life.facts["state"] == "done"]

    @property
    def longest_stall_seconds(self) -> float:
        """Of any worker in any resize of a job that trained on."""
        return max((resize.stall_seconds for resize in self.live), default=0.0)

    @property
    def stall_share(self) -> float:
        """Of all time in which these jobs trained."""
        trained = math.fsum(life.facts["runSeconds"] for life in self.lives if life.facts["kind"] == "ps")
        return math.fsum(resize.stall_seconds for resize in self.live) / trained if trained else 0.0

    @property
    def acting_versions(self) -> list[int]:
        """Those that took decisions, in their order."""
        return list(dict.fromkeys(acted.version for acted in self.acted))

    def belief_errors(self) -> tuple[float, float]:
        """The median factor by which beliefs were off: over the first third of what was measured, and the last."""
        third = max(1, len(self.speeds) // 3)
        return _median_factor(self.speeds[:third]), _median_factor(self.speeds[-third:])

    @property
    def sentence(self) -> str:
        """All of it in one."""
        stall = f", the longest stall {1000 * self.longest_stall_seconds:.2g} ms" if self.live else ""
        others = f", {len(self.checkpointed)} by a checkpoint (all-reduce)" if self.checkpointed else ""
        return (
            f"{len(self.done)} of {counted(len(self.lives), 'job')} done in {duration(self.seconds)}; "
            f"{counted(len(self.live), 'resize')} of jobs that trained on{stall}{others}, "
            f"{counted(self.suspensions, 'suspension')}; "
            f"{counted(len(self.gradients), 'gradient')} to the learner, {counted(len(self.versions), 'version')}, "
            f"decided by {', '.join(f'v{version}' for version in self.acting_versions)}"
        )

    def to_json(self) -> dict[str, Any]:
        """The content of `summary.json`."""
        early, late = self.belief_errors() if self.speeds else (None, None)
        return {
            "jobs": [
                {
                    "name": life.name,
                    "model_type": life.facts["modelType"],
                    "state": life.facts["state"],
                    "submitted_seconds": life.submitted_seconds,
                    "jct_seconds": life.facts["ageSeconds"],
                    "run_seconds": life.facts["runSeconds"],
                    "samples": life.facts["samples"],
                    "stall_seconds": sum(found.stall_seconds for found in self.carried_out if found.job == life.name),
                    "resizes": sum(found.job == life.name for found in self.carried_out),
                    "loss": life.said[-1].loss if life.said else None,
                    "accuracy": life.said[-1].accuracy if life.said else None,
                }
                for life in self.lives
            ],
            "resizes": len(self.live),
            "resizes_by_checkpoint": len(self.checkpointed),
            "suspensions": self.suspensions,
            "longest_stall_seconds": self.longest_stall_seconds,
            "stall_share": self.stall_share,
            "decisions": len(self.acted),
            "acting_versions": self.acting_versions,
            "interventions": sum(bool(acted.interventions) for acted in self.acted),
            "gradients": len(self.gradients),
            "versions": list(self.versions),
            "belief_factor_early": early,
            "belief_factor_late": late,
            "wall_seconds": self.seconds,
        }


def _median_factor(speeds: Sequence[Speed]) -> float:
    """1 is right; 2 is twice, or half."""
    return math.exp(median(abs(math.log(speed.believed / speed.measured)) for speed in speeds if speed.believed > 0))
