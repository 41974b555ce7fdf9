"""Claims against points whose figures are made up: what is said of ours beside the paper's."""

import math

import pytest

from policy_net.laboratory.report.chart_style import look
from policy_net.laboratory.reproduction.experiment import Claim, Experiment, ExperimentLine, Measure, Picture, Point
from policy_net.laboratory.reproduction.folder import (
    ClaimFinding,
    best_of,
    csv_of,
    figure_of,
    findings,
    mean_and_spread,
    picture_of,
    row_of,
)


def point(label: str, *by_seed: list[float], at: float | None = None, **changes: object) -> Point:
    figures: dict[Measure, list[list[float]]] = {measure: [] for measure in Measure}
    figures |= {Measure.AVG_JCT: list(by_seed), Measure.GPU_UTILIZATION: [[0.5] * len(row) for row in by_seed]}
    return Point(label, at, figures, **changes)  # type: ignore[arg-type]


def result(paper: float | str | None, ours: Point, theirs: Point) -> ClaimFinding:
    number = None if paper == "less" else paper
    claim = Claim(
        *("ours against theirs", ("ours", None), ("theirs", None), number), "better", direction=-(paper == "less")
    )
    lines = (ExperimentLine("ours", "drf"), ExperimentLine("theirs", "fifo"))
    return findings(Experiment("fig0", "", lines, (claim,), "why"), [ours, theirs])[0]


def test_a_change_is_paired_by_workload_and_averaged_over_seeds() -> None:
    found = result(-0.5, point("ours", [5.0, 10.0], [20.0, 40.0]), point("theirs", [20.0, 40.0]))
    # The geometric mean over the seeds is 10 and 20: half of theirs on every workload.
    assert found.change is not None
    assert found.change.mean == pytest.approx(-0.5)
    assert (found.papers, found.verdict) == ("-50.0%", "same direction")
    assert found.ours.startswith("-50.0% (-50.0% to -50.0%)")


@pytest.mark.parametrize(
    ("paper", "ours", "verdict"),
    [
        (-0.3, [9.0, 18.1], "same direction"),
        (-0.3, [11.0, 22.1], "opposite direction"),
        (0.3, [11.0, 22.1], "same direction"),
        (-0.3, [5.0, 40.0], "no difference shown"),
        (0.0, [5.0, 40.0], "no difference shown"),
        (0.0, [11.0, 22.1], "other"),
        (0.0, [10.01, 20.02], "the same"),
        (None, [11.0, 22.1], "a difference"),
        ("less", [9.0, 18.1], "same direction"),
        ("less", [11.0, 22.1], "opposite direction"),
        (None, [5.0, 40.0], "no difference shown"),
    ],
)
def test_verdicts(paper: float | str | None, ours: list[float], verdict: str) -> None:
    assert result(paper, point("ours", ours), point("theirs", [10.0, 20.0])).verdict == verdict


def test_a_line_without_a_figure_says_why() -> None:
    found = result(-0.3, point("ours", failures=("the weights became infinite",)), point("theirs", [10.0]))
    assert (found.ours, found.verdict) == ("none: the weights became infinite", "no figure")


def test_spreads_are_over_training_seeds() -> None:
    assert mean_and_spread(point("a", [1.0, 3.0], [4.0, 6.0])) == (3.5, pytest.approx(math.sqrt(4.5)))
    assert mean_and_spread(point("a", [1.0, 3.0])) == (2.0, None)
    assert mean_and_spread(point("a")) == (None, None)


def test_a_table_has_a_row_for_each_line() -> None:
    points = [point("a", [1.0, 3.0]), point("b", at=0.5, failures=("it broke", "it broke"))]
    rows = csv_of(points).splitlines()
    assert rows[0].startswith("line,at,avg_jct_slots,sd_over_seeds")
    assert rows[1:] == ["a,,2.0,,,0.5,1,", "b,0.5,,,,,0,it broke"]
    assert row_of(points[1])["avg_jct_slots"] is None


def test_the_best_is_the_one_that_takes_least_time() -> None:
    lines = tuple(ExperimentLine("n", "drf", at=at) for at in (1.0, 2.0))
    experiment = Experiment(
        "fig0", "", lines, (), "", best=((("n", 1.0), ("n", 2.0)), ("n", 2.0)), picture=Picture.CURVES
    )
    assert best_of(experiment, [point("n", [3.0], at=1.0), point("n", [4.0], at=2.0)]) == ("2", "1")
    assert best_of(experiment, [point("n", at=1.0), point("n", [4.0], at=2.0)]) == ("2", "2")
    assert best_of(experiment, [point("n", at=1.0), point("n", at=2.0)]) is None


@pytest.mark.parametrize("picture", list(Picture))
def test_pictures_are_the_same_bytes_again_also_without_figures(picture: Picture) -> None:
    lines = (
        ExperimentLine("a", "drf", at=0.0),
        ExperimentLine("a", "drf", at=1.0),
        ExperimentLine("b", "fifo", at=0.0),
    )
    experiment = Experiment("fig0", "What it shows", lines, (), "", picture, "axis")
    steps = ((0.0, 1, 1), (2.0, 3, 2), (5.0, 0, 0))
    points = [point("a", [1.0], [2.0], at=0.0, timeline=steps), point("a", [3.0], at=1.0), point("b", at=0.0)]
    data = picture_of(experiment, points)
    assert data.startswith(b"\x89PNG")
    assert data == picture_of(experiment, points)


def test_an_axis_of_powers_is_marked_with_plain_numbers() -> None:
    lines = (ExperimentLine("a", "drf", at=0.0), ExperimentLine("a", "drf", at=1.0))
    experiment = Experiment("fig0", "What it shows", lines, (), "", Picture.CURVES, "axis")
    with look():
        figure = figure_of(experiment, [point("a", [44.0], at=0.0), point("a", [1254.0], at=1.0)])
        figure.draw_without_rendering()
        axes = figure.axes[0]
        low, high = axes.get_ylim()
        shown = [mark.get_text() for mark in axes.get_yticklabels() if low <= mark.get_position()[1] <= high]
    assert shown == ["50", "100", "200", "500", "1,000"]
