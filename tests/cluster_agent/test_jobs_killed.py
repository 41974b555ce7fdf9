"""Real jobs whose processes and agent are killed in each state of each change: no job is lost or doubled, all go on.

A few kills in every run of the tests, as many as somebody asks for with `FEDL2_LOCAL_KILLS`.
"""

from __future__ import annotations

import os
from contextlib import suppress
from itertools import islice
from pathlib import Path

import pytest
from job_kills import ACTIONS, VICTIMS, JobLife, Outcome, lives_to_live
from killed_machine import Machine, NotInTime

KILLS = int(os.environ.get("FEDL2_LOCAL_KILLS", "6"))
"""A life of a job with parameter servers; some ten seconds each."""


@pytest.mark.long
@pytest.mark.timeout(600 + 120 * KILLS)
def test_whatever_is_killed_no_job_is_lost_doubled_or_left_behind(tmp_path: Path) -> None:
    outcomes: list[Outcome] = []
    with Machine(tmp_path) as machine:
        for number, planned in enumerate(lives_to_live(seed=1), 1):
            if len(outcomes) >= KILLS or machine.problems:
                break
            try:
                JobLife(machine, f"job-{number}", planned, outcomes.append, seed=1).live()
            except NotInTime as error:
                machine.problems.append(str(error))
        with suppress(NotInTime):
            machine.wait_for(lambda: not machine.processes(), "no process is left")
        assert machine.processes() == []
        assert not list((tmp_path / "state").rglob("*.partial"))
        assert machine.problems == [], outcomes
    assert len(outcomes) >= KILLS


def test_each_process_is_killed_at_each_action_within_a_few_lives() -> None:
    planned = {(kill.kind, kill.action, kill.victim) for life in islice(lives_to_live(seed=0), 30) for kill in life}
    for kind, actions in ACTIONS.items():
        assert {(kind, action, victim) for action in actions for victim in VICTIMS[kind]} <= planned
