"""What schedulers see before a job trains must not depend on what they are not told."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from worlds import workloads

from policy_net.domain import ClusterState, Decision, JobKind, Trigger
from policy_net.laboratory.catalogue import CATALOGUE, MODEL_NAMES
from policy_net.laboratory.simulation.engine import Simulation
from policy_net.laboratory.simulation.environment import DecideOn, Environment
from policy_net.laboratory.workloads.workload import Estimates, Workload, WorkloadJob, parse_durations, with_estimates

UNTRAINED_DECISIONS = 12
NOTHING = Decision({})


class ScaledSpeeds:
    """Every type has its own speed, the more tasks the faster; all-reduce types have speeds in row 0."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def samples_per_second(self, job_type: str, ps: int, workers: int) -> float:
        return float(self.grid(job_type)[ps, workers])

    def grid(self, job_type: str) -> NDArray[np.float64]:
        generator = np.random.default_rng([self._seed, *job_type.encode()])
        return np.exp(generator.normal(0.0, 2.0)) * np.sort(generator.uniform(0.1, 9.0, (17, 17)))


def seen(
    workload: Workload, speeds: ScaledSpeeds, environment: Environment, decisions: int = UNTRAINED_DECISIONS
) -> list[tuple[ClusterState, Trigger]]:
    """What is shown at the first decisions as long as nothing is granted."""
    simulation = Simulation(workload, environment, speeds)
    shown = []
    for _ in range(decisions):
        shown.append(simulation.observe())
        simulation.apply(NOTHING)
    return shown


def unknown(workload: Workload) -> Workload:
    return with_estimates(workload, parse_durations("unknown"), 0)


def with_epochs(workload: Workload, epochs: Sequence[float]) -> Workload:
    jobs = [replace(job, total_epochs=total) for job, total in zip(workload.jobs, epochs, strict=True)]
    return replace(workload, jobs=tuple(jobs))


@pytest.mark.heavy
@given(
    workloads(declared=False),
    st.data(),
    st.tuples(st.integers(0, 2**32), st.integers(0, 2**32)),
    st.sampled_from(DecideOn),
    st.tuples(st.floats(0, 1), st.floats(0, 1)),
)
def test_before_training_nothing_shows_the_length_or_the_speed_of_a_job_of_unknown_work(
    workload: Workload,
    data: st.DataObject,
    seeds: tuple[int, int],
    decide_on: DecideOn,
    noise: tuple[float, float],
) -> None:
    environment = Environment(3, decide_on=decide_on, job_noise=noise[0], speed_noise=noise[1])
    count = len(workload.jobs)
    other = with_epochs(workload, data.draw(st.lists(st.floats(0.01, 1e6), min_size=count, max_size=count)))
    first, second = (ScaledSpeeds(seed) for seed in seeds)
    assert seen(unknown(workload), first, environment) == seen(unknown(other), second, environment)


@given(workloads(declared=False), st.data(), st.tuples(st.integers(0, 2**32), st.integers(0, 2**32)))
def test_of_jobs_of_known_work_nothing_shows_but_what_was_declared(
    workload: Workload, data: st.DataObject, seeds: tuple[int, int]
) -> None:
    """The truth behind a declaration may be anything; so may the speeds."""
    environment = Environment(3)
    count = len(workload.jobs)
    declared = tuple(replace(job, declared_epochs=job.total_epochs) for job in workload.jobs)
    reported = replace(workload, jobs=declared)
    other = with_epochs(reported, data.draw(st.lists(st.floats(0.01, 1e6), min_size=count, max_size=count)))
    first, second = (ScaledSpeeds(seed) for seed in seeds)
    assert seen(reported, first, environment) == seen(other, second, environment)


@pytest.mark.parametrize("kind", JobKind)
def test_two_jobs_that_differ_only_in_their_truth_show_the_same(kind: JobKind) -> None:
    """Side by side in one cluster: a type a thousand times faster, a job a thousand times longer."""
    profile = next(entry for entry in CATALOGUE.values() if entry.kind is kind)

    def job(name: str, job_type: str, epochs: float) -> WorkloadJob:
        return WorkloadJob(
            job_id=name,
            job_type=job_type,
            submit_time_seconds=0.0,
            total_epochs=epochs,
            samples_per_epoch=profile.samples_per_epoch,
            worker_demand=profile.worker_demand,
            ps_demand=profile.ps_demand,
            requested=profile.unstated_request,
            max_ps=profile.kind.most_ps,
            min_ps=int(profile.kind.uses_ps),
            kind=kind,
        )

    jobs = (job("a", "one", 1.0), job("b", "two", 1000.0))
    ((state, _), *_) = seen(unknown(Workload("two", jobs)), ScaledSpeeds(1), Environment(3), 1)
    one, two = state.jobs
    assert replace(one, job_id="b", job_type="two") == two
    assert not one.work_known


def test_errors_of_declarations_do_not_depend_on_speeds() -> None:
    """A declaration is the truth times an error that job and seed alone decide."""
    profile = CATALOGUE[MODEL_NAMES[0]]
    job = WorkloadJob("a", "x", 0.0, 7.0, 5.0, profile.worker_demand, profile.ps_demand, profile.unstated_request)
    fast = with_estimates(Workload("w", (job,)), Estimates(duration_sigma=1.0), 3).jobs[0]
    slow = with_estimates(Workload("w", (replace(job, job_type="y"),)), Estimates(duration_sigma=1.0), 3).jobs[0]
    assert fast.shown_epochs == slow.shown_epochs
