"""Work of types of which nobody knows how fast they train."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from states import make_job, make_state

from policy_net.baselines.needs import remaining_samples
from policy_net.domain import Allocation, Job, JobKind, Node, PolicyContext, Progress, Resources, Trigger
from policy_net.exchange.spec import SetSpec
from policy_net.set_policy.beliefs import SetBeliefs
from policy_net.set_policy.policy import SetPolicy, build_set
from policy_net.set_policy.residual import initial_residual

ONE = Allocation(workers=1, ps=1)


def trained(job_type: str, samples_per_second: float) -> Progress:
    return Progress("earlier", job_type, ONE, 10.0, 10.0 * samples_per_second, 10.0, 100.0, False, 0.0)


def job(number: int, job_type: str, epochs: float, samples_per_epoch: float = 100.0) -> Job:
    return make_job(
        number,
        job_type,
        total_epochs=epochs,
        remaining_epochs=epochs,
        samples_per_epoch=samples_per_epoch,
        requested=ONE,
    )


def seconds_of(beliefs: SetBeliefs, job: Job) -> float:
    return remaining_samples(job) / beliefs.samples_per_second(job.job_type, 1, 1)


def test_a_job_of_a_new_type_counts_as_long_as_the_middle_one_of_the_known() -> None:
    beliefs = SetBeliefs()
    beliefs.observe([trained("known", 50.0)])
    known = [job(number, "known", epochs) for number, epochs in enumerate((5.0, 20.0, 80.0))]
    new = job(3, "new", 40.0, samples_per_epoch=1e6)
    *others, changed = beliefs.expecting(make_state([*known, new])).jobs
    assert others == known
    assert changed.remaining_epochs == new.remaining_epochs
    assert abs(seconds_of(beliefs, changed) / seconds_of(beliefs, known[1]) - 1.0) < 1e-9


@given(st.floats(1e-3, 1e9), st.floats(1e-3, 1e9))
def test_nothing_depends_on_the_unit_that_a_new_types_work_is_counted_in(one: float, other: float) -> None:
    beliefs = SetBeliefs()
    beliefs.observe([trained("known", 50.0)])
    shown = [
        beliefs.expecting(make_state([job(0, "known", 9.0), job(1, "new", 3.0, unit), job(2, "new", 7.0, unit)])).jobs
        for unit in (one, other)
    ]
    for first, second in zip(*shown, strict=True):
        assert abs(first.samples_per_epoch / second.samples_per_epoch - 1.0) < 1e-9
    assert shown[0][1].remaining_epochs < shown[0][2].remaining_epochs, "its jobs keep their proportions"


def test_a_type_counts_by_itself_from_its_first_sample_and_where_there_is_nothing_to_compare_with() -> None:
    beliefs = SetBeliefs()
    state = make_state([job(0, "known", 9.0), job(1, "new", 3.0)])
    assert beliefs.expecting(state) is state
    beliefs.observe([trained("known", 50.0)])
    assert beliefs.expecting(state) is not state
    beliefs.observe([trained("new", 0.0)])
    assert beliefs.expecting(state) is not state, "nothing was trained yet"
    beliefs.observe([trained("new", 80.0)])
    assert beliefs.expecting(state) is state


def test_what_others_reported_of_a_type_is_enough() -> None:
    policy = build_set(PolicyContext())
    assert policy.beliefs is not None
    state = make_state([job(0, "resnet-50", 9.0), job(1, "vgg-16", 3.0)])
    assert policy.beliefs.expecting(state) is state


def test_jobs_of_unknown_work_are_measured_by_time_already() -> None:
    beliefs = SetBeliefs()
    beliefs.observe([trained("known", 50.0)])
    fresh = replace(job(1, "new", 3.0), work_known=False)
    alone = beliefs.expecting(make_state([fresh])).jobs
    assert beliefs.expecting(make_state([job(0, "known", 9.0), fresh])).jobs[1:] == alone


def test_a_new_type_is_not_kept_waiting_behind_a_longer_job_because_its_epochs_have_many_samples() -> None:
    """The machine has room for two jobs; nobody has seen the third's type."""
    policy = SetPolicy(SetSpec(), initial_residual(SetSpec(), 0))
    policy.observe([trained("known", 50.0)])
    jobs = [job(0, "known", 100.0), job(1, "known", 100_000.0), job(2, "new", 40.0, samples_per_epoch=1e7)]
    state = make_state([replace(job, max_workers=1, max_ps=1) for job in jobs], nodes=1)
    decision = policy.decide(state, Trigger.SLOT)
    assert [decision.of(f"job-{number}").tasks > 0 for number in range(3)] == [True, False, True]


@pytest.mark.parametrize("kind", list(JobKind))
def test_the_first_job_of_a_new_type_does_not_leave_a_machine_idle_that_it_has_for_itself(kind: JobKind) -> None:
    policy = build_set(PolicyContext())
    ps = {"min_ps": 1, "max_ps": 2} if kind.uses_ps else {"min_ps": 0, "max_ps": 0}
    alone = make_job(0, "new", kind=kind, max_workers=4, worker_demand=Resources(400), ps_demand=Resources(100), **ps)
    state = replace(make_state([alone]), nodes=(Node("here", Resources(1800)),), slot_seconds=15.0)
    assert policy.decide(state, Trigger.SLOT).of("job-0").workers >= 3
