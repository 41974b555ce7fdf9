"""What every scheduler must do, whatever its kind; a new policy is added to `POLICIES` and to nothing else."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from cluster_states import JOB_TYPES, KIND_OF_TYPE, cluster, drawn_progress, drawn_states, job, progress_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sample_policies import build_event_driven, build_job_selection
from spread_places import place_spread

import policy_net.baselines
import policy_net.dl2
import policy_net.set_policy  # noqa: F401  (registers its name)
from policy_net.dl2.network import initial_weights
from policy_net.dl2.policy import ActingMode, LearnedPolicy
from policy_net.domain import (
    SUSPENDED,
    Allocation,
    CapacityMode,
    ClusterState,
    Decision,
    Job,
    Node,
    PolicyContext,
    Progress,
    Resources,
    Trigger,
)
from policy_net.exchange.spec import PolicySpec
from policy_net.laboratory.speeds.speed import TableSpeedModel
from policy_net.placement.capacity import open_capacity
from policy_net.policy import SchedulerPolicy, build_policy, policy_names


def mixed_job(number: int, job_type: str) -> Job:
    """One of a crowd of all kinds, minimum sizes and requests, half of them of unknown work."""
    kind = KIND_OF_TYPE[job_type]
    return job(
        number,
        job_type=job_type,
        kind=kind,
        max_workers=16 if kind.uses_ps or number % 2 else 64,
        max_ps=16 if kind.uses_ps else 0,
        min_workers=1 + number % 3,
        min_ps=1 + number % 2 if kind.uses_ps else 0,
        requested=Allocation(1 + number % 8, number % 4 + 1 if kind.uses_ps else 0),
        work_known=number % 2 == 0,
    )


Builder = Callable[[PolicyContext], SchedulerPolicy]


def truth() -> TableSpeedModel:
    """Speeds with diminishing returns, a peak inside the grid, and a dead cell."""
    counts = np.arange(1.0, 17.0)
    grid = np.zeros((17, 17))
    grid[1:, 1:] = 100 / (1 / counts + 0.2 + 0.3 * counts / counts[:, None] + 0.02 * counts)
    grid[5, 5] = 0
    many, alone = np.arange(1.0, 65.0), np.zeros((1, 65))
    alone[0, 1:] = 100 / (1 / many + 0.2 + 0.02 * many)
    grids = {name: (grid if kind.uses_ps else alone) for name, kind in KIND_OF_TYPE.items()}
    return TableSpeedModel({name: grid * (1 + index) for index, (name, grid) in enumerate(grids.items())}, "a test")


def build_learned(context: PolicyContext, mode: ActingMode) -> LearnedPolicy:
    spec = PolicySpec(job_types=("other", *JOB_TYPES[:2]), hidden=(16, 16))
    return LearnedPolicy(spec, initial_weights(spec, context.seed), seed=context.seed, mode=mode)


POLICIES: dict[str, Builder] = {
    **{name: partial(build_policy, name) for name in policy_names()},
    "dl2 (untrained, greedy)": partial(build_learned, mode=ActingMode.GREEDY),
    "dl2 (untrained, sampling)": partial(build_learned, mode=ActingMode.SAMPLE),
    "sample: job selection": build_job_selection,
    "sample: event-driven": build_event_driven,
}

each_policy = pytest.mark.parametrize("build", POLICIES.values(), ids=POLICIES.keys())
examples = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def context(seed: int = 0) -> PolicyContext:
    return PolicyContext(seed=seed, true_speeds=truth(), measured_speeds=truth())


def assert_possible(state: ClusterState, decision: Decision) -> None:
    """Only jobs of the state, within their caps, within the cluster: in total, and node by node where that counts."""
    jobs = {one.job_id: one for one in state.jobs}
    assert set(decision.allocation) <= set(jobs)
    used = Resources(0, 0)
    for job_id, held in decision.allocation.items():
        assert 0 <= held.workers <= jobs[job_id].max_workers
        assert 0 <= held.ps <= (jobs[job_id].max_ps if jobs[job_id].kind.uses_ps else 0)
        used = used + jobs[job_id].worker_demand * held.workers + jobs[job_id].ps_demand * held.ps
    assert used.fits_in(state.total)
    if state.capacity_mode is CapacityMode.NODES and decision.placement is None:
        _, unplaced = place_spread(state, decision.allocation)
        assert not unplaced


@each_policy
@examples
@given(state=drawn_states(), trigger=st.sampled_from(Trigger))
def test_a_decision_stays_within_capacity_and_caps(build: Builder, state: ClusterState, trigger: Trigger) -> None:
    assert_possible(state, build(context()).decide(state, trigger))


@pytest.mark.heavy
@each_policy
@examples
@given(states=st.lists(drawn_states(), min_size=2, max_size=4), seed=st.integers(0, 2**31))
def test_the_same_seed_and_history_give_the_same_decisions(
    build: Builder, states: list[ClusterState], seed: int
) -> None:
    first, second = build(context(seed)), build(context(seed))
    for state in states:
        decision = first.decide(state, Trigger.SLOT)
        assert second.decide(state, Trigger.SLOT) == decision
        for policy in (first, second):
            policy.observe(progress_of(state, decision))


@each_policy
@examples
@given(reports=st.lists(drawn_progress(), max_size=30), state=drawn_states())
def test_any_progress_is_accepted_and_decisions_stay_possible(
    build: Builder, reports: list[Progress], state: ClusterState
) -> None:
    policy = build(context())
    policy.observe(reports)
    policy.observe([])
    assert_possible(state, policy.decide(state, Trigger.COMPLETION))


@each_policy
@pytest.mark.parametrize("mode", CapacityMode)
def test_without_jobs_nothing_is_allocated(build: Builder, mode: CapacityMode) -> None:
    policy = build(context())
    assert not policy.decide(cluster([], nodes=4, mode=mode), Trigger.SLOT).allocation
    assert not policy.decide(cluster([], nodes=0, mode=mode), Trigger.NODE_CHANGE).allocation


@each_policy
@pytest.mark.parametrize("mode", CapacityMode)
def test_without_nodes_every_job_is_suspended(build: Builder, mode: CapacityMode) -> None:
    state = cluster([job(number) for number in range(5)], nodes=0, mode=mode)
    decision = build(context()).decide(state, Trigger.NODE_CHANGE)
    assert all(decision.of(one.job_id) == SUSPENDED for one in state.jobs)


@each_policy
@pytest.mark.parametrize("mode", CapacityMode)
def test_a_single_job_and_two_hundred_get_possible_decisions(build: Builder, mode: CapacityMode) -> None:
    policy = build(context())
    for jobs, nodes in ((1, 1), (1, 100), (200, 10), (200, 100)):
        state = cluster([job(number) for number in range(jobs)], nodes, mode)
        decision = policy.decide(state, Trigger.ARRIVAL)
        assert_possible(state, decision)
        policy.observe(progress_of(state, decision))


@each_policy
@pytest.mark.parametrize("mode", CapacityMode)
def test_two_hundred_jobs_of_all_kinds_get_possible_decisions(build: Builder, mode: CapacityMode) -> None:
    types = sorted(KIND_OF_TYPE)
    jobs = [mixed_job(number, types[number % len(types)]) for number in range(200)]
    policy = build(context())
    for nodes in (1, 10, 100):
        state = cluster(jobs, nodes, mode)
        decision = policy.decide(state, Trigger.ARRIVAL)
        assert_possible(state, decision)
        policy.observe(progress_of(state, decision))


@each_policy
def test_on_nodes_without_gpus_only_jobs_that_need_none_get_tasks(build: Builder) -> None:
    jobs = [job(0), job(1, worker_demand=Resources(2000, 0)), job(2, worker_demand=Resources(500, 1))]
    nodes = tuple(Node(f"node-{index}", Resources(8000, 0)) for index in range(3))
    state = ClusterState(0.0, nodes, tuple(jobs), 1200.0, CapacityMode.NODES)
    decision = build(context()).decide(state, Trigger.SLOT)
    assert all(decision.of(one.job_id).workers == 0 for one in (jobs[0], jobs[2]))
    assert_possible(state, decision)


@each_policy
def test_it_satisfies_the_protocol_and_has_a_name(build: Builder) -> None:
    policy = build(context())
    assert isinstance(policy, SchedulerPolicy)
    assert policy.name


@pytest.mark.parametrize("name", policy_names())
def test_a_registered_policy_bears_the_name_it_is_registered_under(name: str) -> None:
    assert build_policy(name, context()).name == name


@pytest.mark.parametrize("name", policy_names())
@examples
@given(state=drawn_states())
def test_a_registered_policy_lets_somebody_train_wherever_a_job_fits(name: str, state: ClusterState) -> None:
    decision = build_policy(name, context()).decide(state, Trigger.SLOT)
    jobs = {one.job_id: one for one in state.jobs}
    someone_could = any(
        one.min_workers <= one.max_workers
        and one.min_ps <= one.max_ps
        and open_capacity(state).fits(*[one.worker_demand] * one.min_workers, *[one.ps_demand] * one.min_ps)
        for one in state.jobs
    )
    trains = {job_id: jobs[job_id].can_train(granted) for job_id, granted in decision.allocation.items()}
    assert any(trains.values()) == someone_could
    if name != "dl2":  # a network learns by itself not to
        assert all(trains.values()), "tasks that do not train are given away for nothing"


def test_the_suite_catches_a_policy_that_overfills_a_node() -> None:
    state = cluster([job(0, worker_demand=Resources(5000, 0), ps_demand=Resources(1000, 0))], nodes=2)
    assert_possible(state, Decision({"job-0": Allocation(2, 2)}))
    with pytest.raises(AssertionError):  # 2 × 8 CPU hold three workers in total, but no node holds two
        assert_possible(state, Decision({"job-0": Allocation(3, 1)}))
