"""The shipped `dl2` on jobs for which it was never taught: the fallback decides from the start on, and it says why."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
from agent_fakes import make_job
from hypothesis import example, given
from hypothesis import strategies as st
from log_worlds import live, make_tape, replayed

from cluster_agent.active_policy import ActivePolicy, Candidate, CandidateFactory, PolicyIdentity
from cluster_agent.guard import Guard, Intervention
from cluster_agent.recording.log_reading import log_files
from cluster_agent.settings import PolicySettings
from policy_net.dl2.policy import ENOUGH_LESSONS
from policy_net.domain import ClusterState, JobKind, Node, PolicyContext, Resources, Trigger
from policy_net.errors import PolicyFileError
from policy_net.exchange.policy_file import TAUGHT, PolicyFile
from policy_net.exchange.shipped import shipped_file
from policy_net.policy import build_policy

KINDS = st.sampled_from(list(JobKind))


def state_of(kinds: list[JobKind], job_type: str = "vgg-16") -> ClusterState:
    nodes = tuple(Node(f"n{index}", Resources(8000, 2)) for index in range(24))
    jobs = tuple(replace(make_job(number), kind=kind, job_type=job_type) for number, kind in enumerate(kinds))
    return ClusterState(0.0, nodes, jobs, 1200.0)


def shipped() -> Candidate:
    return CandidateFactory(PolicySettings(), "north").from_name_or_file("dl2")


def version(lessons: dict[str, object], cluster: str = "north") -> Candidate:
    content = shipped_file("dl2")
    card = {TAUGHT: {**content.card[TAUGHT], "lessons": lessons}}
    data = PolicyFile(content.spec, content.weights, card).to_bytes()
    return CandidateFactory(PolicySettings(), cluster).from_bytes(data, PolicyIdentity("v2", version=2))


@given(st.lists(KINDS, min_size=1, max_size=30))
@example([JobKind.PS] * 80)
@example([JobKind.PS] * 81)
def test_before_the_first_lesson_a_cluster_gets_the_fallbacks_decision_wherever_dl2_is_not_safe(
    kinds: list[JobKind],
) -> None:
    state, guard = state_of(kinds), Guard(build_policy("drf", PolicyContext()), 60.0)
    active = ActivePolicy(shipped())
    guarded = guard.decide(active.assigned_decider.ask(state, Trigger.ARRIVAL), state, Trigger.ARRIVAL)
    active.close()
    if len(kinds) > 80 or JobKind.ASYNC in kinds or JobKind.PS not in kinds:
        fallback = build_policy("drf", PolicyContext()).decide(state, Trigger.ARRIVAL)
        assert guarded.decision.allocation == fallback.allocation
        assert guarded.interventions == (Intervention.UNTAUGHT,)
        assert guard.counts == {"untaught": 1}
        assert not guarded.trainable
    else:
        assert Intervention.UNTAUGHT not in guarded.interventions


@pytest.mark.parametrize(
    ("kinds", "said"),
    [
        ([JobKind.PS] * 81, "dl2 is good for up to 80 jobs at once, not for 81"),
        ([JobKind.ALLREDUCE, JobKind.ASYNC], "dl2 was never taught asynchronous jobs"),
        ([JobKind.ALLREDUCE] * 2, "dl2 is no better with all-reduce jobs alone"),
        ([JobKind.PS] + [JobKind.ALLREDUCE] * 79, ""),
        ([], ""),
    ],
)
def test_the_reason_is_one_line(kinds: list[JobKind], said: str) -> None:
    assert shipped().untaught(state_of(kinds)) == said


def test_a_type_that_nobody_knows_is_no_reason() -> None:
    assert shipped().untaught(state_of([JobKind.PS] * 3, "never-seen")) == ""


def test_enough_lessons_of_the_cluster_itself_let_its_fleets_version_decide() -> None:
    state = state_of([JobKind.ASYNC] * 30)
    assert version({"north": ENOUGH_LESSONS - 1}).untaught(state) == "v2 was never taught asynchronous jobs"
    assert version({"north": ENOUGH_LESSONS}).untaught(state) == ""
    assert version({"south": ENOUGH_LESSONS}).untaught(state) == "v2 was never taught asynchronous jobs"


@pytest.mark.parametrize(
    "said", ["20", {"at_once": "many", "kinds": []}, {"at_once": 20, "kinds": ["gang"]}, {"at_once": math.inf}, {}, 3]
)
def test_a_card_that_says_something_else_is_refused_in_one_line(said: object) -> None:
    content = shipped_file("dl2")
    data = PolicyFile(content.spec, content.weights, {TAUGHT: said}).to_bytes()
    with pytest.raises(PolicyFileError, match=r"v2: 'taught' on its card is .*: use at_once, .*; or train it again$"):
        CandidateFactory(PolicySettings()).from_bytes(data, PolicyIdentity("v2"))


def test_a_file_of_ones_own_decides_for_all() -> None:
    content = shipped_file("dl2")
    own = CandidateFactory(PolicySettings()).from_bytes(
        PolicyFile(content.spec, content.weights).to_bytes(), PolicyIdentity("own")
    )
    assert own.untaught(state_of([JobKind.ASYNC] * 30)) == ""


@pytest.mark.parametrize("taught", [0, ENOUGH_LESSONS])
def test_the_log_is_made_again_whether_the_guard_held_or_not(tmp_path: Path, taught: int) -> None:
    tape = [(state_of([JobKind.ASYNC] * 2), progress) for _, progress in make_tape(3)]
    tape = [(replace(state, time_seconds=600.0 * at), []) for at, (state, _) in enumerate(tape)]
    live(tmp_path, tape, version({"north": taught}))
    held = sum(path.read_text().count('"untaught"') for path in log_files(tmp_path))
    assert held == (0 if taught else 3)
    result = replayed(tmp_path)
    assert (result.decisions, result.different) == (3, 0)
