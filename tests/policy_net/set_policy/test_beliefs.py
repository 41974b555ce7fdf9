"""The two halves of what `set` believes: speeds, and how long jobs of undeclared work take."""

import json

import pytest
from hypothesis import given
from states import make_job, make_state, states

from policy_net.domain import Allocation, ClusterState, PolicyContext, Progress, Trigger
from policy_net.errors import BadInput
from policy_net.laboratory.simulation.environment import Environment
from policy_net.laboratory.simulation.replay import replay
from policy_net.laboratory.speeds.speed import default_speeds
from policy_net.laboratory.workloads.sources import load_workload
from policy_net.laboratory.workloads.workload import Estimates, with_estimates
from policy_net.set_policy.beliefs import LIFETIMES_KEY, SetBeliefs
from policy_net.set_policy.policy import SetPolicy, build_set


def unknown(number: int, trained_epochs: float):  # type: ignore[no-untyped-def]  # as make_job
    shown = max(trained_epochs, 300.0)
    return make_job(number, "vgg-16", work_known=False, total_epochs=trained_epochs + shown, remaining_epochs=shown)


@given(states(most_jobs=8))
def test_jobs_of_known_work_are_as_they_were(state: ClusterState) -> None:
    seen = SetBeliefs().expecting(state)
    for before, after in zip(state.jobs, seen.jobs, strict=True):
        if before.work_known:
            assert after is before
        else:
            assert 0.0 < after.remaining_epochs < float("inf")
    if all(job.work_known for job in state.jobs):
        assert seen is state


def test_what_a_job_shows_as_remaining_does_not_matter_once_it_says_what_it_trained() -> None:
    """The guess of the state is replaced, not scaled."""
    one = make_job(0, "vgg-16", work_known=False, total_epochs=500.0, remaining_epochs=300.0)
    other = make_job(0, "vgg-16", work_known=False, total_epochs=1200.0, remaining_epochs=1000.0)
    shown = [SetBeliefs().expecting(make_state([job])).jobs[0].remaining_epochs for job in (one, other)]
    assert shown[0] == shown[1]


def test_a_cluster_whose_jobs_last_alike_lets_those_go_on_that_are_nearly_done() -> None:
    """Before any has ended the opposite: the shortest so far is believed to be the shortest."""
    beliefs = SetBeliefs()
    fresh, nearly = unknown(0, 2_000.0), unknown(1, 9_000.0)
    first, second = beliefs.expecting(make_state([fresh, nearly])).jobs
    assert first.remaining_epochs < second.remaining_epochs
    for number in range(2, 200):
        beliefs.expecting(make_state([unknown(number, 9_990.0)]))
        samples = 10.0 * fresh.samples_per_epoch
        done = Progress(f"job-{number}", "vgg-16", Allocation(0, 0), 0.0, samples, 10.0, 9_990.0, True)
        beliefs.observe([done])
    first, second = beliefs.expecting(make_state([fresh, nearly])).jobs
    assert first.remaining_epochs > second.remaining_epochs


def test_beliefs_about_both_are_kept_and_handed_on() -> None:
    policy = build_set(PolicyContext())
    workload = with_estimates(load_workload("dl2:jobs=20,seed=5"), Estimates(known=False), 1)
    replay(workload, Environment(nodes=12), policy, default_speeds())
    assert policy.beliefs is not None
    kept = json.loads(json.dumps(policy.beliefs.snapshot()))
    successor = build_set(PolicyContext())
    assert successor.beliefs is not None
    successor.beliefs.restore(kept)
    assert successor.beliefs.snapshot() == policy.beliefs.snapshot()
    state = make_state([unknown(number, 700.0 * number) for number in range(9)])
    assert successor.decide(state, Trigger.SLOT) == policy.decide(state, Trigger.SLOT)
    successor.beliefs.go_on_from(json.loads(json.dumps(policy.beliefs.checkpoint())))
    assert successor.beliefs.digest() == policy.beliefs.digest()
    stranger = build_set(PolicyContext()).beliefs
    assert stranger is not None
    assert stranger.expecting(state) != successor.beliefs.expecting(state)


def test_snapshots_from_before_lifetimes_are_read_and_damaged_ones_change_nothing() -> None:
    beliefs = SetBeliefs()
    beliefs.expecting(make_state([unknown(0, 50.0)]))
    before = beliefs.snapshot()
    for damaged in ({**before, LIFETIMES_KEY: {"ended": 3}}, {**before, "vgg-16": 3}):
        with pytest.raises(BadInput):
            beliefs.restore(damaged)
        assert beliefs.snapshot() == before
    beliefs.restore({key: entry for key, entry in before.items() if key != LIFETIMES_KEY})
    assert beliefs.snapshot()[LIFETIMES_KEY] == SetBeliefs().snapshot()[LIFETIMES_KEY]


def test_jobs_of_known_work_are_planned_as_if_there_were_no_lifetimes() -> None:
    state = make_state([make_job(number, "vgg-16") for number in range(12)])
    plain = build_set(PolicyContext())
    taught = build_set(PolicyContext())
    assert isinstance(taught, SetPolicy)
    assert taught.beliefs is not None
    for number in range(100, 150):
        taught.beliefs.expecting(make_state([unknown(number, 10.0)]))
    assert taught.decide(state, Trigger.SLOT) == plain.decide(state, Trigger.SLOT)
