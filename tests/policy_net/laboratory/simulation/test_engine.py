import pytest
from worlds import CPU_TASK, GPU_WORKER, PairSpeeds, make_spec, make_workload, one_pair_each

from policy_net.domain import Allocation, CapacityMode, Decision, Resources, Share, Trigger
from policy_net.errors import BadInput, InvalidAllocation
from policy_net.laboratory.simulation.engine import Simulation
from policy_net.laboratory.simulation.environment import Environment
from policy_net.laboratory.workloads.workload import WorkloadJob

POOLED = CapacityMode.POOLED


def simulate(*jobs: WorkloadJob, nodes: int = 1, **environment: object) -> Simulation:
    return Simulation(make_workload(*jobs), Environment(nodes, **environment), PairSpeeds())  # type: ignore[arg-type]


def give(**allocations: tuple[int, int]) -> Decision:
    return Decision({name.replace("_", "-"): Allocation(*tasks) for name, tasks in allocations.items()})


def test_a_job_ends_at_its_fraction_of_the_slot() -> None:
    simulation = simulate(make_spec(total_epochs=18.0))  # 1800 samples at 1 a second
    (first,) = simulation.apply(give(job_0=(1, 1)))
    assert (first.seconds, first.epochs, first.samples, first.finished) == (1200.0, 12.0, 1200.0, False)
    (second,) = simulation.apply(give(job_0=(1, 1)))
    assert (second.seconds, second.epochs, second.remaining_epochs, second.finished) == (600.0, 6.0, 6.0, True)
    assert simulation.finished
    assert simulation.time_seconds == 1800.0
    assert [(o.start_seconds, o.end_seconds, o.jct_seconds) for o in simulation.jobs.outcomes()] == [
        (0.0, 1800.0, 1800.0)
    ]


def test_an_arrival_waits_for_the_next_slot_and_its_waiting_counts() -> None:
    simulation = simulate(make_spec(0), make_spec(1, submit_time_seconds=1.0))
    state, trigger = simulation.observe()
    assert ([job.job_id for job in state.jobs], trigger) == (["job-0"], Trigger.SLOT)
    simulation.apply(one_pair_each(state))
    state, _ = simulation.observe()
    assert ([job.job_id for job in state.jobs], state.time_seconds) == (["job-1"], 1200.0)
    simulation.apply(one_pair_each(state))
    assert simulation.jobs.outcomes()[1].jct_seconds == 2399.0


def test_an_arrival_at_a_slot_start_takes_part_in_that_slot() -> None:
    simulation = simulate(make_spec(submit_time_seconds=2400.0))
    assert simulation.observe()[0].time_seconds == 2400.0


def test_time_without_jobs_is_skipped_to_the_slot_of_the_next_arrival() -> None:
    simulation = simulate(make_spec(0), make_spec(1, submit_time_seconds=100_000.0))
    simulation.apply(give(job_0=(1, 1)))
    assert simulation.time_seconds == 84 * 1200.0
    assert not simulation.finished


def test_what_a_job_frees_in_mid_slot_stays_idle_and_counts_as_held() -> None:
    simulation = simulate(make_spec(total_epochs=6.0), nodes=1)
    simulation.apply(give(job_0=(1, 1)))
    assert simulation.time_seconds == 600.0
    assert simulation.counters.gpu_utilization() == 0.5


def test_a_suspended_job_neither_trains_nor_ends_and_keeps_its_progress() -> None:
    simulation = simulate(make_spec(total_epochs=18.0))
    simulation.apply(give(job_0=(1, 1)))
    assert simulation.apply(give(job_0=(0, 0))) == []
    assert simulation.apply(Decision({})) == []
    (job,) = simulation.observe()[0].jobs
    assert (job.remaining_epochs, job.run_seconds, job.current) == (6.0, 1200.0, Allocation(0, 0))
    simulation.apply(give(job_0=(1, 1)))
    assert simulation.jobs.outcomes()[0].end_seconds == 3 * 1200.0 + 600.0


@pytest.mark.parametrize("tasks", [(2, 0), (0, 3)])
def test_a_one_sided_allocation_makes_no_progress_and_is_counted(tasks: tuple[int, int]) -> None:
    simulation = simulate(make_spec())
    (progress,) = simulation.apply(give(job_0=tasks))
    assert (progress.epochs, progress.seconds, progress.allocation) == (0.0, 0.0, Allocation(*tasks))
    assert simulation.counters.unusable_allocations == 1
    (job,) = simulation.observe()[0].jobs
    assert (job.run_seconds, job.current) == (0.0, Allocation(*tasks))
    assert simulation.jobs.outcomes()[0].start_seconds is None


@pytest.mark.parametrize(
    ("decision", "message"),
    [
        (give(job_9=(1, 1)), "names job 'job-9'"),
        (give(job_0=(17, 1)), "17 workers and 1 PSs are outside its caps"),
        (give(job_0=(1, 17)), "0 to 16 PSs"),
        (give(job_0=(-1, 1)), "outside its caps"),
        (give(job_1=(4, 1)), "0 to 3 workers"),
        (give(job_0=(16, 1)), "needs 34 CPU \\+ 16 GPU in all; the cluster has 16 CPU \\+ 4 GPU"),
    ],
)
def test_an_impossible_decision_is_refused_and_changes_nothing(decision: Decision, message: str) -> None:
    simulation = simulate(make_spec(0), make_spec(1, max_workers=3), nodes=2, capacity_mode=POOLED)
    before = simulation.snapshot()
    with pytest.raises(InvalidAllocation, match=message):
        simulation.apply(decision)
    assert simulation.snapshot() == before


def test_a_cap_of_sixteen_of_each_can_be_held() -> None:
    simulation = simulate(make_spec(total_epochs=16 * 12.0), nodes=8)
    (progress,) = simulation.apply(give(job_0=(16, 16)))
    assert progress.finished
    assert progress.allocation == Allocation(16, 16)


def test_what_no_node_has_room_for_is_trimmed_counted_and_reported() -> None:
    simulation = simulate(make_spec(0), make_spec(1, worker_demand=CPU_TASK), nodes=1)
    first, second = simulation.apply(give(job_0=(2, 1), job_1=(1, 1)))
    assert (first.allocation, second.allocation) == (Allocation(2, 1), Allocation(1, 0))
    assert simulation.counters.trimmed_tasks == 1
    assert simulation.counters.unusable_allocations == 1


def test_a_job_whose_every_task_was_trimmed_is_still_reported() -> None:
    simulation = simulate(make_spec(0), make_spec(1), nodes=1)
    _, second = simulation.apply(give(job_0=(2, 2), job_1=(1, 1)))
    assert (second.job_id, second.allocation, second.epochs) == ("job-1", Allocation(0, 0), 0.0)


def test_the_placement_of_the_latest_decision_can_be_read() -> None:
    simulation = simulate(make_spec(total_epochs=100.0), nodes=2)
    assert simulation.placement() == {}
    simulation.apply(give(job_0=(2, 1)))
    assert simulation.placement() == {
        "job-0": (Share("node-0", Allocation(1, 1)), Share("node-1", Allocation(1, 0))),
    }


def test_a_placement_that_comes_with_the_decision_is_used() -> None:
    simulation = simulate(make_spec(total_epochs=100.0), nodes=2)
    placement = {"job-0": (Share("node-1", Allocation(1, 1)),)}
    simulation.apply(Decision({"job-0": Allocation(1, 1)}, placement))
    assert simulation.placement() == placement


@pytest.mark.parametrize(
    ("shares", "message"),
    [
        ((Share("node-7", Allocation(1, 1)),), "node 'node-7', which does not exist"),
        ((Share("node-0", Allocation(3, 1)),), "node 'node-0' has 8 CPU \\+ 2 GPU left, too little"),
        ((Share("node-0", Allocation(1, 1)),), "allocated 3 workers and 1 PSs, but 1 and 1 are placed"),
        ((), "but 0 and 0 are placed"),
    ],
)
def test_an_impossible_placement_is_refused(shares: tuple[Share, ...], message: str) -> None:
    simulation = simulate(make_spec(), nodes=2)
    before = simulation.snapshot()
    with pytest.raises(InvalidAllocation, match=message):
        simulation.apply(Decision({"job-0": Allocation(3, 1)}, {"job-0": shares}))
    assert simulation.snapshot() == before


def test_a_wrong_declaration_is_what_is_shown_but_the_truth_decides_the_end() -> None:
    simulation = simulate(
        make_spec(0, total_epochs=30.0, declared_epochs=10.0), make_spec(1, total_epochs=6.0, declared_epochs=50.0)
    )
    shown = []
    while not simulation.finished:
        state, _ = simulation.observe()
        shown += [(job.job_id, job.total_epochs, job.remaining_epochs) for job in state.jobs]
        simulation.apply(one_pair_each(state))
    assert shown == [
        ("job-0", 10.0, 10.0),
        ("job-1", 50.0, 50.0),
        ("job-0", 10.0, 0.1),  # it has outrun its declaration: little is shown, but something
        ("job-0", 10.0, 0.1),
    ]
    assert [outcome.end_seconds for outcome in simulation.jobs.outcomes()] == [3000.0, 600.0]


@pytest.mark.parametrize(
    ("changes", "mode", "message"),
    [
        ({"worker_demand": Resources(9000, 0)}, CapacityMode.NODES, "'job-0' never fits: one worker \\(9 CPU"),
        ({"worker_demand": Resources(17000, 0)}, POOLED, "'job-0' never fits"),
        ({"worker_demand": Resources(1000, 3)}, CapacityMode.NODES, "2 node\\(s\\) of 8 CPU \\+ 2 GPU"),
        ({"job_type": "dead"}, POOLED, "'job-0' never trains: the speed of type 'dead' is 0"),
    ],
)
def test_a_job_that_can_never_run_is_refused_at_once(
    changes: dict[str, object], mode: CapacityMode, message: str
) -> None:
    with pytest.raises(BadInput, match=message):
        simulate(make_spec(**changes), nodes=2, capacity_mode=mode)


def test_there_is_no_decision_after_the_end() -> None:
    simulation = simulate(make_spec())
    simulation.apply(give(job_0=(1, 1)))
    with pytest.raises(RuntimeError, match="finished"):
        simulation.observe()


def test_demands_reach_the_scheduler_as_they_are() -> None:
    (job,) = simulate(make_spec()).observe()[0].jobs
    assert (job.worker_demand, job.ps_demand, job.requested) == (GPU_WORKER, CPU_TASK, Allocation(1, 1))
