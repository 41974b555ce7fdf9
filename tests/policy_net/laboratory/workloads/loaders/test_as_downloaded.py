"""Files as programs and people write them: names of accelerators, archives, separators, columns that disagree."""

import bz2
import io
import json
import lzma
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from policy_net.errors import BadInput
from policy_net.laboratory.workloads.loaders.record import Recording
from policy_net.laboratory.workloads.sources import read_csv, read_recording

SAMPLES = Path(__file__).parent / "samples"


def pod(name: str, resources: dict[str, str], **spec: Any) -> dict[str, Any]:
    ran = {"startedAt": "2026-01-01T01:00:00Z", "finishedAt": "2026-01-01T03:00:00Z"}
    return {
        "metadata": {"name": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"containers": [{"resources": {"limits": {"cpu": "4", **resources}}}], **spec},
        "status": {"phase": "Succeeded", "containerStatuses": [{"state": {"terminated": ran}}]},
    }


def of_share(annotation: str, value: str) -> dict[str, Any]:
    """A pod that asks Run:ai's scheduler for a share of a device."""
    found = pod("x", {})
    found["metadata"]["annotations"] = {annotation: value}
    return found


def of_pods(tmp_path: Path, *pods: dict[str, Any]) -> Recording:
    path = tmp_path / "pods.json"
    path.write_text(json.dumps({"items": [pod("usual", {"nvidia.com/gpu": "1"}), *pods]}))
    return read_recording(f"k8s:{path}", strict=True)


@pytest.mark.parametrize(
    ("resources", "gpus"),
    [
        ({"huawei.com/Ascend910": "8"}, 8),
        ({"habana.ai/gaudi": "4"}, 4),
        ({"google.com/tpu": "4"}, 4),
        ({"gpu.intel.com/xe": "2"}, 2),
        ({"gpu.intel.com/i915": "2", "gpu.intel.com/millicores": "1000"}, 2),
        ({"nvidia.com/gpu.shared": "3"}, 3),
        ({"nvidia.com/gpu": "2", "nvidia.com/gpumem": "49152", "nvidia.com/gpucores": "50"}, 2),
    ],
)
def test_devices_and_parts_of_them_count_by_any_name(tmp_path: Path, resources: dict[str, str], gpus: int) -> None:
    recording = of_pods(tmp_path, pod("other", resources))
    assert {job.job_id: job.gpus for job in recording.records} == {"default/usual": 1, "default/other": gpus}
    assert not any("left out" in note for note in recording.notes)
    assert any("parts of devices" in note for note in recording.notes) == ("nvidia.com/gpu.shared" in resources)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (pod("x", {"aliyun.com/gpu-mem": "16"}), "asked for an accelerator that is not counted (aliyun.com/gpu-mem)"),
        (
            pod("x", {"tencent.com/vcuda-core": "100", "tencent.com/vcuda-memory": "60"}),
            "asked for an accelerator that is not counted (tencent.com/vcuda-core, tencent.com/vcuda-memory)",
        ),
        (
            pod("x", {}, resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "one"}]),
            "asked for an accelerator that is not counted (a resource claim)",
        ),
        (of_share("gpu-fraction", "0.5"), "asked for an accelerator that is not counted (gpu-fraction)"),
        (of_share("gpu-memory", "4000"), "asked for an accelerator that is not counted (gpu-memory)"),
        (
            pod("x", {"nvidia.com/gpu": "49152"}),
            "asked for more than 128 nvidia.com/gpu on a machine: slices or shares, which are not counted",
        ),
        (pod("x", {}), "no GPU asked for"),
    ],
)
def test_what_is_no_number_of_devices_is_named(tmp_path: Path, value: dict[str, Any], reason: str) -> None:
    recording = of_pods(tmp_path, value)
    assert [job.job_id for job in recording.records] == ["default/usual"]
    assert f"left out: 1 × {reason}" in recording.notes


SACCT = "JobID|Submit|Start|End|ElapsedRaw|State|AllocTRES|Cluster"
DONE = "2026-01-01T00:00:00|2026-01-01T01:00:00|2026-01-01T02:00:00|3600|COMPLETED"


def of_sacct(tmp_path: Path, *rows: str) -> Recording:
    path = tmp_path / "jobs.txt"
    path.write_text("\n".join([SACCT, f"1|{DONE}|cpu=4,gres/gpu=2,node=1|a", *rows]) + "\n")
    return read_recording(f"sacct:{path}", strict=True)


@pytest.mark.parametrize(
    ("tres", "reason"),
    [
        ("cpu=4,gres/shard=3,node=1", "asked for an accelerator that is not counted (gres/shard)"),
        ("cpu=4,gres/mps=50,node=1", "asked for an accelerator that is not counted (gres/mps)"),
        ("cpu=4,gres/npu:910b=8,node=1", "asked for an accelerator that is not counted (gres/npu)"),
        ("cpu=4,gres/gpu=49152,node=2", "asked for more than 128 gres/gpu on a machine: slices or shares, which are"),
        ("cpu=4,gres/tmpdisk=5,node=1", "no GPU asked for"),
    ],
)
def test_shares_of_gpus_in_slurm_are_named(tmp_path: Path, tres: str, reason: str) -> None:
    recording = of_sacct(tmp_path, f"2|{DONE}|{tres}|a")
    assert [job.job_id for job in recording.records] == ["1"]
    assert any(note.startswith(f"left out: 1 × {reason}") for note in recording.notes)


def test_ids_are_told_apart_by_their_cluster(tmp_path: Path) -> None:
    recording = of_sacct(tmp_path, f"1|{DONE}|cpu=4,gres/gpu=4,node=1|b")
    assert [(job.job_id, job.gpus) for job in recording.records] == [("1", 2), ("b/1", 4)]
    assert "jobs of 2 clusters, replayed as those of one" in recording.notes
    path = tmp_path / "jobs.csv"
    path.write_text("job_id,submit_time_s,duration_s,num_gpus,cluster\n1,0,60,1,a\n1,5,60,2,b\n")
    assert [(job.job_id, job.gpus) for job in read_csv(path, strict=True).records] == [("1", 1), ("b/1", 2)]


def set_to(number: int) -> dict[str, Any]:
    return {"set": True, "infinite": False, "number": number}


@pytest.mark.parametrize("number", [int, set_to], ids=["as numbers", "as newer versions write them"])
def test_json_of_sacct_is_read_as_its_columns_are(tmp_path: Path, number: Any) -> None:
    def entry(job_id: int, start: int, end: int, state: Any, submit: int = 100, **more: Any) -> dict[str, Any]:
        gpus = [
            {"type": "cpu", "name": "", "id": 1, "count": 8},
            {"type": "gres", "name": "gpu", "id": 1001, "count": 4},
        ]
        return {
            "job_id": job_id,
            "array": {"job_id": 0, "task_id": {"set": False, "infinite": False, "number": 0}},
            "association": {"account": "lab", "cluster": "a", "partition": "gpu", "user": "ann"},
            "state": {"current": state, "reason": "None"},
            "time": {"submission": number(submit), "start": number(start), "end": number(end),
                     "elapsed": number(max(0, end - start)), "suspended": number(0)},
            "tres": {"allocated": gpus, "requested": gpus},
            "nodes": "n[1-2]",
            "steps": [{"step": {"id": "7.batch"}}],
            **more,
        }  # fmt: skip

    path = tmp_path / "jobs.json"
    jobs = [
        entry(7, 200, 500, ["REQUEUED"]),
        entry(7, 700, 1000, ["COMPLETED"], submit=500),
        entry(9, 300, 400, "FAILED", array={"job_id": 9, "task_id": number(3)}),
        entry(10, 0, 0, ["PENDING"]),
    ]
    path.write_text(json.dumps({"meta": {"plugin": {}}, "jobs": jobs}))
    recording = read_recording(f"sacct:{path}", strict=True)
    assert [(job.job_id, job.duration_seconds, job.gpus, job.wait_seconds, job.jct_seconds, job.user, job.partition)
            for job in recording.records] == [
        ("7", 600, 4, 100, 900, "ann", "gpu"),
        ("9_3", 100, 4, 200, 300, "ann", "gpu"),
    ]  # fmt: skip
    assert {share.node for share in recording.records[0].shares} == {"n1", "n2"}
    assert recording.unit == "job"
    with pytest.raises(BadInput, match=r"is JSON, not csv: write k8s:FILE .*sacct:FILE for sacct --json"):
        read_csv(path)


def tar(data: bytes, mode: str) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:
        info = tarfile.TarInfo("table.csv")
        info.size = len(data)
        archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def zipped(data: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("table.csv", data)
    return out.getvalue()


@pytest.mark.parametrize(
    ("pack", "said"),
    [
        (lambda data: tar(data, "w:gz"), r"is a tar archive: unpack it \(tar xzf "),
        (lambda data: tar(data, "w"), r"is a tar archive: unpack it \(tar xf "),
        (zipped, r"is a zip archive, or a spreadsheet \(.xlsx\): unpack it"),
        (lzma.compress, r"is packed by xz: unpack it \(xz -d\)"),
        (bz2.compress, r"is packed by bzip2: unpack it \(bzip2 -d\)"),
        (lambda data: b"\x28\xb5\x2f\xfd" + data, r"is packed by zstd: unpack it \(zstd -d\)"),
    ],
)
@pytest.mark.parametrize("source", ["", "pai:", "helios:", "sacct:", "k8s:", "philly:", "openb:"])
def test_an_archive_is_named_by_its_first_bytes_whatever_it_is_called(
    tmp_path: Path, pack: Any, said: str, source: str
) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(pack((SAMPLES / "jobs.csv").read_bytes()))
    with pytest.raises(BadInput, match=f"table.csv: {said}"):
        read_recording(f"{source}{path}", strict=False) if source else read_csv(path)


@pytest.mark.parametrize("mark", [";", "\t"])
@pytest.mark.parametrize("source", ["", "pai:pai_task_table.csv", "helios:cluster_log.csv", "openb:openb_pod_list.csv"])
def test_columns_may_be_divided_by_semicolons_and_tabs(tmp_path: Path, mark: str, source: str) -> None:
    name, _, file = source.partition(":")
    sample = SAMPLES / (file or "jobs.csv")
    path = tmp_path / sample.name
    path.write_text(sample.read_text().replace(",", mark))
    found, expected = (
        read_recording(f"{name}:{at}", strict=True) if source else read_csv(at, strict=True) for at in (path, sample)
    )
    assert list(found.records) == list(expected.records)


def test_a_duration_that_has_the_time_in_the_queue_in_it_is_told_from_the_end(tmp_path: Path) -> None:
    path = tmp_path / "cluster_log.csv"
    header = "job_id,gpu_num,state,submit_time,start_time,end_time,duration,queue"
    rows = [
        "1,8,COMPLETED,2026-01-01 00:00:00,2026-01-01 02:00:00,2026-01-01 03:00:00,10800,7200",
        "2,8,COMPLETED,2026-01-01 00:00:00,2026-01-01 00:00:00,2026-01-01 03:00:00,10801,900",
    ]
    path.write_text("\n".join([header, *rows]) + "\n")
    recording = read_recording(f"helios:{path}", strict=True)
    assert [(job.duration_seconds, job.jct_seconds) for job in recording.records] == [(3600, 10800), (10800, 10800)]
    note = "duration is not end_time - start_time in 1 of 2 jobs, by 2 h at most: end_time - start_time counts"
    assert note in recording.notes
    assert any(note.startswith("queue is not start_time - submit_time in 1 of 2 jobs") for note in recording.notes)


def test_columns_that_contradict_each_other_are_said_by_every_table(tmp_path: Path) -> None:
    recording = of_sacct(tmp_path, f"2|{DONE.replace('3600', '36000')}|cpu=4,gres/gpu=4,node=1|a")
    note = "ElapsedRaw is not End - Start in 1 of 2 jobs, by 9 h at most: ElapsedRaw, without time suspended, counts"
    assert note in recording.notes
    path = tmp_path / "jobs.csv"
    path.write_text(
        "job_id,submit_time_s,duration_s,num_gpus,start_time_s,end_time_s\n1,0,7200,1,3600,7200\n2,100,60,1,50,110\n"
    )
    notes = read_csv(path, strict=True).notes
    assert "duration_s is not end_time_s - start_time_s in 1 of 2 jobs, by 60 min at most: duration_s counts" in notes
    assert "1 of 2 jobs start before they are submitted: what they waited is unknown" in notes
