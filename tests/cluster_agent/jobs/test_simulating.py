"""When a job would start and end if it were submitted now, as the simulator foresees it."""

from __future__ import annotations

from typing import Any

import pytest
from deciding import Deciding, submit
from job_shell import Shell

from cluster_agent.jobs.cluster_access import USUAL_POLICY
from policy_net.policy import DEFAULT_POLICY


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
    assert answer["notes"] == []
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


def test_before_the_first_decision_and_for_what_cannot_run_a_line_says_why(shell: Shell) -> None:
    said = shell.type("simulate", "--", "python", "train.py")
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert "no decision was taken here yet" in said.err
    assert "needs at least 20.5 cores" in shell.type("simulate", "--cpu", "20", "--", "python", "train.py").err


def test_where_nobody_names_a_policy_it_is_the_default_one() -> None:
    assert USUAL_POLICY == DEFAULT_POLICY
