"""Which job the demo's report draws, and what an operator's own scheduler took."""

from pathlib import Path

import pytest

from deploy.local.comparison import Comparison, Score, recorded_jct_seconds, reporting_job
from deploy.local.plan import make_plan

Timeline = list[tuple[float, int, int]]


def resized(times: int, workers: int) -> Timeline:
    """A job that waits, trains with as many workers or one more, and ends."""
    spans = [(60.0 * (1 + at), workers + at % 2, 1) for at in range(times)]
    return [(0.0, 0, 0), *spans, (9000.0, 0, 0)]


def score(timeline: dict[str, Timeline]) -> Score:
    count = len(timeline)
    return Score(count, count, 1.0, timeline, dict.fromkeys(timeline, "vgg-16"), dict.fromkeys(timeline, 0.0))


def test_the_job_is_the_middle_one_of_those_with_several_workers_and_some_resizes() -> None:
    north = score({"alone": resized(20, 0), "calm": resized(1, 4), "often": resized(15, 4), "usual": resized(6, 4)})
    south = score({"seldom": resized(4, 2)})
    assert reporting_job({"north": north, "south": south}).job_id == "usual"


def test_without_a_usual_job_it_is_the_one_that_was_resized_most() -> None:
    alone = score({"one": resized(2, 1), "two": resized(3, 0)})
    assert reporting_job({"north": alone}).job_id == "two"


@pytest.mark.parametrize(("reported", "seconds"), [("start_time_s", 900.0), ("note", None)])
def test_the_operators_own_scheduler_is_known_where_the_file_says_when_every_job_ended(
    tmp_path: Path, reported: str, seconds: float | None
) -> None:
    rows = [f"{number},{60 * number},600,1,{60 * number + 300}" for number in range(8)]
    (tmp_path / "north.csv").write_text(
        "\n".join([f"job_id,submit_time_s,duration_s,num_gpus,{reported}", *rows]) + "\n"
    )
    (plan,) = make_plan(tmp_path, (), seed=0, jobs=4)
    assert recorded_jct_seconds(plan) == seconds


def test_only_policies_that_some_cluster_has_are_shown_in_their_order() -> None:
    some = score({"one": resized(2, 1)})
    own = {"north": {"fifo-easy": some, "learned": some}, "south": {"fifo-easy": some, "learned": some}}
    job = reporting_job({"north": some})
    without = Comparison(own, (), 1.0, 1.0, job)
    assert list(without.labels) == ["fifo-easy", "learned"]
    recorded = Comparison(own, (), 1.0, 1.0, job, recorded={"south": 7.0})
    assert list(recorded.labels) == ["recorded", "fifo-easy", "learned"]
    assert [list(by) for by in recorded.own_jct_seconds.values()] == [["fifo-easy", "learned"], [*recorded.labels]]
