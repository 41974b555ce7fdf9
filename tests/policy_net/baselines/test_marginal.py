import pytest
from hypothesis import given, settings
from speed_tables import room_for, table
from spread_places import place_spread
from states import make_job, make_state, states

from policy_net.baselines.marginal import MarginalPolicy, build_marginal, build_oracle
from policy_net.domain import (
    Allocation,
    CapacityMode,
    ClusterState,
    JobKind,
    PolicyContext,
    Progress,
    Resources,
    Trigger,
)
from policy_net.errors import BadInput
from policy_net.laboratory.speeds.speed import default_speeds


def test_the_shorter_job_comes_first_when_there_is_room_for_one() -> None:
    speeds = table(a={(1, 1): 1})
    jobs = [make_job(0, "a", remaining_epochs=200), make_job(1, "a", remaining_epochs=100)]
    for mode in CapacityMode:
        decision = MarginalPolicy("oracle", speeds).decide(room_for(3, jobs, mode), Trigger.SLOT)
        assert decision.allocation == {"job-1": Allocation(1, 1)}


def test_equal_jobs_are_served_by_arrival() -> None:
    jobs = [make_job(number, "a") for number in range(3)]
    decision = MarginalPolicy("oracle", table(a={(1, 1): 1})).decide(room_for(4, jobs), Trigger.SLOT)
    assert set(decision.allocation) == {"job-0", "job-1"}


def test_a_step_too_large_for_what_is_left_becomes_the_best_split_that_fits() -> None:
    # The hull goes 1+1 (1) → 3+3 (81): with five tasks of room, 2+1 (2) is the best there is.
    speeds = table(a={(1, 1): 1, (2, 1): 2, (1, 2): 1.5, (3, 3): 6561})
    for mode in CapacityMode:
        decision = MarginalPolicy("oracle", speeds).decide(room_for(4, [make_job(0, "a")], mode), Trigger.SLOT)
        assert decision.allocation == {"job-0": Allocation(workers=1, ps=2)}


def test_a_job_gets_its_minimum_or_nothing() -> None:
    speeds = table(a={(1, 1): 1, (1, 2): 2, (2, 2): 2.5})
    for mode in CapacityMode:
        for tasks, held in ((2, Allocation(0, 0)), (3, Allocation(2, 1)), (4, Allocation(2, 2))):
            job = make_job(0, "a", min_workers=2)
            assert (
                MarginalPolicy("oracle", speeds).decide(room_for(tasks, [job], mode), Trigger.SLOT).of("job-0") == held
            )


def test_all_reduce_jobs_share_workers_by_what_they_add() -> None:
    speeds = table(a={(0, 1): 1, (0, 2): 16}, b={(0, 1): 1, (0, 2): 1.1})
    jobs = [make_job(n, name, kind=JobKind.ALLREDUCE, max_ps=0, min_ps=0) for n, name in enumerate("ab")]
    decision = MarginalPolicy("oracle", speeds).decide(room_for(3, jobs), Trigger.SLOT)
    assert decision.allocation == {"job-0": Allocation(2, 0), "job-1": Allocation(1, 0)}


def test_one_role_is_exchanged_for_the_other_where_that_is_faster() -> None:
    # From 3 PSs and 1 worker the hull leads to 1 PS and 4 workers: two servers are given back on the way.
    speeds = table(a={(3, 1): 1, (1, 4): 2})
    for mode in CapacityMode:
        decision = MarginalPolicy("oracle", speeds).decide(room_for(5, [make_job(0, "a")], mode), Trigger.SLOT)
        assert decision.allocation == {"job-0": Allocation(workers=4, ps=1)}


def test_nodes_too_small_for_a_step_get_what_they_hold() -> None:
    # 16 CPU in total, but on two nodes of 8: two workers of 5 CPU fit, three do not.
    speeds = table(a={(1, 1): 1, (1, 2): 20, (1, 3): 500})
    job = make_job(0, "a", worker_demand=Resources(5000, 0), ps_demand=Resources(1000, 0))
    state = make_state([job], nodes=2)
    assert MarginalPolicy("oracle", speeds).decide(state, Trigger.SLOT).of("job-0") == Allocation(2, 1)


def test_a_job_beyond_its_declared_end_is_urgent_but_finite() -> None:
    jobs = [make_job(0, "a", remaining_epochs=0.0), make_job(1, "a", remaining_epochs=0.0, total_epochs=0.0)]
    decision = MarginalPolicy("oracle", table(a={(1, 1): 1})).decide(room_for(4, jobs), Trigger.SLOT)
    assert set(decision.allocation) == {"job-0", "job-1"}


@settings(max_examples=60, deadline=None)
@given(states(most_jobs=12))
def test_every_allocation_can_train_and_be_placed(state: ClusterState) -> None:
    policy = build_marginal(PolicyContext())
    decision = policy.decide(state, Trigger.SLOT)
    assert all(held.workers and held.ps for held in decision.allocation.values())
    if state.capacity_mode is CapacityMode.NODES:
        _, unplaced = place_spread(state, decision.allocation)
        assert not unplaced


def test_the_oracle_is_refused_outside_simulations() -> None:
    with pytest.raises(BadInput, match=r"oracle.*true speeds"):
        build_oracle(PolicyContext())


def test_marginal_learns_from_progress_alone() -> None:
    policy = build_marginal(PolicyContext())
    truth = default_speeds()
    jobs = [make_job(0, "dssm", remaining_epochs=1e6)]
    for _ in range(12):
        held = policy.decide(room_for(100, jobs), Trigger.SLOT).of("job-0")
        speed = truth.samples_per_second("dssm", held.ps, held.workers)
        policy.observe([Progress("job-0", "dssm", held, 1200.0, speed * 1200.0, speed * 12.0, 1e6)])
    assert speed >= 0.9 * truth.grid("dssm").max()
