"""How the lessons are judged: paired windows, with the error of their mean."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import yaml

from cluster_agent.settings_file import read_settings as read_agent
from deploy.local.fleet import PublishedVersion
from deploy.local.lessons.fleet import LessonSettings, agent_config, learner_config
from deploy.local.lessons.judged import change_of, judge_lessons
from deploy.local.lessons.pasts import make_pasts
from deploy.local.plan import make_plan
from global_learner.aggregation.settings import Units
from global_learner.settings import read_settings as read_learner
from policy_net.exchange.policy_file import write_policy_file
from policy_net.set_policy.extended import extended
from policy_net.set_policy.policy import default_set_file, shipped_file


def test_a_change_is_the_mean_of_all_windows_with_its_error() -> None:
    found = change_of({"north": [math.log(0.9), math.log(0.8)], "south": [0.0, math.log(0.9)]})
    assert found.mean == pytest.approx((0.9 * 0.8 * 0.9) ** 0.25 - 1.0)
    logs = [math.log(0.9), math.log(0.8), 0.0, math.log(0.9)]
    middle = sum(logs) / 4
    assert found.error == pytest.approx(math.sqrt(sum((log - middle) ** 2 for log in logs) / 3 / 4))
    assert found.by["south"] == pytest.approx(math.sqrt(0.9) - 1.0)
    low, high = found.interval
    assert low < found.mean < high
    assert change_of({"north": [0.1]}).error == 0.0


@pytest.mark.heavy
def test_versions_are_judged_against_the_first_on_the_same_windows(tmp_path: Path) -> None:
    (past,) = make_pasts(make_plan(None, ("language",), seed=0, jobs=5), tmp_path, seed=0, made_up=True)
    untaught, taught = tmp_path / "v1.safetensors", tmp_path / "v2.safetensors"
    write_policy_file(untaught, extended(default_set_file(), "set"))
    write_policy_file(taught, shipped_file("set-taught"))
    versions = [PublishedVersion(1, 0, untaught), PublishedVersion(2, 40, taught), PublishedVersion(3, 80, untaught)]
    found = judge_lessons([past], versions, lambda share: None)
    assert (found.windows, found.jobs) == (6, 1800)
    assert [point.change.mean for point in found.points[::2]] == [0.0, 0.0], "what is the same takes the same"
    taught_change = found.points[1].change
    assert taught_change.interval[1] < 0.0, "sweeps of unknown length are what recorded clusters have taught of"
    assert found.shipped.mean > 0.0


def test_the_files_of_learner_and_agents_are_what_the_programs_take(tmp_path: Path) -> None:
    (past,) = make_pasts(make_plan(None, ("mixed",), seed=0, jobs=5), tmp_path, seed=0, made_up=True)
    start = tmp_path / "v1.safetensors"
    write_policy_file(start, extended(default_set_file(), "set"))
    (tmp_path / "learner.yaml").write_text(
        yaml.safe_dump(learner_config(start, "127.0.0.1:7001", 7002, LessonSettings(3)))
    )
    (tmp_path / "agent.yaml").write_text(
        yaml.safe_dump(agent_config(past, "127.0.0.1:7001", tmp_path / "token", LessonSettings(3)))
    )
    learner, agent = read_learner(tmp_path / "learner.yaml"), read_agent(tmp_path / "agent.yaml")
    assert learner.optimizer_for(extended(default_set_file(), "set").spec).units is Units.SPREADS
    assert agent.learning.source == "twin"
    assert agent.learning.twin.history == (str(past.recording.resolve()),)
