"""Runs of one job that share its id, or whose times nobody recorded: one request, with the sum of its runs."""

import json
from pathlib import Path
from typing import Any

import pytest

from policy_net.laboratory.workloads.loaders.k8s import TIMES_LOST, read_k8s
from policy_net.laboratory.workloads.loaders.record import RecordedJob, Recording
from policy_net.laboratory.workloads.loaders.sacct import read_sacct

HEADER = "JobID|Submit|Start|End|ElapsedRaw|State|AllocTRES|User"


def moment(hour: float) -> str:
    return f"2026-01-{1 + int(hour // 24):02}T{int(hour % 24):02}:{round(hour % 1 * 60):02}:00"


def run(job_id: str, submit: float, start: float | None, end: float | None, state: str, gpus: int = 4, by: str = "ann",
        ) -> str:  # fmt: skip
    ran = 0 if start is None or end is None else round((end - start) * 3600)
    times = [moment(submit), *("Unknown" if hour is None else moment(hour) for hour in (start, end))]
    return "|".join([job_id, *times, str(ran), state, f"cpu=8,gres/gpu={gpus},node=1", by])


def of_sacct(tmp_path: Path, *rows: str, strict: bool = True) -> Recording:
    path = tmp_path / "jobs.txt"
    path.write_text("\n".join([HEADER, *rows]) + "\n")
    return read_sacct(path, strict)


def hours(job: RecordedJob) -> tuple[str, float, int, float | None, float | None]:
    """Id, duration, GPUs, wait and time to the end."""
    wait, jct = job.wait_seconds, job.jct_seconds
    return (
        job.job_id,
        round(job.duration_seconds / 3600, 6),
        job.gpus,
        None if wait is None else wait / 3600,
        None if jct is None else jct / 3600,
    )


def test_runs_that_gave_way_are_one_request_with_the_job_that_came_of_them(tmp_path: Path) -> None:
    recording = of_sacct(
        tmp_path,
        run("7", 0, 1, 4, "PREEMPTED"),
        run("8", 0, 2, 3, "COMPLETED", 1),
        run("7", 4, 6, 8, "REQUEUED"),
        run("7", 8, 8.5, 9.5, "NODE_FAIL"),
        run("7", 9.5, 10, 14, "CANCELLED by 1000"),
    )
    assert [hours(job) for job in recording.records] == [("7", 3 + 2 + 1 + 4, 4, 1, 14), ("8", 1, 1, 2, 3)]
    assert any(note.startswith("1 job ran more than once") for note in recording.notes)
    assert not any("malformed" in note or "left out" in note for note in recording.notes)


def test_a_job_that_was_resized_while_it_ran_is_one_request_of_its_most_gpus(tmp_path: Path) -> None:
    rows = [run("7", 0, 1, 3, "RESIZING", 8), run("7", 0, 3, 7, "COMPLETED", 2)]
    assert [hours(job) for job in of_sacct(tmp_path, *rows).records] == [("7", (2 * 8 + 4 * 2) / 8, 8, 1, 7)]
    assert [hours(job) for job in of_sacct(tmp_path, *reversed(rows)).records] == [("7", 3, 8, 1, 7)]


def test_a_row_after_a_resize_has_the_first_start_and_all_the_time_since(tmp_path: Path) -> None:
    # As Slurm 22.05 writes it: 8 GPUs from 1 to 3 o'clock, 2 from then to 7; submitted at 0.
    rows = [run("7", 0, 1, 3, "RESIZING", 8), run("7", 3, 1, 7, "COMPLETED", 2)]
    recording = of_sacct(tmp_path, *rows)
    assert [hours(job) for job in recording.records] == [("7", (2 * 8 + 4 * 2) / 8, 8, 1, 7)]
    assert not any("start before" in note for note in recording.notes)


@pytest.mark.parametrize(
    "last",
    [
        run("7", 4, None, None, "PENDING"),
        run("7", 4, 5, None, "RUNNING"),
        run("7", 4, 5, 6, "REQUEUED"),
        run("7", 0, 5, 6, "RESIZING"),
    ],
)
def test_a_job_whose_next_run_is_still_to_come_has_not_finished(tmp_path: Path, last: str) -> None:
    recording = of_sacct(tmp_path, run("7", 0, 1, 4, "REQUEUED"), last, run("8", 0, 2, 3, "COMPLETED"))
    assert [job.job_id for job in recording.records] == ["8"]
    assert "left out: 1 × not finished when the file was written" in recording.notes


def test_a_job_that_was_withdrawn_before_its_next_run_held_what_it_held(tmp_path: Path) -> None:
    recording = of_sacct(tmp_path, run("7", 0, 1, 4, "REQUEUED"), run("7", 4, None, 6, "CANCELLED"))
    assert [hours(job) for job in recording.records] == [("7", 3, 4, 1, 4)]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (run("7", 0, 1, 4, "COMPLETED"), run("7", 50, 51, 53, "COMPLETED")),
        (run("7", 0, 1, 4, "PREEMPTED"), run("7", 2, 3, 5, "COMPLETED")),
        (run("7", 0, 1, 4, "PREEMPTED"), run("7", 50, 51, 53, "COMPLETED", by="bob")),
    ],
    ids=["a run that was not to go on", "runs that overlap", "somebody else's"],
)
def test_an_id_that_was_given_again_is_another_job(tmp_path: Path, first: str, second: str) -> None:
    recording = of_sacct(tmp_path, first, second)
    assert [(job.job_id, job.duration_seconds / 3600) for job in recording.records] == [("7", 3), ("7 (2)", 2)]
    assert "1 jobs have an id that an earlier one had" in recording.notes


def test_one_run_from_two_lists_counts_once_and_written_twice_is_malformed(tmp_path: Path) -> None:
    row, before = run("7", 0, 1, 4, "COMPLETED"), run("7", 0, 1, None, "RUNNING")
    for rows in ((before, row), (row, before)):
        assert [hours(job) for job in of_sacct(tmp_path, *rows).records] == [("7", 3, 4, 1, 4)]
    twice = of_sacct(tmp_path, row, row, strict=False)
    assert [hours(job) for job in twice.records] == [("7", 3, 4, 1, 4)]
    assert any("JobID '7' stands in line 2 too; give every job its own id" in note for note in twice.notes)


def test_a_job_with_a_run_that_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    rows = [run("7", 0, 1, 4, "REQUEUED"), run("7", 4, 5, 6, "EXPLODED"), run("8", 0, 1, 4, "COMPLETED")]
    recording = of_sacct(tmp_path, *rows, strict=False)
    assert [job.job_id for job in recording.records] == ["8"]
    assert "left out: 1 × part of the job is malformed" in recording.notes


def test_a_list_without_earlier_runs_says_that_they_may_be_missing(tmp_path: Path) -> None:
    assert any("without sacct -D" in note for note in of_sacct(tmp_path, run("8", 0, 2, 3, "COMPLETED")).notes)


LOST = {"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown", "startedAt": None, "finishedAt": None}}
ZERO = {"terminated": {"startedAt": "0001-01-01T00:00:00Z", "finishedAt": "0001-01-01T00:00:00Z"}}
ORPHAN = {"running": {"startedAt": "2026-01-01T01:00:05Z"}}
"""Of a pod whose node is gone: nobody was there to write its end."""


def pod(
    name: str, created: float, began: float, state: dict[str, Any], *conditions: tuple[str, str, float], uid: str = "u"
) -> dict[str, Any]:
    owner = {"kind": "Job", "name": "train", "controller": True, "uid": uid}
    return {
        "metadata": {"name": name, "creationTimestamp": moment(created) + "Z", "ownerReferences": [owner]},
        "spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "2"}}}]},
        "status": {
            "phase": "Succeeded" if "finishedAt" in str(state) and state not in (LOST, ZERO) else "Failed",
            "startTime": moment(began) + "Z",
            "conditions": [
                {"type": kind, "status": status, "lastTransitionTime": moment(since) + "Z"}
                for kind, status, since in conditions
            ],
            "containerStatuses": [{"state": state, "lastState": {}}],
        },
    }


def ran(start: float, end: float) -> dict[str, Any]:
    return {"terminated": {"startedAt": moment(start) + "Z", "finishedAt": moment(end) + "Z"}}


def of_kubernetes(tmp_path: Path, *pods: dict[str, Any]) -> Recording:
    path = tmp_path / "pods.json"
    path.write_text(json.dumps({"items": pods}))
    return read_k8s(path, strict=True)


@pytest.mark.parametrize("state", [LOST, ZERO, ORPHAN], ids=["null", "zero", "still running"])
@pytest.mark.parametrize(
    "conditions",
    [
        [("DisruptionTarget", "True", 21.0)],
        [("Ready", "False", 23.0), ("DisruptionTarget", "True", 21.0)],
        [("PodScheduled", "True", 1.0), ("Ready", "False", 21.0)],
        [("ContainersReady", "False", 21.0), ("DisruptionTarget", "False", 2.0)],
    ],
)
def test_a_pod_whose_container_lost_its_times_held_its_gpus_until_a_condition_says_so(
    tmp_path: Path, state: dict[str, Any], conditions: list[tuple[str, str, float]]
) -> None:
    recording = of_kubernetes(tmp_path, pod("train-0", 0, 1, state, *conditions), pod("train-1", 22, 30, ran(30, 34)))
    assert [hours(job) for job in recording.records] == [("default/train", 20 + 4, 2, 1, 34)]


@pytest.mark.parametrize(
    "conditions", [[], [("Ready", "False", 1.0)], [("DisruptionTarget", "True", 0.5)], [("Ready", "True", 21.0)]]
)
def test_a_job_whose_pod_ran_until_nobody_knows_when_is_left_out_whole_and_named(
    tmp_path: Path, conditions: list[tuple[str, str, float]]
) -> None:
    other = pod("other-0", 0, 1, ran(1, 2), uid="other")
    other["metadata"]["ownerReferences"][0]["name"] = "other"
    recording = of_kubernetes(
        tmp_path, pod("train-0", 0, 1, LOST, *conditions), pod("train-1", 22, 30, ran(30, 34)), other
    )
    assert [job.job_id for job in recording.records] == ["default/other"]
    assert f"left out: 1 × {TIMES_LOST}" in recording.notes


def test_a_run_before_the_last_that_lost_its_times_began_with_the_pod(tmp_path: Path) -> None:
    value = pod("train-0", 0, 1, ran(10, 12))
    value["status"]["containerStatuses"][0]["lastState"] = LOST
    assert [hours(job) for job in of_kubernetes(tmp_path, value).records] == [("default/train", 11, 2, 1, 12)]


def test_a_job_that_was_deleted_and_made_again_is_another_job(tmp_path: Path) -> None:
    recording = of_kubernetes(tmp_path, pod("a", 0, 1, ran(1, 3)), pod("b", 48, 49, ran(49, 52), uid="v"))
    assert [(job.job_id, job.duration_seconds / 3600) for job in recording.records] == [
        ("default/train", 2),
        ("default/train (2)", 3),
    ]
