"""Whatever a file holds, a loader yields records or says what is wrong in one line; never a traceback."""

import json
import math
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from policy_net.errors import BadInput
from policy_net.laboratory.workloads.recorded import workload_of
from policy_net.laboratory.workloads.sources import COLUMNS, FORMATS, read_csv, read_recording
from policy_net.laboratory.workloads.workload import WorkloadOptions

SAMPLES = Path(__file__).parent / "samples"
FILES = {
    "philly": "cluster_job_log", "helios": "cluster_log.csv", "pai": "pai_task_table.csv",
    "openb": "openb_pod_list.csv", "sacct": "sacct.txt", "k8s": "pods.json",
}  # fmt: skip
FAST = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def check(name: str, path: Path, strict: bool) -> None:
    """Records that a workload can be made of, or one line."""
    try:
        recording = read_csv(path, strict) if name == "csv" else read_recording(f"{name}:{path}", strict)
    except BadInput as error:
        said = str(error)
    else:
        said = ""
        assert recording.records
        for job in recording.records:
            assert job.gpus > 0
            assert job.duration_seconds > 0
            assert math.isfinite(job.submit_seconds)
            assert math.isfinite(job.duration_seconds)
        assert len(workload_of(recording, WorkloadOptions()).jobs) == len(recording.records)
    assert not said or said.startswith(str(path))


@pytest.mark.parametrize("name", [*FORMATS, "csv"])
@given(content=st.binary(max_size=300), strict=st.booleans())
@FAST
def test_any_bytes(name: str, content: bytes, strict: bool, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    check(name, path, strict)


@pytest.mark.parametrize("name", FORMATS)
@given(start=st.integers(0, 4000), length=st.integers(0, 40), put=st.binary(max_size=12), strict=st.booleans())
@FAST
def test_a_sample_with_a_piece_replaced(
    name: str, start: int, length: int, put: bytes, strict: bool, tmp_path: Path
) -> None:
    content = (SAMPLES / FILES[name]).read_bytes()
    start %= len(content)
    path = tmp_path / "file"
    path.write_bytes(content[:start] + put + content[start + length :])
    check(name, path, strict)


ODD = [
    "", "1", "0", "-1", "1.5", "1e300", "-1e300", "1e-320", "nan", "inf", "100000000000", "Unknown", "None",
    "0001-01-01", "2024-03-04T08:00:00", "9999-12-31T23:59:59-23:59", "99-99:99:99", "gres/gpu=4", "RUNNING",
    "Terminated", '"', "a,b|c",
]  # fmt: skip
values = st.one_of(st.text(max_size=8), st.sampled_from(ODD))
ROWS = {
    "csv": ",".join(COLUMNS) + "\n{},10,20,2",
    "helios": "job_id,gpu_num,submit_time,duration,state,start_time,vc\n{},2,2020-06-09 18:41:01,60,FAILED,x,v",
    "pai": "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type\n"
    "{},w,1,Failed,10,20,1,1,100,T4",
    "openb": "name,num_gpu,gpu_milli,creation_time,deletion_time,scheduled_time,pod_phase\n{},1,1000,0,60,10,Failed",
    "sacct": "JobID|Submit|Start|End|ElapsedRaw|Elapsed|State|AllocTRES|ReqTRES\n"
    "{}|2024-03-04T08:00:00|2024-03-04T08:00:00|2024-03-04T08:01:00|60|01:00|FAILED|gres/gpu=2|gres/gpu=2",
}


@pytest.mark.parametrize("name", ROWS)
@given(changes=st.lists(st.dictionaries(st.integers(0, 9), values, max_size=3), max_size=5), strict=st.booleans())
@FAST
def test_rows_with_any_cells_replaced(name: str, changes: list[dict[int, str]], strict: bool, tmp_path: Path) -> None:
    path = tmp_path / "file"
    mark = "|" if name == "sacct" else ","
    header, row = ROWS[name].split("\n")
    lines = [header]
    for number, change in enumerate(changes):
        cells = row.format(f"j{number}").split(mark)
        lines.append(mark.join(change.get(index, cell) for index, cell in enumerate(cells)))
    path.write_text("\n".join([*lines, ""]), encoding="utf-8", newline="")
    check(name, path, strict)


jsons = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | values,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def put(document: object, path: list[int], value: object) -> object:
    """The document with the value somewhere inside, as the path of choices leads."""
    if not path or not isinstance(document, (list, dict)) or not document:
        return value
    key = list(document)[path[0] % len(document)] if isinstance(document, dict) else path[0] % len(document)
    document[key] = put(document[key], path[1:], value)  # type: ignore[index]
    return document


@pytest.mark.parametrize("name", ["philly", "k8s"])
@given(path=st.lists(st.integers(0, 20), max_size=9), value=jsons, strict=st.booleans())
@FAST
def test_any_value_anywhere_in_a_document(
    name: str, path: list[int], value: object, strict: bool, tmp_path: Path
) -> None:
    document = json.loads((SAMPLES / FILES[name]).read_text())
    file = tmp_path / "file"
    file.write_text(json.dumps(put(document, path, value)))
    check(name, file, strict)
