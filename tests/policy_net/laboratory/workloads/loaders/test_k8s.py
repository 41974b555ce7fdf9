import json
from pathlib import Path
from typing import Any

import pytest

from policy_net.laboratory.workloads.loaders.k8s import read_k8s


def pod(resources: dict[str, Any], restarts: int) -> dict[str, Any]:
    """A pod whose container ran from 11 to 12 and from 13 to 14 o'clock, and perhaps before: it started at 10."""
    return {
        "metadata": {"name": "pod", "creationTimestamp": "2026-05-06T09:00:00Z"},
        "spec": {"containers": [{"resources": resources}]},
        "status": {
            "phase": "Succeeded",
            "startTime": "2026-05-06T10:00:00Z",
            "containerStatuses": [
                {
                    "restartCount": restarts,
                    "lastState": {
                        "terminated": {"startedAt": "2026-05-06T11:00:00Z", "finishedAt": "2026-05-06T12:00:00Z"}
                    },
                    "state": {
                        "terminated": {"startedAt": "2026-05-06T13:00:00Z", "finishedAt": "2026-05-06T14:00:00Z"}
                    },
                }
            ],
        },
    }


def read(tmp_path: Path, value: dict[str, Any]) -> tuple[float, int]:
    path = tmp_path / "pods.json"
    path.write_text(json.dumps({"items": [value]}))
    (job,) = read_k8s(path, strict=True).records
    return job.duration_seconds / 3600, job.gpus


@pytest.mark.parametrize(("restarts", "hours"), [(1, 3), (2, 4), (40, 4)])
def test_a_pod_whose_first_runs_are_forgotten_held_its_gpus_from_its_start(
    tmp_path: Path, restarts: int, hours: float
) -> None:
    assert read(tmp_path, pod({"limits": {"nvidia.com/gpu": "2"}}, restarts)) == (hours, 2)


@pytest.mark.parametrize(
    ("resources", "gpus"),
    [
        ({"limits": {"nvidia.com/mig-1g.5gb": "3"}}, 3),
        ({"requests": {"cpu": "8", "nvidia.com/mig-1g.5gb": 1}, "limits": {"nvidia.com/mig-1g.5gb": "1"}}, 1),
        ({"limits": {"nvidia.com/mig-1g.5gb": "1", "nvidia.com/mig-3g.20gb": "1"}}, 2),
        ({"requests": {"amd.com/gpu": "4", "nvidia.com/gpumem": "9"}}, 4),
    ],
)
def test_slices_count_as_gpus_and_nothing_else_does(tmp_path: Path, resources: dict[str, Any], gpus: int) -> None:
    assert read(tmp_path, pod(resources, 0)) == (3, gpus)
