"""How the lessons are judged: paired windows, with the error of their mean."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from cluster_agent.settings_file import read_settings as read_agent
from deploy.demonstration.configs import learner_content
from deploy.demonstration.display import Display
from deploy.demonstration.frame import DemoLearner, Demonstration, write_yaml
from deploy.demonstration.processes import Processes
from deploy.local.fleet import PublishedVersion
from deploy.local.lessons import LESSONS, judge_lessons, lesson_score, lessons_json, make_pasts
from deploy.local.plan import make_plan, simulated_agent
from global_learner.aggregation.settings import Units
from global_learner.report.learning import LessonCurve
from global_learner.settings import read_settings as read_learner
from policy_net.exchange.policy_file import write_policy_file
from policy_net.exchange.shipped import shipped_file
from policy_net.set_policy.policy import default_set_file, extended


def test_a_change_is_the_mean_of_all_windows_with_its_error() -> None:
    found = lesson_score(2, 40, {"north": [math.log(0.9), math.log(0.8)], "south": [0.0, math.log(0.9)]})
    assert found.mean == pytest.approx((0.9 * 0.8 * 0.9) ** 0.25)
    logs = [math.log(0.9), math.log(0.8), 0.0, math.log(0.9)]
    middle = sum(logs) / 4
    error = math.sqrt(sum((log - middle) ** 2 for log in logs) / 3 / 4)
    assert (found.low, found.high) == pytest.approx((found.mean - 1.96 * error, found.mean + 1.96 * error))
    assert found.by["south"] == pytest.approx(math.sqrt(0.9))
    (reported,) = lessons_json(LessonCurve([found], 4, 1200, 1.0))["points"]
    assert (reported["mean"], reported["error"]) == pytest.approx((found.mean - 1.0, error))
    alone = lesson_score(2, 40, {"north": [0.1]})
    assert alone.low == alone.high


@pytest.mark.heavy
def test_versions_are_judged_against_the_first_on_the_same_windows(tmp_path: Path) -> None:
    (past,) = make_pasts(make_plan(None, ("language",), seed=0, jobs=5), tmp_path, seed=0, made_up=True)
    untaught, taught = tmp_path / "v1.safetensors", tmp_path / "v2.safetensors"
    write_policy_file(untaught, extended(default_set_file(), "set"))
    write_policy_file(taught, shipped_file("set-taught"))
    versions = [PublishedVersion(1, 0, untaught), PublishedVersion(2, 40, taught), PublishedVersion(3, 80, untaught)]
    found = judge_lessons([past], versions, lambda share: None)
    assert (found.windows, found.jobs) == (6, 1800)
    assert [score.mean for score in found.scores[::2]] == [1.0, 1.0], "what is the same takes the same"
    assert found.scores[1].high < 1.0, "sweeps of unknown length are what recorded clusters have taught of"
    assert found.shipped > 1.0


def test_the_files_of_learner_and_agents_are_what_the_programs_take(tmp_path: Path) -> None:
    (past,) = make_pasts(make_plan(None, ("mixed",), seed=0, jobs=5), tmp_path, seed=0, made_up=True)
    start = tmp_path / "v1.safetensors"
    write_policy_file(start, extended(default_set_file(), "set"))
    with Processes(tmp_path) as processes:
        own = DemoLearner(Demonstration(tmp_path, processes, Display(1200.0)), tmp_path)
    learner = read_learner(write_yaml(tmp_path / "learner.yaml", learner_content(start, own, LESSONS)))
    agent = read_agent(write_yaml(tmp_path / "agent.yaml", simulated_agent(past, own, LESSONS)))
    assert learner.optimizer_for(extended(default_set_file(), "set").spec).units is Units.SPREADS
    assert agent.learning.source == "twin"
    assert agent.learning.twin.history == (past.past,)
