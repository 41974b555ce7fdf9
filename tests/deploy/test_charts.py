import itertools
from pathlib import Path

import pytest

from deploy.local.charts import jct, job, learning, staleness
from deploy.local.charts.job import JobTimeline
from deploy.local.charts.learning import VersionScore
from deploy.local.charts.style import save

PNG = b"\x89PNG\r\n\x1a\n"


def test_the_title_of_the_jct_chart_tells_better_from_worse() -> None:
    better = {"a": {"drf": 100.0, "learned": 50.0}, "b": {"drf": 10.0, "learned": 20.0 / 4.0}}
    assert jct.finding(better) == "Jobs take 50% less time under the final version than under DRF"
    worse = {"a": {"drf": 100.0, "learned": 120.0}}
    assert "20% more time" in jct.finding(worse)


def test_the_title_of_the_learning_chart_compares_first_and_last() -> None:
    scores = [VersionScore(1, 0, {"a": 1.0, "b": 1.0}), VersionScore(5, 400, {"a": 0.7, "b": 0.9})]
    assert learning.finding(scores) == "On unseen workloads v5 needs 20% less time than v1"
    assert "25% more time" in learning.finding(scores[::-1])


def test_the_title_of_the_staleness_chart_counts_updates() -> None:
    updates = {"a": [0, 0, 1], "b": [2, 9], "c": []}
    assert staleness.finding(updates) == "80% of 5 updates were at most 2 steps old; the oldest 9"
    assert staleness.finding({"a": []}) == "No update was applied"


def test_the_title_of_the_job_chart_counts_resizes_but_not_the_end() -> None:
    timeline = JobTimeline("j", "wlm", "a", 0.0, (0.0, 10.0, 20.0, 30.0), (1, 2, 2, 0), (1, 1, 3, 0))
    assert job.finding(timeline) == "Job j (wlm, a) is resized 2 times"


@pytest.mark.parametrize("name", ["jct", "learning", "staleness", "job"])
def test_every_chart_becomes_a_picture(name: str, tmp_path: Path) -> None:
    policies = {"drf": 4000.0, "optimus": 3000.0, "v1": 4100.0, "learned": 2500.0}
    timeline = JobTimeline("j", "wlm", "a", 5.0, (5.0, 10.0, 20.0), (1, 2, 0), (1, 1, 0))
    draws = {
        "jct": lambda axes: jct.draw_jct(axes, {"a": policies, "b": policies}),
        "learning": lambda axes: learning.draw_learning(axes, [VersionScore(1, 0, {"a": 1.0})]),
        "staleness": lambda axes: staleness.draw_staleness(axes, {"a": [], "b": [0, 3]}),
        "job": lambda axes: job.draw_job(axes, timeline),
    }
    path = save(tmp_path / f"{name}.png", draws[name])
    assert path.read_bytes().startswith(PNG)


def test_more_clusters_than_colours_can_be_drawn(tmp_path: Path) -> None:
    names = [f"c{index}" for index in range(9)]
    scores = [VersionScore(version, version, dict.fromkeys(names, 1.0)) for version in range(2)]
    save(tmp_path / "learning.png", lambda axes: learning.draw_learning(axes, scores))
    drawn: list[str] = []
    save(tmp_path / "lines.png", lambda axes: drawn.extend(_labels(axes, scores)))
    assert set(names) <= set(drawn)


def _labels(axes, scores) -> list[str]:
    learning.draw_learning(axes, scores)
    return list(itertools.chain([text.get_text() for text in axes.get_legend().get_texts()]))
