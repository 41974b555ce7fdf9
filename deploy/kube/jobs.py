"""Jobs of the demonstration on Kubernetes: what their authors would apply, in the order in which they come."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

Json = dict[str, Any]

NAMESPACE = "team"
TRAINING_JOBS = 12
PLAIN_JOBS = 4
EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
_IMAGE = "fedl2-runtime"
_BETWEEN_SECONDS = 8.0
_SCRIPT = """\
import os, time
share = int(os.environ["JOB_COMPLETION_INDEX"])
end = time.monotonic() + {seconds}
while time.monotonic() < end:
    time.sleep(0.2)
print(f"share {{share}} is done")
"""


@dataclass(frozen=True, slots=True)
class Arrival:
    """Objects that are applied together: of a `trainingjob` or a `job`, so long after the first."""

    name: str
    kind: str
    after_seconds: float
    objects: tuple[Json, ...]


def arrivals(training_jobs: int, plain_jobs: int) -> list[Arrival]:
    """So many of each kind, mixed."""
    found = []
    for number in range(training_jobs):
        epochs = (40, 90, 160)[number % 3]
        found.append(
            Arrival(f"digits-{number + 1}", "trainingjob", number * _BETWEEN_SECONDS, (_digits(number, epochs),))
        )
    for number in range(plain_jobs):
        after = (number + 0.5) * _BETWEEN_SECONDS * max(1.0, training_jobs / max(1, plain_jobs))
        found.append(Arrival(f"count-{number + 1}", "job", after, _counting(number)))
    return sorted(found, key=lambda arrival: arrival.after_seconds)


def volumes() -> list[Json]:
    """Claims that the TrainingJobs share; each has folders of its own there."""
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"accessModes": [mode], "resources": {"requests": {"storage": "1Gi"}}},
        }
        for name, mode in (("checkpoints", "ReadWriteMany"), ("journals", "ReadWriteMany"))
    ]


def _digits(number: int, epochs: int) -> Json:
    script = str(EXAMPLES / "digits" / "train.py")
    container = {
        "name": "worker",
        "image": _IMAGE,
        "command": ["python", script, "--epochs", str(epochs), "--global-batch", "256"],
        "env": [{"name": "OMP_NUM_THREADS", "value": "1"}],
        "resources": {"requests": {"cpu": "500m", "memory": "512Mi"}},
    }
    return {
        "apiVersion": "fedl2.io/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": f"digits-{number + 1}", "namespace": NAMESPACE},
        "spec": {
            "modelType": "digits-cnn",
            "communication": "PS",
            "work": {"epochs": epochs},
            "worker": {"min": 1, "max": 3, "template": {"spec": {"containers": [container]}}},
            "ps": {"min": 1, "max": 2},
            "checkpoints": {"claimName": "checkpoints"},
            "coordinator": {"journal": {"claimName": "journals"}},
        },
    }


def _counting(number: int) -> tuple[Json, Json]:
    """A Job that a team runs already, whose indices are shares of the work, and what the agent may do with it."""
    name = f"count-{number + 1}"
    container = {
        "name": "main",
        "image": _IMAGE,
        "command": ["python", "-c", _SCRIPT.format(seconds=15 + 5 * (number % 2))],
        "resources": {"requests": {"cpu": "250m", "memory": "64Mi"}},
    }
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "completionMode": "Indexed",
            "parallelism": 1,
            "completions": 1,
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
        },
    }
    target = {
        "apiVersion": "fedl2.io/v1alpha1",
        "kind": "ElasticTarget",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "targetRef": {"apiVersion": "batch/v1", "kind": "Job", "name": name},
            "min": 1,
            "max": 3,
            "updateMode": "Auto",
            "modelType": "counting",
        },
    }
    return job, target
