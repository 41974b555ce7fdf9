"""The benchmark of learning together against learning alone: when curves reach half, what it prints and refuses."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest

from benchmarks.policy_quality.worlds import clusters_in
from benchmarks.twin_learning.__main__ import pasts_of, start_file
from benchmarks.twin_learning.fleet import Training, train, trained_at
from benchmarks.twin_learning.together import doubled, main, reached_at, windows_ratio
from foundation.errors import BAD_INPUT, DONE

JOBS = 2600


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two made-up recordings, long enough for a window of every part, and one that is too short to teach."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "workloads").mkdir()
    for number, (name, jobs) in enumerate((("east", JOBS), ("west", JOBS), ("brief", 300))):
        generator = random.Random(number)
        rows, at = ["job_id,submit_time_s,duration_s,num_gpus"], 0.0
        for job in range(jobs):
            at += generator.expovariate(1.0 / 300.0)
            rows.append(f"{job},{at:.1f},{generator.lognormvariate(6.5, 1.0):.1f},{generator.choice((1, 1, 2, 4))}")
        (folder / "workloads" / f"{name}.csv").write_text("\n".join(rows) + "\n")
    return folder


def test_windows_double_and_the_end_is_one_of_them() -> None:
    assert doubled(4) == [4]
    assert doubled(32) == [4, 8, 16, 32]
    assert doubled(20) == [4, 8, 16, 20]


def test_a_level_is_reached_on_the_line_between_two_points() -> None:
    assert reached_at([4, 8], [-0.02, -0.04], -0.01) == pytest.approx(2.0)
    assert reached_at([4, 8], [-0.02, -0.04], -0.03) == pytest.approx(6.0)
    assert reached_at([4, 8], [0.02, -0.02], -0.02) == pytest.approx(8.0)
    assert reached_at([4, 8], [-0.02, -0.04], -0.05) is None


def test_the_ratio_is_that_of_windows_until_half_of_what_one_gains_alone() -> None:
    windows = [4, 8, 16]
    assert windows_ratio(windows, [0.0, -0.02, -0.04], [-0.02, -0.03, -0.05]) == pytest.approx(4.0 / 8.0)
    assert windows_ratio(windows, [0.0, -0.02, -0.04], [-0.0, 0.0, 0.01]) is None
    assert windows_ratio(windows, [0.0, 0.0, 0.01], [-0.02, -0.03, -0.05]) is None


@pytest.mark.heavy
def test_what_is_published_on_the_way_is_that_of_the_same_run(data: Path, tmp_path: Path) -> None:
    clusters = [cluster for cluster in clusters_in(data) if cluster.name != "brief"]
    pasts = pasts_of(clusters, "mix-unknown", data, tmp_path)
    training = Training(updates=3, pairs=1, window_jobs=60, learning_rate=0.1)
    first, last = trained_at(start_file(), pasts, training, 1, [1, 3])
    assert np.array_equal(last, train(start_file(), pasts, training, 1))
    assert not np.array_equal(first, last)


@pytest.mark.heavy
def test_what_it_prints(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--data", str(data), "--fleet", "2", "--windows", "5", "--pairs", "1", "--window-jobs", "60"]
    assert main([*small, "--settings", "allreduce-known"]) == DONE
    found = json.loads(capsys.readouterr().out)["settings"]["allreduce-known"]
    assert found["windows"] == [4, 5]
    for name in ("alone", "together"):
        assert sorted(found["clusters"][name]) == ["east", "west"]
        assert found[name][-1] == pytest.approx(sum(found["clusters"][name].values()) / 2)
        assert 0.0 < abs(found[name][-1]) < 0.2
    assert found["windows_ratio"] == windows_ratio(found["windows"], found["alone"], found["together"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--fleet", "1"], "--fleet is 2 or more"),
        (["--fleet", "3"], "2 recorded workloads"),
        (["--windows", "3"], "--windows 4 or more"),
        (["--pairs", "0"], "1 or more"),
        (["--draw", "-1"], "0 or more"),
    ],
)
def test_numbers_that_make_no_run_are_refused(
    data: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--data", str(data), *words]) == BAD_INPUT
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
