import json
import re
from pathlib import Path

import numpy as np
import pytest

from foundation import command_line
from policy_net.cli import app
from policy_net.exchange.policy_file import PolicyFile
from policy_net.exchange.spec import PolicySpec

KEYS = [
    "workload", "policy", "jobs", "completed", "avg_jct_seconds", "p99_jct_seconds", "max_jct_seconds",
    "makespan_seconds", "avg_wait_seconds", "avg_bounded_slowdown", "p99_bounded_slowdown", "starved_jobs",
    "avg_jct_without_tail_seconds",
    "gpu_utilization", "gpu_training_share", "gpu_hours", "inference_p50_us", "slot_decide_p99_ms", "wall_seconds",
    "jobs_beyond_cluster", "jobs_beyond_limit", "recorded", "change_against_record", "elastic_share", "range",
    "answer",
]  # fmt: skip
SMALL = "dl2:jobs=6,sizes=fixed,seed=5,mix=wlm+resnext-110"
CSV = "job_id,submit_time_s,duration_s,num_gpus\na,0,600,1\nb,60,900,2\nc,90,300,1\n"


def _policy_net(*words: str) -> int:
    return command_line.run(app, "policy-net", words)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text(CSV)
    return path


def test_json_is_a_list_of_the_contracts_keys_and_nothing_else_is_on_stdout(capsys) -> None:
    assert _policy_net("replay", "--workload", SMALL, "--policy", "drf", "--policy", "oracle", "-o", "json") == 0
    out, err = capsys.readouterr()
    rows = json.loads(out)
    assert [list(row) for row in rows] == [KEYS, KEYS]
    assert [row["policy"] for row in rows] == ["drf", "oracle"]
    assert all(row["completed"] == row["jobs"] == 6 for row in rows)
    assert err == ""


def test_every_workload_meets_every_policy_in_the_order_given(trace: Path, capsys) -> None:
    words = ["--workload", SMALL, "--workload", str(trace), "--policy", "optimus", "--policy", "drf"]
    assert _policy_net("replay", *words, "-o", "json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["jobs"], row["policy"]) for row in rows] == [(6, "optimus"), (6, "drf"), (3, "optimus"), (3, "drf")]


def test_a_second_replay_of_a_pair_gives_the_same_figures(capsys) -> None:
    workloads = ["--workload", SMALL, "--workload", SMALL]
    assert _policy_net("replay", *workloads, "--policy", "optimus", "--speed-noise", "0.3", "-o", "json") == 0
    first, second = json.loads(capsys.readouterr().out)
    assert first["avg_jct_seconds"] == second["avg_jct_seconds"]


def test_one_job_on_one_node_is_told_as_one(capsys) -> None:
    assert _policy_net("replay", "--workload", "dl2:jobs=1,seed=1", "--nodes", "1", "--policy", "fifo") == 0
    err = capsys.readouterr().err
    assert ": 1 job on 1 node × 2 GPU and 8 CPU, decisions by slot\n" in err
    assert "  generated: 1 job over 1 slot of 1200 s\n" in err
    assert "  1 node suggested: " in err


def test_the_table_shows_assumptions_on_stderr(trace: Path, capsys) -> None:
    assert _policy_net("replay", "--workload", str(trace), "--policy", "drf") == 0
    out, err = capsys.readouterr()
    assert "drf" in out
    assert "3/3" in out
    assert "decisions by event" in err
    assert "assigned from seed 0" in err


def test_options_change_the_world(capsys) -> None:
    def average(*words: str) -> float:
        assert _policy_net("replay", "--workload", SMALL, "--policy", "drf", "-o", "json", *words) == 0
        return float(json.loads(capsys.readouterr().out)[0]["avg_jct_seconds"])

    usual = average()
    assert average("--nodes", "1") > usual
    assert average("--decide-on", "event") < usual
    assert average("--limit-jobs", "1") != usual
    assert average("--capacity", "pooled") > 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--policy", "drf"], "--workload"),
        (["--workload", SMALL, "--policy", "best"], "'best'"),
        (["--workload", "missing.csv", "--policy", "drf"], "missing.csv"),
        (["--workload", "dl2:jobs=many", "--policy", "drf"], "'many'"),
        (["--workload", SMALL, "--policy", "drf", "--nodes", "0"], "--nodes"),
        (["--workload", SMALL, "--policy", "drf", "--decide-on", "whim"], "whim"),
        (["--workload", SMALL, "--policy", "drf", "--speeds", "missing.csv"], "missing.csv"),
        (["--workload", SMALL, "--policy", "drf", "--job-kind", "magic"], "magic"),
        (["--workload", SMALL, "--policy", "drf", "--cpus-per-node", "1"], "never fits"),
        (["--workload", SMALL, "--policy", "drf", "--gpu-types", "tpu:2"], "'tpu' has no known speed"),
        (["--workload", SMALL, "--policy", "drf", "--locality", "--capacity", "pooled"], "--capacity nodes"),
    ],
)
def test_bad_input_is_one_line_that_names_it(words: list[str], said: str, capsys) -> None:
    assert _policy_net("replay", *words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert len([line for line in err.splitlines() if line.startswith("policy-net: ")]) == 1
    assert "Traceback" not in err


def test_a_bad_row_of_a_csv_is_named_by_file_and_line(tmp_path: Path, capsys) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(CSV + "d,95,-5,1\n")
    assert _policy_net("replay", "--workload", str(path), "--policy", "drf", "--strict") == 2
    err = capsys.readouterr().err
    assert "bad.csv, line 5: duration_s is '-5'; use a number ≥ 0" in err


def test_a_bad_row_is_skipped_and_said_on_stderr_unless_strict(tmp_path: Path, capsys) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(CSV + "d,95,-5,1\n")
    for words in ([], ["-o", "json"]):
        assert _policy_net("replay", "--workload", str(path), "--policy", "drf", *words) == 0
        err = capsys.readouterr().err
        assert "malformed, skipped: 1 × duration_s: use a number ≥ 0, the first: " in err
        assert "bad.csv, line 5" in err


def test_fitting_to_measured_points_asks_for_them_and_for_all_models_of_the_workload(tmp_path: Path, capsys) -> None:
    words = ["replay", "--workload", SMALL, "--policy", "optimus-fitted", "-o", "json"]
    assert _policy_net(*words) == 2
    assert "give them with replay's --fit-points FILE" in capsys.readouterr().err
    points = tmp_path / "points.csv"
    cells = [(1, 1), (4, 1), (1, 4), (4, 4), (8, 2)]
    rows = {model: [f"{model},{ps},{w},{50 + ps}" for ps, w in cells] for model in ("wlm", "resnext-110")}
    header = "model,num_ps,num_workers,samples_per_s"
    points.write_text("\n".join([header, *rows["wlm"], ""]))
    assert _policy_net(*words, "--fit-points", str(points)) == 2
    assert "no points for model 'resnext-110'" in capsys.readouterr().err
    points.write_text("\n".join([header, *rows["wlm"], *rows["resnext-110"]]))
    assert _policy_net(*words, "--fit-points", str(points)) == 2
    assert "ends in the middle of a line and may be cut short" in capsys.readouterr().err
    points.write_text("\n".join([header, *rows["wlm"], *rows["resnext-110"], ""]))
    assert _policy_net(*words, "--fit-points", str(points)) == 0
    assert json.loads(capsys.readouterr().out)[0]["completed"] == 6


def test_places_and_gpu_types_matter_where_they_are_asked_for(tmp_path: Path, capsys) -> None:
    path = tmp_path / "wide.csv"
    path.write_text("job_id,submit_time_s,duration_s,num_gpus,model\na,0,600,4,vgg16\n")

    def jct(*words: str) -> float:
        words = ("--workload", str(path), "--job-kind", "allreduce", "--policy", "fifo", "-o", "json", *words)
        assert _policy_net("replay", *words) == 0
        return float(json.loads(capsys.readouterr().out)[0]["avg_jct_seconds"])

    assert jct() == pytest.approx(600)
    assert jct("--gpu-types", "a100:2") == pytest.approx(600)
    assert jct("--gpu-types", "k80:2") > 2000
    assert jct("--locality") == pytest.approx(600 / 0.684, rel=0.01)  # VGG-16 on 2+2 GPUs
    assert jct("--locality", "--gpus-per-node", "4", "--cpus-per-node", "16") == pytest.approx(600)


SAMPLES = Path(__file__).parents[1] / "workloads" / "loaders" / "samples"


@pytest.mark.parametrize(
    ("source", "jobs"),
    [
        ("philly:{}/cluster_job_log", 2),
        ("philly:{}/cluster_job_log@red", 1),
        ("helios:{}/cluster_log.csv", 2),
        ("pai:{0}/pai_task_table.csv@{0}/pai_job_table.csv", 3),
        ("openb:{}/openb_pod_list.csv", 3),
        ("sacct:{}/sacct.txt", 2),
        ("k8s:{}/pods.json", 2),
        ("{}/jobs.csv", 2),
    ],
)
def test_recordings_of_every_format_are_replayed_to_the_end(source: str, jobs: int, capsys) -> None:
    words = ["--workload", source.format(SAMPLES), "--policy", "fifo", "--policy", "drf", "--strict", "-o", "json"]
    assert _policy_net("replay", *words) == 0
    out, err = capsys.readouterr()
    assert [(row["jobs"], row["completed"]) for row in json.loads(out)] == [(jobs, jobs)] * 2
    assert err == ""


@pytest.mark.parametrize("node", [["--gpus-per-node", "8", "--cpus-per-node", "64"], ["--capacity", "pooled"]])
def test_under_requested_sizes_and_room_for_all_every_recorded_job_lasts_as_recorded(node: list[str], capsys) -> None:
    words = ["--workload", f"sacct:{SAMPLES / 'sacct.txt'}", "--policy", "fifo", "--nodes", "100", *node, "-o", "json"]
    assert _policy_net("replay", *words) == 0
    [row] = json.loads(capsys.readouterr().out)
    # two hours, and half an hour; how long each waited in the recording is not copied
    assert row["avg_jct_seconds"] == pytest.approx((7200 + 1800) / 2)


def test_the_table_keeps_its_units_and_a_file_name_with_brackets(tmp_path: Path, capsys) -> None:
    path = tmp_path / "[week 3] x[red].csv"
    path.write_text(CSV)
    assert _policy_net("replay", "--workload", str(path), "--policy", "fifo") == 0
    out = capsys.readouterr().out
    assert path.stem in out
    assert [out.count(unit) for unit in ("[min]", "[µs]", "[ms]", "[s]")] == [5, 0, 0, 0]
    assert _policy_net("replay", "--workload", str(path), "--policy", "fifo", "--timing") == 0
    out = capsys.readouterr().out
    assert [out.count(unit) for unit in ("[min]", "[µs]", "[ms]", "[s]")] == [5, 1, 1, 1]


def test_two_files_of_one_name_have_a_table_each(tmp_path: Path, capsys) -> None:
    words = []
    for folder, count in (("a", 1), ("b", 2)):
        (tmp_path / folder).mkdir()
        path = tmp_path / folder / "week.csv"
        path.write_text("".join(CSV.splitlines(keepends=True)[: count + 1]))
        words += ["--workload", str(path)]
    assert _policy_net("replay", *words, "--policy", "fifo") == 0
    out = capsys.readouterr().out
    assert [out.count(done) for done in ("1/1", "2/2")] == [1, 1]


def test_a_policy_file_with_a_flipped_byte_is_one_line_with_both_digests(tmp_path: Path, capsys) -> None:
    spec = PolicySpec(jobs_per_batch=2, type_columns=2, hidden=(4,))
    data = bytearray(PolicyFile(spec, np.zeros(spec.parameter_count, np.float32)).to_bytes())
    data[-3] ^= 1
    path = tmp_path / "flipped.safetensors"
    path.write_bytes(data)
    assert _policy_net("replay", "--workload", "dl2:jobs=2,seed=1", "--policy", str(path)) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(r"flipped\.safetensors: damaged: .* is [0-9a-f]{64}, expected [0-9a-f]{64}; copy the file", line)


@pytest.mark.parametrize(
    ("mix", "said"),
    [
        ("vgg-16-async", "dl2 was never taught asynchronous jobs; "),
        ("vgg-16", "dl2 is good for up to 80 jobs at once, not for 90; "),
    ],
)
def test_what_dl2_was_never_taught_is_said_once_and_replayed_all_the_same(mix: str, said: str, capsys) -> None:
    source = f"dl2:jobs=90,max-arrivals=90,arrivals=uniform,mix={mix}"
    assert (
        _policy_net("replay", "--workload", source, "--policy", "dl2", "--policy", "drf", "--nodes", "2", "-o", "json")
        == 0
    )
    assert capsys.readouterr().err.count(said) == 1
