"""Real jobs whose processes are killed: a few kills in every run of the tests, all of them when somebody asks."""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path

import pytest

from benchmarks.local_faults.__main__ import kill
from benchmarks.local_faults.kills import ACTIONS, VICTIMS, lives_to_live

KILLS = int(os.environ.get("FEDL2_LOCAL_KILLS", "6"))
"""A life of a job with parameter servers; some ten seconds each."""


@pytest.mark.long
@pytest.mark.timeout(600 + 120 * KILLS)
def test_whatever_is_killed_no_job_is_lost_doubled_or_left_behind(tmp_path: Path) -> None:
    result = kill(tmp_path, KILLS, seed=1, patience_seconds=300.0, on_step=lambda line: None)
    assert result["problems"] == []
    assert result["kills"] >= KILLS


def test_each_process_is_killed_at_each_action_within_a_few_lives() -> None:
    planned = {(kill.kind, kill.action, kill.victim) for life in islice(lives_to_live(seed=0), 30) for kill in life}
    for kind, actions in ACTIONS.items():
        assert {(kind, action, victim) for action in actions for victim in VICTIMS[kind]} <= planned
