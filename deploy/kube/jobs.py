"""Jobs of the demonstration on Kubernetes: what their authors would apply, in the order in which they come."""

from __future__ import annotations

from operator import itemgetter
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


def arrivals(training_jobs: int, plain_jobs: int) -> list[tuple[float, tuple[Json, ...]]]:
    """So many TrainingJobs and Jobs of batch/v1, mixed: when each comes, and the objects that are applied then."""
    found = []
    for number in range(training_jobs):
        objects = _objects("TrainingJob", name=f"digits-{number + 1}", epochs=(40, 90, 160)[number % 3])
        found.append((number * _BETWEEN_SECONDS, objects))
    for number in range(plain_jobs):
        after = (number + 0.5) * _BETWEEN_SECONDS * max(1.0, training_jobs / max(1, plain_jobs))
        seconds = 15 + 5 * (number % 2)
        found.append((after, _objects("Job", "ElasticTarget", name=f"count-{number + 1}", seconds=seconds)))
    return sorted(found, key=itemgetter(0))


def volumes() -> tuple[Json, ...]:
    """Claims that the TrainingJobs share."""
    return _objects("PersistentVolumeClaim")


def _objects(*kinds: str, **words: object) -> tuple[Json, ...]:
    every = filled(_FILE, **{"name": "", "epochs": 0, "seconds": 0, "script": _SCRIPT, "namespace": NAMESPACE, **words})
    return tuple(found for found in every if found["kind"] in kinds)
