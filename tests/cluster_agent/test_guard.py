import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from agent_fakes import PAIRS, Clock, FixedPolicy, FixedRecordingPolicy, make_job, make_samples, make_state
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from cluster_agent.active_policy import DeadlineAsker
from cluster_agent.guard import Guard, GuardedDecision, Proposal, clamp
from policy_net.dl2.policy import DecisionSamples
from policy_net.domain import Allocation, CapacityMode, ClusterState, Decision, Trigger
from policy_net.placement.capacity import open_capacity

FALLBACK = Decision({"job-0": Allocation(2, 1)})


def decide(
    decision: Decision | None = PAIRS,
    samples: DecisionSamples | None = None,
    seconds: float = 0.0,
    error: Exception | None = None,
    state: ClusterState | None = None,
    untaught: str = "",
) -> tuple[GuardedDecision, Guard]:
    guard = Guard(FixedPolicy(FALLBACK), deadline_seconds=1.0)
    proposal = Proposal(decision, samples or make_samples(), seconds, error, untaught=untaught)
    return guard.decide(proposal, state or make_state(), Trigger.SLOT), guard


def test_a_sound_decision_passes_unchanged_and_may_train() -> None:
    guarded, guard = decide()
    assert guarded.decision is PAIRS
    assert guarded.trainable
    assert guard.counts == {}


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ({"decision": None, "error": FloatingPointError("logits")}, "nan"),
        ({"samples": replace(make_samples(), behaviour_M=np.array([0.5, np.nan]))}, "nan"),
        ({"samples": replace(make_samples(), features_MF=np.full((3, 2), np.inf, np.float32))}, "nan"),
        ({"decision": None, "error": KeyError("job-9")}, "exception"),
        ({"seconds": 1.5}, "deadline"),
        ({"decision": None, "error": TimeoutError()}, "deadline"),
        ({"decision": Decision({"job-0": Allocation(-1, 1)})}, "malformed"),
        ({"decision": Decision({"job-0": Allocation(1.5, 1)})}, "malformed"),  # type: ignore[arg-type]
        ({"untaught": "dl2 was never taught asynchronous jobs"}, "untaught"),
        ({"decision": Decision({})}, "idle"),
        ({"decision": Decision({"job-0": Allocation(2, 0)})}, "idle"),
    ],
)
def test_a_fault_brings_the_fallback_is_counted_and_never_trains(fault: dict[str, object], reason: str) -> None:
    guarded, guard = decide(**fault)  # type: ignore[arg-type]
    assert guarded.decision.allocation == FALLBACK.allocation
    assert guarded.decision.reasons == (f"fallback:{reason}",)
    assert guard.counts == {reason: 1}
    assert not guarded.trainable


class _FailingMonitor:
    def __init__(self) -> None:
        self.errors: list[Exception] = [KeyError("job-0"), KeyError("job-1"), ZeroDivisionError("no speed")]

    def surprise(self, decision: Decision, state: ClusterState, kind: str, *, acts: bool = True) -> str:
        raise self.errors.pop(0)


def test_a_monitor_that_fails_surprises_nobody_and_says_so_once_a_kind_of_error() -> None:
    guard = Guard(FixedPolicy(FALLBACK), deadline_seconds=1.0, monitor=_FailingMonitor())
    proposal, state = Proposal(PAIRS, make_samples(), 0.0), make_state()
    with capture_logs() as logged:
        assert guard.decide(proposal, state, Trigger.SLOT, "dl2").decision is PAIRS
        assert guard.judge_challenger(proposal, state, "dl2").decision is PAIRS
        assert guard.decide(proposal, state, Trigger.SLOT, "dl2").trainable
    assert guard.counts == {}
    assert [(line["event"], line["log_level"], line["reason"]) for line in logged] == [
        ("monitor-failed", "warning", "KeyError"),
        ("monitor-failed", "warning", "ZeroDivisionError"),
    ]


def test_an_unknown_job_is_left_out_and_the_rest_is_kept() -> None:
    guarded, guard = decide(Decision({"job-0": Allocation(1, 1), "stranger": Allocation(1, 1)}))
    assert guarded.decision.allocation == {"job-0": Allocation(1, 1)}
    assert guarded.decision.reasons == ("clamped:unknown-job",)
    assert guard.counts == {"unknown-job": 1}
    assert not guarded.trainable


def test_a_broken_cap_is_brought_down_to_the_cap() -> None:
    state = replace(make_state(), jobs=(make_job(0, max_workers=1), make_job(1)))
    guarded, guard = decide(Decision({"job-0": Allocation(2, 1)}), state=state)
    assert guarded.decision.allocation == {"job-0": Allocation(1, 1)}
    assert guard.counts == {"over-cap": 1}


def test_what_the_cluster_lacks_is_taken_from_the_latest_jobs_by_pairs() -> None:
    # Two nodes of 8 cores and 2 GPUs hold four pairs of 2 + 2 cores.
    guarded, guard = decide(Decision({"job-0": Allocation(3, 3), "job-1": Allocation(2, 2)}))
    assert guarded.decision.allocation == {"job-0": Allocation(3, 3), "job-1": Allocation(1, 1)}
    assert guard.counts == {"over-capacity": 1}


def test_a_policy_that_is_still_busy_is_said_to_be_not_asked_rather_than_to_have_taken_no_time() -> None:
    guard = Guard(FixedPolicy(Decision({"job-0": Allocation(1, 1)})), deadline_seconds=1.0)
    busy = Proposal(None, None, 0.0, TimeoutError("still at an earlier decision"), asked=False)
    guarded = guard.decide(busy, make_state(), Trigger.SLOT)
    assert guarded.detail == "not asked: still at an earlier decision"
    assert guard.counts == {"deadline": 1}


def test_if_the_fallback_fails_too_the_jobs_keep_what_they_hold() -> None:
    state = replace(make_state(), jobs=(make_job(0, current=Allocation(1, 1)), make_job(1)))
    guard = Guard(FixedPolicy(RuntimeError("broken too")), deadline_seconds=1.0)
    guarded = guard.decide(Proposal(None, None, 0.0, ValueError("x")), state, Trigger.SLOT)
    assert guarded.decision.of("job-0") == Allocation(1, 1)
    assert guarded.decision.of("job-1") == Allocation(0, 0)
    assert guard.counts == {"exception": 1, "fallback-failed": 1}


def test_an_empty_cluster_needs_no_intervention() -> None:
    guarded, guard = decide(Decision({}), state=make_state(jobs=0))
    assert guarded.trainable
    assert guard.counts == {}


def test_counts_go_on_from_an_earlier_life() -> None:
    guard = Guard(FixedPolicy(FALLBACK), 1.0, {"nan": 3})
    guard.decide(Proposal(None, None, 0.0, FloatingPointError()), make_state(), Trigger.SLOT)
    assert guard.counts == {"nan": 4}


grants = st.builds(Allocation, st.integers(0, 20), st.integers(0, 20))


@given(
    st.dictionaries(st.sampled_from(["job-0", "job-1", "job-2", "stranger"]), grants),
    st.integers(0, 4),
    st.sampled_from(list(CapacityMode)),
)
def test_a_clamped_decision_always_fits_the_cluster_and_the_caps(
    allocation: dict[str, Allocation], nodes: int, mode: CapacityMode
) -> None:
    state = replace(make_state(jobs=3, nodes=nodes), capacity_mode=mode)
    decision, wrong = clamp(Decision(allocation), state)
    demands = [
        demand
        for job in state.jobs
        for demand in [job.worker_demand] * decision.of(job.job_id).workers
        + [job.ps_demand] * decision.of(job.job_id).ps
    ]
    assert open_capacity(state).fits(*demands)
    assert "stranger" not in decision.allocation
    assert all(grant.workers <= 16 and grant.ps <= 16 for grant in decision.allocation.values())
    assert bool(wrong) == (decision.allocation != allocation)


def test_a_policy_that_thinks_too_long_by_the_clock_is_overruled() -> None:
    clock = Clock()

    class Slow(FixedPolicy):
        def decide(self, state: ClusterState, trigger: Trigger) -> Decision:
            clock.now += 1.5
            return PAIRS

    asker = DeadlineAsker(60.0, clock)
    guard = Guard(FixedPolicy(FALLBACK), 1.0)
    guarded = guard.decide(asker.ask(Slow(PAIRS), make_state(), Trigger.SLOT), make_state(), Trigger.SLOT)
    asker.close()
    assert guard.counts == {"deadline": 1}
    assert guarded.decide_seconds == 1.5
    assert guarded.decision.allocation == FALLBACK.allocation


def test_a_policy_that_never_answers_is_left_alone_and_asked_again_once_it_has() -> None:
    may_answer = threading.Event()

    class Hanging(FixedPolicy):
        def decide(self, state: ClusterState, trigger: Trigger) -> Decision:
            may_answer.wait(100)
            return PAIRS

    asker = DeadlineAsker(0.01, Clock())
    hanging, sound = Hanging(PAIRS), FixedPolicy(PAIRS)
    assert isinstance(asker.ask(hanging, make_state(), Trigger.SLOT).error, TimeoutError)
    assert asker.busy
    assert isinstance(asker.ask(sound, make_state(), Trigger.SLOT).error, TimeoutError)
    may_answer.set()
    while asker.busy:
        time.sleep(0.001)
    asker.deadline_seconds = 60.0  # its thread may be slow to begin, too
    assert asker.ask(sound, make_state(), Trigger.SLOT).error is None
    asker.close()


def test_what_a_policy_raises_is_reported_and_not_raised() -> None:
    asker = DeadlineAsker(60.0, Clock())
    fault = ZeroDivisionError("by zero")
    assert asker.ask(FixedPolicy(fault), make_state(), Trigger.SLOT).error is fault
    own_timeout = TimeoutError("its own")
    assert asker.ask(FixedPolicy(own_timeout), make_state(), Trigger.SLOT).error is own_timeout
    assert not asker.busy
    asker.close()


def test_samples_come_from_policies_that_record_them() -> None:
    asker = DeadlineAsker(60.0, Clock())
    samples = make_samples()
    assert asker.ask(FixedRecordingPolicy(PAIRS, samples), make_state(), Trigger.SLOT).samples is samples
    assert asker.ask(FixedPolicy(PAIRS), make_state(), Trigger.SLOT).samples is None
    asker.close()
