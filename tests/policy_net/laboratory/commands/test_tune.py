import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
import yaml

from foundation import command_line
from foundation.errors import INTERRUPTED
from foundation.locks import FileLock
from policy_net.cli import app
from policy_net.exchange.policy_file import read_policy_file
from policy_net.laboratory.tuning import engine, trial
from policy_net.laboratory.tuning.study_file import TrialReport
from policy_net.laboratory.tuning.trial import TrialTask

FEW = ("--policy", "set", "--workload", "dl2:jobs=3,seed=1", "--nodes", "2", "--worlds", "2", "--steps", "3")


def tune(*words: str) -> int:
    return command_line.run(app, "policy-net", ["tune", *FEW, *words])


def scored(task: TrialTask) -> TrialReport:
    """Better by a bowl, in no time."""
    loss = 10.0 + abs(float(task.values["trust_radius"]) - 2.0)
    return TrialReport((loss,) * task.budget.rungs, tuple(loss + 0.001 * world for world in range(task.budget.worlds)))


class Inline:
    """An engine in this process."""

    def __init__(self, processes: int) -> None:
        self.processes = processes

    def reports(self, tasks):
        return ((index, scored(task)) for index, task in enumerate(tasks))

    def close(self) -> None:
        """Nothing runs."""


@pytest.fixture
def _inline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "LocalEngine", Inline)


@pytest.mark.usefixtures("_inline")
def test_what_was_assumed_of_a_recording_and_which_rows_were_skipped_is_said_once_as_replay_says_it(
    tmp_path: Path, capsys
) -> None:
    log = tmp_path / "big.csv"
    rows = "".join(f"{job},{60 * job},600,{1 + job % 4}\n" for job in range(12))
    log.write_text("job_id,submit_time_s,duration_s,num_gpus\n" + rows + "late,400,long,1\nodd,soon,600,1\n")
    replay = ["replay", "--workload", str(log), "--policy", "fifo", "--limit-jobs", "4"]
    assert command_line.run(app, "policy-net", replay) == 0
    replays = [line for line in capsys.readouterr().err.splitlines() if line.startswith("  ") and "done:" not in line]
    words = [
        *("tune", "--policy", "set", "--workload", str(log), "--limit-jobs", "4", "--worlds", "2", "--steps", "3"),
        *("--trials", "1", "--out", str(tmp_path / "study")),
    ]
    assert command_line.run(app, "policy-net", words) == 0
    said = capsys.readouterr().err.splitlines()
    assert [line for line in said if line in replays] == replays, "each once"
    assert any("big.csv, line 14: duration_s is 'long'; use a finite number" in line for line in said)
    assert any("big.csv, line 15: submit_time_s is 'soon'; use a finite number" in line for line in said)
    assert "  windows of --limit-jobs: 1 trains, as told here, 2 chooses, 3 judges" in said
    assert command_line.run(app, "policy-net", [*words, "-o", "json"]) == 0
    said = capsys.readouterr().err.splitlines()
    assert (sum("malformed" in line for line in said), sum("machines assumed" in line for line in said)) == (2, 0)


@pytest.mark.usefixtures("_inline")
def test_the_best_settings_are_a_file_that_training_takes(tmp_path: Path, capsys) -> None:
    study, trained = tmp_path / "new" / "study", tmp_path / "mine.safetensors"
    assert tune("--trials", "6", "--out", str(study), "-o", "json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["trials"], facts["done"], len(facts["rows"])) == (6, 6, 6)
    assert facts["best"] > 0
    best = facts["rows"][facts["best"]]
    assert best["change"] == min(row["change"] for row in facts["rows"][1:])
    assert best["low"] <= best["change"] <= best["high"]
    assert facts["confirmed"]["high"] < 0.0
    settings = yaml.safe_load((study / "best.yaml").read_text())
    twin = settings["set"]["twin"]
    assert (settings["policy"], settings["set"]["method"]) == ("set", "twin")
    assert twin["trust_radius"] == best["values"]["trust_radius"]
    assert twin["window_jobs"] == best["values"]["window_jobs"]
    words = ["train", *FEW[2:6], "--config", str(study / "best.yaml"), "--out", str(trained)]
    assert command_line.run(app, "policy-net", words) == 0
    assert read_policy_file(trained).spec.policy == "set"


@pytest.mark.heavy
@pytest.mark.usefixtures("_inline")
def test_the_same_is_said_as_a_table_and_as_yaml_and_a_study_that_is_done_says_it_again(tmp_path: Path, capsys) -> None:
    words = ("--trials", "5", "--out", str(tmp_path))
    assert tune(*words, "-o", "yaml") == 0
    first = yaml.safe_load(capsys.readouterr().out)
    assert tune(*words, "-o", "json") == 0
    assert json.loads(capsys.readouterr().out) == first
    assert tune(*words) == 0
    said = capsys.readouterr().out
    assert "5 trials of set: 5 done" in said
    assert "better than the default settings" in said
    assert "0 (default)" in said


@pytest.mark.usefixtures("_inline")
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--trials", "0"), "0 is not in the range"),
        (("--vary", "trust_radiu"), "did you mean trust_radius?"),
        (("--space", "nowhere.yaml"), "nowhere.yaml"),
        (("--space", "nowhere.yaml", "--vary", "pairs"), "--vary pairs: --space names what varies"),
        (("--policy", "drf"), "--policy drf: use dl2 or set"),
        (("--workload", "nowhere.csv"), "nowhere.csv"),
        (("--workload", "dl2:jobs=3,seed=9700000"), "are there to judge"),
        (("--window", "1", "--limit-jobs", "2"), "--window 1"),
        (("--imitate", "drf"), "only trials of dl2"),
        (("--policy", "dl2", "--imitate", "nobody"), "--imitate nobody: unknown policy"),
        (("--rungs", "4"), "--rungs 4: a trial has 3 steps"),
        (("--max-seconds", "nan"), "nan is not a finite number"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_begun(tmp_path: Path, capsys, words, says) -> None:
    assert tune("--out", str(tmp_path / "study"), *words) == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1
    assert says in error
    assert not (tmp_path / "study").exists()


@pytest.mark.usefixtures("_inline")
def test_another_study_in_the_folder_is_refused_and_stays(tmp_path: Path, capsys) -> None:
    assert tune("--trials", "1", "--out", str(tmp_path)) == 0
    before = (tmp_path / "study.sqlite").read_bytes()
    capsys.readouterr()
    for words, says in (
        (("--seed", "9"), "a study with seed 0, and this one has 9"),
        (("--vary", "pairs"), "and this one is of pairs"),
        (("--speed-noise", "0.3"), "a study with options"),
    ):
        assert tune("--trials", "1", "--out", str(tmp_path), *words) == 2
        error = capsys.readouterr().err
        assert len(error.splitlines()) == 1
        assert says in error
    assert (tmp_path / "study.sqlite").read_bytes() == before


@pytest.mark.usefixtures("_inline")
def test_the_space_that_a_study_keeps_can_be_narrowed_for_another(tmp_path: Path, capsys) -> None:
    assert tune("--trials", "1", "--out", str(tmp_path / "wide")) == 0
    content = yaml.safe_load((tmp_path / "wide" / "space.yaml").read_text())
    narrow, parameters = tmp_path / "narrow.yaml", content["parameters"]
    content["parameters"] = {"pairs": {**parameters["pairs"], "high": 6}, "trust_radius": parameters["trust_radius"]}
    narrow.write_text(yaml.safe_dump(content))
    capsys.readouterr()
    words = ("--space", str(narrow), "--trials", "9", "--no-confirm", "-o", "json", "--out")
    assert tune(*words, str(tmp_path / "study")) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert all(set(row["values"]) == {"pairs", "trust_radius"} and row["values"]["pairs"] <= 6 for row in rows)
    assert tune("--trials", "9", "--out", str(tmp_path / "study")) == 2
    assert "is a study of pairs, trust_radius, and this one is of start" in capsys.readouterr().err


@pytest.mark.usefixtures("_inline")
def test_two_runs_do_not_share_a_folder(tmp_path: Path, capsys) -> None:
    with FileLock(tmp_path / "lock"):
        assert tune("--trials", "1", "--out", str(tmp_path)) == 2
    assert f"process {os.getpid()}" in capsys.readouterr().err


@pytest.mark.usefixtures("_inline")
def test_a_run_whose_time_is_over_says_what_there_is(tmp_path: Path, capsys) -> None:
    assert tune("--trials", "9", "--max-seconds", "0", "--out", str(tmp_path), "-o", "json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["trials"], facts["best"], facts["settings_file"]) == (0, None, None)
    assert tune("--trials", "9", "--max-seconds", "0", "--out", str(tmp_path)) == 0
    assert "No trial went to its end." in capsys.readouterr().out


def test_who_interrupts_a_study_is_told_that_the_same_command_goes_on_and_it_says_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Interrupted(Inline):
        def reports(self, tasks):
            yield 0, scored(tasks[0])
            raise KeyboardInterrupt

    words = ("--trials", "5", "--out", str(tmp_path))
    with monkeypatch.context() as patched:
        patched.setattr(engine, "LocalEngine", Interrupted)
        assert tune(*words) == INTERRUPTED
    said = " ".join(capsys.readouterr().err.split())
    assert f"kept: {tmp_path}, with every trial that has ended; the same command goes on" in said
    assert "goes on at" not in said, "it began"
    monkeypatch.setattr(engine, "LocalEngine", Inline)
    assert tune(*words) == 0
    assert "goes on at trial 2 of 5" in " ".join(capsys.readouterr().err.split())
    assert tune(*words) == 0
    assert "its 5 trials have ended" in " ".join(capsys.readouterr().err.split())


@pytest.mark.usefixtures("_inline")
def test_recorded_jobs_train_in_their_first_window_and_choose_in_another(tmp_path: Path, capsys) -> None:
    rows = "".join(f"j{number},{60 * number},600,1\n" for number in range(9))
    (tmp_path / "jobs.csv").write_text("job_id,submit_time_s,duration_s,num_gpus\n" + rows)
    words = ["tune", "--policy", "set", "--workload", str(tmp_path / "jobs.csv"), "--nodes", "2", "--trials", "1"]
    out = ["--out", str(tmp_path / "study")]
    assert command_line.run(app, "policy-net", [*words, "--limit-jobs", "4", *out]) == 2
    assert "use 3" in capsys.readouterr().err
    assert command_line.run(app, "policy-net", [*words, "--limit-jobs", "3", *out]) == 0


def _trials(path: Path) -> list[tuple[int, str]]:
    """Numbers and states of a study's trials, as the file has them now."""
    if not path.exists():
        return []
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=60.0)) as database:
        return [
            (number, state) for number, state in database.execute("select number, state from trials order by number")
        ]


@pytest.mark.heavy
def test_a_program_that_is_killed_goes_on_with_the_same_trials(tmp_path: Path) -> None:
    # Trials of a second: most pairs, so that there are few updates.
    space = tmp_path / "space.yaml"
    space.write_text("policy: set\nparameters: {pairs: {low: 2, high: 32}, window_jobs: {low: 100, high: 1000}}\n")
    words = [
        sys.executable,
        "-m",
        "policy_net.cli",
        "tune",
        *FEW,
        "--trials",
        "4",
        "--batch",
        "2",
        "--space",
        str(space),
        "--no-confirm",
        "-o",
        "json",
    ]
    wholes, under_way = {}, 0
    for name, kills in (("undisturbed", ()), ("killed", (0, 2))):
        out, study = tmp_path / name, tmp_path / name / "study.sqlite"
        for ended in kills:
            with subprocess.Popen([*words, "--out", str(out)], stdout=subprocess.DEVNULL) as program:
                give_up = time.monotonic() + 240.0
                while not (found := _trials(study)) or sum(state != "RUNNING" for _, state in found) < ended:
                    assert program.poll() is None, "it ended before it could be killed"
                    assert time.monotonic() < give_up
                    time.sleep(0.01)
                program.send_signal(signal.SIGKILL)
            assert program.returncode == -signal.SIGKILL
            under_way += sum(state == "RUNNING" for _, state in _trials(study))
        done = subprocess.run([*words, "--out", str(out)], capture_output=True, text=True, timeout=240, check=True)
        wholes[name] = json.loads(done.stdout)
    assert under_way > 0
    assert wholes["killed"].pop("settings_file") != wholes["undisturbed"].pop("settings_file")
    assert wholes["killed"] == wholes["undisturbed"]
    assert [row["number"] for row in wholes["killed"]["rows"]] == list(range(4))


def test_the_limits_that_the_help_names_are_those_of_the_program() -> None:
    assert trial.JOBS_A_STEP == 32 * 500
