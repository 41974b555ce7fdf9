import itertools
import json
from collections.abc import Sequence

import pytest
from worlds import GivePairs, PairSpeeds, make_spec, make_workload

import policy_net.baselines
import policy_net.dl2
import policy_net.set_policy  # noqa: F401  (both register policies' names)
from policy_net.domain import ClusterState, Decision, PolicyContext, Progress, Trigger
from policy_net.errors import BadInput, InvalidAllocation, NoProgress
from policy_net.laboratory.simulation.case import MAX_IDLE_DECISIONS
from policy_net.laboratory.simulation.environment import DecideOn, Environment, NodeChange
from policy_net.laboratory.simulation.replay import replay
from policy_net.policy import build_policy

TWO_JOBS = make_workload(make_spec(0, total_epochs=18.0), make_spec(1, submit_time_seconds=600.0), name="two")


BURST = make_workload(
    *(make_spec(number, submit_time_seconds=float(number % 3), total_epochs=0.2) for number in range(3)), name="burst"
)
"""Three jobs of 20 s that come in three seconds."""


class NeverStarts:
    name = "never-starts"

    def __init__(self) -> None:
        self.asked = 0

    def decide(self, state: ClusterState, trigger: Trigger) -> Decision:
        self.asked += 1
        return Decision({})

    def observe(self, progress: Sequence[Progress]) -> None:
        pass


def test_the_result_has_the_figures_of_the_command() -> None:
    ticks = itertools.count()
    result = replay(TWO_JOBS, Environment(4), GivePairs(), PairSpeeds(), clock=lambda: float(next(ticks)))
    # job-0 runs 0 to 1800 s; job-1 waits for the slot at 1200 and ends at 2400: JCTs of 1800 and 1800.
    assert json.loads(json.dumps(result.to_json())) == {
        "workload": "two",
        "policy": "give-pairs",
        "jobs": 2,
        "completed": 2,
        "avg_jct_seconds": 1800.0,
        "p99_jct_seconds": 1800.0,
        "max_jct_seconds": 1800.0,
        "makespan_seconds": 2400.0,
        # Alone, job-0 takes 1800 s and job-1 1200 s: slowdowns of 1 and 1.5; the 99th percentile is interpolated.
        "avg_bounded_slowdown": 1.25,
        "p99_bounded_slowdown": pytest.approx(1.495),
        "starved_jobs": 0,
        "avg_jct_without_tail_seconds": 1800.0,
        # GPUs held: 1 in the first slot, 2 in the second (job-0's stays idle from 1800 on), of 8.
        "gpu_utilization": 3 / 16,
        "gpu_hours": 1.0,
        "avg_wait_seconds": 300.0,
        "gpu_training_share": 3000 / (8 * 2400),
        "inference_p50_us": None,
        "slot_decide_p99_ms": 1000.0,
        "wall_seconds": 5.0,
    }


def test_the_time_of_one_action_is_reported_if_the_policy_records_it() -> None:
    policy = GivePairs()
    policy.inference_seconds = [3e-6, 1e-6, 2e-6]  # type: ignore[attr-defined]
    assert replay(TWO_JOBS, Environment(4), policy, PairSpeeds()).inference_p50_us == pytest.approx(2.0)


def test_a_cluster_without_gpus_has_no_gpu_utilization() -> None:
    cpu_only = make_spec(worker_demand=make_spec().ps_demand)
    result = replay(make_workload(cpu_only), Environment(1, gpus_per_node=0), GivePairs(), PairSpeeds())
    assert result.gpu_utilization is None


def test_the_policy_sees_all_progress() -> None:
    policy = GivePairs()
    replay(TWO_JOBS, Environment(4), policy, PairSpeeds())
    assert sum(entry.epochs for entry in policy.seen) == 30.0


def test_progress_is_told_up_to_one() -> None:
    reported: list[float] = []
    replay(TWO_JOBS, Environment(4), GivePairs(), PairSpeeds(), reported.append)
    assert reported == [0.0, 1.0]


def test_a_timeline_lists_every_change_of_tasks() -> None:
    result = replay(TWO_JOBS, Environment(4), GivePairs(2), PairSpeeds(), record_timeline=True)
    assert result.timeline == {
        "job-0": [(0.0, 2, 2), (900.0, 0, 0)],
        "job-1": [(1200.0, 2, 2), (1800.0, 0, 0)],
    }
    assert replay(TWO_JOBS, Environment(4), GivePairs(2), PairSpeeds()).timeline == {}


@pytest.mark.parametrize("decide_on", list(DecideOn))
def test_a_policy_that_starts_nothing_is_stopped_with_a_clear_error(decide_on: DecideOn) -> None:
    policy = NeverStarts()
    with pytest.raises(NoProgress, match="policy 'never-starts' let none of the 2 remaining jobs of workload 'two'"):
        replay(TWO_JOBS, Environment(4, decide_on=decide_on), policy, PairSpeeds())
    # The first decision, while an arrival was still awaited, does not count.
    assert policy.asked == 1 + MAX_IDLE_DECISIONS


def test_a_job_that_never_fits_is_refused_before_anything_runs() -> None:
    with pytest.raises(BadInput, match="'job-0' never fits"):
        replay(make_workload(make_spec()), Environment(1, gpus_per_node=0), GivePairs(), PairSpeeds())


def test_a_policy_that_breaks_a_cap_is_refused() -> None:
    with pytest.raises(InvalidAllocation, match="17 workers"):
        replay(TWO_JOBS, Environment(4), GivePairs(17), PairSpeeds())


def test_an_overcommitted_decision_is_trimmed_and_everything_still_ends() -> None:
    result = replay(TWO_JOBS, Environment(1), GivePairs(16), PairSpeeds())
    assert result.to_json()["completed"] == 2
    assert result.counters.trimmed_tasks > 0


@pytest.mark.parametrize("name", ["fifo", "fifo-backfill", "fifo-easy"])
@pytest.mark.parametrize("compiled", [True, False])
def test_a_queue_starts_a_job_when_there_is_room_whatever_the_pace_of_an_agent(name: str, compiled: bool) -> None:
    # One GPU: one after the other, from 0 to 20, to 40 and to 60 s. Each holds it for 20 s, and nothing after its end.
    environment = Environment(1, gpus_per_node=1, decide_on=DecideOn.EVENT, debounce_seconds=60.0)
    policy = build_policy(name, PolicyContext(true_speeds=PairSpeeds()))
    result = replay(BURST, environment, policy, PairSpeeds(), compiled=compiled)
    assert [outcome.start_seconds for outcome in result.outcomes] == pytest.approx([0.0, 20.0, 40.0])
    assert result.counters.gpu_seconds == pytest.approx(60.0)


def test_a_queue_by_which_an_agent_decides_waits_for_the_agent() -> None:
    environment = Environment(1, gpus_per_node=1, decide_on=DecideOn.EVENT, debounce_seconds=60.0)
    policy = build_policy("fifo", PolicyContext())
    result = replay(BURST, environment, policy, PairSpeeds(), by_an_agent=True)
    assert [outcome.start_seconds for outcome in result.outcomes] == pytest.approx([0.0, 60.0, 120.0])
    assert result.counters.gpu_seconds == pytest.approx(60.0), (
        "what ended is held by nobody, also before the next decision"
    )


@pytest.mark.parametrize("name", ["drf", "las", "srtf", "marginal", "set"])
@pytest.mark.parametrize("compiled", [True, False])
def test_under_events_a_job_that_ended_holds_nothing(name: str, compiled: bool) -> None:
    environment = Environment(3, gpus_per_node=1, decide_on=DecideOn.EVENT, debounce_seconds=60.0)
    policy = build_policy(name, PolicyContext(true_speeds=PairSpeeds()))
    result = replay(BURST, environment, policy, PairSpeeds(), compiled=compiled)
    assert result.gpu_training_share == pytest.approx(result.gpu_utilization)


@pytest.mark.parametrize("compiled", [True, False])
def test_a_job_that_ended_before_its_node_was_lost_held_its_gpu_until_its_end(compiled: bool) -> None:
    changes = (NodeChange(30.0, "node-0", up=False), NodeChange(40.0, "node-0", up=True))
    environment = Environment(1, gpus_per_node=1, decide_on=DecideOn.EVENT, node_changes=changes)
    workload = make_workload(make_spec(0, total_epochs=0.2), make_spec(1, submit_time_seconds=35.0, total_epochs=0.2))
    policy = build_policy("drf", PolicyContext())
    result = replay(workload, environment, policy, PairSpeeds(), compiled=compiled)
    assert [outcome.end_seconds for outcome in result.outcomes] == pytest.approx([20.0, 80.0])
    assert result.counters.gpu_seconds == pytest.approx(40.0)
