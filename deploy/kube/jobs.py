"""Jobs of the demonstration on Kubernetes: what their authors would apply, in the order in which they come."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy.demonstration.frame import filled

Json = dict[str, Any]

NAMESPACE = "team"
TRAINING_JOBS = 12
PLAIN_JOBS = 4
_FILE = Path(__file__).with_name("jobs.yaml")
_SCRIPT = Path(__file__).parents[2] / "docs" / "examples" / "digits" / "train.py"
_BETWEEN_SECONDS = 8.0


@dataclass(frozen=True, slots=True)
class Arrival:
    """Objects that are applied together, so long after the first."""

    name: str
    after_seconds: float
    objects: tuple[Json, ...]


def arrivals(training_jobs: int, plain_jobs: int) -> list[Arrival]:
    """So many TrainingJobs and Jobs of batch/v1, mixed."""
    found = []
    for number in range(training_jobs):
        name = f"digits-{number + 1}"
        objects = _objects("TrainingJob", name=name, epochs=(40, 90, 160)[number % 3])
        found.append(Arrival(name, number * _BETWEEN_SECONDS, objects))
    for number in range(plain_jobs):
        after = (number + 0.5) * _BETWEEN_SECONDS * max(1.0, training_jobs / max(1, plain_jobs))
        name = f"count-{number + 1}"
        found.append(Arrival(name, after, _objects("Job", "ElasticTarget", name=name, seconds=15 + 5 * (number % 2))))
    return sorted(found, key=lambda arrival: arrival.after_seconds)


def volumes() -> tuple[Json, ...]:
    """Claims that the TrainingJobs share."""
    return _objects("PersistentVolumeClaim")


def _objects(*kinds: str, **words: object) -> tuple[Json, ...]:
    every = filled(_FILE, **{"name": "", "epochs": 0, "seconds": 0, "script": _SCRIPT, "namespace": NAMESPACE, **words})
    return tuple(found for found in every if found["kind"] in kinds)
