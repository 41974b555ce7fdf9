"""Policies that the demo's report compares, and the recorded times of an operator's own scheduler."""

from pathlib import Path

import pytest

from deploy.local.comparison import Comparison, Score, recorded_times
from deploy.local.plan import make_plan


@pytest.mark.parametrize(("reported", "seconds"), [("start_time_s", 900.0), ("note", None)])
def test_the_operators_own_scheduler_is_known_where_the_file_says_when_every_job_ended(
    tmp_path: Path, reported: str, seconds: float | None
) -> None:
    rows = [f"{number},{60 * number},600,1,{60 * number + 300}" for number in range(8)]
    (tmp_path / "north.csv").write_text(
        "\n".join([f"job_id,submit_time_s,duration_s,num_gpus,{reported}", *rows]) + "\n"
    )
    (plan,) = make_plan(tmp_path, (), seed=0, jobs=4)
    assert recorded_times(plan)[0] == seconds


def test_only_policies_that_some_cluster_has_are_shown_in_their_order() -> None:
    some = Score(1, 1, 1.0)
    own = {"north": {"fifo-easy": some, "learned": some}, "south": {"fifo-easy": some, "learned": some}}
    without = Comparison(own, (), 1.0, 1.0)
    assert list(without.labels) == ["fifo-easy", "learned"]
    recorded = Comparison(own, (), 1.0, 1.0, recorded={"south": 7.0})
    assert list(recorded.labels) == ["recorded", "fifo-easy", "learned"]
    assert [list(by) for by in recorded.own_jct_seconds.values()] == [["fifo-easy", "learned"], [*recorded.labels]]
