"""Nodes that come and go in the compiled twin: what drawn cases seldom come to, and how a run is given up."""

from typing import Any

import pytest
from twin_cases import assert_equal, drawn_speeds, kind_of
from worlds import make_spec, make_workload

import policy_net.baselines  # noqa: F401  (registers the policies' names)
from policy_net.domain import Allocation, CapacityMode, JobKind, PlacementEffect, PolicyContext, Resources
from policy_net.errors import NoProgress
from policy_net.exchange.spec import SetSpec
from policy_net.laboratory.simulation.environment import DecideOn, Environment, NodeChange, PlacementStrategy
from policy_net.laboratory.simulation.node_changes import NodeTimeline
from policy_net.laboratory.simulation.replay import replay, run_compiled, uncovered
from policy_net.laboratory.speeds.placement_effect import default_placement_effect
from policy_net.laboratory.workloads.workload import Workload, WorkloadJob
from policy_net.policy import SchedulerPolicy, build_policy
from policy_net.set_policy.policy import SetPolicy, default_set_file
from policy_net.twin.library import notice

pytestmark = pytest.mark.skipif(notice() is not None, reason=str(notice()))

SPEEDS = drawn_speeds(0)
EFFECT = default_placement_effect()
POLICIES = ("fifo", "las", "drf-peak", "optimus", "set")


def built(name: str) -> SchedulerPolicy:
    if name != "set":
        return build_policy(name, PolicyContext(seed=0, true_speeds=SPEEDS, measured_speeds=SPEEDS))
    content = default_set_file()
    assert isinstance(content.spec, SetSpec)
    return SetPolicy(content.spec, content.weights, content.priors)


def jobs_of(job_types: tuple[str, ...], count: int = 12) -> Workload:
    jobs = []
    for number in range(count):
        kind = kind_of(job_types[number % len(job_types)])
        jobs.append(
            WorkloadJob(
                *(
                    f"job-{number}",
                    job_types[number % len(job_types)],
                    300.0 * number,
                    20.0 + 30.0 * (number % 4),
                    4000.0,
                ),
                *(Resources(2000, 1), Resources(1000, 0), Allocation(1 + number % 4, int(kind.uses_ps))),
                *(8, 8 if kind.uses_ps else 0),
                kind=kind,
                min_ps=int(kind.uses_ps),
                work_known=number % 3 > 0,
            )
        )
    return Workload("comings and goings", tuple(jobs))


def assert_goes_the_same(
    name: str, environment: Environment, workload: Workload, effect: PlacementEffect | None
) -> Any:
    assert uncovered(workload, environment, built(name), SPEEDS, effect) is None
    expected = replay(
        workload, environment, built(name), SPEEDS, placement_effect=effect, compiled=False, by_an_agent=True
    )
    assert_equal(expected, run_compiled(workload, environment, built(name), SPEEDS, effect))
    return expected


@pytest.mark.parametrize("effect", [None, EFFECT])
@pytest.mark.parametrize("placement", list(PlacementStrategy))
@pytest.mark.parametrize("decide_on", list(DecideOn))
@pytest.mark.parametrize("name", POLICIES)
def test_jobs_lose_tasks_and_training_with_their_nodes(
    name: str, decide_on: DecideOn, placement: PlacementStrategy, effect: PlacementEffect | None
) -> None:
    environment = Environment(
        *(6, 4, 12),
        decide_on=decide_on,
        placement=placement,
        node_mtbf_seconds=8000.0,
        node_repair_seconds=2000.0,
        checkpoint_seconds=400.0,
        resume_seconds=60.0,
        resize_seconds=20.0,
    )
    found = assert_goes_the_same(name, environment, jobs_of(("vgg-16", "vgg16-256-allreduce")), effect)
    assert found.counters.lost_training_seconds > 0.0
    assert found.counters.resumes > 0


@pytest.mark.parametrize("capacity_mode", list(CapacityMode))
@pytest.mark.parametrize("decide_on", list(DecideOn))
@pytest.mark.parametrize("name", POLICIES)
def test_everything_waits_while_no_node_is_there(name: str, decide_on: DecideOn, capacity_mode: CapacityMode) -> None:
    away = tuple(NodeChange(3000.0, f"node-{number}", False) for number in range(2))
    back = (NodeChange(9000.0, "node-5", True, Resources(12000, 6)), NodeChange(9500.0, "node-1", True))
    environment = Environment(
        *(2, 4, 12), decide_on=decide_on, capacity_mode=capacity_mode, node_changes=away + back, resume_seconds=30.0
    )
    found = assert_goes_the_same(name, environment, jobs_of(("vgg-16", "plateau")), None)
    assert max(result.longest_gap_seconds for result in found.job_results) > 6000.0


@pytest.mark.parametrize("size", [None, Resources(4000, 1), Resources(16000, 8)])
@pytest.mark.parametrize("name", POLICIES)
def test_a_node_that_comes_back_before_the_next_decision_has_lost_its_tasks(name: str, size: Resources | None) -> None:
    """It comes back behind the others, and perhaps smaller than what lay there."""
    changes = [
        change
        for at in (2500.0, 4900.0, 6100.0)
        for change in (NodeChange(at, "node-0", False), NodeChange(at + 100.0, "node-0", True, size))
    ]
    environment = Environment(3, 4, 12, node_changes=tuple(changes), checkpoint_seconds=300.0)
    found = assert_goes_the_same(name, environment, jobs_of(("vgg-16", "bert-64-allreduce")), EFFECT)
    assert found.counters.lost_training_seconds > 0.0


def test_what_has_lost_everything_begins_anew_though_its_node_is_back() -> None:
    """The node stands behind the other one now, and goes again later."""
    times = ((1300.0, False), (1400.0, True), (5000.0, False), (6100.0, True))
    changes = tuple(NodeChange(at, "node-0", up) for at, up in times)
    workload = make_workload(make_spec(job_type="vgg-16", total_epochs=500.0, max_workers=1, max_ps=1))
    found = assert_goes_the_same("set", Environment(2, node_changes=changes), workload, EFFECT)
    assert found.counters.resumes == 1


def test_where_a_node_came_back_smaller_its_jobs_do_not_stay() -> None:
    """Half of a job of four lay there; two other nodes hold all of it, and the small one goes again."""
    changes = (
        NodeChange(1300.0, "node-0", False),
        NodeChange(1400.0, "node-0", True, Resources(8000, 1)),
        NodeChange(5000.0, "node-0", False),
    )
    spec = make_spec(
        job_type="vgg16-256-allreduce",
        kind=JobKind.ALLREDUCE,
        total_epochs=100000.0,
        requested=Allocation(4, 0),
        min_workers=4,
        max_workers=4,
        min_ps=0,
        max_ps=0,
    )
    found = assert_goes_the_same("set", Environment(3, node_changes=changes), make_workload(spec), EFFECT)
    assert found.counters.resumes == 1
    assert found.outcomes[0].end_seconds > 5000.0


def what_is_said(workload: Workload, environment: Environment) -> set[str]:
    said = set()
    for compiled in (True, False):
        with pytest.raises(NoProgress) as raised:
            replay(workload, environment, built("fifo"), SPEEDS, compiled=compiled)
        said.add(str(raised.value))
    return said


def test_a_run_in_which_all_training_is_lost_is_given_up_at_the_same_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("policy_net.laboratory.simulation.case.MAX_WAITING_DECISIONS", 500)
    environment = Environment(
        *(2, 2, 8),
        node_mtbf_seconds=3600.0,
        node_repair_seconds=360.0,
        checkpoint_seconds=1e6,
        decide_on=DecideOn.EVENT,
    )
    (said,) = what_is_said(make_workload(make_spec(job_type="vgg-16", total_epochs=1e6)), environment)
    assert "no job has ended in 500 decisions" in said


@pytest.mark.parametrize("mtbf_seconds", [0.0, 7200.0])
def test_a_run_that_waits_for_nodes_is_given_up_at_the_same_moment(
    monkeypatch: pytest.MonkeyPatch, mtbf_seconds: float
) -> None:
    """A node that the job would fit on comes, and goes before the next decision."""
    monkeypatch.setattr("policy_net.laboratory.simulation.case.MAX_IDLE_DECISIONS", 40)
    monkeypatch.setattr("policy_net.laboratory.simulation.case.MAX_WAITING_DECISIONS", 300)
    changes = (NodeChange(90000.0, "node-1", True, Resources(16000, 8)), NodeChange(90001.0, "node-1", False))
    environment = Environment(1, 1, 8, node_changes=changes, node_mtbf_seconds=mtbf_seconds)
    (said,) = what_is_said(make_workload(make_spec(job_type="vgg-16", worker_demand=Resources(2000, 4))), environment)
    assert "the replay would never end" in said


def test_beyond_the_stages_that_are_kept_nodes_come_and_go_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("policy_net.laboratory.simulation.case_nodes.MOST_KEPT", 7)
    environment = Environment(4, 4, 12, node_mtbf_seconds=5000.0, node_repair_seconds=1000.0, checkpoint_seconds=300.0)
    workload = jobs_of(("vgg-16",))
    for name in ("fifo", "set", "fifo"):
        assert assert_goes_the_same(name, environment, workload, None).counters.resumes > 7


def test_what_a_change_of_nodes_raises_is_raised_by_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = Environment(2, 4, 12, node_changes=(NodeChange(3000.0, "node-2", True),))
    advance = NodeTimeline.advance

    def interrupted(nodes: NodeTimeline, until: float) -> list[tuple[float, str]]:
        if until >= 3000.0:
            raise KeyboardInterrupt
        return advance(nodes, until)

    workload = jobs_of(("vgg-16",))
    monkeypatch.setattr(NodeTimeline, "advance", interrupted)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            replay(workload, environment, built("fifo"), SPEEDS)
    monkeypatch.undo()
    assert_goes_the_same("fifo", environment, workload, None)
