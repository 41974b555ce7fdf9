import numpy as np
import pytest
from hypothesis import given
from worlds import GivePairs, PairSpeeds, make_spec, make_workload, workloads

from policy_net.laboratory.report.comparison import gpu_use
from policy_net.laboratory.simulation.environment import Environment
from policy_net.laboratory.simulation.replay import replay

TWO_JOBS = make_workload(make_spec(0, total_epochs=18.0), make_spec(1, submit_time_seconds=600.0))


def test_held_gpus_and_waiting_jobs_add_up_over_time() -> None:
    result = replay(TWO_JOBS, Environment(4), GivePairs(), PairSpeeds(), record_timeline=True)
    use = gpu_use(TWO_JOBS, result)
    # job-0 trains from 0 to 1800; job-1 waits from 600 for the slot at 1200 and trains to 2400.
    assert use.times_seconds.tolist() == [0.0, 600.0, 1200.0, 1800.0, 2400.0]
    assert use.held.tolist() == [1.0, 1.0, 2.0, 1.0, 0.0]
    assert use.waiting.tolist() == [0.0, 1.0, 0.0, 0.0, 0.0]
    assert use.idle_while_waiting_gpu_seconds(gpus=8) == 7 * 600.0


def test_averages_over_equal_spans_keep_the_gpu_time() -> None:
    use = gpu_use(TWO_JOBS, replay(TWO_JOBS, Environment(4), GivePairs(), PairSpeeds(), record_timeline=True))
    middles, held = use.averages(3600.0, 3)
    assert middles.tolist() == [600.0, 1800.0, 3000.0]
    assert held.tolist() == [1.0, 1.5, 0.0]


@given(workload=workloads())
def test_what_is_held_is_what_the_counters_say_but_for_what_ended_jobs_leave(workload) -> None:
    result = replay(workload, Environment(24), GivePairs(), PairSpeeds(), record_timeline=True)
    use = gpu_use(workload, result)
    held = float((use.held[:-1] * np.diff(use.times_seconds)).sum())
    assert held <= result.counters.gpu_seconds * (1 + 1e-9) + 1e-6
    assert (use.held >= 0).all()
    assert (use.waiting >= 0).all()
    assert use.held[-1] == use.waiting[-1] == 0
    assert use.averages(float(use.times_seconds[-1]), 7)[1].sum() * float(use.times_seconds[-1]) / 7 == pytest.approx(
        held, abs=1e-3
    )
