"""Every malformed row is named by file, row, field and value in strict reading, and else skipped and counted."""

import copy
import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from policy_net.errors import BadInput, MalformedRow
from policy_net.laboratory.workloads.sources import read_csv, read_recording

GOOD = {
    "helios": ("job_id,gpu_num,submit_time,duration,state,start_time", "1,2,2020-06-09 18:41:01,60,FAILED,x"),
    "pai": (
        "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type",
        "a,w,1,Failed,10,20,1,1,100,T4",
    ),
    "openb": ("name,num_gpu,gpu_milli,creation_time,deletion_time,scheduled_time,pod_phase", "p,1,1000,0,60,10,Failed"),
    "sacct": (
        "JobID|Submit|Start|End|ElapsedRaw|State|AllocTRES",
        "1|2024-03-04T08:00:00|2024-03-04T08:00:00|2024-03-04T08:01:00|60|FAILED|gres/gpu=2",
    ),
}
TIME = "write a time as YYYY-MM-DD HH:MM:SS or in seconds"
S = "2|2024-03-04T08:00:00|2024-03-04T08:00:00|2024-03-04T08:01:00"
LINES = [
    ("helios", ",2,2020-06-09 18:41:01,60,FAILED,x", "job_id is empty"),
    ("helios", "2,two,2020-06-09 18:41:01,60,FAILED,x", "gpu_num is 'two'; use a finite number"),
    ("helios", "2,-1,2020-06-09 18:41:01,60,FAILED,x", "gpu_num is '-1'; use a whole number ≥ 0"),
    ("helios", "2,1.5,2020-06-09 18:41:01,60,FAILED,x", "gpu_num is '1.5'; use a whole number ≥ 0"),
    ("helios", "2,1e300,2020-06-09 18:41:01,60,FAILED,x", "gpu_num is '1e300'; use at most 1000000 GPUs"),
    ("helios", "2,1,2020-06-31 18:41:01,60,FAILED,x", f"submit_time is '2020-06-31 18:41:01'; {TIME}"),
    ("helios", "2,1,None,60,FAILED,x", "submit_time is 'None'; state the time"),
    ("helios", "2,1,2020-06-09 18:41:01,,FAILED,x", "duration is empty"),
    ("helios", "2,1,2020-06-09 18:41:01,long,FAILED,x", "duration is 'long'; use a finite number"),
    ("helios", "2,1,2020-06-09 18:41:01,-60,FAILED,x", "duration is '-60'; use a number ≥ 0"),
    ("helios", "2,1,2020-06-09 18:41:01,1e12,FAILED,x", "duration is '1e12'; use seconds"),
    ("helios", "2,1,2020-06-09 18:41:01,4e8,FAILED,x", "duration is '4e8'; use seconds, of ten years at most"),
    ("helios", "2,1,2020-06-09 18:41:01,6_0,FAILED,x", "duration is '6_0'; use a finite number"),
    ("helios", "2,\u0663,2020-06-09 18:41:01,60,FAILED,x", "gpu_num is '\u0663'; use a finite number"),
    ("helios", "2,1,1_0,60,FAILED,x", f"submit_time is '1_0'; {TIME}"),
    ("helios", "2,1,2020-06-09 18:41:01,60,FAILED,x,surplus", "'surplus' stands beyond the header's 6 columns"),
    ("helios", '2,1,"2020-06-09 18:41:01,60,FAILED,x', "is no csv row: unexpected end of data; mend its quotes"),
    ("helios", "1,1,2020-06-09 18:41:01,60,FAILED,x", "job_id '1' stands in line 2 too; give every job its own id"),
    ("pai", ",w,1,Failed,10,20,1,1,100,T4", "job_name is empty"),
    ("pai", "b,w,some,Failed,10,20,1,1,100,T4", "inst_num is 'some'"),
    ("pai", "b,w,1.5,Failed,10,20,1,1,100,T4", "inst_num is '1.5'; use a whole number ≥ 0"),
    ("pai", "b,w,1,,10,20,1,1,100,T4", "status is empty"),
    ("pai", "b,w,1,Failed,ten,20,1,1,100,T4", f"start_time is 'ten'; {TIME}"),
    ("pai", "b,w,1,Failed,30,20,1,1,100,T4", "end_time lies 10 s before start_time; mend the times"),
    ("pai", "b,w,1,Failed,10,20,1,1,-50,T4", "plan_gpu is '-50'; use a number ≥ 0"),
    ("pai", "b,w,1,Failed,10,20,1,1,half,T4", "plan_gpu is 'half'"),
    ("pai", "b,w,9,Failed,10,20,1,1,1e9,T4", "plan_gpu is '1e9' for 9 instances; use a percentage of a GPU"),
    ("openb", ",1,1000,0,60,10,Failed", "name is empty"),
    ("openb", "q,one,1000,0,60,10,Failed", "num_gpu is 'one'"),
    ("openb", "q,1,-1,0,60,10,Failed", "gpu_milli is '-1'; use a whole number ≥ 0"),
    ("openb", "q,1,1000,,60,10,Failed", "creation_time is ''; state the time"),
    ("openb", "q,1,1000,0,soon,10,Failed", f"deletion_time is 'soon'; {TIME}"),
    ("openb", "q,1,1000,0,60,70,Failed", "deletion_time lies 10 s before scheduled_time"),
    ("openb", "p,1,1000,0,60,10,Failed", "name 'p' stands in line 2 too"),
    ("sacct", "|2024-03-04T08:00:00|x|x|60|FAILED|gres/gpu=2", "JobID is empty"),
    ("sacct", "2|yesterday|x|x|60|FAILED|gres/gpu=2", f"Submit is 'yesterday'; {TIME}"),
    ("sacct", "2|Unknown|x|x|60|FAILED|gres/gpu=2", "Submit is 'Unknown'; state the time"),
    ("sacct", f"{S}|60|EXPLODED|gres/gpu=2", "State is 'EXPLODED'; use one of Slurm's job states, in full"),
    ("sacct", f"{S}|60||gres/gpu=2", "State is empty"),
    ("sacct", f"{S}|60|FAILED|gres/gpu=two", "AllocTRES has 'gres/gpu=two'; write gres/gpu=N"),
    ("sacct", f"{S}|60|FAILED|cpu=1,gres/gpu:v100=-4", "AllocTRES has 'gres/gpu:v100=-4'"),
    ("sacct", f"{S}|60|FAILED|gres/gpu=99999999", "AllocTRES has 'gres/gpu=99999999'"),
    ("sacct", f"{S}|long|FAILED|gres/gpu=2", "ElapsedRaw is 'long'"),
    ("sacct", f"{S}|-60|FAILED|gres/gpu=2", "ElapsedRaw is '-60'; use a number ≥ 0"),
    ("sacct", "2|2024-03-04|2024-03-04T09:00:00|2024-03-04T08:00:00||FAILED|gres/gpu=2", "End lies 3600 s"),
    ("sacct", "2|2024-03-04|2024-03-04T09:00:00|Unknown||FAILED|gres/gpu=2", "End is 'Unknown'; state the time"),
    ("sacct", "2|0|0|2024-03-04T08:00:00||FAILED|gres/gpu=2", "End lies 1.70954e+09 s after Start; mend the times"),
    ("sacct", f"{S}|60|FAILED|gres/gpu=2|my|job", "'my' stands beyond the header's 7 columns; leave out the"),
    ("sacct", f"{S}|60|FAILED|gres/gpu=2|", "'' stands beyond the header's 7 columns; leave out the"),
    ("sacct", f"1{S[1:]}|60|FAILED|gres/gpu=2", "JobID '1' stands in line 2 too; give every job its own id"),
]  # fmt: skip


def check(source: str, place: str, expected: str, kept: list[str]) -> None:
    """Refused in strict reading with one line that starts with the place; else counted, and the others kept."""
    with pytest.raises(MalformedRow, match=re.escape(expected)) as error:
        read_recording(source, strict=True)
    assert str(error.value).startswith(f"{source.partition(':')[2]}, {place}")
    assert "\n" not in str(error.value)
    recording = read_recording(source, strict=False)
    assert [job.job_id for job in recording.records] == kept
    counted = [note for note in recording.notes if note.startswith("malformed, skipped: ")]
    assert counted == [f"malformed, skipped: 1 × {error.value.reason}, the first: {error.value}"]


SHORT = [
    ("helios", "2,1,2020-06-09 18:41:01,60,FAILED", "has 5 of 6 columns"),
    ("pai", "b,w,1,Failed,10,20,1,1,100", "has 9 of 10 columns"),
    ("openb", "q,1,1000,0,60,10", "has 6 of 7 columns"),
    ("sacct", "garbage", "has 1 of 7 columns; give every row all its columns"),
    ("sacct", f"{S}|60|FAILED", "has 6 of 7 columns"),
]


@pytest.mark.parametrize(("name", "line", "expected"), SHORT)
def test_a_row_with_fewer_columns_than_the_header_is_named_or_counted(
    tmp_path: Path, name: str, line: str, expected: str
) -> None:
    header, good = GOOD[name]
    path = tmp_path / "jobs"
    path.write_text(f"{header}\n{good}\n{line}\n")
    check(f"{name}:{path}", "line 3 ", expected, kept=[re.split(r"[,|]", good)[0]])


def test_a_table_of_a_spreadsheet_may_lack_empty_last_cells_or_have_too_many(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text(
        "job_id,submit_time_s,duration_s,num_gpus,user,model,\na,0,60,1\nb,1,60,2,ann,\nc,2,60,4,bob,vgg-16,,\n"
    )
    records = read_csv(path, strict=True).records
    assert [(job.job_id, job.gpus, job.user) for job in records] == [("a", 1, ""), ("b", 2, "ann"), ("c", 4, "bob")]
    path.write_text("job_id,submit_time_s,duration_s,num_gpus,user\na,0,60\nb,0,60,1,ann,more\n")
    for line, said in ((2, "has 3 of 5 columns"), (3, "'more' stands beyond the header's 5 columns")):
        lines = path.read_text().splitlines(keepends=True)
        (tmp_path / "one.csv").write_text(lines[0] + lines[line - 1])
        with pytest.raises(MalformedRow, match=said):
            read_csv(tmp_path / "one.csv", strict=True)


@pytest.mark.parametrize("name", [*GOOD, "csv"])
@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("packed", [True, False])
def test_a_file_that_is_cut_anywhere_in_its_last_row_is_refused(
    tmp_path: Path, name: str, strict: bool, packed: bool
) -> None:
    header, good = GOOD.get(name, ("job_id,submit_time_s,duration_s,num_gpus", "1,0,7200,16"))
    last = f"x{good}"
    whole = f"{header}\n{good}\n{last}\n".encode()
    path = tmp_path / "jobs"

    def read(content: bytes) -> int:
        path.write_bytes(gzip.compress(content) if packed else content)
        return len((read_csv(path, strict) if name == "csv" else read_recording(f"{name}:{path}", strict)).records)

    assert read(whole) == 2
    assert read(whole.replace(b"\n", b"\r\n")) == 2
    for lost in range(1, len(last) + 1):
        with pytest.raises(BadInput, match="line 3: the file ends in the middle of a line") as error:
            read(whole[:-lost])
        assert not isinstance(error.value, MalformedRow)
    assert read(whole[: -len(last) - 1]) == 1
    if name != "sacct":
        with pytest.raises(BadInput, match="line 3: the file ends in the middle of a line"):
            read(f'{header}\n{good}\n"x'.encode())


def test_who_reads_that_a_file_is_cut_reads_what_to_do(tmp_path: Path) -> None:
    header, good = GOOD["sacct"]
    path = tmp_path / "week.txt"
    path.write_text(f"{header}\n{good}")
    with pytest.raises(BadInput) as error:
        read_recording(f"sacct:{path}", strict=False)
    assert "may be cut short; make it anew, or add a line break at its end if '1|2024-03-04T" in str(error.value)
    path.write_text(f"{path.read_text()}\n")
    assert len(read_recording(f"sacct:{path}", strict=True).records) == 1


@pytest.mark.parametrize(("name", "line", "expected"), LINES)
def test_a_malformed_line_is_named_or_counted(tmp_path: Path, name: str, line: str, expected: str) -> None:
    header, good = GOOD[name]
    path = tmp_path / "jobs"
    path.write_text(f"{header}\n{good}\n{line}\n")
    check(f"{name}:{path}", "line 3: ", expected, kept=[re.split(r"[,|]", good)[0]])


PHILLY: dict[str, Any] = {
    "jobid": "j1", "vc": "v", "status": "Pass", "submitted_time": "2017-10-02 08:00:00",
    "attempts": [
        {"start_time": "2017-10-02 08:00:00", "end_time": "2017-10-02 08:01:00", "detail": [{"ip": "m", "gpus": ["g"]}]}
    ],
}  # fmt: skip
POD: dict[str, Any] = {
    "kind": "Pod",
    "metadata": {"name": "j1", "namespace": "n", "creationTimestamp": "2024-05-06T10:00:00Z"},
    "spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "1"}}}]},
    "status": {
        "phase": "Succeeded",
        "containerStatuses": [
            {"state": {"terminated": {"startedAt": "2024-05-06T10:00:00Z", "finishedAt": "2024-05-06T11:00:00Z"}}}
        ],
    },
}


def changed(good: dict[str, Any], where: str, value: Any) -> dict[str, Any]:
    """A second record like the good one, with one field set, or removed if the value is `...`."""
    record = copy.deepcopy(good)
    keys = where.split("/")
    place: Any = record
    for key in keys[:-1]:
        place = place[int(key) if key.isdigit() else key]
    last = int(keys[-1]) if keys[-1].isdigit() else keys[-1]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    if record.get("jobid") == "j1" and where != "jobid":
        record["jobid"] = "j2"
    if "metadata" in record and where != "metadata" and record["metadata"].get("name") == "j1":
        record["metadata"]["name"] = "j2"
    return record


@pytest.mark.parametrize(
    ("where", "value", "expected"),
    [
        ("jobid", ..., "jobid is missing; it must be a text"),
        ("jobid", 7, "jobid is 7; it must be a text"),
        ("jobid", " ", "jobid is empty"),
        ("vc", 3, "vc is 3; it must be a text"),
        ("submitted_time", "soon", f"submitted_time is 'soon'; {TIME}"),
        ("submitted_time", None, "submitted_time is ''; state the time"),
        ("submitted_time", 5, "submitted_time is 5; it must be a text"),
        ("attempts", ..., "attempts is missing; it must be a list"),
        ("attempts", {}, "attempts is {}; it must be a list"),
        ("attempts/0", "x", "attempts[0] is 'x'; it must be an object"),
        ("attempts/0/start_time", "then", f"attempts[0].start_time is 'then'; {TIME}"),
        ("attempts/0/end_time", "2017-10-02 07:59:50", "attempts[0].end_time lies 10 s before start_time"),
        ("attempts/0/detail", None, "attempts[0].detail is missing; it must be a list"),
        ("attempts/0/detail/0", 1, "attempts[0].detail[0] is 1; it must be an object"),
        ("attempts/0/detail/0/gpus", 4, "attempts[0].detail[0].gpus is 4; it must be a list"),
        ("jobid", "j1", "jobid 'j1' stands in record 1 too; give every job its own id"),
    ],
)
def test_a_malformed_record_of_philly_is_named_or_counted(
    tmp_path: Path, where: str, value: Any, expected: str
) -> None:
    path = tmp_path / "cluster_job_log"
    path.write_text(json.dumps([PHILLY, changed(PHILLY, where, value)]))
    check(f"philly:{path}", "record 2", expected, kept=["j1"])
    if where != "jobid":
        with pytest.raises(MalformedRow, match=r"record 2 \('j2'\): "):
            read_recording(f"philly:{path}", strict=True)


@pytest.mark.parametrize(
    ("where", "value", "expected"),
    [
        ("metadata", ..., "metadata is missing; it must be an object"),
        ("metadata/name", ..., "metadata.name is missing; it must be a text"),
        ("metadata/creationTimestamp", "then", f"metadata.creationTimestamp is 'then'; {TIME}"),
        ("metadata/creationTimestamp", ..., "metadata.creationTimestamp is ''; state the time"),
        ("metadata/labels", [1], "metadata.labels is [1]; it must be an object"),
        ("metadata/labels", {"training.kubeflow.org/job-name": 3}, "training.kubeflow.org/job-name is 3"),
        ("metadata/ownerReferences", [{}], "metadata.ownerReferences[0].name is missing"),
        ("spec", None, "spec is missing"),
        ("spec/containers", ..., "spec.containers is missing; it must be a list"),
        ("spec/containers/0/resources/limits/nvidia.com", 1, None),
        ("spec/containers/0/resources/limits", {"nvidia.com/gpu": "half"}, "limits.nvidia.com/gpu is 'half'"),
        ("spec/containers/0/resources/limits", {"nvidia.com/gpu": 0.5}, "limits.nvidia.com/gpu is 0.5; use a whole"),
        ("spec/containers/0/resources/requests", {"nvidia.com/gpu": -1}, "requests.nvidia.com/gpu is -1"),
        ("spec/containers/0/resources/requests", {"amd.com/gpu": True}, "requests.amd.com/gpu is True"),
        ("spec/initContainers", {}, None),
        ("spec/initContainers", [3], "spec.initContainers[0] is 3; it must be an object"),
        ("status", ..., "status is missing"),
        ("status/phase", "Gone", "status.phase is 'Gone'; use one of Succeeded, Failed, Running, Pending, Unknown"),
        ("status/containerStatuses", "x", "status.containerStatuses is 'x'; it must be a list"),
        (
            "status/containerStatuses/0/state/terminated/startedAt",
            "2024-05-06T12:00:00Z",
            "finishedAt lies 3600 s before startedAt",
        ),
        ("status/containerStatuses/0/state/terminated/finishedAt", 9, "finishedAt is 9; it must be a text"),
    ],
)
def test_a_malformed_pod_is_named_or_counted(tmp_path: Path, where: str, value: Any, expected: str | None) -> None:
    path = tmp_path / "pods.json"
    path.write_text(json.dumps({"items": [POD, changed(POD, where, value)]}))
    if expected is None:  # nothing that a pod list could not hold
        assert len(read_recording(f"k8s:{path}", strict=True).records) == 2
    else:
        check(f"k8s:{path}", "pod 2", expected, kept=["n/j1"])


@pytest.mark.parametrize("name", ["philly", "k8s"])
@pytest.mark.parametrize("value", [1, "x", None, []])
def test_a_record_that_is_no_object_is_named_or_counted(tmp_path: Path, name: str, value: Any) -> None:
    path = tmp_path / "file"
    path.write_text(json.dumps([PHILLY, value] if name == "philly" else {"items": [POD, value]}))
    unit, kept = ("record", "j1") if name == "philly" else ("pod", "n/j1")
    check(f"{name}:{path}", f"{unit} 2: ", f"is {value!r}; every record must be an object", kept=[kept])


def test_a_job_of_which_a_part_is_malformed_is_left_out_as_a_whole(tmp_path: Path) -> None:
    tasks = tmp_path / "tasks.csv"
    tasks.write_text("a,ps,1,Failed,10,20,1,1,100,T4\nb,w,1,Failed,10,20,1,1,100,T4\na,w,1,Failed,30,20,1,1,100,T4\n")
    recording = read_recording(f"pai:{tasks}", strict=False)
    assert [job.job_id for job in recording.records] == ["b"]
    assert "left out: 1 × part of the job is malformed" in recording.notes
    pods = tmp_path / "pods.json"
    label = {"labels": {"training.kubeflow.org/job-name": "big"}}
    items = [copy.deepcopy(POD) for _ in range(3)]
    items[1]["metadata"] |= {"name": "x-0", **label}
    items[2]["metadata"] |= {"name": "x-1", **label}
    items[2]["status"]["phase"] = "?"
    pods.write_text(json.dumps({"items": items}))
    recording = read_recording(f"k8s:{pods}", strict=False)
    assert [job.job_id for job in recording.records] == ["n/j1"]
    assert "left out: 1 × part of the job is malformed" in recording.notes


def test_a_listing_of_sacct_that_cannot_be_read_is_answered_with_the_command(tmp_path: Path) -> None:
    path = tmp_path / "jobs.txt"
    path.write_text(
        "JobID          Submit      State\n------------ ---------- ----------\n1 2024-03-04T08:00:00 FAILED\n"
    )
    with pytest.raises(BadInput, match=r"divided by blanks, .*; print it with sacct -aXD -P --format=JobID,"):
        read_recording(f"sacct:{path}", strict=False)


@pytest.mark.parametrize("name", [*GOOD, "philly", "k8s"])
@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize(
    "content", [b"", b"\n\n", b"\xff\xfe\xfd", b"{", b"[", b"[{", b"hello\nworld\n", b"\0", b"1", b"[" * 10**5]
)
def test_a_file_of_another_kind_is_refused_strict_or_not(
    tmp_path: Path, name: str, strict: bool, content: bytes
) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(BadInput) as error:
        read_recording(f"{name}:{path}", strict)
    assert not isinstance(error.value, MalformedRow)
    assert str(error.value).startswith(str(path))


@pytest.mark.parametrize("name", GOOD)
def test_a_missing_column_is_refused_strict_or_not(tmp_path: Path, name: str) -> None:
    header, good = GOOD[name]
    path = tmp_path / "file"
    renamed = (
        header.replace("job_id", "id").replace("job_name", "id").replace("name,num", "id,num").replace("JobID", "Id")
    )
    path.write_text(f"{renamed}\n{good}\n")
    for strict in (True, False):
        with pytest.raises(BadInput, match=r"column '(job_id|job_name|name|JobID)' is missing from the header"):
            read_recording(f"{name}:{path}", strict)


def test_sacct_without_a_column_for_time_or_gpus_says_what_to_ask_for(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for header, missing in (
        ("JobID|Submit|State|AllocTRES", "ElapsedRaw, Elapsed, End says how long a job ran"),
        ("JobID|Submit|State|Elapsed", "AllocTRES, ReqTRES says how many GPUs a job had"),
    ):
        path.write_text(f"{header}\n1|2024-03-04T08:00:00|FAILED|00:01\n")
        with pytest.raises(BadInput, match=f"none of the columns {missing}; print it with sacct -aXD -P"):
            read_recording(f"sacct:{path}", strict=False)


def test_a_sacct_file_without_gpus_says_why_slurm_may_not_have_recorded_them(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("JobID|Submit|State|AllocTRES|Elapsed\n1|2024-03-04T08:00:00|FAILED|cpu=1|00:01\n")
    with pytest.raises(BadInput, match=r"no usable job: left out: 1 × no GPU asked for; .*AccountingStorageTRES"):
        read_recording(f"sacct:{path}", strict=False)


def test_a_file_of_malformed_rows_alone_is_refused_with_their_number(tmp_path: Path) -> None:
    header, _ = GOOD["helios"]
    path = tmp_path / "file"
    path.write_text("\n".join([header, *(f"{i},x,2020-06-09 18:41:01,60,FAILED,x" for i in range(30)), ""]))
    with pytest.raises(
        BadInput, match="no usable job: malformed, skipped: 30 × gpu_num: use a finite number, the first:"
    ):
        read_recording(f"helios:{path}", strict=False)


def test_a_malformed_job_table_of_pai_is_named_by_its_own_name(tmp_path: Path) -> None:
    tasks, table = tmp_path / "tasks.csv", tmp_path / "jobs.csv"
    tasks.write_text(f"{GOOD['pai'][1]}\n")
    table.write_text("a,i,u,Failed,then,20\n")
    with pytest.raises(MalformedRow, match=f"{table}, line 1: start_time is 'then'"):
        read_recording(f"pai:{tasks}@{table}", strict=True)
    with pytest.raises(BadInput, match=f"{table}: no job has a start_time"):
        read_recording(f"pai:{tasks}@{table}", strict=False)
    with pytest.raises(BadInput, match=r"nothing\.csv: cannot read the file"):
        read_recording(f"pai:{tasks}@{tmp_path / 'nothing.csv'}", strict=False)


def test_long_values_are_shortened_in_messages(tmp_path: Path) -> None:
    header, good = GOOD["helios"]
    path = tmp_path / "file"
    path.write_text(f"{header}\n{good}\n2,{'9x' * 10**5},2020-06-09 18:41:01,60,FAILED,x\n")
    with pytest.raises(MalformedRow) as error:
        read_recording(f"helios:{path}", strict=True)
    assert len(str(error.value)) < 400
