import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import PairSpeeds, RandomPolicy, workloads

from policy_net.domain import CapacityMode, Progress, Resources
from policy_net.laboratory.simulation.engine import Simulation
from policy_net.laboratory.simulation.environment import DecideOn, Environment
from policy_net.laboratory.workloads.workload import Workload

ENVIRONMENTS = st.builds(
    Environment,
    nodes=st.integers(2, 4),
    decide_on=st.sampled_from(DecideOn),
    debounce_seconds=st.sampled_from([0.0, 60.0, 2000.0]),
    capacity_mode=st.sampled_from(CapacityMode),
    speed_noise=st.sampled_from([0.0, 0.3]),
    seed=st.integers(0, 3),
)


def run(simulation: Simulation, policy: RandomPolicy, decisions: int = 100_000) -> list[tuple[float, list[Progress]]]:
    """Drive a simulation for so many decisions, or to its end; (time of the decision, progress)."""
    history = []
    while not simulation.finished and len(history) < decisions:
        now = simulation.time_seconds
        history.append((now, simulation.apply(policy.decide(*simulation.observe()))))
    return history


@given(workloads(), ENVIRONMENTS, st.integers(0, 9))
def test_no_node_and_no_pool_ever_holds_more_than_it_has(workload: Workload, env: Environment, seed: int) -> None:
    simulation, policy = Simulation(workload, env, PairSpeeds()), RandomPolicy(seed)
    demands = {job.job_id: job for job in workload.jobs}
    while not simulation.finished:
        progress = simulation.apply(policy.decide(*simulation.observe()))
        held = Resources(0)
        for entry in progress:
            job, allocation = demands[entry.job_id], entry.allocation
            held += job.worker_demand * allocation.workers + job.ps_demand * allocation.ps
            assert allocation.workers <= job.max_workers
            assert allocation.ps <= job.max_ps
        assert held.fits_in(Resources(8000, 2) * env.nodes)
        if env.capacity_mode is CapacityMode.NODES:
            on_nodes = {node.node_id: Resources(0) for node in env.node_list}
            placed: dict[str, list[int]] = {}
            for job_id, shares in simulation.placement().items():
                job = demands[job_id]
                for share in shares:
                    tasks = share.allocation
                    on_nodes[share.node_id] += job.worker_demand * tasks.workers + job.ps_demand * tasks.ps
                    counts = placed.setdefault(job_id, [0, 0])
                    counts[0] += tasks.workers
                    counts[1] += tasks.ps
            assert all(used.fits_in(Resources(8000, 2)) for used in on_nodes.values())
            assert placed == {
                entry.job_id: [entry.allocation.workers, entry.allocation.ps]
                for entry in progress
                if entry.allocation.tasks
            }


@given(workloads(), ENVIRONMENTS, st.integers(0, 9))
def test_work_is_conserved(workload: Workload, env: Environment, seed: int) -> None:
    simulation = Simulation(workload, env, PairSpeeds())
    epochs = {job.job_id: 0.0 for job in workload.jobs}
    finishes = {job.job_id: 0 for job in workload.jobs}
    for _, progress in run(simulation, RandomPolicy(seed)):
        for entry in progress:
            assert entry.epochs >= 0
            assert entry.seconds >= 0
            assert entry.remaining_epochs > 0
            if not (entry.allocation.workers and entry.allocation.ps):
                assert entry.epochs == 0
            epochs[entry.job_id] += entry.epochs
            finishes[entry.job_id] += entry.finished
    assert set(finishes.values()) == {1}
    for job in workload.jobs:
        assert epochs[job.job_id] == pytest.approx(job.total_epochs, rel=1e-9)


@given(workloads(), ENVIRONMENTS, st.integers(0, 9))
def test_times_are_in_order(workload: Workload, env: Environment, seed: int) -> None:
    simulation = Simulation(workload, env, PairSpeeds())
    times = [now for now, _ in run(simulation, RandomPolicy(seed))]
    assert all(later > earlier or env.debounce_seconds == 0 for earlier, later in pairwise(times))
    assert times == sorted(times)
    if env.decide_on is DecideOn.SLOT:
        assert all(now % env.slot_seconds == 0 for now in times)
    for outcome in simulation.jobs.outcomes():
        assert outcome.start_seconds is not None
        assert outcome.end_seconds is not None
        assert outcome.submit_seconds <= outcome.start_seconds <= outcome.end_seconds
    assert simulation.time_seconds == max(outcome.end_seconds or 0 for outcome in simulation.jobs.outcomes())


@given(workloads(), ENVIRONMENTS, st.integers(0, 9))
def test_the_same_seed_gives_the_same_result_bit_for_bit(workload: Workload, env: Environment, seed: int) -> None:
    first, second = (Simulation(workload, env, PairSpeeds()) for _ in range(2))
    assert run(first, RandomPolicy(seed)) == run(second, RandomPolicy(seed))
    assert first.jobs.outcomes() == second.jobs.outcomes()
    assert first.counters == second.counters


@given(workloads(), ENVIRONMENTS, st.integers(0, 9), st.integers(0, 20))
def test_a_run_restored_in_the_middle_goes_on_identically(
    workload: Workload, env: Environment, seed: int, cut: int
) -> None:
    whole, resumed = (Simulation(workload, env, PairSpeeds()) for _ in range(2))
    run(whole, RandomPolicy(seed), cut)
    snapshot = json.loads(json.dumps(whole.snapshot()))
    run(resumed, RandomPolicy(seed + 1), 3)  # whatever it has done so far is forgotten
    resumed.restore(snapshot)
    assert resumed.snapshot() == whole.snapshot()
    if not whole.finished:
        assert resumed.observe() == whole.observe()
    assert run(resumed, RandomPolicy(seed)) == run(whole, RandomPolicy(seed))
    assert resumed.jobs.outcomes() == whole.jobs.outcomes()
    assert resumed.counters == whole.counters
