"""What holds with every disturbance at once, whatever a policy decides."""

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import PairSpeeds, RandomPolicy, make_spec, workloads

from policy_net.domain import Allocation, CapacityMode, Job, JobKind, Progress, Resources
from policy_net.laboratory.simulation.engine import Simulation
from policy_net.laboratory.simulation.environment import DecideOn, Environment, PlacementStrategy
from policy_net.laboratory.simulation.node_changes import resizing
from policy_net.laboratory.workloads.workload import Workload, parse_durations, with_estimates
from policy_net.placement.capacity import open_capacity

NODE = Resources(8000, 2)
PLANS = st.dictionaries(st.sampled_from([700.0, 1200.0, 5000.0, 30000.0]), st.integers(1, 6), max_size=3)


@st.composite
def environments(draw: st.DrawFn) -> Environment:
    nodes = draw(st.integers(1, 4))
    return Environment(
        nodes,
        decide_on=draw(st.sampled_from(DecideOn)),
        capacity_mode=draw(st.sampled_from(CapacityMode)),
        placement=draw(st.sampled_from(PlacementStrategy)),
        speed_noise=draw(st.sampled_from([0.0, 0.3])),
        job_noise=draw(st.sampled_from([0.0, 0.3])),
        resize_seconds=draw(st.sampled_from([0.0, 5.0, 300.0])),
        resume_seconds=draw(st.sampled_from([0.0, 30.0, 500.0])),
        checkpoint_seconds=draw(st.sampled_from([0.0, 100.0])),
        node_changes=resizing(nodes, NODE, draw(PLANS).items()),
        node_mtbf_seconds=draw(st.sampled_from([0.0, 40_000.0])),
        seed=draw(st.integers(0, 3)),
        gpu_types=(("old", 1),),
    )


@st.composite
def mixed(draw: st.DrawFn) -> Workload:
    workload = draw(workloads(most_jobs=5))
    jobs = [
        replace(
            job, job_id=f"ring-{job.job_id}", job_type="ring", kind=JobKind.ALLREDUCE, min_ps=0, max_ps=0,
            requested=Allocation(1, 0), ps_demand=Resources(0),
        )
        if draw(st.booleans()) else replace(job, min_workers=draw(st.integers(1, 2)))
        for job in workload.jobs
    ]  # fmt: skip
    # Two workers of two GPUs never fit where there is one node.
    jobs = [replace(job, min_workers=1) if job.worker_demand.gpu == 2 else job for job in jobs]
    durations = parse_durations(draw(st.sampled_from(["known", "lognormal:1", "unknown"])))
    return with_estimates(replace(workload, jobs=tuple(jobs)), durations, 0)


class MixedSpeeds(PairSpeeds):
    """Type `ring` trains without servers, one sample a second and worker."""

    def grid(self, job_type: str):  # type: ignore[no-untyped-def]
        grid = super().grid(job_type)
        if job_type == "ring":
            grid = grid * 0.0
            grid[0] = range(17)
        return grid


class FarSpeeds:
    """Every further node halves the speed, and so does an old GPU."""

    def relative_speed(self, job_type: str, workers_by_node: Sequence[tuple[str, int]]) -> float:
        return 0.5 ** (len(workers_by_node) - 1 + any(kind == "old" for kind, _ in workers_by_node))


class Patient(RandomPolicy):
    """Grants at random, and the first job at least what it needs where there is room; waits where there is not."""

    def decide(self, state, trigger):  # type: ignore[no-untyped-def]
        decision = super().decide(state, trigger)
        first: Job = state.jobs[0]
        held = dict(decision.allocation)
        if not first.can_train(decision.of(first.job_id)) or not self._fits(state, held):
            held = {first.job_id: first.smallest}
        if not self._fits(state, held):
            held = {}
        return replace(decision, allocation=held)

    def _fits(self, state, held) -> bool:  # type: ignore[no-untyped-def]
        capacity = open_capacity(state)
        demands: list[Resources] = []
        for job in state.jobs:
            tasks = held.get(job.job_id, Allocation())
            if tasks.workers > job.max_workers or tasks.ps > job.max_ps:
                return False
            demands += [job.worker_demand] * tasks.workers + [job.ps_demand] * tasks.ps
        return capacity.fits(*demands)


def simulate(workload: Workload, environment: Environment) -> Simulation:
    return Simulation(workload, environment, MixedSpeeds(), FarSpeeds())


def run(simulation: Simulation, seed: int, decisions: int = 5000) -> list[tuple[float, list[Progress]]]:
    policy, history = Patient(seed), []
    while not simulation.finished and len(history) < decisions:
        now = simulation.time_seconds
        history.append((now, simulation.apply(policy.decide(*simulation.observe()))))
    return history


@pytest.mark.heavy
@settings(max_examples=150)
@given(mixed(), environments(), st.integers(0, 5))
def test_work_is_conserved_and_no_more_is_held_than_there_is(workload: Workload, env: Environment, seed: int) -> None:
    simulation, policy = simulate(workload, env), Patient(seed)
    specs = {job.job_id: job for job in workload.jobs}
    trained = dict.fromkeys(specs, 0.0)
    paused = 0.0
    for _ in range(5000):
        if simulation.finished:
            break
        state, trigger = simulation.observe()
        assert state.nodes
        progress = simulation.apply(policy.decide(state, trigger))
        until, held = simulation.time_seconds, Resources(0)
        for entry in progress:
            spec, tasks = specs[entry.job_id], entry.allocation
            held += spec.worker_demand * tasks.workers + spec.ps_demand * tasks.ps
            trained[entry.job_id] += entry.epochs
            paused += entry.paused_seconds
            assert entry.remaining_epochs > 0
            assert entry.seconds >= 0
            if not simulation.finished:
                assert state.time_seconds + entry.paused_seconds + entry.seconds <= until * (1 + 1e-12) or not progress
            if tasks.workers < spec.min_workers or tasks.ps < spec.min_ps:
                assert entry.seconds == entry.epochs == entry.paused_seconds == 0.0
        assert held.fits_in(state.total)
    assert simulation.finished
    counters = simulation.counters
    assert counters.pause_seconds == pytest.approx(paused)
    assert counters.gpu_seconds <= counters.available_gpu_seconds * (1 + 1e-9) + 1e-6
    for job in workload.jobs:
        if counters.lost_training_seconds == 0:
            assert trained[job.job_id] == pytest.approx(job.total_epochs, rel=1e-9)
        else:
            assert trained[job.job_id] >= job.total_epochs * (1 - 1e-9)
    for outcome in simulation.jobs.outcomes():
        assert outcome.start_seconds is not None
        assert outcome.end_seconds is not None
        assert outcome.submit_seconds <= outcome.start_seconds <= outcome.end_seconds


@given(mixed(), environments(), st.integers(0, 5), st.integers(0, 30))
def test_a_run_restored_in_the_middle_goes_on_identically(
    workload: Workload, env: Environment, seed: int, cut: int
) -> None:
    whole, resumed = simulate(workload, env), simulate(workload, env)
    run(whole, seed, cut)
    snapshot = json.loads(json.dumps(whole.snapshot()))
    run(resumed, seed + 1, 3)
    resumed.restore(snapshot)
    assert resumed.snapshot() == whole.snapshot()
    if not whole.finished:
        assert resumed.observe() == whole.observe()
    assert run(resumed, seed) == run(whole, seed)
    assert resumed.jobs.outcomes() == whole.jobs.outcomes()
    assert resumed.counters == whole.counters


@given(mixed(), environments(), st.integers(0, 5))
def test_the_same_seed_gives_the_same_result_bit_for_bit(workload: Workload, env: Environment, seed: int) -> None:
    first, second = simulate(workload, env), simulate(workload, env)
    assert run(first, seed) == run(second, seed)
    assert first.counters == second.counters


def test_only_what_is_in_the_cluster_is_kept_of_jobs_beyond_their_outcome() -> None:
    jobs = tuple(make_spec(number, submit_time_seconds=1200.0 * number) for number in range(50))
    simulation = Simulation(Workload("queue", jobs), Environment(1), PairSpeeds())
    while not simulation.finished:
        assert len(simulation.observe()[0].jobs) == 1
        simulation.apply(RandomPolicy(0).decide(*simulation.observe()))
        assert len(simulation.snapshot()["jobs"]["present"]) <= 1
    assert len(simulation.jobs.outcomes()) == 50
