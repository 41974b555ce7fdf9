import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy_net.domain import Allocation, JobKind
from policy_net.errors import BadInput
from policy_net.laboratory.catalogue import CATALOGUE, MODEL_NAMES, model_names
from policy_net.laboratory.speeds.speed import TableSpeedModel, default_speeds
from policy_net.laboratory.workloads.recorded import ClusterSize, suitable_ps, trace_of
from policy_net.laboratory.workloads.sources import read_csv
from policy_net.laboratory.workloads.workload import JobKindChoice, Workload, WorkloadOptions

HEADER = "job_id,submit_time_s,duration_s,num_gpus"
GPU_MODEL_NAMES = model_names(JobKind.PS, on_gpus=True)


def read_trace(path: Path, options: WorkloadOptions) -> Workload:
    return trace_of(read_csv(path, options.strict), options)


def write(tmp_path: Path, *lines: str, header: str = HEADER) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


def options(**changes: object) -> WorkloadOptions:
    """Every model: 10 samples/s per PS up to 4 PSs, whatever the workers."""
    grid = np.zeros((17, 17))
    grid[1:, 1:] = 10.0 * np.minimum(np.arange(1, 17), 4)[:, None]
    speeds = TableSpeedModel(dict.fromkeys(MODEL_NAMES, grid), "test")
    return WorkloadOptions(**{"speeds": speeds, "job_kind": JobKindChoice.PS, **changes})


def test_rows_become_jobs_by_the_stated_rule(tmp_path: Path) -> None:
    header = f"cluster,{HEADER},model"
    path = write(tmp_path, "x,late,1100,300,20,vgg-16", "x,early,1000,50,1,wlm", "x,mid,1050,200,3,dssm", header=header)
    workload = read_trace(path, options())
    early, mid, late = workload.jobs
    assert [job.job_id for job in workload.jobs] == ["early", "mid", "late"]
    assert [job.submit_time_seconds for job in workload.jobs] == [0, 50, 100]
    # 8 CPU and 2 GPU: beside a worker's 2 CPU there is room for one PS; the speed peaks at 4 PSs
    assert early.requested == Allocation(workers=1, ps=1)
    assert mid.requested == Allocation(workers=3, ps=3)
    assert late.requested == Allocation(workers=16, ps=4)
    assert early.total_epochs * 165 == pytest.approx(50 * 10)
    assert mid.total_epochs * 349 == pytest.approx(200 * 30)
    assert late.total_epochs * 115 == pytest.approx(300 * 40)
    # load over 100 s: 1 GPU for 50 s and 3 GPUs for 50 s = 2 GPUs; the largest request (16) decides: 8 nodes
    assert workload.suggested_nodes == 8
    assert not workload.slotted
    notes = "\n".join(workload.notes)
    assert "1 requests above 16 GPUs count as 16" in notes
    assert "models: 3 as the file says, 0 assigned" in notes
    assert "1 jobs are of CPU-only models" in notes
    assert "load: 2.0 GPUs" in notes


@pytest.mark.parametrize(
    ("durations", "doubt"),
    [
        ((5_000_000, 6_000_000, 60), "half of the jobs ran for more than 58 days: are submit_time_s and duration_s in"),
        ((0.5, 0.8, 900), "half of the jobs ran for less than 1 s: are submit_time_s and duration_s in seconds?"),
        ((60, 900, 6_000_000), None),
    ],
)
def test_durations_that_are_hardly_in_seconds_are_doubted(
    tmp_path: Path, durations: tuple[float, ...], doubt: str | None
) -> None:
    path = write(tmp_path, *(f"j{number},0,{seconds},1" for number, seconds in enumerate(durations)))
    notes = read_trace(path, options()).notes
    assert [note for note in notes if "in seconds?" in note] == [note for note in notes if doubt and doubt in note]
    assert (doubt is not None) == any("in seconds?" in note for note in notes)


def test_the_load_decides_the_cluster_where_it_is_large(tmp_path: Path) -> None:
    path = write(tmp_path, *(f"j{i},0,1000,4" for i in range(9)), "last,100,1,1")
    # 36 GPUs all the time: 36 / 0.9 = 40 GPUs
    assert read_trace(path, options()).suggested_nodes == 20
    assert read_trace(path, options(gpus_per_node=8, cpus_per_node=32)).suggested_nodes == 5


def test_a_window_starts_at_its_own_first_job_and_is_sized_for_itself(tmp_path: Path) -> None:
    path = write(tmp_path, *(f"j{i},{i * 10},1000,{1 if i < 2 else 4}" for i in range(5)))
    second = read_trace(path, options(limit_jobs=2, window=1))
    assert [(job.job_id, job.submit_time_seconds) for job in second.jobs] == [("j2", 0), ("j3", 10)]
    assert second.suggested_nodes == math.ceil(4 / 0.9 / 2)
    assert len(read_trace(path, options(limit_jobs=2, window=2)).jobs) == 1
    with pytest.raises(BadInput, match="window 3 of 2 jobs is beyond its 5 jobs; use 0–2"):
        read_trace(path, options(limit_jobs=2, window=3))


def test_jobs_of_the_same_second_keep_the_order_of_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, "b,5,1,1", "a,5,1,1", "c,4,1,1")
    assert [job.job_id for job in read_trace(path, options()).jobs] == ["c", "b", "a"]


def test_models_are_assigned_from_the_seed_alike_in_every_window(tmp_path: Path) -> None:
    path = write(tmp_path, *(f"j{i},{i},10,1" for i in range(200)))
    whole = [job.job_type for job in read_trace(path, options(seed=3)).jobs]
    part = [job.job_type for job in read_trace(path, options(seed=3, limit_jobs=50, window=2)).jobs]
    assert part == whole[100:150]
    assert set(whole) == set(GPU_MODEL_NAMES)
    assert whole != [job.job_type for job in read_trace(path, options(seed=4)).jobs]


def test_an_unknown_model_is_replaced_and_counted(tmp_path: Path) -> None:
    path = write(tmp_path, "a,0,10,1,bert", "b,1,10,1,cnn-text", "c,2,10,1,", header=f"{HEADER},model")
    workload = read_trace(path, options())
    assert workload.jobs[0].job_type in GPU_MODEL_NAMES
    assert workload.jobs[1].job_type == "cnn-text-classification"
    assert any("1 jobs name a model that is not known" in note for note in workload.notes)
    assert any("models: 1 as the file says, 2 assigned" in note for note in workload.notes)


def test_rows_without_gpu_or_time_are_left_out_and_counted(tmp_path: Path) -> None:
    workload = read_trace(write(tmp_path, "a,0,10,0", "b,1,0,4", "c,2,10,1"), options())
    assert [job.job_id for job in workload.jobs] == ["c"]
    assert "left out: 1 × no GPU asked for" in workload.notes
    assert "left out: 1 × over in no time" in workload.notes


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("b,1,-5,1", "line 3: duration_s is '-5'; use a number ≥ 0"),
        ("b,1,long,1", "line 3: duration_s is 'long'; use a finite number"),
        ("b,1,NaN,1", "line 3: duration_s is 'NaN'; use a finite number"),
        ("b,1,inf,1", "line 3: duration_s is 'inf'"),
        ("b,1,1e300,1", "line 3: duration_s is '1e300'; use seconds"),
        ("b,-1e300,1,1", "line 3: submit_time_s is '-1e300'; use seconds"),
        ("b,,5,1", "line 3: submit_time_s is empty"),
        ("b,1,5,1e7", "line 3: num_gpus is '1e7'; use at most 1000000 GPUs"),
        ('b,1,"5,1', "line 3: .* is no csv row"),
        ("b,1,5,-2", "line 3: num_gpus is '-2'; use a whole number ≥ 0"),
        ("b,1,5,0.5", "line 3: num_gpus is '0.5'; use a whole number"),
        ("b,1,5", "line 3 has 3 of 4 columns; give every row all its columns"),
        (",1,5,1", "line 3: job_id is empty"),
        ("b,1,5,5,1", "line 3: '1' stands beyond the header's 4 columns; write decimals with a point"),
        ("a,1,5,1", "line 3: job_id 'a' stands in line 2 too"),
    ],
)
def test_a_row_that_cannot_be_used_is_named_with_its_value(tmp_path: Path, line: str, expected: str) -> None:
    path = write(tmp_path, "a,0,10,1", line)
    with pytest.raises(BadInput, match=expected) as error:
        read_trace(path, options(strict=True))
    assert str(error.value).startswith(f"{path}, ")
    assert "\n" not in str(error.value)
    workload = read_trace(path, options())
    assert [job.job_id for job in workload.jobs] == ["a"]
    note = next(note for note in workload.notes if note.startswith("malformed, skipped: 1 × "))
    assert note.endswith(f"the first: {error.value}")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "the file is empty"),
        (b"\n\n", "the file is empty"),
        (f"{HEADER}\n".encode(), "a header but no rows"),
        (b"job_id,submit_time_s,num_gpus\na,0,1\n", "column 'duration_s' is missing"),
        (f"{HEADER}\na,0,1,1\n\xe9,0,1,1\n".encode("latin-1"), "line 3: .* is not UTF-8"),
        (f"{HEADER}\na,0,1,0\n".encode(), "no usable job: left out: 1 × no GPU asked for"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, content: bytes, expected: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=expected) as error:
        read_trace(path, options())
    assert str(error.value).startswith(str(path))


def test_a_file_with_a_byte_order_mark_and_windows_line_ends_is_read(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_bytes(b"\xef\xbb\xbf" + f"{HEADER}\r\na,0,10,2.0\r\n".encode())
    assert read_trace(path, options()).jobs[0].requested.workers == 2


def test_empty_cells_beyond_the_header_do_no_harm(tmp_path: Path) -> None:
    assert len(read_trace(write(tmp_path, "a,0,50,1,,"), options()).jobs) == 1


def test_a_task_that_is_larger_than_a_node_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "a,0,10,1,wlm", header=f"{HEADER},model")
    with pytest.raises(BadInput, match="line 2: job 'a' never fits: a worker of wlm needs 2 CPU and 1 GPU"):
        read_trace(path, options(cpus_per_node=1))
    with pytest.raises(BadInput, match="gpus-per-node is 0"):
        read_trace(path, options(gpus_per_node=0))


def test_requests_that_nodes_have_too_little_cpu_for_are_counted(tmp_path: Path) -> None:
    workload = read_trace(write(tmp_path, "a,0,1,16", "b,10,10,1"), options(gpus_per_node=8, cpus_per_node=8))
    assert any("1 request needs more than 2 nodes of 8 CPU and 8 GPU" in note for note in workload.notes)


def test_a_model_without_any_speed_is_refused(tmp_path: Path) -> None:
    speeds = TableSpeedModel(dict.fromkeys(MODEL_NAMES, np.zeros((17, 17))), "test")
    with pytest.raises(BadInput, match=r"line 2: job 'a' asks for 3 GPUs, but .* has no speed with 3 workers"):
        read_trace(write(tmp_path, "a,0,10,3"), WorkloadOptions(speeds=speeds, job_kind=JobKindChoice.PS))


@given(st.sampled_from(MODEL_NAMES), st.integers(1, 16), st.sampled_from([(2, 8), (8, 8), (1, 8), (4, 64)]))
def test_suitable_ps_are_the_fastest_within_the_share_of_cpu(model: str, workers: int, node: tuple[int, int]) -> None:
    gpus, cpus = node
    ps = suitable_ps(CATALOGUE[model], workers, ClusterSize(8, gpus, cpus), default_speeds())
    speeds = default_speeds().grid(model)[:, workers]
    free_capacity = max(1, min(16, int(workers * (cpus / gpus - 2) / 2)))
    assert 1 <= ps <= free_capacity
    assert speeds[ps] == speeds[1 : free_capacity + 1].max()


rows = st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 10**6), st.integers(1, 64)), min_size=1, max_size=40)


@given(rows)
def test_every_job_would_last_as_recorded_at_its_request(tmp_path_factory, many: list[tuple[int, int, int]]) -> None:
    path = write(tmp_path_factory.mktemp("trace"), *(f"{i},{s},{d},{g}" for i, (s, d, g) in enumerate(many)))
    workload = read_trace(path, WorkloadOptions())
    assert workload.jobs[0].submit_time_seconds == 0
    recorded = {str(i): row for i, row in enumerate(many)}
    for job in workload.jobs:
        _, duration, gpus = recorded[job.job_id]
        assert job.requested.workers == min(gpus, job.kind.most_workers)
        speed = default_speeds().samples_per_second(job.job_type, job.requested.ps, job.requested.workers)
        assert job.total_epochs * job.samples_per_epoch / speed == pytest.approx(duration)


@pytest.mark.heavy
def test_every_real_trace_is_readable(data_folder: Path) -> None:
    files = sorted((data_folder / "workloads").glob("*.csv"))
    assert len(files) >= 22
    for file in files:
        workload = read_trace(file, WorkloadOptions(limit_jobs=300))
        assert 1 <= len(workload.jobs) <= 300
        assert workload.suggested_nodes * 2 >= max(job.requested.workers for job in workload.jobs)
