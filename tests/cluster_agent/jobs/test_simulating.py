"""When a job would start and end if it were submitted now, as the simulator foresees it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from deciding import Deciding, submit
from job_shell import Shell

from cluster_agent.backends.local.job_table import JobState
from cluster_agent.jobs.cluster_access import USUAL_POLICY
from policy_net.policy import DEFAULT_POLICY

ONE_SIZE = "train was measured with 1 worker and 1 PS only: at other sizes its speed is reckoned"


def foresee(shell: Shell, *words: str) -> dict[str, Any]:
    said = shell.type("simulate", "--model-type", "train", *words, "-o", "json", "--", "python", "train.py")
    answer: dict[str, Any] = said.json
    return answer


@pytest.fixture
def deciding(shell: Shell) -> Deciding:
    """A machine that has seen one job end, and so knows how fast its type trains."""
    submit(shell, "first", "--epochs", "4")
    deciding = Deciding(shell, "fifo")
    while not shell.type("job", "first", "-o", "json").json["ended"]:
        deciding.once()
    return deciding


def test_alone_it_starts_at_once_and_ends_with_its_work(shell: Shell, deciding: Deciding) -> None:
    answer = foresee(shell, "--epochs", "5")
    assert answer["start"]["high"] == 0.0
    assert answer["jobsPresent"] == 0
    assert answer["notes"] == [ONE_SIZE]
    end = answer["end"]
    assert 0.0 < end["low"] < end["median"] < end["high"]
    longer = foresee(shell, "--epochs", "10")["end"]["median"]
    assert longer == pytest.approx(2 * end["median"], rel=0.1)
    assert shell.type("jobs", "--active", "-o", "json").json == [], "nothing was submitted"


def test_behind_a_job_that_takes_all_it_waits_for_its_end(shell: Shell, deciding: Deciding) -> None:
    submit(shell, "big", "--epochs", "50", "--workers", "5")
    deciding.once()
    answer = foresee(shell, "--epochs", "5", "--workers", "2")
    assert answer["jobsPresent"] == 1
    assert answer["start"]["low"] > 0.0
    assert answer["end"]["low"] > answer["start"]["low"]
    shown = shell.type("simulate", "--epochs", "5", "--", "python", "train.py").out
    assert "under fifo, beside 1 job" in shown


def test_what_is_guessed_is_said(shell: Shell, deciding: Deciding) -> None:
    said = shell.type("simulate", "--model-type", "other", "-o", "json", "--", "python", "train.py").json
    assert "nothing was measured of other here yet" in said["notes"][0]
    assert "does not say its work" in said["notes"][1]
    start, end = said["start"], said["end"]
    assert (start["guess"], end["guess"]) == (False, True)
    assert end["low"] < end["median"] / 100
    assert end["high"] > end["median"] * 100


def test_of_a_guess_no_bounds_are_said_and_that_it_is_one_comes_first(shell: Shell, deciding: Deciding) -> None:
    lines = shell.type(
        "simulate", "--model-type", "other", "--epochs", "5", "--", "python", "train.py"
    ).out.splitlines()
    assert lines[0] == "nothing was measured of other here yet: its speed is a guess"
    assert lines[1].startswith("starts in 0 s (")
    assert lines[2].startswith("ends in ")
    assert lines[2].endswith(": a guess, without bounds")
    known = shell.type(
        "simulate", "--model-type", "train", "--epochs", "5", "--", "python", "train.py"
    ).out.splitlines()
    assert known[1].endswith(")")
    assert "a guess" not in " ".join(known)


def test_behind_a_job_of_which_nothing_was_measured_the_start_is_a_guess_too(shell: Shell, deciding: Deciding) -> None:
    submit(shell, "big", "--epochs", "50", "--workers", "5", "--model-type", "other")
    deciding.once()
    answer = foresee(shell, "--epochs", "5", "--workers", "2")
    assert answer["start"]["guess"]
    assert answer["end"]["guess"]
    assert answer["start"]["low"] <= answer["end"]["low"] < answer["end"]["median"] < answer["end"]["high"]
    assert answer["notes"] == [
        "nothing was measured of other, of which jobs are here: when they end is a guess",
        ONE_SIZE,
    ]
    shown = shell.type(
        "simulate", "--model-type", "train", "--epochs", "5", "--workers", "2", "--", "python", "train.py"
    )
    assert "8 of 10" not in shown.out


def test_what_ended_after_the_last_decision_is_counted_and_said(shell: Shell, deciding: Deciding) -> None:
    measured = foresee(shell, "--epochs", "5")["end"]["median"]
    memory = shell.folder / "agent.json"
    saved = json.loads(memory.read_text(encoding="utf-8"))
    memory.write_text(json.dumps(saved | {"beliefs": {}}), encoding="utf-8")
    answer = foresee(shell, "--epochs", "5")
    assert answer["notes"] == [
        "no decision has counted what train did here: its speed is what 1 ended job did in all",
        ONE_SIZE,
    ]
    assert not answer["end"]["guess"]
    assert answer["end"]["median"] == pytest.approx(measured, rel=0.5)


def test_of_a_type_that_only_others_measured_their_speed_is_taken_and_said(shell: Shell) -> None:
    submit(shell, "first", "--epochs", "4")
    deciding = Deciding(shell, "set")
    deciding.once()
    words = ("--model-type", "resnet-50", "--epochs", "5", "-o", "json", "--", "python", "train.py")
    answer = shell.type("simulate", *words).json
    assert answer["notes"] == [
        "nothing was measured of train, of which jobs are here: when they end is a guess",
        "nothing was measured of resnet-50 here yet: its speed is what other clusters told",
        "no job of resnet-50 has trained here yet: how much an epoch of it is, is a guess",
    ]
    assert (answer["start"]["guess"], answer["end"]["guess"]) == (False, True), "it waits for nobody"


def script(shell: Shell, name: str, model_type: str = "plain") -> None:
    shell.file("plain.py", "print()\n")
    words = ("submit", "--name", name, "--model-type", model_type, "--cpu", "3", "--", "python", "plain.py")
    assert shell.type(*words).code == 0


def test_scripts_of_a_fixed_size_that_fill_the_machine_are_waited_for(shell: Shell, deciding: Deciding) -> None:
    script(shell, "one")
    script(shell, "two", "other")
    deciding.once()
    assert {shell.world.jobs[name].held.workers for name in ("one", "two")} == {1}
    submit(shell, "behind", "--epochs", "50")  # nothing is left to decide about, so no decision has seen it
    answer = foresee(shell, "--epochs", "5", "--workers", "2")
    assert answer["jobsPresent"] == 3
    assert answer["start"]["median"] > 0.0
    assert answer["start"]["guess"]
    assert (
        answer["notes"][0] == "nothing was measured of other, plain, of which jobs are here: when they end is a guess"
    )


def test_scripts_of_a_fixed_size_are_foreseen_by_how_long_others_of_their_type_took(
    shell: Shell, deciding: Deciding
) -> None:
    for name, seconds in (("one", 40.0), ("two", 60.0), ("three", 50.0)):
        script(shell, name)
        table = shell.world.backend.table
        table.change(name, state=JobState.DONE, trained_seconds=seconds, ended_unix_seconds=shell.world.now)
    script(shell, "four")
    script(shell, "five")
    submit(shell, "measured")
    deciding.once()
    said = shell.type("simulate", "--model-type", "plain", "--cpu", "3", "-o", "json", "--", "python", "plain.py")
    answer = said.json
    assert answer["notes"] == ["nobody counts what plain does: it is to take as long as 3 ended jobs did"]
    assert not answer["start"]["guess"]
    assert not answer["end"]["guess"]
    assert answer["start"]["low"] > 0.0
    took = answer["end"]["median"] - answer["start"]["median"]
    assert 25.0 < took < 120.0
    shell.world.backend.table.change("four", cancelling=True)
    assert (
        shell.type("simulate", "--model-type", "plain", "-o", "json", "--", "python", "plain.py").json["start"][
            "median"
        ]
        < answer["start"]["median"]
    )


def test_before_the_first_decision_and_for_what_cannot_run_a_line_says_why(shell: Shell) -> None:
    said = shell.type("simulate", "--", "python", "train.py")
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert "no decision was taken here yet" in said.err
    assert "needs at least 20.5 cores" in shell.type("simulate", "--cpu", "20", "--", "python", "train.py").err


def test_where_nobody_names_a_policy_it_is_the_default_one() -> None:
    assert USUAL_POLICY == DEFAULT_POLICY
