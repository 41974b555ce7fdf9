"""What recorded pasts taught, in words: never more than is known."""

from __future__ import annotations

import dataclasses

import pytest
from report_makers import replays, report, three

from global_learner.report.content import report_content
from global_learner.report.learning import LessonCurve, LessonScore, lesson_finding


def curve(mean: float, low: float, high: float, updates: int = 40) -> LessonCurve:
    first = LessonScore(1, 0, 1.0, 1.0, 1.0, {"north": 1.0})
    last = LessonScore(5, updates, mean, low, high, {"north": mean})
    return LessonCurve([first, last] if updates else [first], 18, 5400, 1.05)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (
            curve(0.94, 0.91, 0.97),
            "40 updates from recorded pasts: later jobs take 6.0% less time (95% interval: 3.0% to 9.0% less time)",
        ),
        (
            curve(1.05, 1.01, 1.09),
            "40 updates from recorded pasts: later jobs take 5.0% more time (95% interval: 1.0% to 9.0% more time)",
        ),
        (
            curve(0.98, 0.94, 1.02),
            "40 updates from recorded pasts: later jobs take 2.0% less time, which chance alone might do"
            " (95% interval: 6.0% less time to 2.0% more time)",
        ),
        (curve(1.0, 1.0, 1.0, updates=0), "no lesson was over in time, and nothing was learned"),
    ],
)
def test_the_finding_says_how_far_chance_reaches(found: LessonCurve, said: str) -> None:
    assert lesson_finding(found) == said


def test_the_page_has_the_lessons_where_there_were_some() -> None:
    names = ["language", "mixed", "vision"]
    section = report_content(report(three()), replays(names))["lessons"]
    assert section["series"] == names
    assert [point["version"] for point in section["points"]] == [1, 4, 8]
    assert "4.8% less time than set." in section["note"]
    assert "18 windows of later jobs, 5,400 in all" in section["note"]
    without = dataclasses.replace(replays(names), lessons=None)
    assert report_content(report(three()), without)["lessons"] is None
    assert report_content(report(three()))["lessons"] is None
