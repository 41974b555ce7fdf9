from worlds import PairSpeeds, make_spec, make_workload, one_pair_each

from policy_net.domain import Decision, Trigger
from policy_net.laboratory.simulation.engine import Simulation
from policy_net.laboratory.simulation.environment import DecideOn, Environment
from policy_net.laboratory.workloads.workload import WorkloadJob


def decisions(
    *jobs: WorkloadJob, idle: bool = False, limit: int = 10, **environment: object
) -> list[tuple[float, str]]:
    """(time, trigger) of every decision when each job always gets one pair (1 sample a second), or nothing."""
    simulation = Simulation(
        make_workload(*jobs),
        Environment(nodes=4, decide_on=DecideOn.EVENT, **environment),  # type: ignore[arg-type]
        PairSpeeds(),
    )
    taken = []
    while not simulation.finished and len(taken) < limit:
        state, trigger = simulation.observe()
        taken.append((state.time_seconds, trigger.value))
        simulation.apply(Decision({}) if idle else one_pair_each(state))
    return taken


def seconds_of_work(number: int, submit: float, seconds: float) -> WorkloadJob:
    return make_spec(number, submit_time_seconds=submit, total_epochs=seconds / 100.0)


def test_an_arrival_is_decided_on_when_it_comes() -> None:
    assert decisions(seconds_of_work(0, 7.5, 500), seconds_of_work(1, 200, 1000)) == [
        (7.5, "arrival"),
        (200.0, "arrival"),
        (507.5, "completion"),
    ]


def test_events_within_the_debounce_wait_for_its_end_and_are_decided_on_together() -> None:
    assert decisions(
        seconds_of_work(0, 0, 20), seconds_of_work(1, 10, 300), seconds_of_work(2, 30, 300), seconds_of_work(3, 60, 300)
    ) == [(0.0, "arrival"), (60.0, "arrival")]  # named for the first of them


def test_a_completion_within_the_debounce_waits_too() -> None:
    assert decisions(seconds_of_work(0, 0, 20), seconds_of_work(1, 0, 100)) == [
        (0.0, "arrival"),
        (60.0, "completion"),
    ]


def test_without_events_there_is_a_tick_every_slot_length_from_the_last_decision() -> None:
    assert decisions(seconds_of_work(0, 100, 3000)) == [(100.0, "arrival"), (1300.0, "slot"), (2500.0, "slot")]


def test_ticks_go_on_while_jobs_are_kept_waiting() -> None:
    assert decisions(seconds_of_work(0, 0, 10), idle=True, limit=3) == [
        (0.0, "arrival"),
        (1200.0, "slot"),
        (2400.0, "slot"),
    ]


def test_an_empty_cluster_is_not_ticked_and_the_next_arrival_still_keeps_the_debounce() -> None:
    assert decisions(seconds_of_work(0, 0, 20), seconds_of_work(1, 5000, 20), seconds_of_work(2, 5070, 20)) == [
        (0.0, "arrival"),
        (5000.0, "arrival"),
        (5070.0, "arrival"),
    ]
    assert decisions(seconds_of_work(0, 0, 5), seconds_of_work(1, 10, 20)) == [(0.0, "arrival"), (60.0, "completion")]


def test_without_a_debounce_every_event_has_its_decision() -> None:
    assert decisions(
        seconds_of_work(0, 0, 5), seconds_of_work(1, 2, 20), seconds_of_work(2, 1e7, 0.001), debounce_seconds=0.0
    ) == [(0.0, "arrival"), (2.0, "arrival"), (5.0, "completion"), (1e7, "arrival")]


def test_a_debounce_longer_than_the_tick_is_cut_by_the_tick() -> None:
    assert decisions(seconds_of_work(0, 0, 3000), seconds_of_work(1, 10, 3000), debounce_seconds=2000.0, limit=2) == [
        (0.0, "arrival"),
        (1200.0, Trigger.SLOT.value),
    ]
