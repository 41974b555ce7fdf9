import math

import pytest
from worlds import GivePairs, PairSpeeds, make_spec, make_workload

from policy_net.domain import Allocation, CapacityMode, Decision, Resources, Trigger
from policy_net.errors import BadInput, NoProgress
from policy_net.laboratory.simulation.engine import Simulation
from policy_net.laboratory.simulation.environment import DecideOn, Environment, NodeChange
from policy_net.laboratory.simulation.node_changes import NodeTimeline, resizing
from policy_net.laboratory.simulation.replay import replay
from policy_net.laboratory.workloads.workload import WorkloadJob

EVENT = DecideOn.EVENT
POOLED = CapacityMode.POOLED
NODE = Resources(8000, 2)


def simulate(*jobs: WorkloadJob, nodes: int = 2, changes: list[tuple[float, str, bool]], **more: object) -> Simulation:
    planned = tuple(NodeChange(*change) for change in changes)
    environment = Environment(nodes, node_changes=planned, **more)  # type: ignore[arg-type]
    return Simulation(make_workload(*jobs), environment, PairSpeeds())


def give(*tasks: int) -> Decision:
    return Decision({"job-0": Allocation(*tasks)})


LONG = make_spec(total_epochs=1000.0)


def test_under_events_a_lost_node_is_decided_on_at_once_even_within_the_debounce() -> None:
    simulation = simulate(LONG, changes=[(10.0, "node-1", False), (500.0, "node-1", True)], decide_on=EVENT)
    (progress,) = simulation.apply(give(2, 2))
    assert (progress.seconds, progress.samples) == (10.0, 20.0)
    state, trigger = simulation.observe()
    assert (state.time_seconds, trigger) == (10.0, Trigger.NODE_CHANGE)
    assert [node.node_id for node in state.nodes] == ["node-0"]
    assert state.jobs[0].current == Allocation(1, 1)  # the tasks on the other node are left
    simulation.apply(give(2, 2))
    state, trigger = simulation.observe()
    assert (state.time_seconds, trigger) == (500.0, Trigger.NODE_CHANGE)
    assert [node.node_id for node in state.nodes] == ["node-0", "node-1"]


def test_under_slots_a_job_with_a_task_on_a_lost_node_stops_until_the_next_slot() -> None:
    simulation = simulate(LONG, changes=[(300.0, "node-1", False), (400.0, "node-1", True)])
    (progress,) = simulation.apply(give(2, 2))
    assert (progress.seconds, progress.samples, progress.allocation) == (300.0, 600.0, Allocation(2, 2))
    state, trigger = simulation.observe()
    assert (state.time_seconds, trigger, len(state.nodes)) == (1200.0, Trigger.SLOT, 2)
    (progress,) = simulation.apply(give(2, 2))
    assert progress.seconds == 1200.0


def test_a_job_without_a_task_on_the_lost_node_goes_on() -> None:
    simulation = simulate(make_spec(0), make_spec(1), changes=[(300.0, "node-1", False)])
    one_each = {job_id: Allocation(1, 1) for job_id in ("job-0", "job-1")}
    first, second = simulation.apply(Decision(one_each))
    assert (first.seconds, second.seconds) == (1200.0, 300.0)


def test_with_pooled_capacity_only_the_total_changes() -> None:
    simulation = simulate(LONG, changes=[(300.0, "node-1", False)], capacity_mode=POOLED)
    (progress,) = simulation.apply(give(4, 4))
    assert progress.seconds == 1200.0
    assert simulation.observe()[0].total == NODE


def test_starting_again_after_the_loss_of_a_node_takes_the_pause_of_a_resumption() -> None:
    simulation = simulate(LONG, changes=[(300.0, "node-1", False)], resume_seconds=60.0, resize_seconds=5.0)
    simulation.apply(give(2, 2))
    (same_as_left,) = simulation.apply(give(1, 1))
    assert same_as_left.paused_seconds == 60.0
    assert simulation.counters.resumes == 1


def test_what_was_trained_since_the_last_checkpoint_is_lost_with_a_node() -> None:
    simulation = simulate(LONG, changes=[(1700.0, "node-1", False)], checkpoint_seconds=500.0)
    simulation.apply(give(2, 2))
    (progress,) = simulation.apply(give(2, 2))  # to 1700 s: the last checkpoint was at 1500
    assert progress.epochs == 10.0
    assert simulation.observe()[0].jobs[0].remaining_epochs == pytest.approx(1000 - 30)
    assert simulation.counters.lost_training_seconds == pytest.approx(200.0)


def test_nothing_is_lost_by_a_suspension_which_writes_a_checkpoint() -> None:
    simulation = simulate(LONG, changes=[(3000.0, "node-1", False)], checkpoint_seconds=5000.0)
    simulation.apply(give(2, 2))
    simulation.apply(give(0, 0))
    simulation.apply(give(2, 2))
    assert simulation.observe()[0].jobs[0].remaining_epochs == pytest.approx(1000 - 24)


def test_held_gpus_count_until_their_node_is_lost_and_so_do_those_that_were_there() -> None:
    simulation = simulate(LONG, changes=[(300.0, "node-1", False)])
    simulation.apply(give(4, 4))
    assert simulation.counters.gpu_seconds == 2 * 1200.0 + 2 * 300.0
    assert simulation.counters.available_gpu_seconds == 2 * 1200.0 + 2 * 300.0
    simulation.apply(give(1, 1))
    assert simulation.counters.gpu_utilization() == pytest.approx((3000.0 + 1200.0) / (3000.0 + 2400.0))


def test_a_cluster_that_grows_and_shrinks_by_plan() -> None:
    changes = resizing(2, NODE, [(7200.0, 1), (3600.0, 4)])
    timeline = NodeTimeline(Environment(2, node_changes=changes))
    sizes = []
    for time in (0.0, 3599.0, 3600.0, 7200.0):
        timeline.advance(time)
        sizes.append([node.node_id for node in timeline.nodes])
    two, four = ["node-0", "node-1"], ["node-0", "node-1", "node-2", "node-3"]
    assert sizes == [two, two, four, ["node-0"]]
    assert timeline.available_gpu_seconds(7200.0) == 4 * 3600.0 + 8 * 3600.0


def test_jobs_wait_while_there_is_no_node_at_all() -> None:
    changes = [(300.0, "node-0", False), (5000.0, "node-0", True)]
    simulation = simulate(make_spec(), nodes=1, changes=changes, decide_on=EVENT)
    simulation.apply(give(1, 1))
    state, trigger = simulation.observe()
    assert (state.time_seconds, trigger, state.jobs[0].current) == (5000.0, Trigger.NODE_CHANGE, Allocation(0, 0))
    slotted = simulate(make_spec(), nodes=1, changes=changes)
    slotted.apply(give(1, 1))
    assert slotted.time_seconds == 6000.0


def test_a_job_too_large_for_the_cluster_waits_until_it_has_grown() -> None:
    changes = (NodeChange(2_000_000.0, "big", True, Resources(32000, 8)),)
    environment = Environment(1, node_changes=changes)
    workload = make_workload(make_spec(worker_demand=Resources(2000, 4)))
    result = replay(workload, environment, GivePairs(), PairSpeeds())
    assert result.outcomes[0].start_seconds == math.ceil(2_000_000 / 1200) * 1200.0


def test_a_job_that_fits_no_planned_cluster_is_refused() -> None:
    environment = Environment(1, node_changes=resizing(1, NODE, [(3600.0, 2)]))
    with pytest.raises(BadInput, match="'job-0' never fits"):
        Simulation(make_workload(make_spec(worker_demand=Resources(2000, 4))), environment, PairSpeeds())


def test_a_policy_that_trains_nothing_is_noticed_though_nodes_come_and_go() -> None:
    environment = Environment(1, node_mtbf_seconds=36000.0, capacity_mode=POOLED)
    with pytest.raises(NoProgress, match="would never end"):
        replay(make_workload(make_spec()), environment, GivePairs(0), PairSpeeds())


def test_a_job_that_loses_all_training_again_and_again_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("policy_net.laboratory.simulation.case.MAX_WAITING_DECISIONS", 2000)
    environment = Environment(
        2, node_mtbf_seconds=3600.0, node_repair_seconds=360.0, checkpoint_seconds=1e6, decide_on=EVENT
    )
    with pytest.raises(NoProgress, match=r"no job has ended in 2000 decisions .* checkpoint more often"):
        replay(make_workload(make_spec(total_epochs=1e5)), environment, GivePairs(), PairSpeeds())


def test_failures_and_repairs_have_the_means_asked_for_and_follow_from_the_seed() -> None:
    def uptime(seed: int) -> tuple[float, int]:
        timeline = NodeTimeline(Environment(50, node_mtbf_seconds=9000.0, node_repair_seconds=1000.0, seed=seed))
        lost = timeline.advance(1e6)
        return timeline.available_gpu_seconds(1e6) / (100 * 1e6), len(lost)

    share, losses = uptime(1)
    assert share == pytest.approx(0.9, abs=0.01)
    assert losses == pytest.approx(50 * 1e6 / 10000, rel=0.05)
    assert uptime(1) == (share, losses) != uptime(2)


def test_where_a_timeline_stands_depends_on_the_clock_alone() -> None:
    environment = Environment(
        5, node_changes=resizing(5, NODE, [(5e4, 8), (2e5, 3)]), node_mtbf_seconds=9000.0, node_repair_seconds=1000.0
    )
    in_steps, at_once = NodeTimeline(environment), NodeTimeline(environment)
    for time in range(0, 300_001, 700):
        in_steps.advance(float(time))
    in_steps.advance(3e5)
    at_once.advance(3e5)
    assert in_steps.nodes == at_once.nodes
    assert in_steps.next_change_seconds == at_once.next_change_seconds
    assert in_steps.available_gpu_seconds(3e5) == at_once.available_gpu_seconds(3e5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ([(5.0, "node-9", False)], "node 'node-9' goes at 5 s, but is not there"),
        ([(5.0, "node-0", True)], "node 'node-0' comes at 5 s, but is already there"),
        ([(5.0, "node-0", False), (4.0, "node-1", False)], "changes at 4.0 s, after a change at 5.0 s"),
        ([(math.nan, "node-0", False)], "use finite times"),
        ([(5.0, "node-0", False), (6.0, "node-1", False)], "without a node"),
    ],
)
def test_an_impossible_plan_is_refused(changes: list[tuple[float, str, bool]], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        simulate(LONG, changes=changes)


@pytest.mark.parametrize(
    ("steps", "message"),
    [([(60.0, 0)], "cannot have 0 nodes"), ([(3600.0, 2), (3600.0, 3)], "two sizes are given for hour 1")],
)
def test_an_impossible_size_is_refused(steps: list[tuple[float, int]], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        resizing(2, NODE, steps)
