import numpy as np
import pytest
from hypothesis import given
from worlds import GivePairs, PairSpeeds, make_spec, make_workload, workloads

from policy_net.laboratory.simulation.environment import Environment
from policy_net.laboratory.simulation.metrics import load_of
from policy_net.laboratory.simulation.replay import replay

TWO_JOBS = make_workload(make_spec(0, total_epochs=18.0), make_spec(1, submit_time_seconds=600.0))


def test_held_gpus_and_waiting_jobs_add_up_over_time() -> None:
    result = replay(TWO_JOBS, Environment(4), GivePairs(), PairSpeeds(), record_timeline=True)
    load = load_of(TWO_JOBS, 8, result.timeline)
    # job-0 trains from 0 to 1800; job-1 waits from 600 for the slot at 1200 and trains to 2400.
    moments = (0.0, 599.9, 600.0, 1200.0, 1800.0, 2400.0)
    assert [load.at(seconds) for seconds in moments] == [(1, 0), (1, 0), (1, 1), (2, 0), (1, 0), (0, 0)]
    assert load.idle_while_waiting_gpu_seconds() == 7 * 600.0


def test_averages_over_equal_spans_keep_the_gpu_time() -> None:
    result = replay(TWO_JOBS, Environment(4), GivePairs(), PairSpeeds(), record_timeline=True)
    held, _ = load_of(TWO_JOBS, 8, result.timeline).means(3, end_seconds=3600.0)
    assert held == [1.0, 1.5, 0.0]


@given(workload=workloads())
def test_what_is_held_is_what_the_counters_say_but_for_what_ended_jobs_leave(workload) -> None:
    result = replay(workload, Environment(24), GivePairs(), PairSpeeds(), record_timeline=True)
    load = load_of(workload, 48, result.timeline)
    held = float((np.array(load.used) * np.diff([*load.seconds, load.ends[-1]])).sum())
    assert held <= result.counters.gpu_seconds * (1 + 1e-9) + 1e-6
    assert load.used[-1] == load.waiting[-1] == 0
    assert min(load.used) >= 0
    assert sum(load.means(7)[0]) * load.ends[-1] / 7 == pytest.approx(held, abs=1e-3)
