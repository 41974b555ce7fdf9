"""All-reduce jobs and minimum sizes in the learned policy; jobs of DL2's kind are decided as before."""

import hashlib
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from states import CPU_TASK, GPU_WORKER, TYPES, make_job, make_state

from policy_net.dl2.action import GRANT_KINDS, Grant
from policy_net.dl2.batch import BatchEncoder, JobBatch, batches_of
from policy_net.dl2.policy import ActingMode, JobAwareExploration, LearnedPolicy
from policy_net.domain import Allocation, CapacityMode, ClusterState, JobKind, Resources, Trigger
from policy_net.exchange.spec import PolicySpec
from policy_net.laboratory.logged import LoggedDecision
from policy_net.laboratory.training.imitation import demonstrate
from policy_net.learning.settings import ImitationSettings
from policy_net.placement.capacity import open_capacity
from policy_net.placement.layout import layout_of

SPEC = PolicySpec(job_types=("other", "resnet-50", "vgg-16"), hidden=(16, 16))
ALLREDUCE = {"kind": JobKind.ALLREDUCE, "max_ps": 0, "min_ps": 0, "requested": Allocation(2, 0)}


def allreduce_job(number: int, **changes: object):
    return make_job(number, "bert-64-allreduce", **{**ALLREDUCE, **changes})


def batch_of(state: ClusterState) -> JobBatch:
    return JobBatch(state.jobs, state, open_capacity(state), BatchEncoder(SPEC))


def sampling(seed: int) -> LearnedPolicy:
    weights = np.random.default_rng(seed).normal(0, 0.3, SPEC.parameter_count).astype(np.float32)
    return LearnedPolicy(SPEC, weights, seed=seed, mode=ActingMode.SAMPLE, explorer=JobAwareExploration(0.2))


@st.composite
def mixed_states(draw: st.DrawFn) -> ClusterState:
    """PS, asynchronous and all-reduce jobs, some with minimum sizes, in one cluster."""
    members = []
    for number in range(draw(st.integers(1, 30))):
        kind = draw(st.sampled_from(list(JobKind)))
        least = draw(st.integers(1, 4))
        if kind is JobKind.ALLREDUCE:
            members.append(allreduce_job(number, min_workers=least, max_workers=draw(st.integers(least, 16))))
        else:
            least_ps = draw(st.integers(1, 3))
            caps = {"max_workers": draw(st.integers(least, 16)), "max_ps": draw(st.integers(least_ps, 16))}
            members.append(make_job(number, kind=kind, min_workers=least, min_ps=least_ps, **caps))
    return make_state(members, draw(st.integers(1, 12)), draw(st.sampled_from(list(CapacityMode))))


def test_an_allreduce_job_is_never_offered_servers_and_its_server_input_stays_zero() -> None:
    state = make_state([allreduce_job(0), make_job(1)])
    batch = batch_of(state)
    assert np.flatnonzero(batch.mask_A).tolist() == [0, GRANT_KINDS + Grant.BUNDLE]
    batch.grant(0)
    assert np.flatnonzero(batch.mask_A).tolist() == [0, 3, 4, 5, batch.void]
    for _ in range(3):
        batch.grant(0)
    scalars = SPEC.type_columns
    np.testing.assert_allclose(batch.features_F[scalars + 3 : scalars + 5], [4 / 16, 0.0])
    assert batch.features_F[:scalars].tolist() == [1.0] + [0.0] * (scalars - 1)  # its type is the reserved `other`
    assert batch.allocation()["job-0"] == Allocation(4, 0)


def test_more_workers_than_the_usual_number_are_given_and_look_to_the_network_like_that() -> None:
    state = make_state([allreduce_job(0, max_workers=20, worker_demand=CPU_TASK)], nodes=20)
    batch, held = batch_of(state), BatchEncoder(SPEC).scalar_offset(0) + 3
    shown = []
    for _ in range(20):
        batch.grant(0)
        shown.append(float(batch.features_F[held]))
    assert shown == pytest.approx([min(workers, 16) / 16 for workers in range(1, 21)])
    assert batch.allocation() == {"job-0": Allocation(20, 0)}
    assert batch.only_void


def test_a_worker_for_an_allreduce_job_lets_something_run() -> None:
    batch = batch_of(make_state([allreduce_job(0), make_job(1)]))
    assert not batch.something_runs
    batch.grant(0)
    assert batch.something_runs


def test_a_grant_brings_a_job_to_its_minimum_and_then_gives_one_task_at_a_time() -> None:
    batch = batch_of(make_state([make_job(0, min_workers=3, min_ps=2)], nodes=8))
    batch.grant(int(Grant.BUNDLE))
    assert batch.allocation()["job-0"] == Allocation(3, 2)
    assert batch.something_runs
    batch.grant(int(Grant.WORKER))
    batch.grant(int(Grant.BUNDLE))
    assert batch.allocation()["job-0"] == Allocation(5, 3)
    first = SPEC.type_columns + 2
    np.testing.assert_allclose(batch.features_F[first + 1 : first + 3], [5 / 16, 3 / 16])


def test_a_job_whose_minimum_does_not_fit_is_not_offered_less() -> None:
    state = make_state([allreduce_job(0, min_workers=9), allreduce_job(1, min_workers=2, max_workers=3)])  # 8 GPUs
    batch = batch_of(state)
    assert np.flatnonzero(batch.mask_A).tolist() == [GRANT_KINDS]
    batch.grant(GRANT_KINDS)
    batch.grant(GRANT_KINDS)
    assert batch.allocation() == {"job-0": Allocation(0, 0), "job-1": Allocation(3, 0)}
    assert batch.only_void


@settings(max_examples=60, deadline=None)
@given(mixed_states(), st.integers(0, 1000))
def test_sampled_decisions_for_all_kinds_keep_to_caps_and_capacity_and_never_idle(
    state: ClusterState, seed: int
) -> None:
    decision, samples = sampling(seed).decide_recorded(state, Trigger.SLOT)
    used = Resources(0, 0)
    for job in state.jobs:
        got = decision.of(job.job_id)
        assert got.workers <= job.max_workers
        assert got.ps <= job.max_ps
        assert got.workers == 0 or got.workers >= job.min_workers
        assert got.ps == 0 or got.ps >= job.min_ps
        used += job.worker_demand * got.workers + job.ps_demand * got.ps
    assert used.fits_in(state.total)
    assert samples.masks_MA[np.arange(len(samples)), samples.actions_M].all()
    first = state.jobs[: SPEC.jobs_per_batch]

    def could_start(job) -> bool:
        smallest = (job.worker_demand,) * job.min_workers + (job.ps_demand,) * job.min_ps
        return open_capacity(state).fits(*smallest)

    if any(could_start(job) for job in first):
        assert any(job.can_train(decision.of(job.job_id)) for job in first)


@settings(max_examples=60, deadline=None)
@given(mixed_states(), st.data())
def test_a_mask_admits_what_caps_minimum_and_capacity_allow(state: ClusterState, data: st.DataObject) -> None:
    capacity = open_capacity(state)
    jobs_here = state.jobs[: SPEC.jobs_per_batch]
    batch = JobBatch(jobs_here, state, capacity, BatchEncoder(SPEC))
    granted = False
    while True:
        admitted = {batch.void}
        for column, job in enumerate(jobs_here):
            for grant in Grant:
                if grant.ps and not job.kind.uses_ps:
                    continue
                workers = max(1, job.min_workers - batch.workers[column]) * grant.workers
                ps = max(1, job.min_ps - batch.ps[column]) * grant.ps
                held = Allocation(batch.workers[column] + workers, batch.ps[column] + ps)
                demands = (job.worker_demand,) * workers + (job.ps_demand,) * ps
                if held.workers <= job.max_workers and held.ps <= job.max_ps and capacity.fits(*demands):
                    admitted.add(GRANT_KINDS * column + grant)
        starting = {
            GRANT_KINDS * column + (Grant.BUNDLE if job.kind.uses_ps else Grant.WORKER)
            for column, job in enumerate(jobs_here)
        }
        if not granted and admitted & starting:
            admitted &= starting
        assert set(np.flatnonzero(batch.mask_A).tolist()) == admitted
        if batch.only_void:
            break
        granted = True
        batch.grant(data.draw(st.sampled_from(sorted(admitted - {batch.void}))))


def test_exploration_leaves_an_allreduce_job_without_servers_alone() -> None:
    batch = batch_of(make_state([allreduce_job(0)], nodes=10))
    for _ in range(12):
        batch.grant(0)
    assert JobAwareExploration().propose(batch) is None


def test_imitation_demonstrates_workers_alone_for_an_allreduce_job() -> None:
    state = make_state([allreduce_job(0, min_workers=2), make_job(1)], nodes=6)
    decision = LoggedDecision(state, {"job-0": Allocation(4, 0), "job-1": Allocation(3, 3)}, ())
    shown = demonstrate([decision] * 20, SPEC, ImitationSettings(micro_states=100, softness=0.0), seed=1)
    sharp = {int(index) for row in shown.targets_MA for index in np.flatnonzero(row)}
    assert sharp == {0, GRANT_KINDS + Grant.BUNDLE, SPEC.action_count - 1}


def walk_digest(batch_class: type[JobBatch]) -> str:
    """Masks and inputs (to four decimals) of random walks through random states of parameter-server jobs."""
    digest, rng = hashlib.sha256(), random.Random(1)
    for _ in range(40):
        members = [
            make_job(
                number,
                rng.choice(TYPES),
                worker_demand=rng.choice([GPU_WORKER, CPU_TASK, Resources(3000, 2)]),
                ps_demand=rng.choice([CPU_TASK, Resources(1000, 0)]),
                max_workers=rng.randrange(17),
                max_ps=rng.randrange(17),
                run_seconds=rng.uniform(0, 1e6),
            )
            for number in range(rng.randrange(20))
        ]
        state = make_state(members, rng.randrange(1, 20), rng.choice(list(CapacityMode)))
        batch = batch_class(state.jobs, state, open_capacity(state), BatchEncoder(SPEC))
        while not batch.only_void:
            batch.grant(rng.choice(np.flatnonzero(batch.mask_A[: batch.void]).tolist()))
            digest.update(batch.mask_A.tobytes())
            digest.update(np.round(batch.features_F * 1e4).astype(np.int64).tobytes())
    return digest.hexdigest()


def test_what_parameter_server_jobs_are_offered_is_what_it_was_before_allreduce_jobs_were_known() -> None:
    # Worked out with the code of the release before; policies trained then decide the same now.
    assert walk_digest(JobBatch) == "2805d975dbb6013cf9feff7604ff5da26d25629ca352a886bb41bd6e62906b0b"


NO_BUNDLES = SPEC.model_copy(update={"bundles": False})


def test_without_bundles_no_action_gives_both_and_a_job_is_completed_before_others_are_begun() -> None:
    state = make_state([make_job(0), make_job(1)])
    batch = JobBatch(state.jobs, state, open_capacity(state), BatchEncoder(NO_BUNDLES))
    assert np.flatnonzero(batch.mask_A).tolist() == [Grant.WORKER, Grant.PS, 3 + Grant.WORKER, 3 + Grant.PS]
    batch.grant(3 + Grant.PS)
    assert np.flatnonzero(batch.mask_A).tolist() == [3 + Grant.WORKER]
    batch.grant(3 + Grant.WORKER)
    assert np.flatnonzero(batch.mask_A).tolist() == [0, 1, 3, 4, batch.void]
    assert batch.something_runs


@pytest.mark.heavy
@settings(max_examples=60, deadline=None)
@given(mixed_states(), st.integers(0, 1000))
def test_without_bundles_decisions_are_admissible_and_something_runs_where_something_fits(
    state: ClusterState, seed: int
) -> None:
    weights = np.random.default_rng(seed).normal(0, 0.3, SPEC.parameter_count).astype(np.float32)
    policy = LearnedPolicy(NO_BUNDLES, weights, seed=seed, mode=ActingMode.SAMPLE)
    decision, samples = policy.decide_recorded(state, Trigger.SLOT)
    assert not (samples.actions_M[samples.jobs_M >= 0] % GRANT_KINDS == Grant.BUNDLE).any()
    with_bundles = sampling(seed).decide(state, Trigger.SLOT)
    if any(job.can_train(with_bundles.of(job.job_id)) for job in state.jobs[: SPEC.jobs_per_batch]):
        assert any(job.can_train(decision.of(job.job_id)) for job in state.jobs)


def test_a_spec_that_knows_bundles_does_not_name_them_and_keeps_its_digest() -> None:
    assert "bundles" not in SPEC.to_json()
    assert PolicySpec.from_json(SPEC.to_json()) == SPEC
    assert PolicySpec.from_json(NO_BUNDLES.to_json()) == NO_BUNDLES
    assert NO_BUNDLES.digest != SPEC.digest


RESERVING = SPEC.model_copy(update={"reserves": True})


@given(mixed_states(), st.integers(0, 1000))
def test_a_batch_that_reserves_takes_its_jobs_part_or_what_one_of_them_needs(state: ClusterState, seed: int) -> None:
    generator = np.random.default_rng(seed)
    total = layout_of(state.nodes).total
    so_far, done, none = Resources(0, 0), 0, Resources(0, 0)
    for batch in batches_of(state, BatchEncoder(RESERVING)):
        jobs = state.jobs[done : done + len(batch.workers)]
        while not batch.only_void:
            batch.grant(int(generator.choice(np.flatnonzero(batch.mask_A[: batch.void]))))
        done += len(jobs)
        later = (len(state.jobs) - done) / len(state.jobs)
        most = sum(
            (job.worker_demand * job.max_workers + job.ps_demand * job.max_ps for job in state.jobs[done:]), none
        )
        for amount in ("cpu_milli", "gpu"):
            kept = min(int(getattr(total, amount) * later), getattr(most, amount))
            part = getattr(total, amount) - kept - getattr(so_far, amount)
            needs = [job.worker_demand * max(job.min_workers, 1) + job.ps_demand * job.min_ps for job in jobs]
            assert getattr(batch.used, amount) <= max(part, *(getattr(need, amount) for need in needs))
        so_far += batch.used
    assert done == len(state.jobs)


def test_the_jobs_of_a_second_batch_have_their_part_where_batches_reserve() -> None:
    state = make_state([make_job(number) for number in range(2 * SPEC.jobs_per_batch)])

    def given(spec: PolicySpec) -> list[int]:
        generator, given = np.random.default_rng(0), []
        for batch in batches_of(state, BatchEncoder(spec)):
            while not batch.only_void:
                batch.grant(int(generator.choice(np.flatnonzero(batch.mask_A[: batch.void]))))
            given.append(batch.used.gpu)
        return given

    first, second = given(RESERVING)
    assert second >= first > 0
    assert given(SPEC)[1] < second


def test_a_spec_that_reserves_says_so_and_one_of_before_keeps_its_digest() -> None:
    assert "reserves" not in SPEC.to_json()
    assert PolicySpec.from_json(RESERVING.to_json()) == RESERVING
    assert RESERVING.digest != SPEC.digest


def test_nothing_is_left_to_later_jobs_that_they_cannot_use() -> None:
    jobs = [make_job(number, max_workers=16 if number < SPEC.jobs_per_batch else 1, max_ps=1) for number in range(25)]
    state = make_state(jobs, nodes=32)
    first, second = batches_of(state, BatchEncoder(RESERVING)), 5
    batch = next(first)
    while not batch.only_void:
        batch.grant(int(np.flatnonzero(batch.mask_A[: batch.void])[0]))
    assert batch.used.gpu == 64 - second
