"""Jobs in the system, exact between decisions: against a count at a thousand moments."""

import random

import pytest
from agent_fakes import make_job

from cluster_agent.rollout import alternation as module
from cluster_agent.rollout.alternation import BlockTally, DecisionInterval, FinishedBlock, Latencies, Presence
from cluster_agent.rollout.assignment_state import PARTS, UsualJobs
from policy_net.domain import Allocation, ClusterState, Job, Progress
from policy_net.laboratory.simulation import metrics


def state_of(time: float, *jobs: Job) -> ClusterState:
    return ClusterState(time, (), jobs, 600.0)


def ended(job: Job, seconds: float) -> Progress:
    return Progress(job.job_id, job.job_type, Allocation(1, 1), seconds, 1.0, 1.0, 1.0, finished=True)


def test_arrivals_and_ends_between_decisions_count_from_and_to_their_moment() -> None:
    present = Presence()
    first, second = make_job(0, submit_time_seconds=0.0), make_job(1, submit_time_seconds=130.0)
    assert present.moved_to(state_of(100.0, first), lambda _: 0.0) is None
    present.carried_out(100.0, [ended(first, 50.0)])
    interval = present.moved_to(state_of(200.0, second), lambda _: 0.0)
    assert interval is not None
    assert interval.stays == ((100.0, 150.0), (130.0, 200.0))
    assert interval.arrivals == (130.0,)
    assert interval.job_seconds(100.0, 200.0) == 120.0
    assert interval.job_seconds(140.0, 160.0) == 10.0 + 20.0
    assert [interval.jobs_at(at) for at in (100.0, 140.0, 160.0)] == [1, 2, 1]
    assert Presence.from_json(present.to_json()) == present


def test_a_job_that_is_gone_without_a_report_left_at_the_decision_that_missed_it() -> None:
    present = Presence()
    present.moved_to(state_of(0.0, make_job(0)), lambda _: 0.0)
    interval = present.moved_to(state_of(60.0), lambda _: 0.0)
    assert interval is not None
    assert interval.stays == ((0.0, 60.0),)


def test_a_clock_that_goes_back_gives_no_interval() -> None:
    present = Presence()
    present.moved_to(state_of(500.0, make_job(0)), lambda _: 0.0)
    assert present.moved_to(state_of(20.0, make_job(1)), lambda _: 0.0) is None
    assert present.moved_to(state_of(30.0, make_job(1)), lambda _: 0.0) is not None


def test_the_mean_of_blocks_is_that_of_the_jobs_that_were_there_at_every_moment() -> None:
    """Two blocks that meet within an interval, and jobs that come and go at any time."""
    draw = random.Random(5)
    jobs = []
    for number in range(30):
        came = draw.uniform(0.0, 7000.0)
        jobs.append((make_job(number, submit_time_seconds=came), came + draw.uniform(650.0, 3000.0)))
    tallies = [
        BlockTally(0, False, 600.0, 1200.0, 3600.0, 0),
        BlockTally(1, True, 3600.0, 4200.0, 6600.0, 0),
    ]
    present, times = Presence(), [600.0 * step for step in range(13)]
    for time in times:
        there = [job for job, end in jobs if job.submit_time_seconds <= time < end]
        interval = present.moved_to(state_of(time, *there), lambda _: 1e9)
        if interval is not None:
            for tally in tallies:
                tally.add(interval)
        reports = [ended(job, end - time) for job, end in jobs if job in there and end <= time + 600.0]
        present.carried_out(time, reports)
    for tally in tallies:
        tally.decided(0.1, changed=True)
        block = tally.finished(2.0)
        assert block is not None
        moments = [tally.counted_from + (tally.end - tally.counted_from) * (step + 0.5) / 5000 for step in range(5000)]
        seen = [sum(job.submit_time_seconds <= at < end for job, end in jobs) for at in moments]
        assert block.jobs == pytest.approx(sum(seen) / len(seen), rel=2e-3)
        assert block.arrivals == sum(tally.begin <= job.submit_time_seconds < tally.end for job, _ in jobs)
        assert FinishedBlock.from_json(block.to_json()) == block
        assert BlockTally.from_json(tally.to_json()) == tally


def test_a_job_starves_once_for_each_wait_that_is_too_long_for_it() -> None:
    job = make_job(0, submit_time_seconds=0.0)
    present, starved = Presence(), []
    for step in range(1, 20):
        interval = present.moved_to(state_of(600.0 * step, job), lambda _: 400.0)
        starved.append(0 if interval is None else interval.starved)
        if step == 10:
            present.carried_out(600.0 * step, [Progress("job-0", "vgg-16", Allocation(1, 1), 600.0, 1.0, 1.0, 9.0)])
    assert starved[:8] == [0, 0, 0, 0, 0, 0, 0, 1], (
        "ten times its own 400 s after it was first seen, which is above an hour"
    )
    assert sum(starved) == 2
    assert starved[17] == 1, "the second wait began as it trained last, at 6600 s"
    assert (module.STARVING_DURATIONS, module.STARVING_SECONDS) == (
        metrics.STARVING_DURATIONS, metrics.STARVING_SECONDS
    )  # fmt: skip


def test_a_percentile_of_many_latencies_is_right_to_five_per_cent() -> None:
    latencies = Latencies()
    for number in range(10_000):
        latencies.add(0.001 * (1 + number / 100))
    assert latencies.p99_seconds == pytest.approx(0.1, rel=0.05)
    assert len(latencies.counts) < 120
    assert Latencies().p99_seconds == 0.0


def test_what_is_usual_is_a_mean_over_a_bounded_window() -> None:
    usual = UsualJobs()
    assert usual.mean(otherwise=3.0) == 3.0
    for hour in range(2 * PARTS):
        jobs = 1.0 if hour < PARTS else 4.0
        begin = 3600.0 * hour
        stays = tuple((begin, begin + 3600.0) for _ in range(int(jobs)))
        assert usual.add(DecisionInterval(begin, begin + 3600.0, stays, ()))
    assert usual.mean(otherwise=0.0) == 4.0
    assert UsualJobs.from_json(usual.to_json()).mean(0.0) == 4.0
    assert len(usual.to_json()) == PARTS + 1
