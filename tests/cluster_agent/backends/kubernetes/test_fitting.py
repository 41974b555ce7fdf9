"""Sizes after limits: they fit, keep their bounds, leave alone what is fixed, and give namespaces their shares."""

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kube_facts import job, state

from cluster_agent.backends.kubernetes.sizing import fitted, namespace_of
from policy_net.domain import Allocation, ClusterState, Decision, Job, Resources
from policy_net.placement.capacity import dominant_share


def decision(**workers: int) -> Decision:
    return Decision({name.replace("__", "/"): Allocation(size, 0) for name, size in workers.items()})


def used(found: ClusterState, sizes: dict[str, int]) -> Resources:
    return sum((each.worker_demand * sizes[each.job_id] for each in found.jobs), Resources(0))


@st.composite
def worlds(draw: st.DrawFn) -> tuple[ClusterState, Decision, dict[str, int], dict[str, float]]:
    jobs: list[Job] = []
    for number in range(draw(st.integers(1, 7))):
        most = draw(st.integers(1, 6))
        least = draw(st.integers(1, most))
        name = f"{draw(st.sampled_from('abc'))}/{number}"
        gpus = draw(st.integers(0, 2))
        jobs.append(job(name, draw(st.integers(0, most)), least, most, draw(st.sampled_from([1, 1000, 3000])), gpus))
    found = state(*jobs, gpus=draw(st.integers(0, 16)), cpu=draw(st.integers(1, 40)) * 1000)
    wanted = {each.job_id: Allocation(draw(st.integers(0, each.max_workers)), 0) for each in jobs}
    fixed = {each.job_id: each.current.workers for each in jobs if draw(st.booleans())}
    shares = draw(st.dictionaries(st.sampled_from("abc"), st.floats(0.01, 0.33), max_size=3))
    return found, Decision(wanted), fixed, shares


@pytest.mark.heavy
@given(worlds())
@hypothesis.settings(deadline=None, max_examples=400)
def test_whatever_is_decided_capacity_bounds_and_what_is_fixed_hold(
    world: tuple[ClusterState, Decision, dict[str, int], dict[str, float]],
) -> None:
    found, wanted, fixed, shares = world
    sizes = fitted(found, wanted, fixed, shares)
    now = {each.job_id: each.current.workers for each in found.jobs}
    takes, total, took = used(found, sizes), found.total, used(found, now)
    assert takes.cpu_milli <= max(total.cpu_milli, took.cpu_milli)
    assert takes.gpu <= max(total.gpu, took.gpu)
    for each in found.jobs:
        size, before = sizes[each.job_id], each.current.workers
        if each.job_id in fixed:
            assert size == before
        elif before:
            assert min(before, each.min_workers) <= size <= each.max_workers
        else:
            assert size == 0 or each.min_workers <= size <= each.max_workers


@given(worlds())
@hypothesis.settings(deadline=None)
def test_a_decision_that_fits_and_that_nothing_limits_is_carried_out_as_it_is(
    world: tuple[ClusterState, Decision, dict[str, int], dict[str, float]],
) -> None:
    found, wanted, _, _ = world
    sizes = {each.job_id: wanted.of(each.job_id).workers for each in found.jobs}
    trains_or_waits = all(
        sizes[each.job_id] >= each.min_workers or not (sizes[each.job_id] or each.current.workers)
        for each in found.jobs
    )
    if trains_or_waits and used(found, sizes).fits_in(found.total):
        given_back = fitted(found, wanted, {}, {})
        kept = {each.job_id: max(sizes[each.job_id], given_back[each.job_id]) for each in found.jobs}
        assert given_back == kept, "none gets less"
        if all(each.current.workers <= sizes[each.job_id] for each in found.jobs):
            assert given_back == sizes


@given(worlds())
@hypothesis.settings(deadline=None, max_examples=300)
def test_a_namespace_below_its_share_has_nothing_left_that_could_grow(
    world: tuple[ClusterState, Decision, dict[str, int], dict[str, float]],
) -> None:
    found, wanted, fixed, shares = world
    first = found.jobs[0].worker_demand
    one_size = [each for each in found.jobs if each.worker_demand == first and each.min_workers == 1]
    found = state(*one_size, gpus=found.total.gpu, cpu=found.total.cpu_milli)
    sizes = fitted(found, wanted, fixed, shares)
    for namespace, share in shares.items():
        own = [each for each in found.jobs if namespace_of(each.job_id) == namespace]
        others = [each for each in found.jobs if namespace_of(each.job_id) not in shares]
        has = dominant_share(sum((each.worker_demand * sizes[each.job_id] for each in own), Resources(0)), found.total)
        can_grow = any(each.job_id not in fixed and sizes[each.job_id] < each.max_workers for each in own)
        can_give = any(
            each.job_id not in fixed and sizes[each.job_id] > min(1, each.current.workers) for each in others
        )
        assert has >= share or not (can_grow and can_give)


def test_who_runs_is_not_stopped_and_those_who_were_to_have_it_get_what_is_left() -> None:
    found = state(job("t/runs", 4, least=2), job("t/comes", 0), gpus=4)
    sizes = fitted(found, decision(t__runs=0, t__comes=4), {}, {})
    assert sizes == {"t/runs": 2, "t/comes": 2}


def test_nothing_is_taken_for_somebody_who_may_not_have_it() -> None:
    found = state(job("t/auto", 4), job("t/advised", 1), gpus=5)
    wanted = decision(t__auto=1, t__advised=4)
    assert fitted(found, wanted, {"t/advised": 1}, {}) == {"t/auto": 4, "t/advised": 1}
    assert fitted(found, wanted, {}, {}) == {"t/auto": 1, "t/advised": 4}


def test_who_is_smaller_for_its_own_sake_becomes_smaller() -> None:
    found = state(job("t/auto", 4), gpus=8)
    assert fitted(found, decision(t__auto=2), {}, {}) == {"t/auto": 2}


def test_growth_is_cut_evenly_and_one_that_begins_has_its_least_or_nothing() -> None:
    found = state(job("t/kept", 4), job("t/one", 1), job("t/two", 1), job("t/new", 0, least=3), gpus=8)
    wanted = decision(t__one=4, t__two=4, t__new=3)
    assert fitted(found, wanted, {"t/kept": 4}, {}) == {"t/kept": 4, "t/one": 2, "t/two": 2, "t/new": 0}


def test_a_namespace_gets_its_share_from_who_grows_and_then_from_who_has_more() -> None:
    found = state(job("rich/one", 4), job("rich/two", 2), job("poor/own", 1), gpus=8)
    wanted = decision(rich__one=4, rich__two=3, poor__own=1)
    assert fitted(found, wanted, {}, {"poor": 0.5}) == {"rich/one": 2, "rich/two": 2, "poor/own": 4}
    assert fitted(found, wanted, {"rich/one": 4}, {"poor": 0.5}) == {"rich/one": 4, "rich/two": 1, "poor/own": 3}


def test_a_share_is_never_taken_from_another_share() -> None:
    found = state(job("one/a", 4), job("two/a", 4, most=8), gpus=8)
    wanted = decision(one__a=4, two__a=4)
    assert fitted(found, wanted, {}, {"one": 0.5, "two": 0.5}) == {"one/a": 4, "two/a": 4}


def test_when_nodes_vanish_nothing_grows_and_what_runs_is_left() -> None:
    found = state(job("t/one", 4), job("t/two", 2), gpus=4)
    assert fitted(found, decision(t__one=2, t__two=2), {}, {}) == {"t/one": 2, "t/two": 2}
    assert fitted(found, decision(t__one=1, t__two=3), {"t/one": 4}, {}) == {"t/one": 4, "t/two": 2}
