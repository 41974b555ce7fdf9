import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import structlog
from agent_fakes import (
    PAIRS,
    SPEC,
    WEIGHTS,
    Clock,
    FixedPolicy,
    FixedRecordingPolicy,
    make_samples,
    make_state,
)

from cluster_agent.active_policy import ActivePolicy, Candidate, CandidateFactory, DeadlineAsker, PolicyIdentity
from cluster_agent.backends.base import BackendStatus
from cluster_agent.errors import BackendUnavailable, StateDamaged
from cluster_agent.guard import Guard
from cluster_agent.learning.experience import BelievedReward
from cluster_agent.loop import Deciding, DecisionLoop, DecisionRecords, Lessons
from cluster_agent.recording.decision_log import DecisionLog, DecisionRecorder
from cluster_agent.recording.log_reading import CURRENT, read_log, state_of
from cluster_agent.recording.memory import MEMORY, AgentMemory
from cluster_agent.rollout.rollout_part import RolloutPart
from cluster_agent.settings import PolicySettings
from cluster_agent.telemetry import AgentTelemetry
from policy_net.domain import (
    MOST_SAMPLES_PER_WORKER_SECOND,
    Allocation,
    ClusterState,
    Decision,
    DecisionOrigin,
    PolicyContext,
    Progress,
    RewardKind,
    Trigger,
)
from policy_net.errors import InvalidAllocation
from policy_net.learning.replay import Experience
from policy_net.policy import build_policy
from policy_net.throughput.parametric import OnlineFit

FALLBACK = Decision({"job-0": Allocation(1, 1)})


class ScriptedBackend:
    """So many identical decisions; job-0 trains 11.5 samples a second per worker."""

    job_types = ("vgg-16",)

    def __init__(self, decisions: int, silent: int = 0) -> None:
        self.left = decisions
        self.silent = silent
        self.time_seconds = 0.0
        self.applied: list[Decision] = []

    @property
    def finished(self) -> bool:
        return self.left == 0

    def observe(self) -> tuple[ClusterState, Trigger] | None:
        if self.silent:
            self.silent -= 1
            raise BackendUnavailable("no answer")
        return make_state(time_seconds=self.time_seconds), Trigger.SLOT

    def apply(self, decision: Decision) -> list[Progress]:
        self.left -= 1
        self.applied.append(decision)
        self.time_seconds += 1200.0
        return [
            Progress(job_id, "vgg-16", grant, 1200.0, 13800.0 * grant.workers, 120.0 * grant.workers, 40.5)
            for job_id, grant in decision.allocation.items()
        ]

    def start(self) -> None:
        pass

    def status(self) -> BackendStatus:
        return BackendStatus(self.time_seconds, 0, 0, 0, 0, 0.0)

    def close(self) -> None:
        pass


class World:
    def __init__(self, folder: Path, policy: FixedPolicy, decisions: int = 3, silent: int = 0) -> None:
        self.backend = ScriptedBackend(decisions, silent)
        self.fallback = FixedPolicy(FALLBACK)
        self.beliefs = OnlineFit()
        self.memory = AgentMemory(folder, self.beliefs)
        self.learned: list[Experience] = []
        self.telemetry = AgentTelemetry()
        first = Candidate(policy, PolicyIdentity("fixed", version=7, digest="d"))
        self.active = ActivePolicy(first, askers=(DeadlineAsker(60.0, Clock()), DeadlineAsker(60.0, Clock())))
        self.waits: list[float] = []
        settings = PolicySettings(seed=5, mode="sample")
        recorder = DecisionRecorder(DecisionLog(folder, 10**7, 2), self.fallback, settings, lambda: 1.5e9)
        rollout_part = RolloutPart(folder, "north", self.active, OnlineFit(), Clock())
        self.loop = DecisionLoop(
            self.backend,
            Deciding(self.active, Guard(self.fallback, 5.0, self.memory.interventions), rollout_part),
            DecisionRecords(self.memory, recorder),
            Lessons(BelievedReward(RewardKind.SLOT_UTILITY, self.beliefs), self.learned.append),
            self.telemetry,
            self.wait,
        )

    def wait(self, seconds: float) -> bool:
        self.waits.append(seconds)
        return False

    def run(self) -> None:
        self.loop.run()
        self.loop.close()


def test_a_decision_is_applied_logged_rewarded_and_learned_from(tmp_path: Path) -> None:
    world = World(tmp_path, FixedRecordingPolicy(PAIRS, make_samples()))
    world.run()
    assert world.backend.applied == [PAIRS] * 3
    assert [each.origin for each in world.backend.applied] == [DecisionOrigin("fixed", number) for number in range(3)]
    assert [entry.seconds for entry in world.learned] == [1200.0] * 3
    assert all(entry.reward > 0.0 for entry in world.learned)
    lines = list(read_log(tmp_path / CURRENT))
    assert [line["number"] for line in lines] == [0, 1, 2]
    assert [line["previous_reward"] for line in lines] == [None, *(entry.reward for entry in world.learned[:2])]
    assert all(line["version"] == 7 and line["seed"] == 5 for line in lines)
    assert [state_of(line).time_seconds for line in lines] == [0.0, 1200.0, 2400.0]
    assert world.telemetry.registry.get_sample_value("fedl2_agent_decisions_total") == 3


def test_a_decision_of_the_fallback_trains_beliefs_and_never_the_actor(tmp_path: Path) -> None:
    world = World(tmp_path, FixedRecordingPolicy(FloatingPointError("logits"), make_samples()))
    world.run()
    assert world.backend.applied[0].allocation == FALLBACK.allocation
    assert world.learned == []
    assert world.beliefs.snapshot(), "the speeds that the fallback's allocation showed are believed"
    assert [entry.job_id for entry in world.fallback.seen] == ["job-0"] * 3
    assert world.loop.interventions == {"nan": 3}
    count = world.telemetry.registry.get_sample_value("fedl2_agent_guard_interventions_total", {"reason": "nan"})
    assert count == 3


def test_a_clamped_decision_never_trains_the_actor(tmp_path: Path) -> None:
    wrong = Decision({"job-0": Allocation(1, 1), "stranger": Allocation(1, 1)})
    world = World(tmp_path, FixedRecordingPolicy(wrong, make_samples()))
    world.run()
    assert world.learned == []
    assert world.loop.interventions == {"unknown-job": 3}


def test_a_heuristic_teaches_nothing_and_decides_all_the_same(tmp_path: Path) -> None:
    world = World(tmp_path, FixedPolicy(PAIRS))
    world.run()
    assert world.backend.applied == [PAIRS] * 3
    assert world.learned == []
    assert world.beliefs.snapshot()


def test_a_cluster_that_does_not_answer_is_asked_again(tmp_path: Path) -> None:
    world = World(tmp_path, FixedPolicy(PAIRS), silent=2)
    world.run()
    assert len(world.backend.applied) == 3
    assert len(world.waits) == 2
    assert world.telemetry.registry.get_sample_value("fedl2_agent_backend_failures_total") == 2


def test_a_policy_that_fails_to_observe_does_not_stop_the_cluster(tmp_path: Path) -> None:
    class Blind(FixedPolicy):
        def observe(self, progress: Sequence[Progress]) -> None:
            raise ZeroDivisionError

    world = World(tmp_path, Blind(PAIRS))
    world.run()
    assert len(world.backend.applied) == 3
    assert world.telemetry.registry.get_sample_value("fedl2_agent_lesson_failures_total") == 3


def test_a_decision_that_the_cluster_cannot_carry_out_any_more_is_made_anew(tmp_path: Path) -> None:
    world = World(tmp_path, FixedPolicy(PAIRS))
    carry_out, refusals = world.backend.apply, [InvalidAllocation("a node went away")]

    def apply(decision: Decision) -> list[Progress]:
        if refusals:
            raise refusals.pop()
        return carry_out(decision)

    world.backend.apply = apply  # type: ignore[method-assign]
    world.run()
    assert len(world.backend.applied) == 3
    assert world.loop.decisions == 4


def test_a_full_disk_stops_no_decision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path, FixedPolicy(PAIRS))

    def full(self: DecisionLog, *record: object) -> bool:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(DecisionLog, "append", full)
    world.run()
    assert len(world.backend.applied) == 3
    assert world.telemetry.registry.get_sample_value("fedl2_agent_log_failures_total") == 3


def test_numbers_counts_and_beliefs_go_on_in_the_next_life(tmp_path: Path) -> None:
    first = World(tmp_path, FixedRecordingPolicy(FloatingPointError("x"), make_samples()))
    first.run()
    second = World(tmp_path, FixedPolicy(PAIRS), decisions=1)
    # What the last interval showed is believed from the next decision on; it was not on disk yet.
    assert second.beliefs.snapshot().keys() == first.beliefs.snapshot().keys()
    second.run()
    assert [line["number"] for line in read_log(tmp_path / CURRENT)] == [0, 1, 2, 3]
    assert second.loop.interventions == {"nan": 3}


def test_a_damaged_memory_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / MEMORY).write_text('{"decisions": "many"}')
    with pytest.raises(StateDamaged, match=MEMORY):
        AgentMemory(tmp_path, OnlineFit())


def test_a_successor_becomes_active_between_decisions_only(tmp_path: Path) -> None:
    successor = Candidate(FixedPolicy(FALLBACK), PolicyIdentity("v8", version=8))

    class Proposing(FixedPolicy):
        def decide(self, state: ClusterState, trigger: Trigger) -> Decision:
            world.active.propose(successor)
            return PAIRS

        def observe(self, progress: Sequence[Progress]) -> None:
            assert world.active.assigned.policy is self

    world = World(tmp_path, Proposing(PAIRS))
    world.run()
    assert [line["version"] for line in read_log(tmp_path / CURRENT)] == [7, 8, 8]


def test_a_sampled_decision_follows_from_its_seed_and_number_alone() -> None:
    factory = CandidateFactory(PolicySettings(mode="sample", seed=9, exploration=0.3))
    state = make_state(jobs=4, nodes=6)

    def decide(number: int, earlier: Sequence[int]) -> tuple[Decision, list[int]]:
        active = ActivePolicy(factory.from_head(SPEC, WEIGHTS, 0))
        for index in (*earlier, number):
            candidate = active.begin_turn(index, make_state(), Trigger.SLOT).acting.candidate
            decision, samples = candidate.policy.decide_recorded(state, Trigger.SLOT)  # type: ignore[attr-defined]
        return decision, samples.actions_M.tolist()

    assert decide(5, []) == decide(5, [3, 4])
    assert any(decide(5, []) != decide(other, []) for other in range(6, 12))


def test_behaviour_probabilities_are_those_of_the_draw() -> None:
    active = ActivePolicy(CandidateFactory(PolicySettings(mode="sample")).from_head(SPEC, WEIGHTS, 0))
    candidate = active.begin_turn(0, make_state(), Trigger.SLOT).acting.candidate
    _, samples = candidate.policy.decide_recorded(make_state(4, 6), Trigger.SLOT)  # type: ignore[attr-defined]
    assert np.all((samples.behaviour_M > 0.0) & (samples.behaviour_M <= 1.0))


def test_a_speed_beyond_all_machines_reaches_no_beliefs(tmp_path: Path) -> None:
    world = World(tmp_path, FixedRecordingPolicy(PAIRS, make_samples()))
    apply = world.backend.apply
    lie = MOST_SAMPLES_PER_WORKER_SECOND * 1.01

    def applied(decision: Decision) -> list[Progress]:
        return [
            replace(entry, samples=lie * entry.seconds * entry.allocation.workers) if number == 0 else entry
            for number, entry in enumerate(apply(decision))
        ]

    world.backend.apply = applied  # type: ignore[method-assign]
    with structlog.testing.capture_logs() as logs:
        world.run()
    reported = [line for line in logs if line["event"] == "progress-impossible"]
    assert len(reported) == 3
    assert max(row.mean_log_speed for row in world.beliefs.statistics()) < math.log(1e6)


def test_a_report_that_is_far_from_its_type_is_counted_and_has_a_line(tmp_path: Path) -> None:
    world = World(tmp_path, build_policy("set-fresh", PolicyContext()), decisions=40)  # type: ignore[arg-type]
    apply, calls = world.backend.apply, []

    def applied(decision: Decision) -> list[Progress]:
        calls.append(decision)
        progress = apply(decision)
        return [replace(entry, samples=1000.0 * entry.samples) for entry in progress] if len(calls) == 40 else progress

    world.backend.apply = applied  # type: ignore[method-assign]
    with structlog.testing.capture_logs() as logs:
        world.run()
    doubted = [line for line in logs if line["event"] == "report-doubted"]
    assert {line["job"] for line in doubted} == {entry for entry in calls[-1].allocation if calls[-1].of(entry).tasks}
    counted = world.telemetry.registry.get_sample_value("fedl2_agent_doubted_reports_total")
    assert counted == len(doubted) > 0
