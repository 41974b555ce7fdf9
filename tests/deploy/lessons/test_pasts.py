"""Recordings that the demo's clusters bring: made up, or the first jobs of a file, with nothing of what is held out."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest

from deploy.demonstration.frame import own_folder
from deploy.local.lessons import WINDOW_JOBS, WINDOWS, make_pasts, rows_of, sweeps, with_pasts
from deploy.local.plan import make_plan


def test_sweeps_are_runs_that_are_alike_and_a_seed_gives_the_same_again() -> None:
    rows, again, other = (sweeps(np.random.default_rng(seed), 400, 12) for seed in (1, 1, 2))
    assert rows == again != other
    assert len(rows) == 400
    assert all(later[1] >= row[1] and row[2] > 0.0 for row, later in pairwise(rows))
    logs = np.log([row[2] for row in rows])
    apart = [abs(after - before) for before, after in pairwise(logs)]
    drawn = np.random.default_rng(0).permutation(logs)
    assert fmean(apart) < 0.5 * fmean(abs(after - before) for before, after in pairwise(drawn))


def test_made_up_pasts_have_windows_that_hold_other_jobs(tmp_path: Path) -> None:
    pasts = make_pasts(make_plan(None, ("language", "mixed"), seed=3, jobs=5), tmp_path, seed=3, made_up=True)
    assert [past.name for past in pasts] == ["language", "mixed"]
    for past in pasts:
        assert len(past.held_out) == WINDOWS
        worlds = [past.world(world, world.speeds()) for world in past.held_out]
        assert [len(workload.jobs) for workload, _ in worlds] == [WINDOW_JOBS] * WINDOWS
        assert {environment.nodes for _, environment in worlds} == {past.nodes}
        assert not any(job.work_known for workload, _ in worlds for job in workload.jobs)
        taught, held = ({row[1:] for row in rows_of(Path(file))} for file in (past.past, past.source))
        assert not taught & held


@pytest.mark.parametrize(("jobs", "windows"), [(100, 2), (60, 4), (59, None), (200, None)])
def test_of_a_file_the_first_jobs_teach_and_those_after_them_judge(
    tmp_path: Path, jobs: int, windows: int | None
) -> None:
    lines = ["job_id,submit_time_s,duration_s,num_gpus"]
    lines += [f"j{number},{60 * number},{600 + number},2" for number in reversed(range(310))]
    (tmp_path / "north.csv").write_text("\n".join(lines) + "\n")
    plan = make_plan(tmp_path, (), seed=0, jobs=jobs)
    pasts = make_pasts(plan, tmp_path / "lessons", seed=0, made_up=False)
    if windows is None:
        assert pasts == ()
        return
    (past,) = pasts
    assert [row[0] for row in rows_of(Path(past.past))] == [f"j{number}" for number in range(jobs)]
    assert len(past.held_out) == windows
    assert rows_of(Path(past.source))[0][0] == f"j{jobs}"


def test_a_users_file_in_the_run_folder_stays_as_it_is(tmp_path: Path) -> None:
    rows = [f"j{number},{60 * number},{600 + number},2" for number in range(50)]
    written = "\n".join(["job_id,submit_time_s,duration_s,num_gpus", *rows]) + "\n"
    (tmp_path / "north.csv").write_text(written)
    with own_folder(tmp_path) as folder:
        (cluster,) = with_pasts(make_plan(tmp_path, (), seed=0, jobs=20), folder)
    assert (tmp_path / "north.csv").read_text() == written
    assert [row[0] for row in rows_of(Path(cluster.past))] == [f"j{number}" for number in range(20)]
    with own_folder(tmp_path):
        assert not Path(cluster.past).exists(), "what a demonstration wrote is gone with the next"
        assert (tmp_path / "north.csv").read_text() == written
