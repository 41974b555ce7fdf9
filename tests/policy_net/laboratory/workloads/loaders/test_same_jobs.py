"""The same jobs, written in every format, are the same workload."""

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from policy_net.laboratory.workloads.sources import load_workload
from policy_net.laboratory.workloads.workload import WorkloadOptions

Job = tuple[str, int, int, int, int]
"""Id, submission and start in seconds since 1970, duration, GPUs."""


def clock(seconds: int, mark: str = " ") -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime(f"%Y-%m-%d{mark}%H:%M:%S")


def csv(jobs: Sequence[Job]) -> str:
    rows = [f"{name},{submit},{length},{gpus}" for name, submit, _, length, gpus in jobs]
    return "\n".join(["job_id,submit_time_s,duration_s,num_gpus", *rows, ""])


def philly(jobs: Sequence[Job]) -> str:
    return json.dumps(
        [
            {
                "jobid": name,
                "vc": "v",
                "submitted_time": clock(submit),
                "attempts": [
                    {
                        "start_time": clock(start),
                        "end_time": clock(start + length),
                        "detail": [{"ip": "m", "gpus": [f"gpu{index}" for index in range(gpus)]}],
                    }
                ],
            }
            for name, submit, start, length, gpus in jobs
        ]
    )


def helios(jobs: Sequence[Job]) -> str:
    rows = [f"{name},{gpus},{clock(submit)},{clock(start)},{length}" for name, submit, start, length, gpus in jobs]
    return "\n".join(["job_id,gpu_num,submit_time,start_time,duration", *rows, ""])


def openb(jobs: Sequence[Job]) -> str:
    rows = [f"{name},{gpus},{submit},{start + length},{start}" for name, submit, start, length, gpus in jobs]
    return "\n".join(["name,num_gpu,creation_time,deletion_time,scheduled_time", *rows, ""])


def sacct(jobs: Sequence[Job]) -> str:
    rows = [
        f"{name}|{clock(submit, 'T')}|{clock(start, 'T')}|{length}|COMPLETED|cpu=1,gres/gpu={gpus}"
        for name, submit, start, length, gpus in jobs
    ]
    return "\n".join(["JobID|Submit|Start|ElapsedRaw|State|AllocTRES", *rows, ""])


def k8s(jobs: Sequence[Job]) -> str:
    return json.dumps(
        {
            "items": [
                {
                    "metadata": {
                        "name": f"{name}-pod-{index}",
                        "namespace": "n",
                        "creationTimestamp": f"{clock(submit, 'T')}Z",
                        "labels": {"batch.kubernetes.io/job-name": name},
                    },
                    "spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "1"}}}]},
                    "status": {
                        "phase": "Succeeded",
                        "containerStatuses": [
                            {
                                "state": {
                                    "terminated": {
                                        "startedAt": f"{clock(start, 'T')}Z",
                                        "finishedAt": f"{clock(start + length, 'T')}Z",
                                    }
                                }
                            }
                        ],
                    },
                }
                for name, submit, start, length, gpus in jobs
                for index in range(gpus)
            ]
        }
    )


def pai(jobs: Sequence[Job]) -> str:
    return "".join(
        f"{name},worker,{gpus}.0,Terminated,{start}.0,{start + length}.0,600.0,29.3,100.0,V100\n"
        for name, _, start, length, gpus in jobs
    )


times = st.tuples(st.integers(10**9, 10**9 + 10**6), st.integers(0, 10**5), st.integers(1, 10**5), st.integers(1, 20))


@pytest.mark.parametrize("write", [philly, helios, openb, sacct, k8s, pai])
@given(many=st.lists(times, min_size=1, max_size=8))
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
def test_every_format_says_the_same_as_our_csv(
    write: Callable[[Sequence[Job]], str], many: list[tuple[int, int, int, int]], tmp_path: Path
) -> None:
    # PAI's task table knows no submission: there the wait is left out
    jobs = [
        (f"j{index}", submit, submit + (0 if write is pai else wait), length, gpus)
        for index, (submit, wait, length, gpus) in enumerate(many)
    ]
    plain, other = tmp_path / "jobs.csv", tmp_path / "jobs.other"
    plain.write_text(csv(jobs))
    other.write_text(write(jobs))
    options = WorkloadOptions(strict=True)
    expected = load_workload(str(plain), options)
    found = load_workload(f"{write.__name__}:{other}", options)
    if write is not philly:  # which names the one machine that they ran on
        assert found.suggested_nodes == expected.suggested_nodes
    assert [(job.submit_time_seconds, job.requested.workers) for job in found.jobs] == [
        (job.submit_time_seconds, job.requested.workers) for job in expected.jobs
    ]
    if write is not k8s:  # whose ids have a namespace, so that other models are assigned
        assert found.jobs == expected.jobs
