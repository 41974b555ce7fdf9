"""Pasts of real clusters as their agents replayed them: shown where they are believed, with what they are worth."""

import random
from typing import Any

import pytest
from report_makers import NOW, view

from global_learner.report.load import load_section
from global_learner.report.replayed_pasts import believed_past
from global_learner.report.reported_load import MOMENTS, reported_load
from global_learner.report.savings import headline
from policy_net.exchange.generated import fleet_pb2 as pb

STEP = 600.0
BEGIN = NOW - 100 * STEP
REAL = {"baseline_policy": "", "baseline_jct_seconds": 0.0, "baselines": []}


def curve(used: float, policy: str = "", steps: int = 100, gpus: float = 8.0) -> pb.LoadCurve:
    return pb.LoadCurve(
        policy=policy, begin_seconds=BEGIN, step_seconds=STEP, gpus_used=[used] * steps, jobs_waiting=[used] * steps,
        gpus=[gpus] * steps,
    )  # fmt: skip


def past(jobs: int = 40, avg: float = 600.0, twin: float = 630.0, used: float = 4.2, **times: float) -> pb.ReplayedPast:
    """Of the first half of what is known; `times` by scheduler, with `_` for `-`."""
    named = {name.replace("_", "-"): seconds for name, seconds in (times or {"fifo_easy": 900.0, "drf": 700.0}).items()}
    return pb.ReplayedPast(
        begin_seconds=BEGIN, end_seconds=NOW - 50 * STEP, jobs=jobs, avg_jct_seconds=avg, twin_jct_seconds=twin,
        baselines=[pb.BaselineTime(policy=name, avg_jct_seconds=seconds) for name, seconds in named.items()],
        load=[curve(used, steps=50), *(curve(6.0, name, steps=50) for name in named)],
    )  # fmt: skip


def real(name: str, replayed: pb.ReplayedPast | None, **changes: Any) -> pb.ClusterView:
    reported = {} if replayed is None else {"replayed": replayed}
    return view(name, random.Random(2), **{"load": [curve(4.0)], **REAL, **reported, **changes})


def test_a_real_cluster_is_beside_its_own_past_under_other_schedulers_as_far_as_it_was_replayed() -> None:
    (scope,) = reported_load([real("north", past())], NOW)
    assert [shown.label for shown in scope.curves] == [
        "FIFO with EASY backfill, simulated", "DRF, the fallback, simulated", "as it ran, simulated", "as it ran",
    ]  # fmt: skip
    half = MOMENTS // 2
    assert list(scope.curves[0].used) == [6.0] * half + [None] * half
    assert list(scope.curves[-1].used) == [4.0] * MOMENTS, "what it was goes on"
    assert "the 40 jobs that ended since" in scope.note
    assert "take 5% more time there than they took" in scope.note
    section = load_section([scope])
    assert section is not None
    (part,) = section["scopes"]
    assert part["times_finding"] == (
        "Average completion time: 10 min (as it ran), 10.5 min (as it ran, simulated), 11.7 min (DRF, the fallback,"
        " simulated) and 15 min (FIFO with EASY backfill, simulated)."
    )
    assert part["use_finding"].startswith("GPUs in use on average: 50% (as it ran), 52% (as it ran, simulated)")


@pytest.mark.parametrize(
    ("replayed", "said"),
    [
        (past(twin=780.0), "take 30% more time than they took"),
        (past(twin=450.0), "take 25% less time than they took"),
        (past(used=1.0), "hold more than a quarter fewer GPUs than they did"),
        (past(used=7.0), "hold more than a quarter more GPUs than they did"),
    ],
)
def test_a_replay_that_is_far_from_what_happened_says_nothing_of_others(replayed: pb.ReplayedPast, said: str) -> None:
    views = [real("north", replayed)]
    (scope,) = reported_load(views, NOW)
    assert [shown.label for shown in scope.curves] == ["as it ran"]
    assert "No other scheduler is shown" in scope.note
    assert said in scope.note
    assert not scope.times
    assert headline(views).text == "What the fleet saves is not known"


def test_a_difference_of_few_gpus_is_none_however_few_are_in_use() -> None:
    idle = real("north", past(used=0.0), load=[curve(0.3)])
    assert believed_past(idle) is not None


def test_an_agent_that_tells_no_past_is_said_to() -> None:
    (scope,) = reported_load([real("north", None)], NOW)
    assert "are shown once 20 jobs have ended here" in scope.note
    assert [shown.label for shown in scope.curves] == ["as it ran"]


def test_clusters_are_added_up_where_each_was_replayed_and_every_job_counts_the_same() -> None:
    views = [real("a", past(40, 600.0, 600.0)), real("b", past(120, 1000.0, 1000.0, fifo_easy=2000.0, drf=1500.0))]
    fleet, *_ = reported_load(views, NOW)
    times = dict(fleet.times)
    assert times["as it ran"] == pytest.approx((40 * 600.0 + 120 * 1000.0) / 160)
    assert times["FIFO with EASY backfill, simulated"] == pytest.approx((40 * 900.0 + 120 * 2000.0) / 160)
    assert fleet.curves[0].used[0] == 12.0
    fleet, *_ = reported_load([*views, real("c", past(twin=6000.0)), real("d", None)], NOW)
    assert [shown.label for shown in fleet.curves] == ["as it ran"]
    assert "not those of c and d" in fleet.note


def test_the_headline_of_real_clusters_compares_simulations_with_each_other_and_says_so() -> None:
    said = headline([real("a", past(fifo_easy=900.0)), real("b", None)])
    assert said.text == "Simulated from their own records, jobs take 30% less time than under FIFO with EASY backfill"
    assert "1 of 2 clusters" in said.note
    assert "within 5% of what the jobs really took" in said.note


def test_a_cluster_that_shrank_holds_no_more_gpus_in_a_replay_than_there_were() -> None:
    ran = curve(1.0, gpus=2.0)
    (scope,) = reported_load([real("north", past(used=1.1), load=[ran])], NOW)
    assert max(amount for amount in scope.curves[0].used if amount is not None) == 2.0


def test_days_long_ago_are_not_shown() -> None:
    reported = past()
    for days, shown in ((1.9, True), (2.1, False)):
        seen = real("north", reported, time_seconds=reported.end_seconds + days * 86_400.0)
        assert (believed_past(seen) is not None) is shown


def test_the_records_of_real_clusters_do_not_head_the_page_of_a_fleet_with_simulated_ones() -> None:
    views = [real("a", past()), real("b", past(), simulated=True)]
    assert "from their own records" in headline(views[:1]).text.lower()
    assert "from their own records" not in headline(views).text.lower()
