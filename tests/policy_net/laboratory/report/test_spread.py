"""The range of an answer: which cases there are, in which order, and that shortcuts change no figure."""

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import policy_net.baselines  # noqa: F401  (registers the policies' names)
from policy_net.domain import PolicyContext
from policy_net.errors import BadInput
from policy_net.laboratory.report.spread import (
    KIND,
    KINDS,
    MODELS,
    STALLS,
    STALLS_SECONDS,
    AssumedCase,
    Assumptions,
    CaseReplays,
    SimulatedBase,
    World,
    spread_of,
    usual_cases,
)
from policy_net.laboratory.simulation.environment import DecideOn, Environment
from policy_net.laboratory.simulation.replay import replay
from policy_net.laboratory.speeds.speed import default_speeds
from policy_net.laboratory.workloads.sources import load_workload
from policy_net.laboratory.workloads.workload import JobKindChoice, WorkloadOptions
from policy_net.policy import build_policy

SPEEDS = default_speeds()
BASE = AssumedCase(JobKindChoice.ALLREDUCE, 7, (0.0, 0.0))


def test_every_assumption_is_changed_by_itself_first_and_then_with_the_others() -> None:
    cases = list(Assumptions(BASE).cases())
    assert len(cases) == len(set(cases)) == len(KINDS) * 3 * len(STALLS_SECONDS) - 1
    changed = [sum((case.kind != BASE.kind, case.seed != 7, case.stall_seconds != (0.0, 0.0))) for case in cases]
    assert changed[:6] == [1] * 6
    assert min(changed[6:]) == 2
    shares = list(Assumptions(BASE, elastic_shares=(1.0, 0.5)).cases())
    assert len(shares) == 2 * (len(cases) + 1) - 1
    assert shares[6] == AssumedCase(BASE.kind, BASE.seed, BASE.stall_seconds, elastic_share=0.5)
    assert {case.seed for case in cases} == {7, 8, 9}


def test_what_the_user_said_is_not_changed() -> None:
    stall = (5.0, 7.0)
    said = Assumptions(AssumedCase(JobKindChoice.MIX, 0, stall), (JobKindChoice.MIX,), (stall,))
    assert list(said.each) == [MODELS]
    assert {(case.kind, case.stall_seconds) for case in said.cases()} == {(JobKindChoice.MIX, stall)}
    assert list(Assumptions(BASE).each) == [KIND, MODELS, STALLS]


def test_the_number_of_cases_follows_from_the_jobs_alone() -> None:
    assert usual_cases(1_000, compiled=True) >= 53
    assert usual_cases(100_000, compiled=True) == 7
    assert (usual_cases(1_000, compiled=False), usual_cases(5_000, compiled=False)) == (3, 0)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Forty jobs that ask for up to 8 GPUs, more at a time than four nodes of 4 have."""
    generator = np.random.default_rng(3)
    rows = [
        f"j{number},{number * 400},{generator.integers(300, 20_000)},{generator.integers(1, 9)}" for number in range(40)
    ]
    path = tmp_path / "jobs.csv"
    path.write_text("\n".join(["job_id,submit_time_s,duration_s,num_gpus", *rows]) + "\n")
    return path


def world_of(trace: Path, case: AssumedCase, nodes: int = 4) -> World:
    resize, resume = case.stall_seconds
    options = WorkloadOptions(
        seed=case.seed, job_kind=case.kind, nodes=nodes, gpus_per_node=4, cpus_per_node=16, speeds=SPEEDS
    )
    environment = Environment(
        nodes, 4, 16, decide_on=DecideOn.EVENT, seed=case.seed, resize_seconds=resize, resume_seconds=resume
    )
    return load_workload(str(trace), options), environment


class Counting:
    """Replays that count how often each policy was simulated."""

    def __init__(self) -> None:
        self.times: Counter[str] = Counter()

    def average_seconds(self, world: World, policy: str) -> float:
        self.times[policy] += 1
        result = replay(*world, build_policy(policy, PolicyContext(true_speeds=SPEEDS)), SPEEDS)
        return math.fsum(job.jct_seconds or math.nan for job in result.job_results) / len(result.job_results)


@pytest.mark.parametrize("today", ["fifo", "fifo-easy"])
def test_a_queue_of_fixed_sizes_is_simulated_once_and_the_range_is_the_same(today: str, trace: Path) -> None:
    counting = Counting()
    world = world_of(trace, BASE)
    answer = SimulatedBase(
        world, today, "drf", counting.average_seconds(world, today), counting.average_seconds(world, "drf")
    )
    assumptions = Assumptions(BASE)
    counting.times.clear()
    replays = CaseReplays(lambda case: world_of(trace, case), counting.average_seconds, SPEEDS)
    spread = spread_of(answer, assumptions, replays, 10)
    assert counting.times == {"drf": 10}
    assert len(spread.changes) == 11
    assert spread.planned == 27
    every = CaseReplays(lambda case: world_of(trace, case), counting.average_seconds, SPEEDS, places_matter=True)
    assert spread_of(answer, assumptions, every, 10).changes == pytest.approx(spread.changes, rel=1e-9)
    assert counting.times == {"drf": 20, today: 10}
    assert spread.least <= spread.changes[BASE] <= spread.most
    moved = spread.moved_most_by
    assert moved is not None
    assert moved[0] in (KIND, MODELS, STALLS)
    assert moved[1][0] == (BASE, spread.changes[BASE])


def test_where_jobs_are_cut_to_the_cluster_the_queue_is_simulated_for_every_draw(trace: Path) -> None:
    counting = Counting()
    world = world_of(trace, BASE, nodes=1)
    answer = SimulatedBase(world, "fifo", "drf", 1.0, 1.0)
    replays = CaseReplays(lambda case: world_of(trace, case, nodes=1), counting.average_seconds, SPEEDS)
    spread_of(answer, Assumptions(BASE), replays, 4)
    assert counting.times == {"drf": 4, "fifo": 4}


def test_a_case_that_cannot_be_replayed_is_left_out_and_told(trace: Path) -> None:
    def world(case: AssumedCase) -> World:
        if case.kind is JobKindChoice.PS:
            raise BadInput("no speeds of servers")
        return world_of(trace, case)

    answer = SimulatedBase(world(BASE), "fifo", "drf", 2.0, 1.0)
    done: list[float] = []
    spread = spread_of(answer, Assumptions(BASE), CaseReplays(world, lambda *_: 1.0, SPEEDS), 2, done.append)
    assert spread.failed == "no speeds of servers"
    assert {case.kind for case in spread.changes} == {JobKindChoice.ALLREDUCE, JobKindChoice.ASYNC}
    assert done == [0.5, 1.0]
    nothing = spread_of(answer, Assumptions(BASE), CaseReplays(world, lambda *_: 1.0, SPEEDS), 0)
    assert (nothing.changes, nothing.moved_most_by) == ({BASE: -0.5}, None)
