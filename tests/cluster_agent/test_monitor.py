"""The monitor for exceptional decisions, its past as a value, and what guard, log and rollout make of what it finds."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from agent_fakes import FixedPolicy, make_job, make_state
from hypothesis import given
from hypothesis import strategies as st
from log_worlds import Interval, cluster_states, live, make_tape, replayed

from cluster_agent.active_policy import Candidate, CandidateFactory, PolicyIdentity
from cluster_agent.errors import StateDamaged
from cluster_agent.guard import Guard, Intervention, Proposal
from cluster_agent.jobs.views import decision_rows
from cluster_agent.monitor import BLOCK, BLOCKS, MARGINS, DecisionMonitor, RecentPast, gain
from cluster_agent.recording.last_decision import weighed_decision
from cluster_agent.recording.memory import MEMORY, AgentMemory
from cluster_agent.settings import PolicySettings
from policy_net.baselines.drf import DrfPolicy
from policy_net.domain import Allocation, ClusterState, Decision, Trigger
from policy_net.exchange.shipped import shipped_file
from policy_net.policy import policy_names
from policy_net.throughput.parametric import OnlineFit

GAINS = st.lists(st.floats(-20.0, 20.0), max_size=3 * BLOCK)
STARVING = Decision({"job-0": Allocation(1, 1)})
FAIR = Decision({f"job-{number}": Allocation(1, 1) for number in range(4)})


def four_jobs(**changes: object) -> ClusterState:
    return replace(make_state(4, nodes=4), jobs=(make_job(0, **changes), *(make_job(number) for number in range(1, 4))))


@given(GAINS)
def test_a_past_allows_no_more_than_its_bounds_forgets_and_outlives_the_agent(gains: list[float]) -> None:
    past = RecentPast()
    for each in gains:
        past = past.with_gain(each)
    assert len(past.lows) <= BLOCKS + 1
    for kind, margin in MARGINS.items():
        assert margin.lowest <= past.limit(kind) <= RecentPast().limit(kind)
        if gains:
            assert past.limit(kind) == max(margin.lowest, min(-0.1, *gains) - margin.below_past)
    assert RecentPast.from_json(json.loads(json.dumps(past.to_json()))) == past
    for _ in range(BLOCK * (BLOCKS + 1)):
        past = past.with_gain(0.0)
    assert past.limit("set") == RecentPast().limit("set")


@given(cluster_states.drawn_states(6), st.data())
def test_the_gain_of_a_decision_is_finite_and_of_known_work_the_opposite_of_the_others(
    state: ClusterState, data: st.DataObject
) -> None:
    speeds, sizes = OnlineFit(), st.builds(Allocation, st.integers(0, 16), st.integers(0, 16))
    speeds.introduce(state.jobs)
    one, other = (Decision({job.job_id: data.draw(sizes) for job in state.jobs}) for _ in range(2))
    assert gain(one, one, state, speeds) == 0.0
    there, back = gain(one, other, state, speeds), gain(other, one, state, speeds)
    assert math.isfinite(there)
    assert there >= -back - 1e-9, "of two guesses the better one counts, either way"
    if all(job.work_known for job in state.jobs):
        assert math.isclose(there, -back, abs_tol=1e-9)


@given(cluster_states.drawn_states(6), st.sampled_from(sorted(MARGINS)))
def test_fair_sharing_surprises_nobody(state: ClusterState, kind: str) -> None:
    assert DecisionMonitor(OnlineFit()).surprise(DrfPolicy().decide(state, Trigger.SLOT), state, kind) == ""


def test_a_decision_that_starves_jobs_surprises_and_is_no_part_of_the_past() -> None:
    monitor = DecisionMonitor(OnlineFit())
    for _ in range(3):
        assert "would be the least by the recent past" in monitor.surprise(STARVING, four_jobs(), "dl2")
    assert monitor.past.counted == 0
    assert monitor.surprise(STARVING, four_jobs(), "") == "", "a heuristic's ways are its own"
    assert monitor.surprise(FAIR, four_jobs(), "dl2") == ""
    assert monitor.past.counted == 1


def test_a_challenger_is_judged_by_the_past_before_the_decision_and_adds_nothing_to_it() -> None:
    monitor, state = DecisionMonitor(OnlineFit()), four_jobs()
    assert monitor.surprise(FAIR, state, "set") == ""
    before = monitor.past
    assert monitor.surprise(STARVING, state, "set", acts=False) != ""
    assert monitor.surprise(FAIR, state, "dl2", acts=False) == ""
    assert monitor.past == before


def test_jobs_that_are_made_anew_under_their_name_surprise_nobody() -> None:
    monitor = DecisionMonitor(OnlineFit())
    for changes in ({}, {"job_type": "dssm"}, {"total_epochs": 1e5, "remaining_epochs": 4e4}):
        assert monitor.surprise(FAIR, four_jobs(**changes), "set") == ""


def test_fair_sharing_is_asked_only_for_policies_that_are_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[ClusterState] = []
    monkeypatch.setattr(DrfPolicy, "decide", lambda _, state, trigger: asked.append(state) or FAIR)
    monitor, state = DecisionMonitor(OnlineFit()), four_jobs()
    assert monitor.surprise(STARVING, state, "") == ""
    assert asked == []
    assert monitor.surprise(FAIR, state, "set") == monitor.surprise(FAIR, state, "dl2", acts=False) == ""
    assert len(asked) == 1


def test_the_guard_falls_back_counts_and_says_why() -> None:
    guard = Guard(FixedPolicy(FAIR), 5.0, monitor=DecisionMonitor(OnlineFit()))
    guarded = guard.decide(Proposal(STARVING, None, 0.0), four_jobs(), Trigger.SLOT, "dl2")
    assert guarded.decision.allocation == FAIR.allocation
    assert guarded.decision.reasons == ("fallback:exceptional",)
    assert guarded.detail.startswith("believed utility -")
    assert not guarded.trainable
    assert guard.counts == {"exceptional": 1}
    challenged = guard.judge_challenger(Proposal(STARVING, None, 0.0), four_jobs(), "dl2")
    assert (challenged.decision, challenged.interventions) == (None, (Intervention.EXCEPTIONAL,))
    assert challenged.answered
    assert guard.counts == {"exceptional": 1}, "what a challenger would do is not counted here"


def starving_tape() -> list[Interval]:
    return [(replace(state, jobs=state.jobs[:4]), progress) for state, progress in make_tape(6, jobs=4)]


def test_an_agents_log_says_why_and_comes_out_the_same(tmp_path: Path) -> None:
    factory = CandidateFactory(PolicySettings())
    file = replace(shipped_file("dl2"), weights=-shipped_file("dl2").weights).to_bytes()
    live(tmp_path, starving_tape(), factory.from_bytes(file, PolicyIdentity("flipped")), monitored=True)
    saved = json.loads((tmp_path / MEMORY).read_text())
    assert saved["interventions"]["exceptional"] > 0
    lines = [json.loads(line) for line in (tmp_path / "decisions.jsonl").read_bytes().splitlines()]
    for line in (line for line in lines if "state" in line):
        refused = line["interventions"] == ["exceptional"]
        assert line.get("guard_detail", "").startswith("believed utility") is refused
    result = replayed(tmp_path)
    assert (result.different, result.decisions) == (0, 6)


def test_explain_says_what_was_exceptional(tmp_path: Path) -> None:
    candidate = Candidate(FixedPolicy(STARVING), PolicyIdentity("v2"), shipped_file("dl2").spec)
    live(tmp_path, starving_tape(), candidate, monitored=True)
    decision = weighed_decision(tmp_path)
    assert decision is not None
    rows = dict(decision_rows(decision.facts_of("job-0"), "1 + 1", 2e9))
    assert rows["the guard"] == "it was unlike the recent past, so the fallback decided"
    assert rows["since"].startswith("believed utility -")


def test_the_past_is_remembered_and_a_damaged_one_is_told_of(tmp_path: Path) -> None:
    memory = AgentMemory(tmp_path, OnlineFit())
    memory.monitor.past = RecentPast((-0.3, 0.0), 7)
    memory.save(1, {})
    assert AgentMemory(tmp_path, OnlineFit()).monitor.past == RecentPast((-0.3, 0.0), 7)
    older = {"lows": [-0.3, 0.0], "counted": 7, "work": {"job-0": ["vgg-16", 100.0]}}
    (tmp_path / MEMORY).write_text(json.dumps({"decisions": 1, "interventions": {}, "beliefs": {}, "past": older}))
    assert AgentMemory(tmp_path, OnlineFit()).monitor.past == RecentPast((-0.3, 0.0), 7)
    for past in ({"lows": [], "counted": 0}, {"lows": [0.0], "counted": BLOCK}, {"lows": ["x"], "counted": 0}, 3):
        (tmp_path / MEMORY).write_text(json.dumps({"decisions": 1, "interventions": {}, "beliefs": {}, "past": past}))
        with pytest.raises(StateDamaged, match="remove it to start afresh"):
            AgentMemory(tmp_path, OnlineFit())
    (tmp_path / MEMORY).write_text(json.dumps({"decisions": 1, "interventions": {}, "beliefs": {}}))
    assert AgentMemory(tmp_path, OnlineFit()).monitor.past == RecentPast(), "an agent of before kept none"


@pytest.mark.parametrize("name", ["set", "set-taught"])
def test_what_ships_is_not_exceptional_on_an_ordinary_tape(tmp_path: Path, name: str) -> None:
    assert name in policy_names()
    live(tmp_path, make_tape(12), CandidateFactory(PolicySettings()).from_name_or_file(name), monitored=True)
    assert json.loads((tmp_path / MEMORY).read_text())["interventions"] == {}
