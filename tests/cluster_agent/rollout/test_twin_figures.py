"""The twin's figures are those of the simulated fleets where what is believed is the truth."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.rollout.pool import _Recorder
from benchmarks.rollout.versions import NEGATED, PLANNER, build_version
from benchmarks.rollout.worlds import Cluster, build_cluster
from cluster_agent.rollout.block_process import GridSpeeds, twin_figures
from cluster_agent.rollout.block_question import BlockQuestion, PolicyAtBlock
from cluster_agent.rollout.block_twins import BlockId, TwinRecord
from policy_net.domain import ClusterState
from policy_net.laboratory.simulation.engine import Simulation
from policy_net.laboratory.simulation.environment import DecideOn
from policy_net.policy import SchedulerPolicy

BLOCK_SECONDS = 4 * 3600.0
HELD = PolicyAtBlock("set", None, None)
FIRST = 2
"""The block at which the two versions part."""


@pytest.fixture(scope="module", params=[DecideOn.EVENT, DecideOn.SLOT])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    made = build_cluster("drawn-0", None, tmp_path_factory.mktemp("drawn"), 1.5, 0.0)
    environment = replace(made.environment, speed_noise=0.0, decide_on=request.param)
    return replace(made, environment=environment, twin=environment, believed=made.truth, measured=made.truth)


def questions_of(cluster: Cluster, versions: dict[int, str]) -> dict[int, BlockQuestion]:
    """What an agent's record asks that saw the cluster live, under the planner but in some blocks."""
    simulation = Simulation(cluster.workload, cluster.environment, cluster.truth)
    record = TwinRecord(cluster.environment.debounce_seconds)
    asked: dict[int, BlockQuestion] = {}
    wanted = {BlockId(1, number): True for number in range(100)}
    number, policy = -1, build_version(PLANNER, cluster, {})
    while not simulation.finished:
        state, trigger = simulation.observe()
        assert record.moved_to(state)
        now = int(state.time_seconds // BLOCK_SECONDS)
        if now != number:
            number = now
            policy = build_version(versions.get(number, PLANNER), cluster, {})
            begin = number * BLOCK_SECONDS
            record.open(BlockId(1, number), begin, begin + BLOCK_SECONDS, state, HELD, HELD)
        asked |= {question.number: question for question in record.due(cluster.truth, 0.0, wanted)}
        progress = simulation.apply(policy.decide(state, trigger))
        policy.observe(progress)
        record.carried_out(state.time_seconds, progress)
    return asked


def builder(cluster: Cluster, version: str) -> Callable[[], SchedulerPolicy]:
    return lambda: build_version(version, cluster, {})


@pytest.mark.parametrize("acting", [PLANNER, NEGATED])
def test_figures_are_those_of_the_simulated_fleets(cluster: Cluster, acting: str) -> None:
    question = questions_of(cluster, {FIRST: acting})[FIRST]
    assert BlockQuestion.from_line(question.to_line()) == question
    ours = twin_figures(question, builder(cluster, PLANNER), builder(cluster, NEGATED))

    recorder = _Recorder(cluster, {}, BLOCK_SECONDS)
    snapshot = Simulation(cluster.workload, cluster.environment, cluster.truth).snapshot()
    for block in range(FIRST):
        snapshot = recorder._live(snapshot, PLANNER, block).after
    theirs = (
        recorder._live(snapshot, acting, FIRST).priced,
        recorder._foresee(snapshot, PLANNER, FIRST),
        recorder._foresee(snapshot, NEGATED, FIRST),
    )
    assert ours == pytest.approx(theirs, rel=1e-6, abs=1e-6)
    assert ours[1] != ours[2], "the versions differ"
    assert ours[0] == pytest.approx(ours[1] if acting == PLANNER else ours[2], rel=1e-6), "what is believed is true"


def test_two_equal_versions_have_equal_figures(cluster: Cluster) -> None:
    asked = questions_of(cluster, {FIRST: NEGATED})
    for number, question in asked.items():
        _, incumbent, candidate = twin_figures(question, builder(cluster, PLANNER), builder(cluster, PLANNER))
        assert incumbent == candidate, number
    assert len(asked) > FIRST


def test_a_clock_that_goes_back_and_too_many_jobs_forget_all(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = Simulation(cluster.workload, cluster.environment, cluster.truth)
    state, _ = simulation.observe()
    for damaged in (replace(state, time_seconds=state.time_seconds - 1.0), state):
        record = TwinRecord(60.0)
        assert record.moved_to(state)
        record.open(BlockId(1, 0), state.time_seconds, state.time_seconds + 60.0, state, HELD, HELD)
        if damaged is state:
            monkeypatch.setattr("cluster_agent.rollout.block_twins.MOST_JOBS", 0)
        assert not record.moved_to(damaged)
        assert not record.follows(BlockId(1, 0))
        later = ClusterState(state.time_seconds + 1e6, state.nodes, (), state.slot_seconds, state.capacity_mode)
        record.moved_to(later)
        assert record.due(cluster.truth, 0.0, {BlockId(1, 0): True}) == []


@pytest.mark.parametrize("line", [b"", b"{}", b"[]", b"null\n", b'{"block": [1, 2]}'])
def test_a_question_that_is_none_is_refused(line: bytes) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        BlockQuestion.from_line(line)


def test_a_type_without_a_speed_has_no_figures(cluster: Cluster, tmp_path: Path) -> None:
    del tmp_path
    question = questions_of(cluster, {})[FIRST]
    with pytest.raises(KeyError):
        GridSpeeds({}).grid("vgg-16")
    with pytest.raises(KeyError):
        twin_figures(replace(question, speeds={}), builder(cluster, PLANNER), builder(cluster, PLANNER))
