"""Cases at the edge of what the twin covers: it declines them, or refuses them as the reference does."""

import math
from dataclasses import replace

import numpy as np
import pytest
from worlds import GivePairs, PairSpeeds, make_spec, make_workload

from policy_net.domain import Allocation, CapacityMode, JobKind, Resources
from policy_net.errors import BadInput, NoProgress
from policy_net.exchange.spec import SetSpec
from policy_net.laboratory.simulation.environment import Environment, NodeChange
from policy_net.laboratory.simulation.replay import replay, run_compiled, uncovered
from policy_net.laboratory.speeds.placement_effect import default_placement_effect
from policy_net.laboratory.speeds.speed import TableSpeedModel, default_speeds
from policy_net.laboratory.workloads.workload import Workload
from policy_net.set_policy.policy import SetPolicy, default_set_file
from policy_net.twin.library import notice

pytestmark = pytest.mark.skipif(notice() is not None, reason=str(notice()))

SPEEDS = default_speeds()
JOBS = make_workload(*(make_spec(number, job_type="vgg-16") for number in range(3)))


def fresh(**options: object) -> SetPolicy:
    content = default_set_file()
    assert isinstance(content.spec, SetSpec)
    return SetPolicy(content.spec, content.weights, content.priors, **options)  # type: ignore[arg-type]


def test_what_is_ordinary_is_covered() -> None:
    assert uncovered(JOBS, Environment(2), fresh(), SPEEDS) is None


@pytest.mark.parametrize(
    ("options", "reason"),
    [({"greedy": False}, "decisions are drawn"), ({"exploration": 0.1}, "decisions are drawn")],
)
def test_drawn_decisions_are_for_the_reference(options: dict[str, object], reason: str) -> None:
    assert uncovered(JOBS, Environment(2), fresh(**options), SPEEDS) == reason


def test_other_policies_are_for_the_reference() -> None:
    assert uncovered(JOBS, Environment(2), GivePairs(), SPEEDS) == "the twin knows no policy give-pairs"


def test_nodes_that_come_and_go_are_covered() -> None:
    environment = Environment(2, node_mtbf_seconds=3600.0, node_changes=(NodeChange(60.0, "node-2", True),))
    assert uncovered(JOBS, environment, fresh(), SPEEDS, default_placement_effect()) is None


def test_gpu_types_matter_only_where_tasks_are_placed() -> None:
    typed = Environment(2, gpu_types=(("v100", 1),))
    later = Environment(2, node_changes=(NodeChange(60.0, "node-2", True, gpu_type="v100"),))
    effect = default_placement_effect()
    assert uncovered(JOBS, typed, fresh(places=False), SPEEDS, effect) == "GPUs are of several types"
    assert uncovered(JOBS, later, fresh(places=False), SPEEDS, effect) == "GPUs are of several types"
    assert uncovered(JOBS, later, fresh(places=False), SPEEDS) is None
    assert uncovered(JOBS, replace(typed, capacity_mode=CapacityMode.POOLED), fresh(), SPEEDS, effect) is None


def test_plans_with_places_are_covered_on_gpus_of_one_type() -> None:
    effect, typed = default_placement_effect(), Environment(2, gpu_types=(("v100", 1),))
    assert uncovered(JOBS, Environment(2), fresh(), SPEEDS, effect) is None
    assert uncovered(JOBS, typed, fresh(), SPEEDS, effect) == "GPUs are of several types"


@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_weights_that_are_not_finite_are_for_the_reference(broken: float) -> None:
    policy = fresh()
    policy.load_weights(np.full(policy.spec.parameter_count, broken, dtype=np.float32))
    assert uncovered(JOBS, Environment(2), policy, SPEEDS) == "a weight is not finite"


class OddSpeeds(PairSpeeds):
    def __init__(self, value: float) -> None:
        self.value = value

    def grid(self, job_type: str) -> np.ndarray:
        grid = super().grid(job_type).copy()
        grid[2, 2] = self.value
        return grid


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0, 1e300, 1e-300])
def test_speeds_that_are_no_speeds_are_for_the_reference(value: float) -> None:
    assert uncovered(JOBS, Environment(2), fresh(), OddSpeeds(value)) == "the speeds of type 'vgg-16' are extreme"


@pytest.mark.parametrize("epochs", [1e-200, 1e200])
def test_work_beyond_measure_is_for_the_reference(epochs: float) -> None:
    workload = make_workload(make_spec(0, job_type="vgg-16", total_epochs=epochs))
    assert uncovered(workload, Environment(2), fresh(), SPEEDS) == "job 'job-0' has an extreme amount of work"


@pytest.mark.parametrize(
    "environment",
    [
        Environment(2, slot_seconds=1e-200),
        Environment(2, debounce_seconds=1e200),
        Environment(2, cpus_per_node=10**30),
        Environment(2, checkpoint_seconds=1e200),
        Environment(2, node_changes=(NodeChange(60.0, "node-2", True, Resources(10**30, 0)),)),
    ],
)
def test_clusters_beyond_measure_are_for_the_reference(environment: Environment) -> None:
    assert uncovered(JOBS, environment, fresh(), SPEEDS) == "the cluster is beyond measure"


def test_jobs_beyond_measure_are_for_the_reference() -> None:
    late = make_workload(make_spec(0, job_type="vgg-16", submit_time_seconds=1e300))
    large = make_workload(make_spec(0, job_type="vgg-16", ps_demand=Resources(10**30, 0)))
    assert uncovered(late, Environment(2), fresh(), SPEEDS) == "job 'job-0' comes in thousands of years"
    assert uncovered(large, Environment(2), fresh(), SPEEDS) == "job 'job-0' needs more than there is anywhere"


@pytest.mark.parametrize("field", ["total_epochs", "samples_per_epoch", "submit_time_seconds", "declared_epochs"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0])
def test_no_job_with_a_broken_number_gets_as_far_as_the_twin(field: str, value: float) -> None:
    with pytest.raises(BadInput):
        make_spec(0, **{field: value})


def test_no_workload_without_jobs_gets_as_far_as_the_twin() -> None:
    with pytest.raises(BadInput, match="has no jobs"):
        Workload("empty", ())


@pytest.mark.parametrize("workers", [0, 17, 1000])
def test_no_job_with_more_workers_than_there_may_be_gets_as_far_as_the_twin(workers: int) -> None:
    with pytest.raises(BadInput, match="max_workers"):
        make_spec(0, max_workers=workers)


def test_a_request_beyond_the_largest_size_is_as_in_the_reference() -> None:
    workload = make_workload(
        make_spec(0, job_type="vgg-16", requested=Allocation(64, 40), work_known=False),
        make_spec(1, job_type="vgg-16", requested=Allocation(2, 2), work_known=False),
    )
    environment = Environment(3)
    run = run_compiled(workload, environment, fresh(), SPEEDS)
    # The reference's own summary has no speed for such a request: its ends are compared through another request.
    clipped = replace(workload, jobs=tuple(replace(job, requested=Allocation(0, 0)) for job in workload.jobs))
    again = run_compiled(clipped, environment, fresh(), SPEEDS)
    assert run.outcomes[0].end_seconds == pytest.approx(again.outcomes[0].end_seconds, rel=0.5)
    with pytest.raises(ValueError, match="both must be 0…16"):
        replay(workload, environment, fresh(), SPEEDS)


@pytest.mark.parametrize("capacity_mode", list(CapacityMode))
def test_a_job_that_no_node_has_room_for_is_refused_as_in_the_reference(capacity_mode: CapacityMode) -> None:
    workload = make_workload(make_spec(0, job_type="vgg-16", worker_demand=Resources(2000, 9)))
    environment = Environment(1, gpus_per_node=0, capacity_mode=capacity_mode)
    said = []
    for compiled in (True, False):
        with pytest.raises(BadInput, match="never fits") as raised:
            replay(workload, environment, fresh(), SPEEDS, compiled=compiled)
        said.append(str(raised.value))
    assert said[0] == said[1]


def test_jobs_that_never_end_are_given_up_at_the_same_moment() -> None:
    """The type trains nowhere but with more than the cluster has."""
    grid = np.zeros((17, 17))
    grid[16, 16] = 5.0
    speeds = TableSpeedModel({"vgg-16": grid}, "the test")
    said = []
    for compiled in (True, False):
        with pytest.raises(NoProgress) as raised:
            replay(JOBS, Environment(2), fresh(), speeds, compiled=compiled)
        said.append(str(raised.value))
    assert said[0] == said[1]
    assert "let none of the 3 remaining jobs" in said[0]


def test_jobs_of_one_type_and_two_kinds_are_for_the_reference() -> None:
    one = make_spec(0, job_type="vgg-16")
    other = make_spec(1, job_type="vgg-16", kind=JobKind.ALLREDUCE, min_ps=0, max_ps=0, requested=Allocation(1, 0))
    assert uncovered(make_workload(one, other), Environment(2), fresh(), SPEEDS) == (
        "jobs of type 'vgg-16' are of two kinds"
    )


def test_beliefs_about_jobs_that_are_still_there_are_for_the_reference() -> None:
    policy = fresh()
    assert policy.beliefs is not None
    policy.beliefs.lifetimes.on_jobs_present({"other": (1.0, 1.0)})
    assert uncovered(JOBS, Environment(2), policy, SPEEDS) == "the policy's beliefs are of jobs that are still there"
