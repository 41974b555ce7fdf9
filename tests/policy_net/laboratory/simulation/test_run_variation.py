"""The papers' 27.3% is the standard deviation of one job's completion time over its mean, across runs."""

import numpy as np
import pytest
from worlds import PairSpeeds, make_spec, make_workload, one_pair_each

from policy_net.laboratory.simulation.engine import Simulation
from policy_net.laboratory.simulation.environment import DecideOn, Environment

PAPERS = 0.273


def completion_times(seeds: int, slots_of_work: float, **noise: float) -> np.ndarray:
    times = []
    for seed in range(seeds):
        workload = make_workload(make_spec(total_epochs=12.0 * slots_of_work))
        environment = Environment(1, decide_on=DecideOn.EVENT, seed=seed, **noise)  # type: ignore[arg-type]
        simulation = Simulation(workload, environment, PairSpeeds())
        while not simulation.finished:
            simulation.apply(one_pair_each(simulation.observe()[0]))
        times.append(simulation.time_seconds)
    return np.array(times)


def variation(times: np.ndarray) -> float:
    return float(times.std() / times.mean())


@pytest.mark.heavy
def test_noise_per_job_reproduces_the_variation_of_completion_times_between_runs() -> None:
    times = completion_times(1500, 30, job_noise=PAPERS)
    assert variation(times) == pytest.approx(PAPERS, abs=0.02)
    # A mean speed of 1 makes the mean time 1 + 0.273² as long.
    assert times.mean() / (30 * 1200.0) == pytest.approx(1 + PAPERS**2, abs=0.025)


@pytest.mark.heavy
def test_noise_per_slot_averages_out_over_the_slots_of_a_job() -> None:
    short, long = (variation(completion_times(300, slots, speed_noise=PAPERS)) for slots in (4, 36))
    assert long < 0.08
    assert long < 0.5 * short < 0.5 * PAPERS


def test_both_parts_add_up_and_a_job_keeps_its_luck_under_any_company() -> None:
    alone = completion_times(200, 12, job_noise=0.2, speed_noise=0.3)
    assert 0.2 < variation(alone) < 0.27
    workload = make_workload(make_spec(0, total_epochs=144.0), make_spec(1, total_epochs=24.0))
    simulation = Simulation(workload, Environment(2, seed=7, job_noise=0.2, decide_on=DecideOn.EVENT), PairSpeeds())
    while not simulation.finished:
        simulation.apply(one_pair_each(simulation.observe()[0]))
    assert simulation.jobs.outcomes()[0].end_seconds == pytest.approx(completion_times(8, 12, job_noise=0.2)[7])
