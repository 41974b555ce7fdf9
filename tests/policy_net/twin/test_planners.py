"""Planners in the compiled twin: what they plan on, and what they go on with, where drawn cases seldom come."""

import copy
import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from twin_cases import assert_equal
from worlds import make_spec, make_workload

from policy_net.baselines.marginal import MarginalPolicy
from policy_net.baselines.optimus import OptimusPolicy, OptimusSrPolicy
from policy_net.domain import Allocation, JobKind, PlacementEffect, Resources
from policy_net.errors import BadInput, NoProgress
from policy_net.exchange.statistics import SpeedStatistic
from policy_net.laboratory.simulation.environment import DecideOn, Environment, PlacementStrategy
from policy_net.laboratory.simulation.replay import replay, run_compiled, uncovered
from policy_net.laboratory.speeds.placement_effect import default_placement_effect
from policy_net.laboratory.speeds.speed import TableSpeedModel, default_speeds
from policy_net.laboratory.workloads.workload import Workload
from policy_net.set_policy.beliefs import SetBeliefs
from policy_net.throughput import parametric
from policy_net.throughput.form import FORMS
from policy_net.throughput.gaussian_process import GaussianProcessBeliefs
from policy_net.throughput.parametric import MeasuredFit, OnlineFit, SpeedPoint
from policy_net.twin.library import notice
from policy_net.twin.schedulers import heuristic_of

pytestmark = pytest.mark.skipif(notice() is not None, reason=str(notice()))

Planner = MarginalPolicy | OptimusPolicy
SPEEDS = default_speeds()
NAME = "bert-64-allreduce"
IDLE = Environment(40, gpus_per_node=4, cpus_per_node=32, decide_on=DecideOn.EVENT, speed_noise=0.273)


def one_by_one(job_type: str, count: int, *, kind: JobKind, most: int = 16, gap_seconds: float = 5000.0) -> Workload:
    """Jobs of one type that have an idle cluster nearly for themselves."""
    with_ps = kind.uses_ps
    shared = {"job_type": job_type, "kind": kind, "min_ps": int(with_ps), "max_ps": 16 if with_ps else 0}
    jobs = (
        make_spec(
            number,
            submit_time_seconds=gap_seconds * number,
            total_epochs=60.0 + number,
            samples_per_epoch=2000.0,
            max_workers=most if number % 2 else min(most, 16),
            requested=Allocation(2, int(with_ps)),
            **shared,
        )
        for number in range(count)
    )
    return make_workload(*jobs)


def assert_alike(
    there: Planner,
    here: Planner,
    workload: Workload,
    environment: Environment = IDLE,
    effect: PlacementEffect | None = None,
) -> None:
    assert uncovered(workload, environment, here, SPEEDS, effect) is None
    expected = replay(workload, environment, there, SPEEDS, placement_effect=effect, compiled=False)
    assert_equal(expected, run_compiled(workload, environment, here, SPEEDS, effect))
    if here.beliefs is not None and there.beliefs is not None:
        assert here.beliefs.digest() == there.beliefs.digest()
        for job_type in {job.job_type for job in workload.jobs}:
            np.testing.assert_array_equal(here.beliefs.grid(job_type), there.beliefs.grid(job_type))


def fitting(kind: type[OptimusPolicy]) -> OptimusPolicy:
    beliefs = OnlineFit()
    return OptimusSrPolicy(beliefs) if kind is OptimusSrPolicy else OptimusPolicy("optimus", beliefs, beliefs)


def hoping(*priors: SpeedStatistic) -> MarginalPolicy:
    beliefs = GaussianProcessBeliefs(priors)
    return MarginalPolicy("marginal", beliefs, beliefs)


@pytest.mark.parametrize("kind", [OptimusPolicy, OptimusSrPolicy])
@pytest.mark.parametrize(("job_type", "job_kind"), [("vgg-16", JobKind.PS), (NAME, JobKind.ALLREDUCE)])
def test_what_is_not_known_of_a_type_is_tried_as_in_the_reference(
    kind: type[OptimusPolicy], job_type: str, job_kind: JobKind
) -> None:
    there, here = fitting(kind), fitting(kind)
    assert_alike(there, here, one_by_one(job_type, 12, kind=job_kind))
    assert there.beliefs is not None
    tried = there.beliefs.allocations_seen(job_type)
    assert Allocation(1, 8 if job_kind.uses_ps else 0) in tried  # only a probe has so few workers here
    assert len(tried) >= 4


def test_jobs_of_a_type_that_share_an_idle_cluster_try_one_thing_at_a_time() -> None:
    assert_alike(
        fitting(OptimusPolicy),
        fitting(OptimusPolicy),
        one_by_one("vgg-16", 12, kind=JobKind.PS, gap_seconds=100.0),
    )


def test_reports_of_others_are_where_marginal_starts_from() -> None:
    priors = tuple(
        SpeedStatistic(NAME, JobKind.ALLREDUCE, 0, workers, math.log(30.0 * workers**0.9), 5) for workers in (1, 4, 8)
    )
    assert_alike(hoping(*priors), hoping(*priors), one_by_one(NAME, 6, kind=JobKind.ALLREDUCE))


def oracle() -> MarginalPolicy:
    return MarginalPolicy("oracle", SPEEDS)


def knowing() -> OptimusPolicy:
    return OptimusPolicy("optimus-true-table", SPEEDS)


@pytest.mark.parametrize(
    "fresh", [hoping, oracle, knowing, lambda: fitting(OptimusPolicy), lambda: fitting(OptimusSrPolicy)]
)
def test_a_planner_that_has_seen_many_workers_goes_on_with_few(fresh: Callable[[], Planner]) -> None:
    there, here = fresh(), fresh()
    for most in (64, 16, 40):
        workload = one_by_one("vgg16-256-allreduce", 8, kind=JobKind.ALLREDUCE, most=most, gap_seconds=900.0)
        assert_alike(there, here, workload)


@pytest.mark.parametrize("fresh", [hoping, oracle, knowing, lambda: fitting(OptimusPolicy)])
def test_what_cannot_be_packed_is_spread_as_in_the_reference(fresh: Callable[[], Planner]) -> None:
    """Three odd nodes that are full, with workers that need much of one thing."""
    sizes = (Resources(8000, 3), Resources(15500, 8), Resources(4500, 7))
    environment = Environment(3, node_sizes=sizes, speed_noise=0.273, seed=1, placement=PlacementStrategy.PACK)
    demands = (Resources(1000, 2), Resources(2500, 0), Resources(1000, 2), Resources(4500, 1))
    workload = make_workload(
        *(
            make_spec(
                number,
                job_type="vgg16-256-allreduce",
                kind=JobKind.ALLREDUCE,
                total_epochs=10.0 + 3 * number,
                samples_per_epoch=50.0,
                worker_demand=demand,
                max_workers=9,
                requested=Allocation(1),
                min_ps=0,
                max_ps=0,
            )
            for number, demand in enumerate(demands)
        )
    )
    assert_alike(fresh(), fresh(), workload, environment, default_placement_effect())


@pytest.mark.parametrize("dead", [(2, 3), (2,)])
def test_where_a_job_cannot_train_one_task_more_counts_as_in_the_reference(dead: tuple[int, ...]) -> None:
    """With two workers too few for every job, the third helps, or only the fourth: then none takes a third."""
    grid = np.arange(65.0)[None] * 10.0
    grid[0, list(dead)] = 0.0
    speeds = TableSpeedModel({NAME: grid}, "the test")
    jobs = one_by_one(NAME, 3, kind=JobKind.ALLREDUCE, gap_seconds=0.0).jobs
    workload = make_workload(*(replace(job, min_workers=2) for job in jobs))
    ends = []
    for compiled in (True, False):
        try:
            policy = OptimusPolicy("optimus-true-table", speeds)
            result = replay(workload, IDLE, policy, speeds, compiled=compiled)
            ends.append([outcome.end_seconds for outcome in result.outcomes])
        except NoProgress as error:
            ends.append([str(error)])
    assert ends[0] == ends[1]
    assert len(ends[0]) == (1 if len(dead) > 1 else 3)


def test_planners_on_beliefs_of_another_making_are_for_the_reference() -> None:
    hoped, fitted, own = GaussianProcessBeliefs(), OnlineFit(), SetBeliefs()
    assert heuristic_of(MarginalPolicy("m", hoped, hoped)) is not None
    assert heuristic_of(MarginalPolicy("m", fitted, fitted)) is None  # it would be probed
    assert heuristic_of(MarginalPolicy("m", own, own)) is None
    assert heuristic_of(OptimusPolicy("o", fitted, fitted)) is not None
    assert heuristic_of(OptimusPolicy("o", hoped, hoped)) is None
    assert heuristic_of(OptimusPolicy("o", SPEEDS, fitted)) is None  # it feeds what it does not plan on


def test_a_type_without_measured_speeds_is_refused_as_in_the_reference() -> None:
    points = [SpeedPoint(ps, workers, 10.0 * workers + ps) for ps in (1, 2, 4) for workers in (1, 2, 3)]
    policy = OptimusPolicy("optimus-fitted", MeasuredFit({"resnet-50": points}, "the test"))
    workload = one_by_one("vgg-16", 2, kind=JobKind.PS)
    assert uncovered(workload, IDLE, policy, SPEEDS) == "nobody knows speeds of type 'vgg-16'"
    with pytest.raises(BadInput, match="no points for model 'vgg-16'"):
        replay(workload, IDLE, policy, SPEEDS)


def put_rounding_in_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    form = FORMS[JobKind.PS]
    monkeypatch.setitem(form.__dict__, "prior_moments", tuple(np.nan * moment for moment in form.prior_moments))


def test_where_rounding_is_in_the_way_the_reference_fits_for_both(monkeypatch: pytest.MonkeyPatch) -> None:
    put_rounding_in_the_way(monkeypatch)
    there, here = fitting(OptimusPolicy), fitting(OptimusPolicy)
    workload = one_by_one("vgg-16", 6, kind=JobKind.PS)
    expected = replay(workload, IDLE, there, SPEEDS, compiled=False)
    assert_equal(expected, run_compiled(workload, IDLE, here, SPEEDS))
    assert here.beliefs is not None
    assert there.beliefs is not None
    assert here.beliefs.digest() == there.beliefs.digest()


def test_a_fit_that_fails_ends_the_run_as_in_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> None:
        raise ArithmeticError("no fit")

    workload = one_by_one("vgg-16", 2, kind=JobKind.PS)
    policy = fitting(OptimusPolicy)
    put_rounding_in_the_way(monkeypatch)
    monkeypatch.setattr(parametric, "nonnegative_fit", failing)
    for compiled in (True, False):
        with pytest.raises(ArithmeticError, match="no fit"):
            replay(workload, IDLE, copy.deepcopy(policy), SPEEDS, compiled=compiled)
