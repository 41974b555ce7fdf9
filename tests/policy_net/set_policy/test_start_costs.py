"""What a start costs keeps the planner from suspending what is nearly done, and from nothing else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from states import make_job, make_state, states

from policy_net.domain import SUSPENDED, Allocation, ClusterState, Job, JobKind, Resources, Trigger
from policy_net.exchange.spec import SetSpec
from policy_net.exchange.state_codec import decode_state, encode_state
from policy_net.laboratory.speeds.speed import TableSpeedModel
from policy_net.set_policy import SetPolicy
from policy_net.set_policy.planner import plan
from policy_net.set_policy.steps import StepTables

SPEC = SetSpec(hidden=(5,), temperature=0.3)
WORKER = Resources(1000)


def speeds() -> TableSpeedModel:
    """100 samples/s with one worker, a fifth more with each further one; alike with and without servers."""
    some, ring = np.zeros((17, 17)), np.zeros((17, 17))
    some[1:, 1:] = ring[0, 1:] = 100.0 * (1.0 + 0.2 * np.arange(16))
    return TableSpeedModel({"some": some, "ring": ring}, "a test")


def job(number: int, seconds_left: float, workers: int = 0, kind: JobKind = JobKind.PS, **more: object) -> Job:
    ps = int(bool(workers) and kind.uses_ps)
    return make_job(
        number,
        "some" if kind.uses_ps else "ring",
        kind=kind,
        worker_demand=WORKER,
        ps_demand=Resources(1),
        samples_per_epoch=100.0,
        remaining_epochs=seconds_left,
        current=Allocation(workers, ps),
        max_workers=1,
        max_ps=1,
        min_workers=1,
        min_ps=int(kind.uses_ps),
        **more,
    )


def runs(cpu_milli: int, start_seconds: float, *jobs: Job) -> list[int]:
    """Workers of each job."""
    state = make_state(list(jobs), nodes=1)
    node = replace(state.nodes[0], capacity=Resources(cpu_milli))
    state = replace(state, nodes=(node,), start_seconds=start_seconds)
    tables = StepTables(speeds())
    decision = plan(state, [tables.of(job) for job in jobs])
    return [decision.of(job.job_id).workers for job in jobs]


@pytest.mark.parametrize(
    ("runs_on", "comes", "start_seconds", "wanted"),
    [
        (20.0, 15.0, 0.0, [0, 1]),  # the shorter first
        (20.0, 15.0, 10.0, [1, 0]),  # what would be saved is less than what the start costs
        (2000.0, 15.0, 10.0, [0, 1]),  # a long one gives way
        (0.0, 15.0, 10.0, [1, 0]),
        (20.0, 15.0, 0.01, [0, 1]),
    ],
)
def test_a_job_that_runs_gives_way_to_one_that_is_shorter_by_more_than_a_start(
    runs_on: float, comes: float, start_seconds: float, wanted: list[int]
) -> None:
    assert runs(1100, start_seconds, job(1, runs_on, workers=1), job(2, comes)) == wanted


def test_an_all_reduce_job_which_is_resized_by_a_start_grows_only_where_that_pays() -> None:
    ring = replace(job(1, 30.0, workers=1, kind=JobKind.ALLREDUCE), max_workers=2)
    other = replace(job(2, 30.0, workers=1), max_workers=2)
    assert runs(3100, 0.0, ring, other) == [2, 1]
    assert runs(3100, 20.0, ring, other) == [1, 2], "the other one grows while it trains"
    assert runs(3100, 20.0, ring) == [1], "a start takes longer than it saves"
    assert runs(3100, 2.0, ring) == [2]
    assert runs(3100, 20.0, replace(ring, remaining_epochs=300.0)) == [2]
    two = replace(ring, current=Allocation(2))
    assert runs(3100, 20.0, two, other) == [2, 1], "and what it has it keeps"


@settings(max_examples=60, deadline=None)
@given(states(12), st.floats(0.0, 1e4), st.integers(0, 1000))
def test_jobs_of_which_none_runs_are_decided_about_as_if_starts_were_free(
    state: ClusterState, start_seconds: float, seed: int
) -> None:
    weights = np.random.default_rng(seed).normal(0, 0.5, SPEC.parameter_count).astype(np.float32)
    assert all(job.current == SUSPENDED for job in state.jobs)
    costly = replace(state, start_seconds=start_seconds)
    usual = SetPolicy(SPEC, weights).decide(state, Trigger.SLOT)
    assert SetPolicy(SPEC, weights).decide(costly, Trigger.SLOT) == usual


@settings(max_examples=60, deadline=None)
@given(states(12), st.floats(0.1, 1e4), st.integers(0, 1000), st.data())
def test_with_and_without_a_record_the_plan_is_the_same_and_fits(
    state: ClusterState, start_seconds: float, seed: int, data: st.DataObject
) -> None:
    weights = np.random.default_rng(seed).normal(0, 0.5, SPEC.parameter_count).astype(np.float32)
    held = [Allocation(data.draw(st.integers(0, 3)), data.draw(st.integers(0, 2))) for _ in state.jobs]
    jobs = tuple(replace(job, current=size) for job, size in zip(state.jobs, held, strict=True))
    state = replace(state, jobs=jobs, start_seconds=start_seconds)
    decision = SetPolicy(SPEC, weights).decide(state, Trigger.SLOT)
    assert SetPolicy(SPEC, weights).decide_recorded(state, Trigger.SLOT)[0] == decision
    assert decode_state(encode_state(state)) == state


def test_states_of_before_there_were_start_costs_are_read_and_written_as_they_were() -> None:
    state = make_state([job(1, 10.0)])
    written = encode_state(state)
    assert "start_seconds" not in written
    assert decode_state(written) == state
