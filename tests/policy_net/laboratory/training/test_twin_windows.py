"""Windows of a cluster's past: drawn by seed, of jobs that its machines can run, on speeds that may be wrong."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policy_net.domain import CapacityMode, PolicyContext, Resources
from policy_net.errors import BadInput
from policy_net.laboratory.simulation import replay as replay_module
from policy_net.laboratory.simulation.replay import replay
from policy_net.laboratory.speeds.speed import default_speeds
from policy_net.laboratory.training.twin_windows import (
    FEWEST_JOBS,
    DrawnSpeeds,
    History,
    TwinMachines,
    WindowChoice,
    agreement_of,
    cost_of,
    drawn_window,
    environment_of,
)
from policy_net.laboratory.workloads.decided import RecordedJobs
from policy_net.laboratory.workloads.sources import load_workload
from policy_net.laboratory.workloads.workload import Workload, WorkloadOptions
from policy_net.policy import build_policy
from policy_net.set_policy.policy import default_set_file, set_policy_of, set_spec_of
from policy_net.throughput.parametric import OnlineFit

MACHINES = TwinMachines((Resources(8000, 2),) * 6, 1200.0)
SOURCE = "dl2:jobs=60,seed=3"
WORKLOAD = load_workload(SOURCE, WorkloadOptions())
POLICY = default_set_file()
ALL_DAYS = 1000.0
SPEC = set_spec_of(POLICY, "set")


class TrueSpeeds(OnlineFit):
    """A log that shows the very speeds of the simulator."""

    def __init__(self) -> None:
        super().__init__()
        self._truth = default_speeds()

    def grid(self, job_type: str) -> np.ndarray:  # type: ignore[type-arg]
        return self._truth.grid(job_type)


def recorded(jct_seconds: Mapping[str, float], workload: Workload = WORKLOAD) -> RecordedJobs:
    end = max((job.submit_time_seconds + jct_seconds.get(job.job_id, 0.0) for job in workload.jobs), default=0.0)
    return RecordedJobs(workload, 0.0, jct_seconds, {MACHINES.nodes: end}, TrueSpeeds(), 1200.0, end, 0)


def as_simulated(name: str) -> dict[str, float]:
    """What became of the jobs under a policy, in the simulator."""
    result = replay(WORKLOAD, environment_of(MACHINES), build_policy(name, PolicyContext()), default_speeds())
    return {one.job_id: one.jct_seconds for one in result.outcomes if one.jct_seconds is not None}


def history(*sources: str, log: RecordedJobs | None = None, **choice: object) -> History:
    return History(sources, log, MACHINES, replace(WindowChoice(jobs=30), **choice))  # type: ignore[arg-type]


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**31))
def test_a_seed_draws_the_same_window_and_cost_again(seed: int) -> None:
    first, again = (history(SOURCE).draw(np.random.default_rng(seed)) for _ in range(2))
    assert first.workload == again.workload
    assert first.environment == again.environment
    assert len(first.workload.jobs) == 30
    assert first.workload.jobs[0].submit_time_seconds == 0.0
    assert not any(job.work_known for job in first.workload.jobs)
    costs = {cost_of(window, SPEC, POLICY.priors)(POLICY.weights) for window in (first, again)}
    assert len(costs) == 1


@pytest.mark.parametrize("compiled", [True, False])
def test_costs_of_a_window_do_not_hang_on_what_was_asked_before(
    compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not compiled:
        monkeypatch.setattr(replay_module, "uncovered", lambda *_: "the reference is meant")
    window = history(SOURCE).draw(np.random.default_rng(1))
    others = POLICY.weights + np.float32(0.5)
    cost = cost_of(window, SPEC, POLICY.priors)
    asked = [cost(weights) for weights in (POLICY.weights, others, POLICY.weights)]
    assert asked[0] == asked[2] != asked[1]
    assert asked[1] == cost_of(window, SPEC, POLICY.priors)(others)


@pytest.mark.heavy
def test_a_policy_that_is_not_to_keep_what_it_found_out_is_as_it_was() -> None:
    for compiled in (True, False):
        policy = set_policy_of(POLICY, "set")
        assert policy.beliefs is not None
        before = policy.beliefs.digest()
        results = [
            replay(WORKLOAD, environment_of(MACHINES), policy, default_speeds(), compiled=compiled, keep_beliefs=keep)
            for keep in (False, False, True)
        ]
        assert results[0].outcomes == results[1].outcomes == results[2].outcomes
        assert policy.beliefs.digest() != before, "the last was to keep them"
        policy = set_policy_of(POLICY, "set")
        replay(WORKLOAD, environment_of(MACHINES), policy, default_speeds(), compiled=compiled, keep_beliefs=False)
        assert policy.beliefs is not None
        assert policy.beliefs.digest() == before
        assert policy.decision_index == 0


def test_windows_and_chance_differ_from_draw_to_draw() -> None:
    generator = np.random.default_rng(1)
    drawn = [history(SOURCE).draw(generator) for _ in range(6)]
    assert len({window.environment.seed for window in drawn}) == 6
    assert len({window.workload.jobs[0].job_id for window in drawn}) == 2
    first = drawn[0].workload.jobs[0].job_type
    assert len({float(window.speeds.grid(first).max()) for window in drawn}) == 6


def test_work_that_is_declared_stays_so_where_the_choice_says_it_is_known() -> None:
    window = history(SOURCE, work_known=True).draw(np.random.default_rng(1))
    assert all(job.work_known for job in window.workload.jobs)


def test_each_type_has_a_factor_of_its_own_whoever_asks_first() -> None:
    truth = default_speeds()
    names = sorted({job.job_type for job in WORKLOAD.jobs})
    drawn, other = DrawnSpeeds(truth, 0.15, 7), DrawnSpeeds(truth, 0.15, 7)
    factors = {name: drawn.grid(name).max() / truth.grid(name).max() for name in names}
    assert {name: other.grid(name).max() / truth.grid(name).max() for name in reversed(names)} == factors
    assert len(set(factors.values())) == len(names)
    assert np.std(np.log(list(factors.values()))) < 0.6
    assert drawn.samples_per_second(names[0], 1, 2) == drawn.grid(names[0])[1, 2]
    assert np.array_equal(DrawnSpeeds(truth, 0.0, 7).grid(names[0]), truth.grid(names[0]))


def test_jobs_that_no_machine_can_run_are_left_out_and_too_few_of_the_others_refused() -> None:
    jobs = [replace(job, worker_demand=Resources(1000, 9)) for job in WORKLOAD.jobs[:25]] + list(WORKLOAD.jobs[25:])
    partly = recorded({}, Workload("log", tuple(jobs)))
    window = history(log=partly, jobs=60).draw(np.random.default_rng(1))
    assert [job.job_id for job in window.workload.jobs] == [job.job_id for job in jobs[25:]]
    hardly = recorded({}, Workload("log", tuple(jobs[: 25 + FEWEST_JOBS - 1])))
    with pytest.raises(BadInput, match="only 19 of 44 jobs of a window fit"):
        history(log=hardly, jobs=60).draw(np.random.default_rng(1))


def test_the_log_and_recordings_are_drawn_from_by_their_jobs() -> None:
    both = history(SOURCE, log=recorded({}))
    assert both.jobs == 120
    generator = np.random.default_rng(2)
    names = [both.draw(generator).workload.name for _ in range(30)]
    assert 5 < names.count(SOURCE) < 25


def test_a_past_that_teaches_nothing_is_one_line() -> None:
    with pytest.raises(BadInput, match="no 20 jobs have ended here yet"):
        history()
    few = Workload("log", WORKLOAD.jobs[:10])
    with pytest.raises(BadInput, match="no 20 jobs have ended here yet"):
        history(log=recorded({}, few))
    with pytest.raises(BadInput, match="has 10 jobs; 20 are the least"):
        history("dl2:jobs=10,seed=3")
    with pytest.raises(BadInput, match="no such"):
        history("none.csv")
    with pytest.raises(BadInput, match="no node with any capacity"):
        History((SOURCE,), None, TwinMachines((), 1200.0), WindowChoice())


def test_a_twin_that_says_what_happened_is_believed_and_one_that_is_off_by_half_is_not() -> None:
    under_drf, drf = as_simulated("drf"), build_policy("drf", PolicyContext())
    assert agreement_of(recorded(under_drf), drf, MACHINES, ALL_DAYS) == pytest.approx(1.0)
    quarter = {name: 1.25 * seconds for name, seconds in under_drf.items()}
    found = agreement_of(recorded(quarter), drf, MACHINES, ALL_DAYS)
    assert found == pytest.approx(1.0 - math.log(1.25) / math.log(1.5))
    for factor in (1.6, 4.0, 0.5):
        off = {name: factor * seconds for name, seconds in under_drf.items()}
        assert agreement_of(recorded(off), drf, MACHINES, ALL_DAYS) == 0.0


def test_only_the_last_days_tell_whether_the_twin_is_to_be_believed_and_few_jobs_nothing() -> None:
    under_drf, drf = as_simulated("drf"), build_policy("drf", PolicyContext())
    assert agreement_of(recorded(under_drf), drf, MACHINES, days=1e-6) is None
    some = dict(list(under_drf.items())[: FEWEST_JOBS - 1])
    assert agreement_of(recorded(some), drf, MACHINES, ALL_DAYS) is None


def test_jobs_that_ended_before_the_days_that_are_compared_held_what_the_others_waited_for() -> None:
    under_drf, drf = as_simulated("drf"), build_policy("drf", PolicyContext())
    ends = sorted(job.submit_time_seconds + under_drf[job.job_id] for job in WORKLOAD.jobs)
    found = agreement_of(recorded(under_drf), drf, MACHINES, (ends[-1] - ends[-25]) / 86_400.0)
    assert found == pytest.approx(1.0, abs=0.15)


def test_what_a_start_cost_in_the_log_it_costs_in_the_twin() -> None:
    log = replace(recorded({}), pause_seconds=90.0)
    machines = replace(MACHINES, pause_seconds=log.pause_seconds, capacity_mode=CapacityMode.POOLED)
    window = History((), log, machines, WindowChoice(jobs=30)).draw(np.random.default_rng(1))
    environment = window.environment
    assert (environment.resize_seconds, environment.resume_seconds, environment.start_seconds) == (90.0, 90.0, 90.0)
    assert environment.capacity_mode is CapacityMode.POOLED


def test_a_cluster_that_is_let_go_of_while_nobody_needs_it_is_replayed_as_it_was_in_use() -> None:
    log = replace(recorded({}), capacities={(): 900.0, MACHINES.nodes: 100.0})
    assert (
        len(History((), log, MACHINES, WindowChoice(jobs=30)).draw(np.random.default_rng(1)).environment.node_list) == 6
    )


@settings(max_examples=40, deadline=None)
@given(st.integers(FEWEST_JOBS, 500), st.integers(FEWEST_JOBS, 120), st.integers(0, 2**31))
def test_every_window_of_enough_jobs_is_drawn_by_its_jobs(jobs: int, length: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    numbers = {drawn_window(jobs, length, generator) for _ in range(200)}
    assert max(numbers) * length + FEWEST_JOBS <= jobs
    if jobs <= 3 * length and jobs % length >= max(FEWEST_JOBS, length / 2):
        assert jobs // length in numbers, "the newest jobs teach too"
