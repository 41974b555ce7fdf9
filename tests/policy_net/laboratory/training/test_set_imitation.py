import json

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from teachers import watched

from policy_net.domain import Allocation
from policy_net.errors import BadInput
from policy_net.exchange.policy_file import PolicyFile
from policy_net.exchange.spec import SetSpec
from policy_net.laboratory.training.set_imitation import (
    PickCollector,
    PickLikelihood,
    fit_residual,
    log_views,
)
from policy_net.laboratory.training.teacher import Agreement, Imitated, Split, Teacher
from policy_net.set_policy.policy import default_set_file
from policy_net.set_policy.residual import initial_residual
from policy_net.throughput.gaussian_process import GaussianProcessBeliefs

SHIPPED = default_set_file()


def picks_of(name: str, decisions: int = 60):
    collector = PickCollector()
    for view in log_views(watched(name)[:decisions], GaussianProcessBeliefs(SHIPPED.priors)):
        collector.add(view)
    return collector.picks()


@pytest.mark.parametrize("name", ["optimus", "drf"])
def test_the_gradient_is_that_of_the_likelihood(name: str) -> None:
    spec = SetSpec(hidden=(3,))
    likelihood = PickLikelihood(spec, picks_of(name), ridge=0.01)
    generator = np.random.default_rng(0)
    point = generator.normal(0.0, 0.3, spec.parameter_count + 1)
    direction = generator.normal(0.0, 1.0, len(point))
    _, gradient = likelihood.loss(point)
    step = 1e-3  # the residual's weights are single precision
    measured = (likelihood.loss(point + step * direction)[0] - likelihood.loss(point - step * direction)[0]) / (
        2 * step
    )
    assert float(gradient @ direction) == pytest.approx(measured, rel=0.02, abs=1e-4)


def test_fitting_raises_the_likelihood_and_is_repeatable() -> None:
    spec, picks = SetSpec(), picks_of("optimus")
    start = initial_residual(spec, 0)
    _, few = fit_residual(spec, start, picks, most_iterations=2)
    weights, many = fit_residual(spec, start, picks, most_iterations=60)
    assert many > few
    again, _ = fit_residual(spec, start, picks, most_iterations=60)
    assert weights.tobytes() == again.tobytes()


@pytest.mark.parametrize(("name", "least_gain"), [("optimus", 0.01), ("srtf", 0.005), ("fifo", 0.02), ("drf", 0.0)])
def test_an_imitation_moves_towards_its_teacher_on_decisions_that_it_has_not_seen(name: str, least_gain: float) -> None:
    teacher = Teacher(name, watched(name, (1, 2)))
    imitated = teacher.imitate_set(SHIPPED, SetSpec(), lambda _: None)
    before, after = imitated.facts["agreement_before"], imitated.facts["agreement_after"]
    assert imitated.facts["held_out_decisions"] > 10
    assert after["task_overlap"] > before["task_overlap"] + least_gain
    assert 0.0 < after["task_overlap"] <= imitated.facts["reachable"]["task_overlap"] + 0.05


def test_the_priors_become_what_the_log_shows() -> None:
    imitated = Teacher("optimus", watched("optimus")).imitate_set(SHIPPED, SetSpec(), lambda _: None)
    before = {prior.job_type: set() for prior in SHIPPED.priors} | {}
    for prior in SHIPPED.priors:
        before[prior.job_type].add((prior.ps, prior.workers))
    now: dict[str, set[tuple[int, int]]] = {}
    for prior in imitated.priors:
        now.setdefault(prior.job_type, set()).add((prior.ps, prior.workers))
    assert now["vgg-16"] == before["vgg-16"]  # not in the log
    held = {(grant.ps, grant.workers) for decision in watched("optimus") for grant in decision.allocation.values()}
    assert now["dssm"] <= held


def test_too_few_decisions_and_decisions_without_a_choice_are_refused() -> None:
    with pytest.raises(BadInput, match="at least"):
        Teacher("short", watched("optimus")[:5])
    lonely = [decision for decision in watched("optimus", (1, 2)) if len(decision.state.jobs) == 1]
    with pytest.raises(BadInput, match="makes a choice"):
        Teacher("lonely", (lonely * 20)[:40]).imitate_set(SHIPPED, SetSpec(), lambda _: None)


@given(st.integers(1, 5000), st.integers(1, 300))
def test_what_is_learned_from_is_not_judged_on(decisions: int, most: int) -> None:
    split = Split(decisions, most)
    learned = [split.is_learned(position) for position in range(decisions)]
    held_out = [split.is_held_out(position) for position in range(decisions)]
    assert not any(one and other for one, other in zip(learned, held_out, strict=True))
    assert sum(learned) <= most
    if decisions >= 40:
        assert 0.1 <= sum(held_out) / decisions <= 0.3


allocations = st.builds(Allocation, st.integers(0, 16), st.integers(0, 16))


@given(st.lists(st.tuples(allocations, allocations), max_size=6))
def test_the_overlap_is_a_share_and_symmetric(pairs: list[tuple[Allocation, Allocation]]) -> None:
    ours, theirs = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    agreement, swapped = Agreement(), Agreement()
    agreement.add(ours, theirs)
    swapped.add(theirs, ours)
    assert 0.0 <= agreement.task_overlap == swapped.task_overlap <= 1.0
    assert (agreement.task_overlap == 1.0) == (ours == theirs)


def test_whatever_an_imitation_lost_is_said() -> None:
    before = {"task_overlap": 0.5, "same_allocation": 0.5, "running_alike": 0.9}
    facts = {"imitated": "log", "held_out_decisions": 1, "agreement_before": before}
    said = {}
    for name, after in (("better", before), ("worse", {**before, "task_overlap": 0.7, "running_alike": 0.8})):
        said[name] = Imitated(SHIPPED.weights, {**facts, "agreement_after": after}).agreement_lines
    assert said["better"] == ["log: tasks in common with it, on 1 decision not learned from: 50.0% before, 50.0% after"]
    (_, lost) = said["worse"]
    assert "running_alike (jobs that run under both, or wait under both): 90.0% before, 80.0% after" in lost


amounts = st.none() | st.floats(0.0, 1e18)
plain_jobs = st.fixed_dictionaries(
    {"type": st.sampled_from(["vgg-16", "new"]), "workers": st.integers(0, 40)},
    optional={
        "ps": st.integers(0, 40),
        "remaining": amounts,
        "done": amounts,
        "total": st.floats(1e-9, 1e18),
        "max_workers": st.integers(1, 16),
        "requested_workers": st.integers(1, 99),
        "worker": st.fixed_dictionaries({"gpus": st.integers(0, 9), "cpus": st.floats(0.0, 99.0)}),
    },
)
plain_lines = st.lists(st.tuples(st.floats(0.0, 1e6), st.lists(plain_jobs, max_size=5)), min_size=20, max_size=40)


def _without_servers(job: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in job.items() if name != "ps"}


@pytest.mark.heavy
@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(plain_lines, st.integers(1, 9))
@example([(60.0, [{"type": "vgg-16", "workers": 2, "remaining": 5e-324}] * 3)] * 40, 1)
@example([(60.0, [{"type": "vgg-16", "workers": 2, "remaining": 1e-310, "total": 1e-310}] * 3)] * 40, 2)
@pytest.mark.filterwarnings("error::RuntimeWarning")  # of sums that are no number
def test_whatever_an_operator_logs_it_is_imitated_or_refused(
    tmp_path_factory: pytest.TempPathFactory, lines: list[tuple[float, list[dict[str, object]]]], nodes: int
) -> None:
    path = tmp_path_factory.mktemp("log") / "plain.jsonl"
    time_s, texts = 0.0, []
    for step, jobs in lines:
        time_s += step
        # Every other job has parameter servers, in all lines.
        named = [{"ps": 1, **job} if number % 2 else _without_servers(job) for number, job in enumerate(jobs)]
        named = [{"id": f"job-{number}", **job} for number, job in enumerate(named)]
        texts.append(json.dumps({"time_s": time_s, "nodes": [{"count": nodes, "cpus": 8, "gpus": 4}], "jobs": named}))
    path.write_text("\n".join(texts) + "\n")
    try:
        imitated = Teacher.from_file(path, 1200.0).imitate_set(SHIPPED, SetSpec(), lambda _: None)
    except BadInput as error:
        message = str(error)
        assert path.name in message
    else:
        assert np.isfinite(imitated.weights).all()
        assert PolicyFile(SetSpec(), imitated.weights, imitated.facts, imitated.priors).to_bytes()
