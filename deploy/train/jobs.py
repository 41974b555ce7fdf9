"""Jobs of the demonstration: three kinds of model, a short and a long one of each, as files that a user would write."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


@dataclass(frozen=True, slots=True)
class Arrival:
    """One job and when it comes.

    Attributes:
        after_seconds: from the first job on.
        example: the folder of its script.
    """

    name: str
    model_type: str
    example: str
    epochs: int
    after_seconds: float

    def file(self, cores: int) -> dict[str, Any]:
        """Its file.

        Args:
            cores: that all jobs share; what one may have at most grows with them.
        """
        return {
            "name": self.name,
            "modelType": self.model_type,
            "work": {"epochs": self.epochs},
            "worker": {"min": 1, "max": max(2, min(6, cores)), "cpu": "400m"},
            "ps": {"min": 1, "max": max(1, min(2, cores // 2)), "cpu": "100m"},
            "script": str(EXAMPLES / self.example / "train.py"),
            "args": ["--epochs", str(self.epochs)],
            "env": {"OMP_NUM_THREADS": "1"},
            "checkpointSeconds": 20,
        }


ARRIVALS = (
    Arrival("digits-short", "digits-cnn", "digits", 15, 0.0),
    Arrival("gpt-short", "small-gpt", "gpt", 1, 25.0),
    Arrival("tabular-short", "tabular-mlp", "tabular", 36, 35.0),
    Arrival("digits-long", "digits-cnn", "digits", 30, 45.0),
    Arrival("gpt-long", "small-gpt", "gpt", 3, 52.0),
    Arrival("tabular-long", "tabular-mlp", "tabular", 84, 60.0),
)
"""In the order in which they come. The first is alone for a while; then there are more than two cores have room for."""


def arrivals(count: int, work: float) -> tuple[Arrival, ...]:
    """The first so many jobs, each with so much of its work."""
    return tuple(
        Arrival(job.name, job.model_type, job.example, max(1, round(job.epochs * work)), job.after_seconds * work)
        for job in ARRIVALS[:count]
    )
