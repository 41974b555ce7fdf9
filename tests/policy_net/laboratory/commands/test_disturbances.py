"""The options of replay that disturb a simulation reach it, and say so where they cannot be used."""

import json

import pytest

from foundation import command_line
from policy_net.cli import app

SMALL = ["--workload", "dl2:jobs=6,sizes=fixed,seed=5,mix=wlm+resnext-110", "--policy", "drf"]


def replay(*words: str) -> int:
    return command_line.run(app, "policy-net", ["replay", *SMALL, *words])


def average_jct(capsys, *words: str) -> float:
    assert replay(*words, "-o", "json") == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["completed"] == 6
    return float(row["avg_jct_seconds"])


@pytest.mark.parametrize(
    "words",
    [
        ("--job-noise", "0.3"),
        ("--decide-on", "event"),
        ("--decide-on", "event", "--debounce-seconds", "900"),
        ("--resize-seconds", "300"),
        ("--resize-cluster", "0.5:1"),
        ("--node-mtbf-hours", "2", "--node-repair-hours", "5", "--resume-seconds", "100", "--start-seconds", "20"),
    ],
)
def test_what_disturbs_a_simulation_changes_its_result(words: tuple[str, ...], capsys) -> None:
    assert average_jct(capsys, *words) != average_jct(capsys)


def test_packing_changes_nothing_where_places_make_no_difference(capsys) -> None:
    assert average_jct(capsys, "--placement", "pack") == average_jct(capsys)


def test_every_disturbance_is_said_with_the_result(capsys) -> None:
    words = ["--durations", "unknown", "--job-noise", "0.27", "--resize-seconds", "30", "--resume-seconds", "40"]
    words += ["--node-mtbf-hours", "500", "--checkpoint-seconds", "600", "--resize-cluster", "3:9"]
    assert replay(*words, "--placement", "pack") == 0
    said = " ".join(capsys.readouterr().err.split())
    for words_said in (
        "work is unknown", "27% from run to run", "pauses 30 s", "starts again pauses 40 s", "fails after 500 h",
        "checkpoint every 600 s", "come and go by plan", "packed on few nodes",
    ):  # fmt: skip
        assert words_said in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--resize-cluster", "10"], "--resize-cluster '10': use HOUR:NODES"),
        (["--resize-cluster", "x:3"], "use HOUR:NODES"),
        (["--resize-cluster", "nan:3"], "use HOUR:NODES"),
        (["--resize-cluster", "1:0"], "use HOUR:NODES"),
        (["--resize-cluster", "1:5", "--resize-cluster", "1:6"], "two sizes are given for hour 1"),
        (["--gpu-types", "v100"], "'v100' is not TYPE:NODES"),
        (["--gpu-types", "v100:1,v100:2"], "'v100' is given twice"),
        (["--gpu-types", "v100:40", "--nodes", "10"], "name 40 nodes of 10"),
        (["--durations", "guessed"], "use known, lognormal:SIGMA"),
        (["--epoch-error", "1"], "from 0 to below 1"),
        (["--resize-seconds", "nan"], "nan is not a finite number"),
        (["--node-mtbf-hours", "inf"], "inf is not in the range 0.0<=x<=100000.0"),
        (["--node-mtbf-hours", "nan"], "nan is not a finite number"),
        (["--node-mtbf-hours", "0.0001"], "fails after 0.36 s on average: use 0 for no failures, or 60 s or more"),
        # Either would go on for as long as anybody waits, and time would lose its digits.
        (["--resize-seconds", "1e300"], "1e+300 is not in the range"),
        (["--node-repair-hours", "1e300", "--node-mtbf-hours", "1"], "1e+300 is not in the range"),
        (["--arrival-scale", "1e300"], "1e+300 is not in the range"),
        (["--resize-cluster", "1e308:3"], "use HOUR:NODES"),
        (["--gpu-types", ""], "'' is not TYPE:NODES"),
    ],
)
def test_an_option_that_cannot_be_used_is_one_line_and_exit_code_two(words: list[str], message: str, capsys) -> None:
    assert replay(*words) == 2
    err = capsys.readouterr().err
    assert message in err
    assert len(err.splitlines()) == 1
