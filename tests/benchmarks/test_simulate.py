from pathlib import Path

import pytest

from benchmarks.simulate.__main__ import main
from benchmarks.simulate.memory import bytes_per_finished_job
from benchmarks.simulate.rates import PAIRS, _pairs_in_order, pooled, scalar_decisions_per_second
from benchmarks.simulate.worlds import REAL_JOBS, generated, real
from policy_net.domain import Resources
from policy_net.laboratory.simulation.vector import VectorSimulation
from policy_net.laboratory.speeds.speed import default_speeds


def test_a_simulation_keeps_no_more_of_an_ended_job_than_when_it_started_and_ended() -> None:
    # Two floats, the pair that holds them and a dictionary's entry.
    assert bytes_per_finished_job(96, 100, 600) < 300


def test_without_data_ten_thousand_jobs_are_drawn_and_said_to_be(tmp_path: Path) -> None:
    workload, origin = real(None, tmp_path)
    assert len(workload.jobs) == REAL_JOBS
    assert origin.startswith("drawn")


def test_real_jobs_come_from_the_folder(data_folder: Path, tmp_path: Path) -> None:
    workload, origin = real(data_folder, tmp_path)
    assert len(workload.jobs) == REAL_JOBS
    assert origin.startswith("workloads/itp-04.csv")


def test_the_rule_of_the_rates_stays_within_the_cluster() -> None:
    workload = generated(30)
    simulation = VectorSimulation(pooled(5), default_speeds())
    simulation.reset([workload] * 2)
    while not simulation.done_B.all():
        given = _pairs_in_order(simulation, 5)
        assert set(given.ravel().tolist()) <= {0, PAIRS}
        simulation.step(given)  # refuses what does not fit
    assert scalar_decisions_per_second(workload, 5) > 0
    assert pooled(5).node_list[0].capacity == Resources(8000, 2)


def test_a_folder_without_the_workload_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--data", str(tmp_path)])
    assert stop.value.code == 2
    assert "itp-04.csv" in capsys.readouterr().err
