"""What stands in the answer's line beside the answer, on comparisons made by hand."""

import dataclasses

import pytest

from policy_net.laboratory.report.caveats import cautions
from policy_net.laboratory.report.comparison import Comparison
from policy_net.laboratory.report.findings import findings
from policy_net.laboratory.report.headline import headline, interval, subline
from policy_net.laboratory.report.spread import AssumedCase, Assumptions, JctSpread
from policy_net.laboratory.workloads.workload import FigureOrigin, JobKindChoice, JobRecord, Machines

BASE = AssumedCase(JobKindChoice.ALLREDUCE, 0, (0.0, 0.0))
PS = dataclasses.replace(BASE, kind=JobKindChoice.PS)
SEED = dataclasses.replace(BASE, seed=1)


def with_spread(comparison: Comparison, changes: dict[AssumedCase, float], **values: object) -> Comparison:
    return dataclasses.replace(comparison, spread=JctSpread(Assumptions(BASE), changes, planned=27, **values))


def with_records(comparison: Comparison, **records: JobRecord) -> Comparison:
    by_id = {name.replace("_", "-"): record for name, record in records.items()}
    return dataclasses.replace(comparison, workload=dataclasses.replace(comparison.workload, records=by_id))


def said(comparison: Comparison) -> dict[str, str]:
    return {finding.topic: finding.text for finding in findings(comparison)}


@pytest.mark.parametrize(
    ("least", "most", "words"),
    [
        (-0.82, -0.62, "62% to 82% less"),
        (-0.12, 0.03, "from 12% less to 3% more"),
        (0.05, 0.30, "5% to 30% more"),
        (-0.3, 0.0, "from 30% less to the same"),
        (-0.5, -0.5, "50% less"),
    ],
)
def test_a_range_is_said_in_words(least: float, most: float, words: str) -> None:
    assert interval(least, most) == words


def test_the_range_stands_in_the_headline_and_the_finding_says_what_moves_it_most(made) -> None:
    comparison = with_spread(made({"fifo": [12.0], "set-taught": [3.0]}), {BASE: -0.75, PS: -0.40, SEED: -0.78})
    assert (
        "75% less (40% to 78% less, by what is assumed), on the same 8 GPUs, held for 75% fewer GPU-hours."
        in headline(comparison)
    )
    assert said(comparison)["How sure"] == (
        "Over how the jobs train, the seed that draws their models and the stalls of a resize the answer is 40% to 78%"
        " less; 3 of 27 sets of assumptions were replayed. What moves it most by itself is how the jobs train: 75% less"
        " by all-reduce and 40% less over parameter servers."
    )
    alone = with_spread(made({"fifo": [12.0], "set-taught": [3.0]}), {BASE: -0.75})
    assert "by what is assumed" not in headline(alone)
    assert "How sure" not in said(alone)


def test_no_gain_has_its_range_too(made) -> None:
    comparison = with_spread(made({"fifo": [10.0], "set-taught": [10.0]}), {BASE: 0.0, PS: -0.2})
    assert "no gain (from 20% less to the same, by what is assumed) on these 8 GPUs." in headline(comparison)


def test_an_assumption_that_cannot_be_replayed_is_said(made) -> None:
    comparison = with_spread(
        made({"fifo": [2.0], "set-taught": [1.0]}), {BASE: -0.5, SEED: -0.4}, failed="no speed of wlm"
    )
    assert "Some could not be replayed, the first because of this: no speed of wlm." in said(comparison)["How sure"]


def test_jobs_that_asked_for_more_than_there_is_are_counted_in_the_headline(made) -> None:
    comparison = made({"fifo": [2.0, 2.0, 3.0], "set-taught": [1.0, 1.0, 1.0]})
    assert "asked for more" not in headline(comparison)
    cut = with_records(comparison, job_0=JobRecord(12), job_1=JobRecord(8), job_2=JobRecord(64))
    assert headline(cut).endswith(
        "held for 57% fewer GPU-hours. But 2 of the 3 jobs asked for more GPUs than these 8 and are cut to what there"
        " is."
    )
    large = with_records(made({"fifo": [2.0], "set-taught": [1.0]}, nodes=40), job_0=JobRecord(32))
    assert headline(large).endswith(
        "on the same 80 GPUs, held for 50% fewer GPU-hours. But 1 job asked for more than a job may have here (16"
        " GPUs, by all-reduce 64), and is cut to that."
    )


@pytest.mark.parametrize(
    ("nodes_by", "gpus_by", "missing"),
    [
        (FigureOrigin.GIVEN, FigureOrigin.GIVEN, None),
        (FigureOrigin.LOG, FigureOrigin.LOG, None),
        (FigureOrigin.GIVEN, FigureOrigin.ASSUMED, "--gpus-per-node"),
        (FigureOrigin.ASSUMED, FigureOrigin.GIVEN, "--nodes"),
        (FigureOrigin.ASSUMED, FigureOrigin.ASSUMED, "--nodes and --gpus-per-node"),
    ],
)
def test_of_machines_that_nobody_named_the_headline_asks_for_what_is_missing(
    made, nodes_by, gpus_by, missing: str | None
) -> None:
    comparison = made({"fifo": [2.0], "set-taught": [1.0]})
    machines = Machines(4, 2, 8, nodes_by, gpus_by)
    comparison = dataclasses.replace(comparison, workload=dataclasses.replace(comparison.workload, machines=machines))
    text = f"The machines are assumed (4 machines with 2 GPUs each): give yours with {missing}."
    assert headline(comparison).endswith(text) == (missing is not None)
    assert ("assumed" in headline(comparison)) == (missing is not None)


def test_a_queue_with_backfill_is_what_clusters_do_today(made) -> None:
    comparison = made({"fifo": [4.0], "fifo-easy": [2.0], "set-taught": [1.0]})
    assert "1 h instead of 2 h" in headline(comparison).replace("60 min", "1 h").replace("120 min", "2 h")
    assert "against EASY backfill (first come, first served with backfill" in subline(comparison)


def test_recorded_times_stand_beside_todays_simulated_ones(made) -> None:
    hour = 3600.0
    comparison = made({"fifo": [4.0, 4.0], "set-taught": [1.0, 1.0]})
    assert "As recorded" not in said(comparison)
    recorded = with_records(comparison, job_0=JobRecord(1, hour, 5 * hour), job_1=JobRecord(1, 3 * hour, 3 * hour))
    assert said(recorded)["As recorded"] == (
        "Really the jobs waited 120 min on average and were done after 4 h; simulated under FIFO: 0 min and 4 h."
    )
    assert not any("than was recorded" in caution for caution in cautions(recorded))
    some = with_records(comparison, job_0=JobRecord(1, hour, 5 * hour), job_1=JobRecord(1))
    assert said(some)["As recorded"].startswith("Really the 1 job with a recorded start waited 60 min")
    far = with_records(made({"fifo": [6.0, 9.0], "set-taught": [1.0, 1.0]}), job_0=JobRecord(1, hour, 3 * hour))
    assert any("are done in 100% more time than was recorded (3 h)" in caution for caution in cautions(far))


def test_the_answer_says_what_must_hold_of_the_jobs_and_what_it_costs(made) -> None:
    comparison = made({"fifo": [4.0], "set-taught": [2.0]})
    assert "can be resized" not in headline(comparison)
    every = dataclasses.replace(comparison, elastic_share=1.0)
    assert headline(every).endswith(", held for 50% fewer GPU-hours, if all your jobs can be resized.")
    half = dataclasses.replace(comparison, elastic_share=0.5)
    assert headline(half).endswith(", if 50% of your jobs can be resized.")
    queue = dataclasses.replace(made({"fifo": [4.0], "fifo-backfill": [3.0]}), elastic_share=1.0)
    assert "can be resized" not in headline(queue)


def test_the_answer_is_compared_with_the_record_too(made) -> None:
    recorded = with_records(made({"fifo": [6.0], "set-taught": [2.0]}), job_0=JobRecord(1, 0.0, 4 * 3600.0))
    assert "Against your record (4 h): 50% less." in headline(recorded)
    assert recorded.change_against_record(recorded.today) == pytest.approx(0.5)


def test_where_nobody_waits_the_answer_says_so(made) -> None:
    assert "But jobs hardly wait here" in headline(made({"fifo": [1.0, 1.0], "set-taught": [0.5, 0.5]}))
    assert "hardly wait" not in headline(made({"fifo": [2.0, 2.0], "set-taught": [0.5, 0.5]}))


def test_waits_that_are_far_from_the_recorded_ones_are_cautioned_against(made) -> None:
    comparison = made({"fifo": [6.0, 6.0], "set-taught": [2.0, 2.0]})
    hour = 3600.0
    waited = with_records(comparison, job_0=JobRecord(1, 2 * hour, 6 * hour), job_1=JobRecord(1, hour, 6 * hour))
    found = [caution for caution in cautions(waited) if "really they waited" in caution]
    assert len(found) == 1
    assert "jobs wait 0 min on average for their first start; really they waited 90 min: other work ran" in found[0]
    assert found[0].endswith("The answer compares with the simulated waits."), "done after the same time"
    near = with_records(comparison, job_0=JobRecord(1, 60.0, 6 * hour), job_1=JobRecord(1, 60.0, 6 * hour))
    assert not any("really they waited" in caution for caution in cautions(near))


def test_a_log_that_overfills_the_machines_is_cautioned_against(made) -> None:
    comparison = made({"fifo": [6.0, 6.0], "set-taught": [2.0, 2.0]}, nodes=1)
    hour = 3600.0
    over = with_records(comparison, job_0=JobRecord(2, 0.0, 6 * hour), job_1=JobRecord(1, hour, 6 * hour))
    assert over.recorded_peak_gpus == 3
    assert any("the log has 3 GPUs in use at once, and there are 2 here" in caution for caution in cautions(over))
    assert not any("so there is more to save" in caution for caution in cautions(over)), "really they waited longer"
    turns = with_records(comparison, job_0=JobRecord(2, 0.0, hour), job_1=JobRecord(2, hour, 2 * hour))
    assert turns.recorded_peak_gpus == 2
    assert not any("in use at once" in caution for caution in cautions(turns))


@pytest.mark.parametrize(
    ("simulated", "done", "recorded_end", "said"),
    [
        (
            2.0,
            6.0,
            6.0,
            "machines are missing, and jobs wait longer here than they did (simulated under FIFO 2 h on average for"
            " their first start, really 1 h), so there is more to save. Give the machines that ran these jobs.",
        ),
        (
            4.0,
            9.0,
            6.0,
            "machines are missing, and jobs wait longer here than they did (simulated under FIFO 4 h on average for"
            " their first start, really 1 h), so there is more to save. The jobs are done in 50% more time than was"
            " recorded (6 h). Besides, your queue may let more jobs pass, or jobs did not have the sizes that they"
            " asked for. The answer compares with the simulated waits; beside your record the saving is smaller."
            " Believe the change less than that difference, and give the machines that ran these jobs.",
        ),
        (
            4.0,
            4.0,
            6.0,
            "machines are missing, and jobs wait longer here than they did (simulated under FIFO 4 h on average for"
            " their first start, really 1 h), so there is more to save. The jobs are done in 33% less time than was"
            " recorded (6 h). Not by their waits, but because they run at other sizes than they had there, or are"
            " stopped amid it. Besides, your queue may let more jobs pass, or jobs did not have the sizes that they"
            " asked for. The answer compares with the simulated waits; beside your record the saving is larger."
            " Believe the change less than that difference, and give the machines that ran these jobs.",
        ),
        (
            0.25,
            6.0,
            6.0,
            "these are not the machines of the log, though jobs do not wait longer here than they did (simulated under"
            " FIFO 15 min on average for their first start, really 60 min). Other work ran there besides, or other"
            " rules held jobs back. The answer compares with the simulated waits. Give the machines that ran these"
            " jobs.",
        ),
        (
            0.5,
            4.0,
            6.0,
            "these are not the machines of the log, though jobs do not wait longer here than they did (simulated under"
            " FIFO 30 min on average for their first start, really 60 min). The jobs are done in 33% less time than"
            " was recorded (6 h). Other work ran there besides, or other rules held jobs back. Believe the change less"
            " than that difference, and give the machines that ran these jobs.",
        ),
    ],
)
def test_with_missing_machines_one_caution_says_all_that_the_recorded_waits_bear_out(
    made, simulated: float, done: float, recorded_end: float, said: str
) -> None:
    hour = 3600.0
    comparison = made({"fifo": [done, done], "set-taught": [2.0, 2.0]}, nodes=1)
    fifo, proposed = comparison.results
    waited = tuple(dataclasses.replace(one, start_seconds=simulated * hour) for one in fifo.outcomes)
    comparison = dataclasses.replace(comparison, results=(dataclasses.replace(fifo, outcomes=waited), proposed))
    record = JobRecord(3, hour, recorded_end * hour)
    comparison = with_records(comparison, job_0=record, job_1=record)
    about = [caution for caution in cautions(comparison) if "simulated under FIFO" in caution]
    assert about == [f"At its busiest the log has 6 GPUs in use at once, and there are 2 here: {said}"]
    assert not any("than was recorded" in caution for caution in cautions(comparison) if caution not in about)
    assert not any("Simulated under" in caution for caution in cautions(comparison))
    assert not any("there are more machines here" in caution for caution in cautions(comparison))


@pytest.mark.parametrize(("simulated", "apart"), [(0.0, True), (0.1, True), (0.5, False), (2.0, False), (3.5, True)])
def test_waits_three_times_apart_are_cautioned_against_in_both_directions(made, simulated: float, apart: bool) -> None:
    hour = 3600.0
    comparison = made({"fifo": [90.0, 90.0], "set-taught": [20.0, 20.0]})
    fifo, proposed = comparison.results
    waited = tuple(dataclasses.replace(one, start_seconds=simulated * hour) for one in fifo.outcomes)
    comparison = dataclasses.replace(comparison, results=(dataclasses.replace(fifo, outcomes=waited), proposed))
    record = JobRecord(1, hour, 91 * hour)  # the waits are a small share of the time to the end
    comparison = with_records(comparison, job_0=record, job_1=record)
    found = [caution for caution in cautions(comparison) if "for their first start" in caution]
    assert len(found) == apart
    if found:
        assert ("other work ran there" in found[0]) == (simulated < 1.0)
        assert found[0].endswith("beside your record the saving is larger.")


def test_jobs_that_are_done_later_though_they_wait_less_are_not_said_to_lack_machines(made) -> None:
    hour = 3600.0
    record = JobRecord(1, hour, 3 * hour)
    comparison = with_records(made({"fifo": [6.0, 6.0], "set-taught": [2.0, 2.0]}), job_0=record, job_1=record)
    [found] = [caution for caution in cautions(comparison) if "more time than was recorded" in caution]
    assert "machines are missing" not in found
    assert "not by their waits" in found


def test_money_is_what_a_year_like_this_costs(made) -> None:
    comparison = made({"fifo": [2.0, 2.0], "set-taught": [1.0, 1.0]}, nodes=1)
    assert "Money" not in said(comparison)
    first, second = comparison.workload.jobs
    jobs = (first, dataclasses.replace(second, submit_time_seconds=365 * 86_400 / 4))
    priced = dataclasses.replace(
        comparison, workload=dataclasses.replace(comparison.workload, jobs=jobs), gpu_hour_price=2.5
    )
    # 4 GPU-hours in a quarter of a year instead of 2.
    assert (
        "At 2.50 a GPU-hour, a year like these 91.2 days costs 20.00 for GPUs held instead of 40.00: 20.00 less a year"
        in (said(priced)["Money"])
    )


def test_a_year_costs_no_more_than_all_gpus_that_are_never_let_go_of(made) -> None:
    # Both GPUs are held for 30 hours by jobs that came at once; the other policy holds one of them for as long.
    comparison = made({"fifo": [30.0, 30.0], "set-taught": [30.0, 15.0]}, nodes=1)
    priced = dataclasses.replace(comparison, gpu_hour_price=2.5)
    assert f"costs {1.5 * 8_760 * 2.5:,.0f} for GPUs held instead of {2 * 8_760 * 2.5:,.0f}" in said(priced)["Money"]


def test_less_than_a_day_is_no_piece_of_a_year(made) -> None:
    comparison = dataclasses.replace(
        made({"fifo": [10.0, 10.0, 10.0], "drf": [8.0, 12.0, 8.0]}, nodes=1), gpu_hour_price=2.5
    )
    assert said(comparison)["Money"].startswith(
        "At 2.50 a GPU-hour, these jobs cost 70.00 for GPUs held instead of 75.00: 5.00 less. They take 12 h in all,"
        " too little to say what a year costs."
    )
