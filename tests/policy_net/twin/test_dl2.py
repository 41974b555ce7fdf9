"""A `dl2` network in the compiled twin: the same actions as the reference, best or drawn, on cases of every kind."""

from collections.abc import Callable
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from twin_cases import DRAWN_TYPES, KNOWN_TYPES, THOROUGH, drawn_speeds, environments, goes_the_same, workloads

from policy_net.dl2.group import DrawingPolicy, EnoughDrawn
from policy_net.dl2.network import initial_weights
from policy_net.dl2.policy import ActingMode, DecisionSamples, GroupChoice, JobAwareExploration, LearnedPolicy
from policy_net.domain import Allocation, JobKind, Resources
from policy_net.errors import BadInput, NoProgress
from policy_net.exchange.shipped import shipped_file
from policy_net.exchange.spec import OTHER_TYPE, PolicySpec, Weights
from policy_net.laboratory.simulation.environment import DecideOn, Environment
from policy_net.laboratory.simulation.replay import replay, run_compiled, uncovered
from policy_net.laboratory.speeds.speed import default_speeds
from policy_net.laboratory.workloads.workload import Workload, WorkloadJob
from policy_net.twin.library import notice
from policy_net.twin.schedulers import Scheduler, heuristic_of

pytestmark = pytest.mark.skipif(notice() is not None, reason=str(notice()))

SPEEDS = drawn_speeds(0)


def scattered(spec: PolicySpec, seed: int, scale: float = 0.1) -> Weights:
    """Weights with which logits lie far apart, as those of a trained network do: no tie decides an action."""
    noise = np.random.default_rng(seed).normal(0.0, scale, spec.parameter_count)
    return (initial_weights(spec, seed) + noise).astype(np.float32)


@st.composite
def networks(draw: st.DrawFn, job_types: tuple[str, ...]) -> tuple[LearnedPolicy, LearnedPolicy]:
    """A policy twice: of few jobs a batch or many, with all types in its vocabulary or one, drawing or not."""
    spec = PolicySpec(
        jobs_per_batch=draw(st.sampled_from((1, 3, 20))),
        job_types=(OTHER_TYPE, *job_types[: draw(st.sampled_from((1, len(job_types))))]),
        hidden=draw(st.sampled_from(((5,), (32, 16), (8, 9, 7)))),
        bundles=draw(st.booleans()),
        reserves=draw(st.booleans()),
    )
    weights, seed = scattered(spec, draw(st.integers(0, 9))), draw(st.integers(0, 3))
    mode = draw(st.sampled_from(ActingMode))
    explorer = draw(st.sampled_from((None, JobAwareExploration(0.3))))
    first, second = (LearnedPolicy(spec, weights, seed=seed, mode=mode, explorer=explorer) for _ in range(2))
    return first, second


@pytest.mark.heavy
@pytest.mark.hypothesis
@pytest.mark.parametrize("job_types", [KNOWN_TYPES, DRAWN_TYPES])
@THOROUGH
@given(data=st.data())
def test_a_network_acts_as_in_the_reference(job_types: tuple[str, ...], data: st.DataObject) -> None:
    workload, environment = data.draw(workloads(job_types)), data.draw(environments())
    there, here = data.draw(networks(job_types))
    if goes_the_same(there, here, workload, environment, SPEEDS):
        assert here.decision_index == there.decision_index


def jobs_of(kind: JobKind, count: int) -> Workload:
    with_ps = kind is JobKind.PS
    job_type = "vgg-16" if with_ps else "vgg16-256-allreduce"
    demands = (Resources(2000, 1), Resources(1000, 0))
    least, most = (1, 16) if with_ps else (0, 0)
    limits = (Allocation(4, most // 4), 16, most)
    jobs = (
        WorkloadJob(f"job-{number}", job_type, 600.0 * number, 20.0, 2000.0, *demands, *limits, kind=kind, min_ps=least)
        for number in range(count)
    )
    return Workload("alike", tuple(jobs))


@pytest.mark.parametrize("kind", [JobKind.PS, JobKind.ALLREDUCE])
@pytest.mark.parametrize("mode", list(ActingMode))
def test_jobs_that_are_all_alike_are_given_the_same(kind: JobKind, mode: ActingMode) -> None:
    spec = PolicySpec(jobs_per_batch=4, job_types=(OTHER_TYPE, "vgg-16"), hidden=(16, 16))
    there, here = (LearnedPolicy(spec, scattered(spec, 2), mode=mode) for _ in range(2))
    assert goes_the_same(there, here, jobs_of(kind, 9), Environment(3), SPEEDS)
    assert here.decision_index == there.decision_index > 1


def test_a_policy_that_is_asked_again_goes_on_with_the_next_decisions_numbers() -> None:
    spec = PolicySpec(jobs_per_batch=4, hidden=(16,))
    there, here = (LearnedPolicy(spec, scattered(spec, 1), mode=ActingMode.SAMPLE) for _ in range(2))
    workload = jobs_of(JobKind.PS, 6)
    first = run_compiled(workload, Environment(3), here, SPEEDS, keep_beliefs=False)
    assert here.decision_index == 0
    assert run_compiled(workload, Environment(3), here, SPEEDS).outcomes == first.outcomes
    replay(workload, Environment(3), there, SPEEDS, compiled=False)
    assert goes_the_same(there, here, workload, Environment(3), SPEEDS)


def test_an_actor_alone_acts_as_with_its_critic() -> None:
    spec = PolicySpec(jobs_per_batch=4, hidden=(16,))
    alone = spec.model_copy(update={"critic": False})
    weights = scattered(spec, 1)
    with_critic = LearnedPolicy(spec, weights)
    for compiled in (True, False):
        without = LearnedPolicy(alone, weights[: alone.parameter_count])
        found = replay(jobs_of(JobKind.PS, 6), Environment(3), without, SPEEDS, compiled=compiled)
        assert found.outcomes == replay(jobs_of(JobKind.PS, 6), Environment(3), with_critic, SPEEDS).outcomes


@pytest.mark.parametrize(
    ("spec", "weight", "reason"),
    [
        (PolicySpec(hidden=(4,)), np.nan, "a weight is not finite"),
        (PolicySpec(hidden=()), 0.0, "the network has no hidden layer, or one wider than 4096"),
        (PolicySpec(hidden=(5000,), jobs_per_batch=1), 0.0, "the network has no hidden layer, or one wider than 4096"),
    ],
)
def test_what_the_twin_cannot_act_with_is_for_the_reference(spec: PolicySpec, weight: float, reason: str) -> None:
    weights = np.zeros(spec.parameter_count, np.float32)
    weights[0] = weight
    assert uncovered(jobs_of(JobKind.PS, 2), Environment(3), LearnedPolicy(spec, weights), SPEEDS) == reason


def all_huge(spec: PolicySpec) -> Weights:
    return np.full(spec.parameter_count, 1e30, np.float32)


def of_either_sign(spec: PolicySpec) -> Weights:
    return scattered(spec, 0, scale=1e20)


@pytest.mark.filterwarnings("ignore:overflow encountered", "ignore:invalid value encountered")
@pytest.mark.parametrize("weights", [all_huge, of_either_sign], ids=["infinite", "no number amid the network"])
def test_logits_that_are_not_finite_are_an_error_in_the_twin_too(weights: Callable[[PolicySpec], Weights]) -> None:
    spec = PolicySpec(hidden=(16, 16))
    policy = LearnedPolicy(spec, weights(spec))
    for compiled in (True, False):
        with pytest.raises(FloatingPointError, match="the network's logits are not finite"):
            replay(jobs_of(JobKind.PS, 2), Environment(3), policy, SPEEDS, compiled=compiled)


def test_what_somebody_derives_from_it_is_for_the_reference() -> None:
    class Other(LearnedPolicy):
        pass

    spec = PolicySpec(hidden=(4,))
    weights = np.zeros(spec.parameter_count, np.float32)
    assert heuristic_of(Other(spec, weights)) is None
    known = heuristic_of(LearnedPolicy(spec, weights))
    assert known is not None
    assert known.code is Scheduler.DL2


def test_an_explorer_of_ones_own_is_for_the_reference() -> None:
    class Other(JobAwareExploration):
        pass

    spec = PolicySpec(hidden=(4,))
    weights = np.zeros(spec.parameter_count, np.float32)
    policies = [LearnedPolicy(spec, weights, mode=mode, explorer=Other(0.2)) for mode in ActingMode]
    found = [uncovered(jobs_of(JobKind.PS, 2), Environment(3), policy, SPEEDS) for policy in policies]
    assert found == [None, "the network explores in a way of its own"]


def test_an_interrupt_amid_random_numbers_ends_the_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = PolicySpec(jobs_per_batch=4, hidden=(16,))
    policy = LearnedPolicy(spec, scattered(spec, 1), mode=ActingMode.SAMPLE)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("policy_net.twin.dl2_network.np.random.default_rng", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_compiled(jobs_of(JobKind.PS, 2), Environment(3), policy, SPEEDS)


@pytest.mark.heavy
@pytest.mark.hypothesis
@pytest.mark.parametrize("job_types", [KNOWN_TYPES, DRAWN_TYPES])
@THOROUGH
@given(data=st.data())
def test_groups_are_drawn_as_in_the_reference(job_types: tuple[str, ...], data: st.DataObject) -> None:
    workload, environment = data.draw(workloads(job_types)), data.draw(environments())
    network, _ = data.draw(networks(job_types))
    exploration = data.draw(st.sampled_from((0.0, 0.4)))
    choice = GroupChoice(*(data.draw(st.integers(1, most)) for most in (4, 5)), exploration=exploration)
    weights = scattered(network.spec, 1)
    there, here = (DrawingPolicy(network.spec, weights, choice, seed=3) for _ in range(2))
    for policy in (there, here):
        policy.begin(choice.every, choice.every - 1)
    if not goes_the_same(there, here, workload, environment, SPEEDS):
        return
    assert here.beliefs.checkpoint() == there.beliefs.checkpoint()
    for one, other in zip(here.groups, there.groups, strict=True):
        assert all_close(one.samples, other.samples)
        assert np.array_equal(one.draws_M, other.draws_M)
        assert one.utility_KN == pytest.approx(other.utility_KN, rel=1e-9, abs=1e-12)
        assert one.share_KN == pytest.approx(other.share_KN)


def logit_errors(policy: LearnedPolicy, samples: DecisionSamples) -> NDArray[np.float64]:
    """By row: the logit of what the twin drew, less the reference's for what the twin's network saw.

    The twin says probabilities, so both are taken over the admissible actions: a logit less the log of all their sum.
    """
    errors = []
    for features_F, mask_A, index, probability in zip(
        samples.features_MF, samples.masks_MA, samples.actions_M, samples.behaviour_M, strict=True
    ):
        policy.network.start(features_F)
        logits_A = policy.network.logits().astype(np.float64)
        errors.append(np.log(probability) - logits_A[index] + np.logaddexp.reduce(logits_A[mask_A]))
    return np.array(errors)


@pytest.mark.heavy
@pytest.mark.hypothesis
@pytest.mark.parametrize("job_types", [KNOWN_TYPES, DRAWN_TYPES])
@THOROUGH
@given(data=st.data())
def test_logits_are_the_reference_s(job_types: tuple[str, ...], data: st.DataObject) -> None:
    workload, environment = data.draw(workloads(job_types)), data.draw(environments())
    network, _ = data.draw(networks(job_types))
    weights, choice = (
        scattered(network.spec, data.draw(st.integers(0, 9))),
        GroupChoice(30, data.draw(st.integers(1, 3))),
    )
    policy = DrawingPolicy(network.spec, weights, choice, most=1000)
    with suppress(EnoughDrawn, BadInput, NoProgress):
        run_compiled(workload, environment, policy, SPEEDS)
    for group in policy.groups:
        assert np.abs(logit_errors(policy, group.samples)).max() < 1e-4


@pytest.mark.parametrize("decide_on", list(DecideOn))
def test_every_logit_of_a_state_is_the_reference_s(decide_on: DecideOn) -> None:
    spec = PolicySpec(jobs_per_batch=2, job_types=(OTHER_TYPE, "vgg-16"), hidden=(32, 16))
    policy = DrawingPolicy(spec, scattered(spec, 1), GroupChoice(draws=300, every=5, phase=4), most=30_000)
    with suppress(EnoughDrawn):
        run_compiled(jobs_of(JobKind.PS, 9), Environment(3, decide_on=decide_on), policy, SPEEDS)
    for group in policy.groups:
        first_M = np.append(True, np.diff(group.draws_M) > 0)
        assert set(group.samples.actions_M[first_M]) == set(np.flatnonzero(group.samples.masks_MA[0]))
        assert np.abs(logit_errors(policy, group.samples)).max() < 1e-4
    assert len(policy.groups) > 1


@pytest.mark.parametrize("decide_on", list(DecideOn))
def test_logits_of_the_policy_that_ships_are_the_reference_s(decide_on: DecideOn) -> None:
    content = shipped_file("dl2")
    policy = DrawingPolicy(content.network_spec, content.weights, GroupChoice(draws=4, every=1), most=2000)
    with suppress(EnoughDrawn):
        run_compiled(jobs_of(JobKind.PS, 40), Environment(6, decide_on=decide_on), policy, default_speeds())
    assert policy.drawn >= 2000
    assert max(np.abs(logit_errors(policy, group.samples)).max() for group in policy.groups) < 1e-4


def all_close(one: DecisionSamples, other: DecisionSamples) -> bool:
    """The same actions with the same masks and jobs; what the network saw, and probabilities, but for rounding."""
    same = ("masks_MA", "actions_M", "jobs_M")
    return (
        all(np.array_equal(getattr(one, name), getattr(other, name)) for name in same)
        and np.allclose(one.features_MF, other.features_MF, atol=1e-6)
        and np.allclose(one.behaviour_M, other.behaviour_M, rtol=1e-3, atol=1e-6)
    )


def test_an_error_amid_a_group_ends_the_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = PolicySpec(jobs_per_batch=4, hidden=(16,))
    policy = DrawingPolicy(spec, scattered(spec, 1), GroupChoice(draws=2, every=1))

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(policy, "keep_drawn", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_compiled(jobs_of(JobKind.PS, 2), Environment(3), policy, SPEEDS)
