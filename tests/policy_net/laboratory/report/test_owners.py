"""By user, account and partition, on comparisons made by hand."""

import dataclasses

from policy_net.laboratory.commands.answers import json_rows
from policy_net.laboratory.report.comparison import Comparison
from policy_net.laboratory.report.findings import fairness
from policy_net.laboratory.report.owners import owners_by, together
from policy_net.laboratory.report.page import page_html
from policy_net.laboratory.report.tables import owner_table, size_table
from policy_net.laboratory.simulation.metrics import JobOutcome
from policy_net.laboratory.simulation.replay import ReplayResult
from policy_net.laboratory.workloads.workload import JobRecord

HOUR = 3600.0


def with_waits(result: ReplayResult, hours: list[float]) -> ReplayResult:
    outcomes = tuple(
        JobOutcome(outcome.job_id, 0.0, wait * HOUR, outcome.end_seconds)
        for outcome, wait in zip(result.outcomes, hours, strict=True)
    )
    return dataclasses.replace(result, outcomes=outcomes)


def owned(made, users: list[str], waits: dict[str, list[float]], jcts: dict[str, list[float]]) -> Comparison:
    comparison = made(jcts)
    records = {
        f"job-{number}": JobRecord(1, wait_seconds=HOUR * number, user=user, partition="gpu")
        for number, user in enumerate(users)
    }
    return dataclasses.replace(
        comparison,
        workload=dataclasses.replace(comparison.workload, records=records),
        results=tuple(with_waits(result, waits[result.policy]) for result in comparison.results),
    )


def test_who_waits_longer_than_simulated_before_is_named_with_both_waits(made) -> None:
    comparison = owned(
        made,
        ["ann", "ann", "bob", ""],
        {"fifo": [2.0, 4.0, 1.0, 1.0], "set-taught": [0.0, 0.0, 3.0, 1.0]},
        {"fifo": [8.0, 8.0, 8.0, 8.0], "set-taught": [4.0, 4.0, 9.0, 8.0]},
    )
    owners = {owner.name: owner for owner in owners_by(comparison, "user")}
    assert {name: owner.waits_longer for name, owner in owners.items()} == {"ann": False, "bob": True, "(none)": False}
    assert owners["ann"].recorded_wait_seconds == HOUR / 2
    [finding] = fairness(comparison)
    assert finding.topic == "Fairness by user"
    assert finding.text == (
        "Of 3 users 1 waits longer on average for the first start than simulated under FIFO, and 1 is done later: bob"
        " (1 job: starts after 3 h instead of 1 h, done after 9 h instead of 8 h). But 1 waits longer than was"
        " recorded: bob (3 h instead of 2 h)."
    )
    page = page_html([comparison])
    assert "<h2>By user</h2>" in page
    assert ">180 ▲ △</td>" in page
    assert (
        "<caption>▲ waits longer for its first start, on average, than simulated under FIFO; △ waits longer for its"
        " first start, on average, than was recorded</caption>"
    ) in page
    assert "<h2>By partition</h2>" not in page


def test_where_nobody_waits_longer_that_is_said_and_one_owner_alone_is_nobody_to_compare(made) -> None:
    waits = {"fifo": [2.0, 4.0], "set-taught": [0.0, 0.0]}
    jcts = {"fifo": [8.0, 8.0], "set-taught": [4.0, 4.0]}
    [finding] = fairness(owned(made, ["ann", "bob"], waits, jcts))
    assert finding.text == (
        "Of 2 users none waits longer, or is done later, on average than simulated under FIFO. None waits longer"
        " than was recorded."
    )
    assert not list(fairness(owned(made, ["ann", "ann"], waits, jcts)))


def test_who_waits_longer_than_recorded_is_said_though_simulated_before_it_was_longer_still(made) -> None:
    waits = {"fifo": [20.0, 20.0, 20.0], "set-taught": [2.0, 2.0, 2.0]}
    jcts = {"fifo": [28.0, 28.0, 28.0], "set-taught": [4.0, 4.0, 4.0]}
    comparison = owned(made, ["ann", "bob", "cat"], waits, jcts)
    [finding] = fairness(comparison)
    assert finding.text == (
        "Of 3 users none waits longer, or is done later, on average than simulated under FIFO. But 2 wait longer than"
        " was recorded: ann (120 min instead of 0 min) and bob (2 h instead of 1 h)."
    )
    table = owner_table(comparison, "user")
    assert table is not None
    assert table.legend == ("△ waits longer for its first start, on average, than was recorded",)
    assert {row.name: row.cells[4] for row in table.rows} == {"ann": "2.0 △", "bob": "2.0 △", "cat": "2.0"}
    [_, answered] = json_rows(comparison)
    assert answered["answer"]["fairness"]["user"] == {
        "owners": 3, "wait_longer": 0, "done_later": 0, "with_recorded_wait": 3, "wait_longer_than_recorded": 2,
    }  # fmt: skip


def test_jobs_without_a_recorded_wait_say_nothing_against_the_record(made) -> None:
    waits = {"fifo": [0.0, 0.0, 0.0], "set-taught": [9.0, 1.0, 0.0]}
    jcts = {"fifo": [9.0, 9.0, 9.0], "set-taught": [9.0, 9.0, 9.0]}
    comparison = owned(made, ["ann", "ann", "bob"], waits, jcts)
    records = dict(comparison.workload.records)
    records["job-0"] = JobRecord(1, user="ann")
    records["job-2"] = JobRecord(1, user="bob")
    comparison = dataclasses.replace(comparison, workload=dataclasses.replace(comparison.workload, records=records))
    owners = {owner.name: owner for owner in owners_by(comparison, "user")}
    assert (owners["ann"].recorded_wait_seconds, owners["ann"].wait_seconds_like_recorded) == (HOUR, HOUR)
    assert not owners["ann"].waits_longer_than_recorded, "of the job that is recorded the wait is the same"
    others = together(tuple(owners.values()))
    assert others is not None
    assert (len(others.recorded_seconds), others.recorded_wait_seconds) == (1, HOUR)
    finding = next(fairness(comparison))
    assert finding.text.endswith(" None waits longer than was recorded of the 1 of whom waits are recorded.")


def test_owners_beyond_ten_share_a_row_and_no_job_is_lost(made) -> None:
    users = [f"user-{number:02}" for number in range(14)]
    jcts = {"fifo": [4.0] * 14, "set-taught": [2.0] * 14}
    table = owner_table(owned(made, users, {"fifo": [1.0] * 14, "set-taught": [0.0] * 14}, jcts), "user")
    assert table is not None
    assert [row.name for row in table.rows] == [*users[:10], "4 others"]
    assert sum(int(row.cells[0]) for row in table.rows) == 14
    assert all(len(row.cells) + 1 == len(table.headings) for row in table.rows)


def test_times_of_a_table_have_one_unit_and_hardly_any_wait_is_said_so(made) -> None:
    comparison = owned(
        made,
        ["ann", "bob", "cat"],
        {"fifo": [0.0001, 1.75, 8.0], "set-taught": [0.0, 1.0, 2.0]},
        {"fifo": [1.0, 9.0, 90.0], "set-taught": [0.5, 9.0, 80.0]},
    )
    table = owner_table(comparison, "user")
    assert table is not None
    assert [heading.rpartition(" ")[2] for heading in table.headings[3:8]] == ["[min]"] * 3 + ["[h]"] * 2
    cells = {row.name: row.cells for row in table.rows}
    assert cells["ann"][3:7] == ("<0.01", "0", "1.0", "0.5")
    assert cells["bob"][3:7] == ("105", "60.0", "9.0", "9.0")
    assert cells["cat"][3:7] == ("480", "120", "90.0", "80.0")
    sizes = size_table(comparison)
    assert sizes is not None
    assert sizes.headings[2].endswith(", average [h]")
    assert not any(letter.isalpha() for row in sizes.rows for cell in row.cells[1:3] for letter in cell)
