"""Jobs of a seed: three kinds of model in random sizes and order, and when each is submitted."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


@dataclass(frozen=True, slots=True)
class Kind:
    """A script of the documentation, the batch of its jobs, and from how many to how many epochs they take."""

    model_type: str
    example: str
    global_batch: int
    shortest: int
    longest: int


KINDS = (
    Kind("digits-cnn", "digits", 256, 16, 120),
    Kind("small-gpt", "gpt", 128, 1, 8),
    Kind("tabular-mlp", "tabular", 32, 20, 140),
)
"""Some ten to eighty seconds each with one worker. The batches of the first two are large beside those of the
documentation, so that a step is worth sharing out; the third's are not, as there are such jobs too."""


@dataclass(frozen=True, slots=True)
class Submission:
    """A job file, and when it is submitted: seconds from the first."""

    name: str
    after_seconds: float
    file: dict[str, Any]


def plan(seed: int, jobs: int, work: float, gap_seconds: float) -> tuple[Submission, ...]:
    """The jobs of a seed, in the order in which they come.

    Args:
        work: of each job's usual work so much.
        gap_seconds: mean time from one submission to the next; exponentially distributed. Sizes are even in their
            logarithm: few long jobs and many short ones, as in the traces of clusters.
    """
    draw = random.Random(seed)
    at, submissions = 0.0, []
    for number in range(jobs):
        kind = KINDS[number % len(KINDS)] if number < len(KINDS) else draw.choice(KINDS)
        drawn = kind.shortest * (kind.longest / kind.shortest) ** draw.random()
        epochs = max(1, round(work * drawn))
        submissions.append(Submission(f"{kind.example}-{seed}-{number}", at, _file(kind, epochs)))
        at += draw.expovariate(1.0 / gap_seconds)
    return tuple(submissions)


def _file(kind: Kind, epochs: int) -> dict[str, Any]:
    return {
        "modelType": kind.model_type,
        "work": {"epochs": epochs},
        "worker": {"min": 1, "max": 4, "replicas": 2, "cpu": "400m"},
        "ps": {"min": 1, "max": 2, "replicas": 1, "cpu": "100m"},
        "script": str(EXAMPLES / kind.example / "train.py"),
        "args": ["--epochs", str(epochs), "--global-batch", str(kind.global_batch)],
        "env": {"OMP_NUM_THREADS": "1"},
        "checkpointSeconds": 30,
    }
