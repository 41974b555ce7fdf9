from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spread_places import place_spread
from states import make_job, make_state, states

from policy_net.baselines.marginal import MarginalPolicy
from policy_net.domain import (
    SUSPENDED,
    Allocation,
    CapacityMode,
    ClusterState,
    Decision,
    JobKind,
    Progress,
    Resources,
    SpeedModel,
    Trigger,
)
from policy_net.laboratory.simulation.environment import Environment
from policy_net.laboratory.simulation.replay import replay
from policy_net.laboratory.speeds.speed import TableSpeedModel, default_speeds, read_speed_table
from policy_net.laboratory.workloads.sources import load_workload
from policy_net.set_policy.planner import plan
from policy_net.set_policy.steps import StepTable, StepTables


def table_of(seed: int) -> TableSpeedModel:
    generator = np.random.default_rng(seed)
    grids = {}
    for name in ("resnet-50", "vgg-16", "never-seen"):
        grid = np.zeros((17, 17))
        grid[1:, 1:] = generator.gamma(2.0, 10.0, (16, 16)) * (generator.random((16, 16)) > 0.1)
        grids[name] = grid
    return TableSpeedModel(grids, "a test")


class Planner:
    name = "planner"

    def __init__(self, speeds: SpeedModel) -> None:
        self._tables = StepTables(speeds)

    def decide(self, state: ClusterState, trigger: Trigger) -> Decision:
        return plan(state, [self._tables.of(job) for job in state.jobs])

    def observe(self, progress: list[Progress]) -> None:
        pass


def test_a_step_is_the_steepest_way_up_to_any_larger_split() -> None:
    grid = np.zeros((17, 17))
    grid[1, 1], grid[1, 2], grid[4, 2] = 1.0, 1.01, 16.0
    table = StepTable(grid, 16, 16, Allocation(1, 1))
    first = table.step(SUSPENDED)
    assert first is not None
    assert first.size == Allocation(1, 1)  # 4 over 2 tasks beats 8 over 6
    assert first.slope == pytest.approx(2.0)
    second = table.step(first.size)
    assert second is not None
    assert second.size == Allocation(2, 4)  # past (2, 1), which alone brings next to nothing
    assert second.slope == pytest.approx(1.0)
    assert table.step(second.size) is None


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(0, 8), st.integers(0, 8))
def test_slopes_only_rise_on_the_way_to_a_target(seed: int, workers: int, ps: int) -> None:
    table = StepTable(table_of(seed).grid("vgg-16"), 16, 16, Allocation(1, 1))
    held = Allocation(workers, ps)
    step = table.step(held)
    if step is None:
        return
    for between_workers in range(workers, step.size.workers + 1):
        for between_ps in range(ps, step.size.ps + 1):
            between = Allocation(between_workers, between_ps)
            if between in (held, step.size):
                continue
            onward = table.step(between)
            assert onward is not None
            assert onward.slope >= step.slope * (1 - 1e-9)


@settings(max_examples=80, deadline=None)
@given(states(), st.integers(0, 10_000))
def test_a_plan_stays_within_capacity_and_caps_and_gives_nothing_useless(state: ClusterState, seed: int) -> None:
    speeds = table_of(seed)
    tables = StepTables(speeds)
    generator = np.random.default_rng(seed)
    tilts = [(float(p), float(s)) for p, s in generator.normal(0, 1, (len(state.jobs), 2))]
    decision = plan(state, [tables.of(job) for job in state.jobs], tilts)
    for job in state.jobs:
        given_tasks = decision.of(job.job_id)
        assert given_tasks.workers <= job.max_workers
        assert given_tasks.ps <= job.max_ps
        if given_tasks.tasks:
            assert speeds.samples_per_second(job.job_type, given_tasks.ps, given_tasks.workers) > 0
    used = sum(
        (
            job.worker_demand * decision.of(job.job_id).workers + job.ps_demand * decision.of(job.job_id).ps
            for job in state.jobs
        ),
        Resources(0, 0),
    )
    assert used.fits_in(state.total)
    if state.capacity_mode is CapacityMode.NODES:
        _, left_over = place_spread(state, decision.allocation)
        assert not any(allocation.tasks for allocation in left_over.values())


def test_a_step_that_does_not_fit_gives_way_to_the_best_that_does() -> None:
    grid = np.zeros((17, 17))
    grid[1, 1], grid[1, 8] = 1.0, 10_000.0  # eight workers at once are steepest
    job = make_job(0, "vgg-16")
    state = make_state([job], nodes=2, mode=CapacityMode.POOLED)  # room for four GPU workers
    table = StepTable(grid, 16, 16, Allocation(1, 1))
    assert plan(state, [table]).of(job.job_id) == Allocation(1, 1)


def test_kinds_and_minimum_sizes_are_respected() -> None:
    served = np.zeros((17, 17))
    served[1:, 1:] = np.sqrt(np.add.outer(np.arange(1, 17), np.arange(1, 17)))
    alone = np.zeros((17, 17))
    alone[0, 1:] = np.sqrt(np.arange(1, 17))
    speeds = TableSpeedModel({"vgg-16": served, "bert-allreduce": alone}, "a test")
    tables = StepTables(speeds)
    jobs = [
        make_job(0, "vgg-16", min_workers=3, min_ps=2),
        make_job(1, "bert-allreduce", kind=JobKind.ALLREDUCE, max_ps=0, min_ps=0, min_workers=2),
    ]
    decision = plan(make_state(jobs, nodes=6), [tables.of(job) for job in jobs])
    for job in jobs:
        assert job.can_train(decision.of(job.job_id))
    assert decision.of("job-1").ps == 0


def test_priority_decides_who_comes_first_when_there_is_room_for_one() -> None:
    grid = np.zeros((17, 17))
    grid[1, 1] = 1.0
    jobs = [make_job(number, "vgg-16") for number in range(3)]
    small = replace(make_state(jobs, nodes=1, mode=CapacityMode.POOLED), nodes=make_state([], 1).nodes)
    crowded = replace(small, jobs=tuple(replace(job, worker_demand=Resources(4000, 2)) for job in jobs))
    tables = [StepTable(grid, 16, 16, Allocation(1, 1))] * 3
    assert list(plan(crowded, tables).allocation) == ["job-0"]
    assert list(plan(crowded, tables, [(0.0, 0.0), (0.0, 0.0), (0.1, 0.0)]).allocation) == ["job-2"]


@pytest.mark.parametrize("nodes", [16, 24, 32, 96])
def test_given_the_truth_the_planner_is_as_good_as_the_oracle(nodes: int, data_folder: Path) -> None:
    speeds = read_speed_table(data_folder / "reference" / "speed_grid.csv")
    totals = {"oracle": 0.0, "planner": 0.0}
    for trace in ("fixed60-0", "fixed60-1", "varied60-0", "varied60-1"):
        workload = load_workload(f"reference:{trace}@{data_folder / 'reference' / 'traces.csv'}")
        environment = Environment(nodes=nodes, capacity_mode=CapacityMode.POOLED)
        for policy in (MarginalPolicy("oracle", speeds), Planner(speeds)):
            totals[policy.name] += replay(workload, environment, policy, speeds).to_json()["avg_jct_seconds"]
    assert totals["planner"] == pytest.approx(totals["oracle"], rel=0.002)


def test_without_the_data_too_the_planner_is_as_good_as_the_oracle() -> None:
    speeds = default_speeds()
    workload = load_workload("dl2:jobs=40,arrivals=google,sizes=varied,seed=5")
    environment = Environment(nodes=20)
    results = [
        replay(workload, environment, policy, speeds).to_json()["avg_jct_seconds"]
        for policy in (MarginalPolicy("oracle", speeds), Planner(speeds))
    ]
    assert results[1] == pytest.approx(results[0], rel=0.01)
