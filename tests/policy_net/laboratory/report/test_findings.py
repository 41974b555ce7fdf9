import dataclasses

import pytest

from policy_net.laboratory.report.findings import findings
from policy_net.laboratory.report.headline import change, headline, subline


def test_a_better_policy_is_said_to_be_better(made) -> None:
    comparison = made({"fifo": [11.0, 13.0], "set-taught": [2.0, 4.0]})
    assert headline(comparison) == (
        "Your 2 jobs would have been done in 3 h instead of 12 h on average: 75% less, on the same 8 GPUs,"
        " held for 75% fewer GPU-hours."
    )
    assert "fedl2 (set-taught), the default policy, against FIFO" in subline(comparison)


def test_a_worse_policy_is_said_to_be_worse(made) -> None:
    comparison = made({"fifo": [10.0, 10.0], "set-taught": [10.0, 13.0]})
    assert headline(comparison) == (
        "Your 2 jobs would have been done in 11.5 h instead of 10 h on average: 15% more, on the same 8 GPUs,"
        " held for 15% more GPU-hours."
    )


def test_a_difference_below_one_percent_is_no_gain(made) -> None:
    comparison = made({"fifo": [10.0, 10.0], "set-taught": [9.95, 9.95]})
    assert headline(comparison) == (
        "Your 2 jobs would have been done in 9.9 h on average either way: no gain on these 8 GPUs."
    )


def test_one_gpu_and_one_day_are_named_as_one(made) -> None:
    comparison = made({"fifo": [300.0], "marginal": [24.0 * 3]}, nodes=1, gpus_per_node=1)
    assert headline(comparison).endswith(
        "in 3 days instead of 12.5 days on average: 76% less, on the same 1 GPU, held for 76% fewer GPU-hours."
    )
    assert " in 1 day instead of 12.5 days " in headline(made({"fifo": [300.0], "marginal": [24.0]}))
    assert headline(made({"fifo": [2.0], "marginal": [1.0]}, gpus_per_node=0)).endswith(", on the same 4 machines.")
    same = made({"fifo": [24.0], "marginal": [24.0]}, nodes=1, gpus_per_node=1)
    assert headline(same).endswith("no gain on this 1 GPU.")


def test_idle_gpus_are_not_counted_where_machines_come_and_go(made) -> None:
    hours = {"fifo": [2.0, 3.0], "marginal": [1.0, 1.0]}
    assert "GPU-hours idle" in _said(made(hours))["GPU time"]
    assert "idle" not in _said(made(hours, node_mtbf_seconds=1e6))["GPU time"]


def test_generated_jobs_are_nobodys(made) -> None:
    comparison = made({"fifo": [2.0, 2.0], "set-taught": [1.0, 1.0]})
    generated = dataclasses.replace(comparison, workload=dataclasses.replace(comparison.workload, slotted=True))
    assert headline(generated).startswith("These 2 jobs would have been done in 1 h instead of 2 h on average")


def test_one_policy_is_compared_with_nothing(made) -> None:
    comparison = made({"drf": [3.0]})
    assert headline(comparison) == "Your job would have been done in 3 h on average, on 8 GPUs."
    assert findings(comparison) == ()
    assert "against" not in subline(comparison)


def test_without_fifo_the_first_policy_is_today_and_without_the_default_the_last_is_proposed(made) -> None:
    comparison = made({"drf": [4.0], "tetris": [5.0], "las": [2.0]})
    assert (comparison.today.policy, comparison.proposed.policy) == ("drf", "las")
    assert subline(comparison).startswith("From submission to end, waiting included: LAS against DRF.")


def test_both_times_of_the_headline_are_in_one_unit_that_shows_both(made) -> None:
    assert "15.5 h instead of 79.5 h" in headline(made({"fifo": [79.5], "set-taught": [15.5]}))
    assert "30 min instead of 300 min" in headline(made({"fifo": [5.0], "set-taught": [0.5]}))
    assert "0.021 days instead of 208 days" in headline(made({"fifo": [5000.0], "set-taught": [0.5]}))


@pytest.mark.parametrize(
    ("after", "before", "said"),
    [(1.0, 4.0, "75% less"), (6.0, 4.0, "50% more"), (4.03, 4.0, "the same"), (1.0, 1000.0, "99.9% less")],
)
def test_a_change_is_said_in_words(after: float, before: float, said: str) -> None:
    assert change(after, before) == said


def _said(comparison) -> dict[str, str]:
    return {finding.topic: finding.text for finding in findings(comparison)}


def test_who_loses_is_said_with_the_worst_case(made) -> None:
    comparison = made({"fifo": [2.0, 9.0, 5.0, 1.0], "set-taught": [1.0, 1.0, 7.0, 1.01]}, workers=[1, 1, 4, 1])
    said = _said(comparison)
    # The last job is later by 36 seconds, which nobody notices.
    assert said["Who gains, who loses"] == (
        "50% of the jobs are done earlier than under FIFO, 25% later, by more than a minute. Job job-2 (4 GPUs"
        " requested, 60 min alone) loses most: it is done after 7 h instead of 5 h."
    )
    assert said["Time"] == "Together the jobs spend 7.0 job-hours less between submission and end."


def test_sizes_of_which_most_lose_are_named(made) -> None:
    said = _said(made({"fifo": [9.0, 8.0, 2.0], "set-taught": [1.0, 1.0, 3.0]}, workers=[1, 1, 8]))
    assert said["Sizes that lose"] == (
        "Of 1 job that asked for 5 GPUs and more, 100% are done later (their average: 50% more)."
    )
    assert "Sizes that lose" not in _said(made({"fifo": [9.0, 8.0], "set-taught": [1.0, 1.0]}, workers=[1, 8]))


def test_where_nobody_loses_no_loser_is_named(made) -> None:
    said = _said(made({"fifo": [2.0, 3.0], "set-taught": [1.0, 1.0]}))
    assert said["Who gains, who loses"].endswith("0% later, by more than a minute.")


def test_a_policy_that_beats_the_proposed_one_is_named(made) -> None:
    said = _said(made({"fifo": [9.0], "optimus": [2.0], "set-taught": [3.0]}))
    assert said["Better still"] == "Optimus would have been better here: 2 h on average."
    assert "Better still" not in _said(made({"fifo": [9.0], "optimus": [4.0], "set-taught": [3.0]}))


def test_the_longest_jobs_are_left_out_under_both_policies(made) -> None:
    said = _said(made({"fifo": [1.0, 2.0, 90.0, 3.0], "set-taught": [1.0, 1.0, 1.0, 80.0]}))
    assert said["Not only the longest jobs"].startswith("Without the 2 jobs that take longest under either policy")
    assert "the average is 60 min instead of 90 min: 33% less." in said["Not only the longest jobs"]
