import pytest
from worlds import PairSpeeds, make_spec, make_workload

from policy_net.domain import Allocation, CapacityMode, Decision, Trigger
from policy_net.errors import BadInput
from policy_net.laboratory.simulation.engine import Simulation
from policy_net.laboratory.simulation.environment import DecideOn, Environment
from policy_net.laboratory.workloads.workload import WorkloadJob


def simulate(*jobs: WorkloadJob, **environment: object) -> Simulation:
    return Simulation(make_workload(*jobs), Environment(4, **environment), PairSpeeds())  # type: ignore[arg-type]


def give(*tasks: int) -> Decision:
    return Decision({"job-0": Allocation(*tasks)})


def test_a_running_job_whose_size_changes_pauses_first() -> None:
    simulation = simulate(make_spec(total_epochs=100.0), resize_seconds=200.0)
    (first,) = simulation.apply(give(1, 1))
    assert (first.seconds, first.paused_seconds, first.samples) == (1200.0, 0.0, 1200.0)
    (second,) = simulation.apply(give(2, 2))
    assert (second.seconds, second.paused_seconds, second.samples) == (1000.0, 200.0, 2000.0)
    (third,) = simulation.apply(give(2, 2))
    assert (third.seconds, third.paused_seconds) == (1200.0, 0.0)
    assert (simulation.counters.resizes, simulation.counters.pause_seconds) == (1, 200.0)


def test_a_pause_holds_its_gpus_and_counts_as_time_with_an_allocation() -> None:
    simulation = simulate(make_spec(total_epochs=100.0), resize_seconds=200.0)
    simulation.apply(give(1, 1))
    simulation.apply(give(2, 2))
    assert simulation.counters.gpu_seconds == 3 * 1200.0
    assert simulation.observe()[0].jobs[0].run_seconds == 2400.0


def test_a_pause_longer_than_the_interval_goes_on_in_the_next() -> None:
    simulation = simulate(make_spec(total_epochs=100.0), resize_seconds=1500.0)
    simulation.apply(give(1, 1))
    (paused,) = simulation.apply(give(2, 1))
    assert (paused.seconds, paused.paused_seconds, paused.samples) == (0.0, 1200.0, 0.0)
    (rest,) = simulation.apply(give(2, 1))
    assert (rest.seconds, rest.paused_seconds) == (900.0, 300.0)
    assert simulation.counters.resizes == 1


def test_a_job_resized_while_it_pauses_begins_the_pause_anew() -> None:
    simulation = simulate(make_spec(total_epochs=100.0), resize_seconds=1500.0)
    for tasks in ((1, 1), (2, 1), (1, 2)):
        simulation.apply(give(*tasks))
    (progress,) = simulation.apply(give(1, 2))
    assert (progress.seconds, progress.paused_seconds) == (900.0, 300.0)


def test_a_first_start_is_free_and_one_after_a_suspension_is_not() -> None:
    simulation = simulate(make_spec(total_epochs=100.0), resume_seconds=30.0)
    (first,) = simulation.apply(give(1, 1))
    simulation.apply(give(0, 0))
    (again,) = simulation.apply(give(4, 4))
    assert (first.paused_seconds, again.paused_seconds, again.seconds) == (0.0, 30.0, 1170.0)
    assert (simulation.counters.resumes, simulation.counters.resizes) == (1, 0)


def test_a_first_start_has_a_pause_of_its_own_where_it_is_said() -> None:
    simulation = simulate(make_spec(total_epochs=100.0), start_seconds=50.0, resume_seconds=30.0)
    (first,) = simulation.apply(give(1, 1))
    (on,) = simulation.apply(give(1, 1))
    simulation.apply(give(0, 0))
    (again,) = simulation.apply(give(1, 1))
    assert [entry.paused_seconds for entry in (first, on, again)] == [50.0, 0.0, 30.0]
    assert (first.seconds, first.samples) == (1150.0, 1150.0)
    assert (simulation.counters.resumes, simulation.counters.pause_seconds) == (1, 80.0)


def test_a_job_that_waits_pays_its_start_when_it_starts() -> None:
    simulation = simulate(make_spec(total_epochs=100.0), start_seconds=1500.0)
    simulation.apply(give(0, 0))
    (starting,) = simulation.apply(give(1, 1))
    (trains,) = simulation.apply(give(1, 1))
    assert (starting.paused_seconds, trains.paused_seconds) == (1200.0, 300.0)
    assert trains.seconds == 900.0


def test_a_start_that_cannot_be_is_refused_and_one_that_is_said_stands_with_the_result() -> None:
    with pytest.raises(BadInput, match="start_seconds"):
        Environment(4, start_seconds=-1.0)
    assert "a job takes 50 s to start" in Environment(4, start_seconds=50.0).notes


def test_a_job_below_its_minimum_is_as_good_as_suspended() -> None:
    simulation = simulate(make_spec(total_epochs=100.0, min_workers=2), resume_seconds=30.0, resize_seconds=5.0)
    simulation.apply(give(2, 1))
    (below,) = simulation.apply(give(1, 1))
    (again,) = simulation.apply(give(2, 1))
    assert (below.seconds, below.epochs, below.paused_seconds) == (0.0, 0.0, 0.0)
    assert again.paused_seconds == 30.0
    assert simulation.counters.unusable_allocations == 1


def test_a_job_that_ends_after_a_pause_ends_that_much_later_and_is_decided_on_then() -> None:
    simulation = simulate(
        make_spec(total_epochs=18.0), make_spec(1, total_epochs=100.0), resize_seconds=100.0, decide_on=DecideOn.EVENT
    )
    both = {"job-1": Allocation(1, 1)}
    simulation.apply(Decision({"job-0": Allocation(1, 1), **both}))  # a tick after 1200 s: 600 samples are left
    (progress, _) = simulation.apply(Decision({"job-0": Allocation(2, 2), **both}))
    assert (progress.finished, progress.seconds, progress.paused_seconds) == (True, 300.0, 100.0)
    assert simulation.jobs.outcomes()[0].end_seconds == 1600.0
    assert simulation.observe()[1] is Trigger.COMPLETION
    assert simulation.time_seconds == 1600.0


@pytest.mark.parametrize("mode", CapacityMode)
def test_without_pauses_resizes_are_counted_and_cost_nothing(mode: CapacityMode) -> None:
    simulation = simulate(make_spec(total_epochs=1000.0), capacity_mode=mode)
    for tasks in ((1, 1), (2, 2), (2, 2), (0, 0), (2, 2)):
        simulation.apply(give(*tasks))
    assert (simulation.counters.resizes, simulation.counters.resumes) == (1, 1)
    assert simulation.counters.pause_seconds == 0.0
