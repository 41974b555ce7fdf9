from pathlib import Path

import pytest

from policy_net.errors import BadInput
from policy_net.laboratory.workloads.sources import read_reference

HEADER = "trace,job_id,arrival_slot,model,epochs"


def write(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "traces.csv"
    path.write_text("\n".join([HEADER, *lines]))
    return path


def test_a_trace_is_read_in_arrival_order_with_slots_as_seconds(tmp_path: Path) -> None:
    path = write(tmp_path, "b,0,0,wlm,1", "a,7,2,dssm,9900.5", "a,9,1,cnn-text-classification,3", "a,8,1,vgg-16,4")
    workload = read_reference(path, "a")
    assert workload.slotted
    jobs = [(job.job_id, job.submit_time_seconds, job.job_type, job.total_epochs) for job in workload.jobs]
    assert jobs == [
        ("9", 1200, "cnn-text-classification", 3),
        ("8", 1200, "vgg-16", 4),
        ("7", 2400, "dssm", 9900.5),
    ]
    assert [job.worker_demand.gpu for job in workload.jobs] == [0, 1, 0]
    assert [job.samples_per_epoch for job in workload.jobs] == [193, 115, 349]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("a,1,0,bert,4", "line 3: model is 'bert'; use one of resnet-50"),
        ("a,1,-1,wlm,4", "line 3: arrival_slot is '-1'"),
        ("a,1,0.5,wlm,4", "line 3: arrival_slot is '0.5'"),
        ("a,1,0,wlm,0", "line 3: epochs is '0'"),
        ("a,1,0,wlm,inf", "line 3: epochs is 'inf'"),
        ("a,0,0,wlm,4", "line 3: job_id '0' occurs twice in trace 'a'"),
        ("a,1,0,wlm", "line 3 has 4 of 5 columns"),
    ],
)
def test_a_row_that_cannot_be_used_is_named(tmp_path: Path, line: str, expected: str) -> None:
    with pytest.raises(BadInput, match=expected):
        read_reference(write(tmp_path, "a,0,0,wlm,4", line), "a")


def test_an_unknown_trace_is_answered_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no trace 'c'; it has a, b"):
        read_reference(write(tmp_path, "a,0,0,wlm,4", "b,0,0,wlm,4"), "c")


def test_every_reference_trace_is_readable(data_folder: Path) -> None:
    for trace, jobs in (("fixed60-0", 60), ("fixed200-1", 200), ("varied60-4", 60)):
        assert len(read_reference(data_folder / "reference" / "traces.csv", trace).jobs) == jobs
