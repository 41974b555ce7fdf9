"""Recorded times of an operator's own scheduler, which the demo's report compares with others."""

from pathlib import Path

import pytest

from deploy.local.comparison import RECORDED, recorded_time
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
    assert recorded_time(plan).get(RECORDED) == seconds
