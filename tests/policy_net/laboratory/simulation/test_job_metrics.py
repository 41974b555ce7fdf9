import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import HOUR, PairSpeeds, make_spec, make_workload, one_pair_each, workloads

from policy_net.domain import Allocation, ClusterState, Decision, Progress, Trigger
from policy_net.laboratory.simulation.environment import DecideOn, Environment
from policy_net.laboratory.simulation.metrics import (
    JobResult,
    alone_seconds,
    longest_jobs,
    mean_jct_seconds,
    summarise_jobs,
)
from policy_net.laboratory.simulation.replay import replay


def _job(job_id: str = "a", alone: float | None = 1200.0, jct: float | None = 1200.0, gap: float = 0.0) -> JobResult:
    return JobResult(job_id, 1, alone, jct, gap)


@pytest.mark.parametrize(
    ("alone", "jct", "slowdown"),
    [
        (1200.0, 3600.0, 3.0),
        (1200.0, 600.0, 1.0),  # faster than alone at the requested size is no slowdown
        (6.0, 1200.0, 2.0),  # six seconds count as ten minutes
        (6.0, 300.0, 1.0),
        (None, 1200.0, None),
        (1200.0, None, None),
    ],
)
def test_slowdown_is_bounded_from_both_sides(alone: float | None, jct: float | None, slowdown: float | None) -> None:
    assert _job(alone=alone, jct=jct).bounded_slowdown == slowdown


@pytest.mark.parametrize(
    ("alone", "gap", "starved"),
    [
        (60.0, HOUR, False),
        (60.0, HOUR + 1, True),  # an hour at the least
        (HOUR, 10 * HOUR, False),
        (HOUR, 10 * HOUR + 1, True),
        (None, 2 * HOUR, True),
    ],
)
def test_a_job_starves_beyond_ten_durations_and_an_hour(alone: float | None, gap: float, starved: bool) -> None:
    assert _job(alone=alone, gap=gap).starved is starved


def test_the_time_alone_is_that_at_the_requested_size() -> None:
    assert alone_seconds(make_spec(), PairSpeeds()) == 1200.0
    assert alone_seconds(make_spec(requested=Allocation(4, 4)), PairSpeeds()) == 300.0
    assert alone_seconds(make_spec(job_type="dead"), PairSpeeds()) is None


def test_the_tail_is_one_job_of_a_hundred_and_at_least_one() -> None:
    jobs = [_job(str(number), jct=100.0 + number) for number in range(200)]
    assert longest_jobs(jobs) == {"199", "198"}
    assert longest_jobs(jobs[:3]) == {"2"}
    assert mean_jct_seconds(jobs[:3], without={"2"}) == 100.5
    assert summarise_jobs(jobs[:3]).avg_jct_without_tail_seconds == 100.5


def test_unfinished_jobs_have_no_part_in_means_and_an_empty_summary_is_empty() -> None:
    assert mean_jct_seconds([_job(jct=None), _job("b", jct=60.0)]) == 60.0
    summary = summarise_jobs([_job(jct=None)])
    assert (summary.avg_bounded_slowdown, summary.p99_bounded_slowdown) == (None, None)
    assert summary.avg_jct_without_tail_seconds is None


ONE_PAIR, ONE_WORKER = Allocation(1, 1), Allocation(1, 0)


class EveryOtherSlot:
    """Trains all jobs in one slot and none in the next."""

    name = "every-other-slot"

    def decide(self, state: ClusterState, trigger: Trigger) -> Decision:
        return one_pair_each(state) if round(state.time_seconds / 1200) % 2 else Decision({})

    def observe(self, progress: list[Progress]) -> None:
        pass


def test_gaps_count_the_wait_for_the_first_start_and_every_suspension() -> None:
    workload = make_workload(
        make_spec(0, total_epochs=24.0), make_spec(1, submit_time_seconds=1300.0, total_epochs=12.0)
    )
    result = replay(workload, Environment(4), EveryOtherSlot(), PairSpeeds())
    # job-0 trains in the slots at 1200 and 3600; job-1 waits from 1300 for the slot at 3600.
    assert [job.longest_gap_seconds for job in result.job_results] == [1200.0, 2300.0]
    assert [job.jct_seconds for job in result.job_results] == [4800.0, 3500.0]


def test_what_is_held_without_training_is_not_training_time() -> None:
    workload = make_workload(make_spec(0, total_epochs=6.0), make_spec(1))

    class Pairs(EveryOtherSlot):
        def decide(self, state: ClusterState, trigger: Trigger) -> Decision:
            # In the first slot job-1 has no PS; job-0 ends in the middle of it.
            return one_pair_each(state) if state.time_seconds else Decision({"job-0": ONE_PAIR, "job-1": ONE_WORKER})

    result = replay(workload, Environment(4), Pairs(), PairSpeeds())
    assert result.gpu_training_share == pytest.approx((600 + 1200) / (8 * 2400))


@given(workload=workloads(), decide_on=st.sampled_from(list(DecideOn)))
def test_no_gap_is_longer_than_the_job_was_there_and_no_gpu_trains_unheld(workload, decide_on: DecideOn) -> None:
    class Pairs(EveryOtherSlot):
        def decide(self, state: ClusterState, trigger: Trigger) -> Decision:
            return one_pair_each(state)

    result = replay(workload, Environment(24, decide_on=decide_on), Pairs(), PairSpeeds())
    for job in result.job_results:
        assert job.jct_seconds is not None
        assert 0.0 <= job.longest_gap_seconds < job.jct_seconds
    if result.gpu_utilization is not None:
        assert result.gpu_training_share is not None
        assert result.gpu_training_share <= result.gpu_utilization + 1e-9
