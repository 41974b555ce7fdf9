import re
from pathlib import Path

import pytest

from policy_net.errors import BadInput
from policy_net.laboratory.workloads.generator import GeneratorSettings, generate
from policy_net.laboratory.workloads.sources import load_workload, parse_generator
from policy_net.laboratory.workloads.workload import WorkloadOptions


def test_a_generator_source_is_parsed_in_full() -> None:
    source = "dl2:jobs=5,arrivals=poisson,sizes=fixed,seed=7,max-arrivals=2,mix=vgg-16*2+cnn-text"
    assert parse_generator(source) == GeneratorSettings(
        jobs=5,
        arrivals="poisson",
        sizes="fixed",
        seed=7,
        max_arrivals=2,
        mix={"vgg-16": 2.0, "cnn-text-classification": 1.0},
    )


def test_what_a_generator_source_leaves_out_has_its_default() -> None:
    assert parse_generator("dl2:", default_seed=4) == GeneratorSettings(seed=4)
    assert load_workload("dl2:jobs=9", WorkloadOptions(seed=4)) == generate(GeneratorSettings(jobs=9, seed=4))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("color=red", "color: no such option.*jobs, arrivals, max-arrivals, sizes, seed, mix"),
        ("jobs", "jobs: no such option; write NAME=VALUE"),
        ("jobs=", "jobs is ''; use a whole number from 1"),
        ("jobs=0", "jobs is '0'"),
        ("jobs=-3", "jobs is '-3'"),
        ("jobs=1e3", "jobs is '1e3'"),
        ("jobs=99999999999", "use a whole number from 1 to 1000000"),
        ("seed=" + "9" * 5000, "seed is '9+'; use a whole number from 0"),
        ("jobs=1,jobs=2", "jobs is given twice"),
        ("arrivals=bursty", "arrivals is 'bursty'; use one of google, uniform, poisson"),
        ("sizes=small", "sizes is 'small'; use one of fixed, varied"),
        ("mix=llama", "mix: no model 'llama'.*resnet-50, vgg-16.*bert-128-allreduce"),
        ("mix=", "mix: no model ''"),
        ("mix=wlm+wlm*2", "mix: model wlm is given twice"),
        ("mix=wlm*0", "the weight of wlm is '0'"),
        ("mix=wlm*nan", "the weight of wlm is 'nan'"),
        ("mix=wlm*", "the weight of wlm is ''"),
        ("mix=wlm*1e300", "the weight of wlm is '1e300'"),
    ],
)
def test_a_generator_option_that_cannot_be_used_is_answered_with_those_allowed(text: str, expected: str) -> None:
    with pytest.raises(BadInput, match=expected):
        load_workload(f"dl2:{text}")


@pytest.mark.parametrize("source", ["reference:", "reference:a", "reference:@f", "reference:a@"])
def test_a_reference_source_without_trace_or_file_is_refused(source: str) -> None:
    with pytest.raises(BadInput, match="write reference:TRACE@FILE"):
        load_workload(source)


def test_a_source_of_no_kind_is_answered_with_the_kinds(tmp_path: Path) -> None:
    with pytest.raises(
        BadInput, match=r"'nothing\.csv': no such file; give a csv file, philly:FILE, .*, reference:.* or dl2:"
    ):
        load_workload("nothing.csv")
    with pytest.raises(BadInput, match="no such file"):
        load_workload("x" * 5000)
    with pytest.raises(BadInput, match="is a folder; give a csv file"):
        load_workload(str(tmp_path))
    with pytest.raises(BadInput, match="is a folder; write sacct:FILE"):
        load_workload(f"sacct:{tmp_path}")
    with pytest.raises(BadInput, match="no such file; write sacct:FILE"):
        load_workload("sacct:")


def test_a_file_that_is_not_there_is_answered_with_the_one_that_was_probably_meant(tmp_path: Path) -> None:
    trace = tmp_path / "itp-01.csv"
    trace.write_text("job_id,submit_time_s,duration_s,num_gpus\na,3,10,1\n")
    with pytest.raises(BadInput, match=rf"no such file; did you mean {re.escape(str(trace))}\? give a csv file, "):
        load_workload(str(tmp_path / "itp-1.csv"))
    with pytest.raises(BadInput, match=rf"no such file; did you mean sacct:{re.escape(str(trace))}\?$"):
        load_workload(f"sacct:{tmp_path / 'itp-1.csv'}")
    with pytest.raises(BadInput, match=rf"no such file; did you mean philly:{re.escape(str(trace))}@vc\?$"):
        load_workload(f"philly:{tmp_path / 'itp-1.csv'}@vc")


@pytest.mark.parametrize("word", ["sacct", "helios", "philly"])
def test_before_our_own_csv_no_word_is_wanted(word: str, tmp_path: Path) -> None:
    trace = tmp_path / "mine.csv"
    trace.write_text("job_id,submit_time_s,duration_s,num_gpus\na,3,10,1\n")
    with pytest.raises(BadInput, match=f"leave out {word}: before it"):
        load_workload(f"{word}:{trace}")


def test_a_csv_source_and_a_reference_source_are_read(tmp_path: Path) -> None:
    trace = tmp_path / "mine.csv"
    trace.write_text("job_id,submit_time_s,duration_s,num_gpus\na,3,10,1\n")
    assert load_workload(str(trace)).name == "mine"
    reference = tmp_path / "traces.csv"
    reference.write_text("trace,job_id,arrival_slot,model,epochs\nt,0,2,wlm,5\n")
    assert load_workload(f"reference:t@{reference}").jobs[0].submit_time_seconds == 2400


def test_a_window_of_generated_jobs_starts_from_zero() -> None:
    whole = load_workload("dl2:jobs=30,seed=1").jobs
    part = load_workload("dl2:jobs=30,seed=1", WorkloadOptions(limit_jobs=10, window=1)).jobs
    assert [job.job_id for job in part] == [job.job_id for job in whole[10:20]]
    start = whole[10].submit_time_seconds
    assert [job.submit_time_seconds + start for job in part] == [job.submit_time_seconds for job in whole[10:20]]
    assert len(load_workload("dl2:jobs=30", WorkloadOptions(limit_jobs=99)).jobs) == 30


def test_arrival_scale_stretches_time_and_keeps_work_and_cluster(tmp_path: Path) -> None:
    trace = tmp_path / "mine.csv"
    trace.write_text("job_id,submit_time_s,duration_s,num_gpus\na,100,50,8\nb,110,50,8\nc,120,1,1\n")
    plain, scaled = load_workload(str(trace)), load_workload(str(trace), WorkloadOptions(arrival_scale=2.0))
    assert [job.submit_time_seconds for job in scaled.jobs] == [0, 20, 40]
    assert [job.total_epochs for job in scaled.jobs] == [job.total_epochs for job in plain.jobs]
    assert scaled.suggested_nodes == plain.suggested_nodes
    assert any("× 2" in note for note in scaled.notes)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"limit_jobs": 0}, "limit-jobs is 0"),
        ({"window": 1}, "add limit-jobs"),
        ({"window": -1}, "window is -1"),
        ({"seed": -1}, "seed is -1"),
        ({"job_kind": "magic"}, "job-kind is 'magic'; use ps, async, allreduce, mix"),
        ({"arrival_scale": 0.0}, "arrival-scale is 0"),
        ({"arrival_scale": float("nan")}, "arrival-scale is nan"),
    ],
)
def test_an_option_that_cannot_be_used_is_refused(changes: dict[str, object], expected: str) -> None:
    with pytest.raises(BadInput, match=expected):
        WorkloadOptions(**changes)


@pytest.mark.parametrize(
    ("source", "meant"),
    [
        ("sact:week.txt", "sacct:"),
        ("dl3:jobs=3", "dl2:"),
        ("philli:log", "philly:"),
        ("slurm:week.txt", "sacct:"),
        ("kubernetes:pods.json", "k8s:"),
    ],
)
def test_the_word_that_was_meant_is_named(source: str, meant: str) -> None:
    with pytest.raises(BadInput, match=f"did you mean {meant} before it"):
        load_workload(source)


def test_json_without_its_format_is_no_csv(tmp_path: Path) -> None:
    path = tmp_path / "pods.json"
    path.write_text('{\n "items": []}')
    with pytest.raises(BadInput, match="is JSON, not csv: write k8s:FILE"):
        load_workload(str(path))
