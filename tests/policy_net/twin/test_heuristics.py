"""Equality of heuristics in the compiled twin and the reference, on drawn cases of every kind; and which there are."""

import contextlib
import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twin_cases import (
    DRAWN_TYPES,
    KNOWN_TYPES,
    THOROUGH,
    drawn_speeds,
    environments,
    goes_the_same,
    kind_of,
    workloads,
)

import policy_net.baselines  # noqa: F401  (registers the policies' names)
from policy_net.baselines.fifo import EasyPolicy, FifoPolicy
from policy_net.domain import Allocation, JobKind, PlacementEffect, PolicyContext, Resources, SpeedModel
from policy_net.errors import NoProgress
from policy_net.laboratory.simulation.environment import DecideOn, Environment
from policy_net.laboratory.simulation.replay import replay, uncovered
from policy_net.laboratory.speeds.placement_effect import default_placement_effect
from policy_net.laboratory.workloads.workload import Workload, WorkloadJob
from policy_net.policy import SchedulerPolicy, build_policy, policy_factory, policy_names
from policy_net.throughput.beliefs import beliefs_of
from policy_net.twin.library import library, notice
from policy_net.twin.schedulers import Scheduler, heuristic_of

pytestmark = pytest.mark.skipif(notice() is not None, reason=str(notice()))

COVERED = (
    "drf",
    "drf-peak",
    "fifo",
    "fifo-backfill",
    "fifo-easy",
    "las",
    "marginal",
    "optimus",
    "optimus-fitted",
    "optimus-sr",
    "optimus-true-table",
    "oracle",
    "srtf",
    "tetris",
)


def built(name: str, speeds: SpeedModel) -> SchedulerPolicy:
    return build_policy(name, PolicyContext(seed=0, true_speeds=speeds, measured_speeds=speeds))


def test_of_every_heuristic_it_is_known_whether_it_is_covered() -> None:
    heuristics = {name for name in policy_names() if policy_factory(name).__module__.startswith("policy_net.baselines")}
    assert heuristics == set(COVERED)
    found = {name for name in heuristics if heuristic_of(built(name, drawn_speeds(0))) is not None}
    assert found == set(COVERED)


def test_the_library_has_every_scheduler_that_is_covered() -> None:
    codes = {heuristic.code for name in COVERED if (heuristic := heuristic_of(built(name, drawn_speeds(0))))}
    assert {code for code in Scheduler if library().twin_has(int(code))} == codes | {Scheduler.SET, Scheduler.DL2}
    assert not library().twin_has(-1)
    assert not library().twin_has(len(Scheduler))


def test_what_somebody_derives_from_a_heuristic_is_for_the_reference() -> None:
    class Other(FifoPolicy):
        pass

    posing = type("FifoPolicy", (FifoPolicy,), {"__module__": FifoPolicy.__module__})
    assert heuristic_of(Other("fifo")) is None
    assert heuristic_of(posing("fifo")) is None


def test_easy_without_known_speeds_is_for_the_reference() -> None:
    speeds = drawn_speeds(0)
    workload = many_jobs(("vgg-16",), 4, 300.0)
    assert uncovered(workload, Environment(6), EasyPolicy(), speeds) == "the twin knows no policy fifo-easy"
    assert uncovered(workload, Environment(6), EasyPolicy(speeds), speeds) is None


@pytest.mark.parametrize("name", ["marginal", "tetris"])
def test_types_that_were_of_another_kind_are_for_the_reference(name: str) -> None:
    speeds = drawn_speeds(0)
    policy = built(name, speeds)
    replay(many_jobs(("vgg-16",), 4, 300.0), Environment(6), policy, speeds)
    workload = many_jobs(("vgg16-256-allreduce",), 4, 300.0)
    jobs = tuple(dataclasses.replace(job, job_type="vgg-16") for job in workload.jobs)
    assert uncovered(dataclasses.replace(workload, jobs=jobs), Environment(6), policy, speeds) == (
        "jobs of type 'vgg-16' are of another kind than is believed"
    )


def ring_jobs(*rows: tuple[Resources, int, float]) -> Workload:
    """All-reduce jobs that come at 0: what a worker needs, how many they ask for and may have, and epochs."""
    jobs = tuple(
        WorkloadJob(
            *(f"job-{number}", "vgg16-256-allreduce", 0.0, epochs, 2000.0),
            *(demand, demand, Allocation(workers, 0), workers, 0),
            kind=JobKind.ALLREDUCE,
            min_ps=0,
        )
        for number, (demand, workers, epochs) in enumerate(rows)
    )
    return Workload("rings", jobs)


@pytest.mark.parametrize("name", ["drf", "drf-peak"])
def test_rounds_end_where_nodes_are_full_of_something_else(name: str) -> None:
    """One job takes all CPU of a node, and leaves GPUs there that sums alone would give to the others."""
    speeds = drawn_speeds(0)
    workload = ring_jobs((Resources(8000, 1), 1, 300.0), *((Resources(1000, 1), 8, 300.0),) * 3)
    environment = Environment(4, gpus_per_node=4, cpus_per_node=8)
    compare_policies(built(name, speeds), built(name, speeds), workload, environment, speeds)


def started_at_once(environment: Environment, *rows: tuple[Resources, int, float]) -> list[bool]:
    """Which of such jobs `fifo-easy` starts at once."""
    speeds, workload = drawn_speeds(0), ring_jobs(*rows)
    compare_policies(built("fifo-easy", speeds), built("fifo-easy", speeds), workload, environment, speeds)
    outcomes = replay(workload, environment, built("fifo-easy", speeds), speeds).outcomes
    return [outcome.start_seconds == 0.0 for outcome in outcomes]


def test_what_ends_together_makes_room_together_for_the_head_of_the_queue() -> None:
    """Two jobs of two GPUs end at once; the head needs four of six, and what passes it takes the other two for long."""
    one = Resources(1000, 1)
    environment = Environment(1, gpus_per_node=6, cpus_per_node=32)
    assert started_at_once(environment, (one, 2, 100.0), (one, 2, 100.0), (one, 4, 100.0), (one, 2, 900.0)) == [
        *(True, True, False, True)
    ]


def test_what_cannot_pass_the_head_now_holds_nothing_of_its_time_either() -> None:
    """The fourth would fit beside the head and fits nowhere now; the fifth fits now, and beside the head alone."""
    environment = Environment(2, gpus_per_node=4, cpus_per_node=4)
    rows = (
        (Resources(500, 1), 5, 100.0),
        (Resources(1000, 1), 1, 200.0),
        (Resources(0, 4), 1, 100.0),
        (Resources(4000, 0), 1, 900.0),
        (Resources(2000, 0), 2, 900.0),
    )
    assert started_at_once(environment, *rows) == [True, True, False, False, True]


def compare(data: st.DataObject, name: str, job_types: tuple[str, ...], effect: PlacementEffect | None = None) -> None:
    speeds = drawn_speeds(data.draw(st.integers(0, 3)))
    workload, environment = data.draw(workloads(job_types)), data.draw(environments())
    compare_policies(built(name, speeds), built(name, speeds), workload, environment, speeds, effect)


def compare_policies(
    there: SchedulerPolicy,
    here: SchedulerPolicy,
    workload: Workload,
    environment: Environment,
    speeds: SpeedModel,
    effect: PlacementEffect | None = None,
) -> None:
    if not goes_the_same(there, here, workload, environment, speeds, effect):
        return
    assert_same_beliefs(here, there)


def assert_same_beliefs(here: SchedulerPolicy, there: SchedulerPolicy) -> None:
    learned, expected = beliefs_of(here), beliefs_of(there)
    assert (learned is None) == (expected is None)
    if learned is not None and expected is not None:
        assert learned.digest() == expected.digest()


@pytest.mark.heavy
@pytest.mark.parametrize("name", COVERED)
@THOROUGH
@given(data=st.data())
def test_jobs_of_all_kinds_end_when_they_end_in_the_reference(name: str, data: st.DataObject) -> None:
    compare(data, name, KNOWN_TYPES)


@pytest.mark.heavy
@pytest.mark.parametrize("name", COVERED)
@THOROUGH
@given(data=st.data())
def test_types_that_nobody_has_seen_are_as_in_the_reference(name: str, data: st.DataObject) -> None:
    compare(data, name, DRAWN_TYPES + KNOWN_TYPES[:2])


@pytest.mark.heavy
@pytest.mark.parametrize("name", COVERED)
@THOROUGH
@given(data=st.data())
def test_workers_that_lie_apart_slow_down_as_in_the_reference(name: str, data: st.DataObject) -> None:
    compare(data, name, KNOWN_TYPES, default_placement_effect())


def many_jobs(job_types: tuple[str, ...], most_workers: int, gap_seconds: float) -> Workload:
    """Forty jobs of several sizes, work known and unknown, right and wrong, that crowd a small cluster."""
    demands = (Resources(2000, 1), Resources(3000, 1), Resources(4000, 2))
    jobs = []
    for number in range(40):
        job_type = job_types[number % len(job_types)]
        with_ps = kind_of(job_type).uses_ps
        most = min(most_workers, 16) if with_ps else most_workers
        jobs.append(
            WorkloadJob(
                *(f"job-{number}", job_type, gap_seconds * (number // 2), 5.0 + 7.0 * (number % 11), 2000.0),
                *(demands[number % 3], Resources(1000 * (number % 3), 0)),
                Allocation(1 + (5 * number) % most, (1 + number % 4) if with_ps else 0),
                *(most, 16 if with_ps else 0),
                kind=kind_of(job_type),
                min_workers=1 + number % 3 if number % 5 == 0 else 1,
                min_ps=1 if with_ps else 0,
                work_known=number % 4 > 0,
                declared_epochs=20.0 if number % 7 == 0 else None,
            )
        )
    return Workload("many", tuple(jobs))


@pytest.mark.heavy
@pytest.mark.parametrize("decide_on", list(DecideOn))
@pytest.mark.parametrize("name", COVERED)
def test_a_crowded_cluster_and_what_was_learned_are_as_in_the_reference(name: str, decide_on: DecideOn) -> None:
    """One policy goes on from workload to workload."""
    speeds = drawn_speeds(0)
    there, here = built(name, speeds), built(name, speeds)
    environment = Environment(
        6, gpus_per_node=4, cpus_per_node=14, decide_on=decide_on, speed_noise=0.273, resize_seconds=30.0
    )
    for job_types, most, gap in (
        (("vgg-16", "plateau"), 8, 300.0),
        (("bert-64-allreduce", "resnet-50", "vgg-16-async"), 16, 0.0),
        (("plateau", "vgg-16", "vgg16-256-allreduce"), 12, 900.0),
    ):
        workload = many_jobs(job_types, most, gap)
        compare_policies(there, here, workload, environment, speeds)
        # Where nothing is to be kept, nothing is.
        with contextlib.suppress(NoProgress):
            replay(workload, environment, here, speeds, keep_beliefs=False)
        assert_same_beliefs(here, there)
