"""What a plan makes of the cost of resizes: who keeps a size, and who is given another."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from states import make_job

from policy_net.domain import SUSPENDED, Allocation, ClusterState, Job, JobKind, Node, Resources
from policy_net.set_policy.planner import plan
from policy_net.set_policy.steps import NO_COST, Prices, ResizeCost, StepTable, keeping

EXPONENT = 0.25
TWO_MINUTES = ResizeCost(120.0, 3600.0)


def table_of(gain: float = 0.6) -> StepTable:
    """Speeds of a job without servers that grow with so much of the number of workers."""
    grid = np.zeros((17, 17))
    grid[0, 1:] = np.arange(1.0, 17.0) ** gain
    return StepTable(grid, 0, 16, SUSPENDED)


def job_of(number: int, seconds: float, workers: int, gain: float = 0.6) -> Job:
    """A job with so many seconds left at its size."""
    samples = seconds * max(workers, 1) ** gain
    return make_job(
        number,
        "cnn",
        worker_demand=Resources(1000),
        ps_demand=Resources(0),
        samples_per_epoch=1.0,
        total_epochs=samples,
        remaining_epochs=samples,
        max_workers=16,
        max_ps=0,
        current=Allocation(workers, 0),
        kind=JobKind.ALLREDUCE,
    )


def sizes(jobs: list[Job], workers: int, cost: ResizeCost) -> list[int]:
    """What a plan gives each job of so many workers that there are."""
    state = ClusterState(0.0, (Node("n", Resources(1000 * workers)),), tuple(jobs), 60.0)
    tables = keeping(jobs, [table_of() for _ in jobs], cost, EXPONENT)
    decision = plan(state, tables)
    return [decision.of(job.job_id).workers for job in jobs]


def test_of_what_is_free_one_job_gets_much_rather_than_each_a_little() -> None:
    jobs = [job_of(number, 1800.0, 4) for number in range(3)]
    assert sizes(jobs, 15, NO_COST) == [5, 5, 5]
    assert sizes(jobs, 15, ResizeCost(30.0, 3600.0)) == [7, 4, 4]


def test_a_job_near_its_end_keeps_its_size() -> None:
    assert sizes([job_of(0, 100.0, 4)], 5, TWO_MINUTES) == [4]
    assert sizes([job_of(0, 100000.0, 4)], 5, ResizeCost(120.0, 100000.0)) == [5]
    assert sizes([job_of(0, 100.0, 4)], 5, NO_COST) == [5]


def test_a_newcomer_takes_what_it_needs_from_one_job_alone() -> None:
    jobs = [*(job_of(number, 1800.0, 4) for number in range(3)), job_of(3, 1800.0, 0)]
    assert sizes(jobs, 12, NO_COST) == [3, 3, 3, 3]
    kept = sizes(jobs, 12, TWO_MINUTES)
    assert sum(workers == 4 for workers in kept[:3]) == 2
    assert kept[3] > 0


@given(st.floats(1.0, 1e6), st.floats(0.0, 1e4), st.floats(1.0, 1e6), st.floats(0.01, 1.0))
def test_another_size_is_worth_less_the_sooner_it_ends_and_the_more_it_costs(
    remaining: float, seconds: float, interval: float, exponent: float
) -> None:
    share = ResizeCost(seconds, interval).share(remaining, exponent)
    assert 0.0 <= share <= 1.0
    assert ResizeCost(2.0 * seconds, interval).share(remaining, exponent) <= share
    assert ResizeCost(seconds, interval).share(2.0 * remaining, exponent) >= share
    assert ResizeCost(0.0, interval).share(remaining, exponent) == 1.0


def test_steps_of_jobs_that_hold_nothing_and_of_all_where_resizes_cost_nothing_are_what_they_were() -> None:
    jobs, tables = [job_of(0, 600.0, 0), job_of(1, 600.0, 3)], [table_of(), table_of()]
    assert keeping(jobs, tables, NO_COST, EXPONENT) == tables
    waiting, running = keeping(jobs, tables, TWO_MINUTES, EXPONENT)
    assert waiting is tables[0]
    assert running is not tables[1]
    assert running is keeping(jobs, tables, TWO_MINUTES, EXPONENT)[1], "found once"


def test_where_a_job_does_not_lie_now_its_size_is_worth_no_more_than_another() -> None:
    jobs, tables = [job_of(0, 600.0, 3)], [table_of()]
    (here,) = keeping(jobs, tables, TWO_MINUTES, EXPONENT, [True])
    (there,) = keeping(jobs, tables, TWO_MINUTES, EXPONENT, [False])
    held = Allocation(2, 0)
    step_here, step_there, usual = here.step(held), there.step(held), tables[0].step(held)
    assert step_here is not None
    assert step_there is not None
    assert usual is not None
    assert step_here.slope > usual.slope > step_there.slope
    assert step_there.slope == pytest.approx(usual.slope * TWO_MINUTES.share(600.0, EXPONENT))


def test_a_price_that_changes_changes_what_keeps_its_size_too() -> None:
    table = table_of()
    before = table.keeping(Allocation(2, 0), 0.9).step(Allocation(2, 0))
    table.count_in(Prices(0.5, 0.25, 1.0))
    after = table.keeping(Allocation(2, 0), 0.9).step(Allocation(2, 0))
    assert before != after
