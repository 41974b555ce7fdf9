"""Jobs of the demonstration: three kinds of model, a short and a long one of each, as files that a user would write."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


@dataclass(frozen=True, slots=True)
class Example:
    """A script and how it is run.

    Attributes:
        folder: of the script, in `EXAMPLES`.
        communication: as a job file says it.
        global_batch: large enough that a second worker has something to do.
    """

    folder: str
    model_type: str
    communication: str
    global_batch: int


DIGITS = Example("digits", "digits-cnn", "PS", 256)
GPT = Example("gpt", "small-gpt", "PS", 64)
TABULAR = Example("tabular", "tabular-mlp", "AllReduce", 128)


@dataclass(frozen=True, slots=True)
class Arrival:
    """One job and when it comes.

    Attributes:
        after_seconds: since the first job trained, however long its start took.
    """

    name: str
    example: Example
    epochs: int
    after_seconds: float

    def file(self, cores: int) -> dict[str, Any]:
        """Its file.

        Args:
            cores: that all jobs share; what one may have at most grows with them.
        """
        example = self.example
        # More than half a core each: a job's second worker brings it the use of a second core.
        tasks: dict[str, Any] = {"worker": {"min": 1, "max": max(3, min(6, cores)), "cpu": "550m"}}
        if example.communication == "PS":
            tasks["ps"] = {"min": 1, "max": max(1, min(2, cores // 2)), "cpu": "100m"}
        return {
            "name": self.name,
            "modelType": example.model_type,
            "communication": example.communication,
            "work": {"epochs": self.epochs},
            **tasks,
            "script": str(EXAMPLES / example.folder / "train.py"),
            "args": ["--epochs", str(self.epochs), "--global-batch", str(example.global_batch)],
            "env": {"OMP_NUM_THREADS": "1"},
            "checkpointSeconds": 20,
        }


ARRIVALS = (
    Arrival("gpt-long", GPT, 14, 0.0),
    Arrival("digits-short", DIGITS, 60, 20.0),
    Arrival("tabular-short", TABULAR, 80, 32.0),
    Arrival("gpt-short", GPT, 2, 44.0),
    Arrival("digits-long", DIGITS, 150, 52.0),
    Arrival("tabular-long", TABULAR, 200, 60.0),
)
"""In the order in which they come. The first is alone for a while; then there are more than two cores have room for."""


_SOONEST = 0.5
"""Starting takes as long, however little a job then trains."""


def arrivals(count: int, work: float) -> tuple[Arrival, ...]:
    """The first so many jobs, each with so much of its work; those of less work come sooner, but never all at once."""
    sooner = min(1.0, max(_SOONEST, work))
    return tuple(
        replace(job, epochs=max(1, round(job.epochs * work)), after_seconds=job.after_seconds * sooner)
        for job in ARRIVALS[:count]
    )
