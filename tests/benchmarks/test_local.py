"""Plans of the benchmark of real jobs, and what its twin makes of them; the runs themselves take minutes each."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.local.__main__ import POLICIES, main
from benchmarks.local.machine import KINDS, Run, plan
from benchmarks.local.twin import Calibration, foretold_jct_seconds, resize_costs_seconds
from cluster_agent.backends.local.job_file import JobFile
from deploy.train.story import Resize
from policy_net.domain import PolicyContext
from policy_net.policy import SchedulerPolicy, build_policy


class Linear:
    """Every worker trains a hundred samples a second."""

    def samples_per_second(self, job_type: str, ps: int, workers: int) -> float:
        return float(self.grid(job_type)[ps, workers])

    def grid(self, job_type: str) -> NDArray[np.float64]:
        del job_type
        return np.vstack([np.zeros(17), np.tile(100.0 * np.arange(17.0), (16, 1))])


def machine(start_seconds: float) -> Calibration:
    return Calibration(Linear(), {kind.model_type: 100.0 for kind in KINDS}, 2, start_seconds, start_seconds, 0.0)


def policy(name: str) -> SchedulerPolicy:
    return build_policy(name, PolicyContext())


def test_a_seeds_jobs_are_the_same_each_time_come_in_order_and_can_be_submitted() -> None:
    jobs = plan(3, 12, 1.0, 4.0)
    assert jobs == plan(3, 12, 1.0, 4.0) != plan(4, 12, 1.0, 4.0)
    assert [job.after_seconds for job in jobs] == sorted(job.after_seconds for job in jobs)
    assert not {job.name for job in jobs} & {job.name for job in plan(4, 12, 1.0, 4.0)}
    assert {job.file["modelType"] for job in jobs} == {kind.model_type for kind in KINDS}
    for job in jobs:
        file = JobFile.model_validate({"name": job.name, "elastic": True, **job.file})
        assert Path(file.script).is_file()
        assert json.dumps(job.file["work"]["epochs"]) in file.args


def test_the_twin_of_a_job_alone_takes_its_start_and_its_work_at_the_requested_size() -> None:
    (job,) = plan(1, 1, 1.0, 4.0)
    epochs = job.file["work"]["epochs"]
    assert foretold_jct_seconds(policy("fifo"), (job,), machine(5.0)) == pytest.approx(5.0 + epochs * 100.0 / 200.0)


@pytest.mark.parametrize("name", POLICIES)
def test_the_twin_foretells_every_policy_and_starts_cost_time(name: str) -> None:
    jobs = plan(2, 10, 1.0, 4.0)
    quick = foretold_jct_seconds(policy(name), jobs, machine(0.0))
    assert 0.0 < quick < foretold_jct_seconds(policy(name), jobs, machine(8.0))


def test_a_resize_costs_the_part_of_its_new_speed_that_a_job_did_not_have_yet() -> None:
    grown = Resize("a", 4, 1, True, 0.0, 2.0, 0.0, 0.5, before=(1, 1))
    shrunk = Resize("a", 1, 1, True, 0.0, 2.0, 0.0, 0.0, before=(4, 1))
    facts = {"name": "a", "modelType": "m"}
    run = Run("set", Path(), (facts,), (grown, shrunk), (2.0, 2.0), (0.25, 0.0), frozenset(), (), 0.0, 0.0)
    assert list(resize_costs_seconds(run, Linear())) == [1.5, 0.0]


@pytest.mark.parametrize("words", [["--jobs", "0"], ["--gap", "-1"], ["--work", "0"], ["--policies", "nosuch"]])
def test_a_bad_option_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(words)
    assert words[0] in capsys.readouterr().err
