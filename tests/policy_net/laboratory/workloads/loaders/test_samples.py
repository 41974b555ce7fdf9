"""Every format's sample, field by field; the expected jobs are worked out by hand from the samples."""

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from policy_net.errors import BadInput
from policy_net.laboratory.workloads.loaders.record import Recording
from policy_net.laboratory.workloads.sources import read_csv, read_recording

SAMPLES = Path(__file__).parent / "samples"
DAY = 1506902400.0
"""2017-10-02 00:00:00, read as it stands."""


def read(source: str) -> Recording:
    """A sample in strict reading: none of its rows is malformed."""
    name, _, file = source.partition(":")
    return read_recording(f"{name}:{SAMPLES / file}", strict=True)


def jobs(recording: Recording) -> list[tuple[str, float, float, int]]:
    """Id, submission after the first job's, duration and GPUs."""
    start = recording.records[0].submit_seconds
    return [(job.job_id, job.submit_seconds - start, job.duration_seconds, job.gpus) for job in recording.records]


def test_our_csv_keeps_models_and_leaves_out_what_holds_no_gpu() -> None:
    recording = read_csv(SAMPLES / "jobs.csv", strict=True)
    assert jobs(recording) == [("night-1", 0, 7200, 2), ("morning", 3600, 5400, 4)]
    assert [job.model for job in recording.records] == [None, "resnet-50"]
    assert recording.notes == ("left out: 1 × over in no time", "left out: 1 × no GPU asked for")


def test_philly_attempts_become_one_request_with_the_same_gpu_time() -> None:
    recording = read("philly:cluster_job_log")
    # 4 GPUs for 10 and for 60 minutes, the queueing between them not counted; then 1 GPU for 10 minutes
    assert jobs(recording) == [("application_1", 0, 4200, 4), ("application_2", 1800, 600, 1)]
    assert recording.records[0].submit_seconds == DAY + 8 * 3600
    assert recording.unit == "record"
    for note in (
        "status: 1 Killed, 1 Pass; failed and killed jobs count with the time that they ran",
        "1 attempts without a start or an end count no time",
        "left out: 1 × never started",
        "left out: 1 × not finished when the file was written",
        "left out: 1 × no GPU asked for",
    ):
        assert note in recording.notes


def test_a_virtual_cluster_of_philly_is_read_alone_and_an_unknown_one_is_answered_with_those_there() -> None:
    recording = read("philly:cluster_job_log@blue")
    assert [job.job_id for job in recording.records] == ["application_2"]
    assert "only vc blue" in recording.notes
    assert (recording.name, read("philly:cluster_job_log").name) == ("cluster_job_log@blue", "cluster_job_log")
    with pytest.raises(BadInput, match="no row with vc 'green'; it has 'blue', 'red'"):
        read("philly:cluster_job_log@green")


def test_helios_rows_last_as_their_duration_says() -> None:
    recording = read("helios:cluster_log.csv")
    assert jobs(recording) == [("501", 0, 7200, 8), ("502", 59, 300, 1)]
    for reason in ("never started", "not finished when the file was written", "no GPU asked for"):
        assert f"left out: 1 × {reason}" in recording.notes
    assert [job.job_id for job in read("helios:cluster_log.csv@vcY").records] == ["502"]


def test_pai_tasks_become_jobs_and_fractions_of_a_gpu_are_rounded_up() -> None:
    recording = read("pai:pai_task_table.csv")
    # jobA: 4 × 50% for 3600 s. jobB: 25% for 900 s. jobC: 2 GPUs for 3600 s, then 1 for 1800 s = 9000 GPU-s at 2
    assert jobs(recording) == [("jobA", 0, 3600, 2), ("jobB", 1000, 900, 1), ("jobC", 2000, 4500, 2)]
    assert any("1 jobs ask for a fraction of a GPU" in note and "4.2 GPUs" in note for note in recording.notes)
    assert any("knows no submission" in note for note in recording.notes)
    assert "left out: 2 × not finished when the file was written" in recording.notes


def test_pai_submissions_come_from_the_job_table_with_or_without_a_header(tmp_path: Path) -> None:
    table = SAMPLES / "pai_job_table.csv"
    bare = tmp_path / "bare.csv"
    bare.write_text("\n".join([*table.read_text().splitlines()[1:], ""]))
    headed = tmp_path / "tasks.csv"
    header = "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type\n"
    headed.write_text(header + (SAMPLES / "pai_task_table.csv").read_text())
    for tasks, submissions in ((SAMPLES / "pai_task_table.csv", table), (headed, bare)):
        recording = read_recording(f"pai:{tasks}@{submissions}", strict=True)
        assert [job.submit_seconds for job in recording.records] == [900, 2000, 2500]
        assert any(note.startswith("1 jobs are missing from the job table") for note in recording.notes)


def test_openb_pods_run_from_being_scheduled_to_being_deleted() -> None:
    recording = read("openb:openb_pod_list.csv")
    assert jobs(recording) == [("pod-1", 0, 3540, 1), ("pod-2", 100, 1200, 1), ("pod-3", 200, 3600, 8)]
    assert "1 pods ask for a part of one GPU, and count as one GPU" in recording.notes
    # pod-6 was running when the trace ends, pod-2 was deleted in the middle of its run
    assert "left out: 1 × not finished when the file was written" in recording.notes


def test_sacct_jobs_without_their_steps_arrays_one_by_one() -> None:
    recording = read("sacct:sacct.txt")
    # a count by type is part of the whole count, and counts where there is no whole one
    assert jobs(recording) == [("1001", 0, 7200, 4), ("1002_7", 300, 1800, 2)]
    assert "1 job steps are part of their jobs, and left out" in recording.notes
    assert "left out: 3 × not finished when the file was written" in recording.notes
    assert "left out: 1 × never started" in recording.notes


@pytest.mark.parametrize(
    ("columns", "row", "seconds"),
    [
        ("Start|End|Elapsed", "2024-03-04T08:00:00|Unknown|1-02:03:04", 93784),
        ("Start|End|Elapsed", "2024-03-04T08:00:00|Unknown|02:03", 123),
        ("Start|End", "2024-03-04T08:00:00|2024-03-04T08:01:00", 60),
        ("Start|End", "1709539200|1709539260", 60),
        ("Start|End", "2024-03-04T08:00:00+01:00|2024-03-04T08:01:00Z", 3660),
        ("Elapsed", "00:00:59.5", 59.5),
    ],
)
def test_sacct_says_how_long_a_job_ran_in_several_ways(tmp_path: Path, columns: str, row: str, seconds: float) -> None:
    path = tmp_path / "jobs.txt"
    # as `sacct -p` prints it: a bar at the end of every line
    path.write_text(
        f"JobID|Submit|State|ReqTRES|{columns}|\n7|2024-03-04T07:00:00|OUT_OF_MEMORY|cpu=1,gres/gpu=3|{row}|\n"
    )
    assert jobs(read_recording(f"sacct:{path}", strict=True)) == [("7", 0, seconds, 3)]


def test_kubernetes_pods_are_grouped_to_jobs() -> None:
    recording = read("k8s:pods.json")
    # bert: two pods of 2 GPUs side by side. finetune: a pod that was restarted, then its successor
    assert jobs(recording) == [("research/bert", 0, 7200, 4), ("research/finetune", 3600, 1800 + 1800, 1)]
    for reason in ("never started", "not finished when the file was written", "no GPU asked for"):
        assert f"left out: 1 × {reason}" in recording.notes


SOURCES = [
    "philly:cluster_job_log", "helios:cluster_log.csv", "pai:pai_task_table.csv", "openb:openb_pod_list.csv",
    "sacct:sacct.txt", "k8s:pods.json",
]  # fmt: skip


@pytest.mark.parametrize("source", SOURCES)
def test_a_gzipped_file_is_read_like_the_file(tmp_path: Path, source: str) -> None:
    name, _, file = source.partition(":")
    packed = tmp_path / f"{file}.gz"
    packed.write_bytes(gzip.compress((SAMPLES / file).read_bytes()))
    recording = read_recording(f"{name}:{packed}", strict=True)
    assert recording.records == read(source).records
    assert recording.name == read(source).name


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("damage", [lambda data: data[:-20], lambda data: data[:30] + b"\xff" * 40 + data[70:]])
def test_a_damaged_gzip_file_is_refused(tmp_path: Path, source: str, damage: Callable[[bytes], bytes]) -> None:
    name, _, file = source.partition(":")
    packed = tmp_path / f"{file}.gz"
    packed.write_bytes(damage(gzip.compress((SAMPLES / file).read_bytes())))
    with pytest.raises(BadInput, match="the gzip file is cut short or damaged"):
        read_recording(f"{name}:{packed}", strict=False)


@pytest.mark.parametrize(
    "source",
    ["sacct:", "sacct:nothing.txt", "philly:log@", "philly:@vc", "pai:no@table", f"sacct:{'x' * 5000}", "k8s:\0"],
)
def test_a_source_without_a_file_is_refused_with_how_to_write_it(source: str) -> None:
    with pytest.raises(BadInput, match=r"no such file; write (sacct|philly|pai|k8s):FILE"):
        read_recording(source, strict=False)


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="is a folder; write sacct:FILE"):
        read_recording(f"sacct:{tmp_path}", strict=False)


def test_a_file_with_an_at_sign_in_its_name_is_found(tmp_path: Path) -> None:
    path = tmp_path / "log@red"
    path.write_bytes((SAMPLES / "cluster_job_log").read_bytes())
    assert len(read_recording(f"philly:{path}", strict=True).records) == 2
    assert len(read_recording(f"philly:{path}@red", strict=True).records) == 1
