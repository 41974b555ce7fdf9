"""Why a job has what it has, as its user is told."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from deciding import Deciding, submit
from job_shell import Shell
from rich.console import Console

from cluster_agent.backends.local.job_service import explain
from cluster_agent.backends.local.job_table import JobState
from cluster_agent.jobs.commands import explained
from cluster_agent.recording.log_reading import last_decision
from policy_net.domain import Allocation


def test_a_planning_policy_says_what_it_believes_to_gain_and_where_there_was_no_room(shell: Shell) -> None:
    submit(shell, "one")
    submit(shell, "two")
    deciding = Deciding(shell, "set")
    for _ in range(3):
        deciding.once()
    facts = shell.type("explain", "one", "-o", "json").json
    decision = facts["decision"]
    assert (decision["policy"], decision["number"], decision["guard"]) == ("set", 2, [])
    taken = [step for step in facts["steps"] if step["taken"]]
    assert (taken[-1]["workers"], taken[-1]["ps"]) == (decision["workers"], decision["ps"]), "the plan that was decided"
    assert any(not step["taken"] for step in facts["steps"]), "two jobs want more than there is"
    assert all(step["samplesPerSecond"] > 0 for step in facts["steps"])
    assert [row["name"] for row in facts["others"]] == ["two"]
    shown = shell.type("explain", "one").out
    for words in ("by policy", "changed nothing", "granted", "no room", "Others were given: two"):
        assert words in shown


def test_a_policy_without_gains_and_a_guard_that_stepped_in_are_told(shell: Shell) -> None:
    submit(shell, "one")
    deciding = Deciding(shell, "fifo")
    deciding.once(fails=ValueError("broken"))
    facts = shell.type("explain", "one", "-o", "json").json
    assert (facts["decision"]["guard"], facts["steps"]) == (["exception"], [])
    shown = shell.type("explain", "one").out
    assert "it failed, so the fallback decided" in shown
    assert "fifo gives no gains for its grants" in shown


def test_an_explanation_that_is_watched_is_shown_again_when_it_changes(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit(shell, "one")
    deciding = Deciding(shell, "fifo")
    looks = 0

    def pause(seconds: float) -> None:
        nonlocal looks
        del seconds
        looks += 1
        if looks == 2:
            deciding.once()
        elif looks == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr("cluster_agent.jobs.commands.time.sleep", pause)
    said = shell.type("explain", "one", "--watch", "-o", "json")
    assert (said.code, said.err) == (0, "")
    decisions = [json.loads(line)["decision"] for line in said.out.splitlines()]
    assert [decision and decision["number"] for decision in decisions] == [None, 0]


def test_what_a_job_waits_for_that_has_been_given_something(shell: Shell, tmp_path: Path) -> None:
    submit(shell, "one")
    Deciding(shell, "fifo").once()
    facts = shell.type("job", "one", "-o", "json").json
    none, lacks = {**facts, "workers": 0, "ps": 0}, "it needs 1 more GPU, and none is free"

    def waits_for(facts: dict[str, object], lacks: str = "") -> object:
        return explain(facts, tmp_path, lacks)["waitsFor"]

    for state in ("starting", "running"):  # one that is resumed runs before it has anything
        assert waits_for({**none, "state": state}) == "its processes, which are starting"
    assert waits_for({**none, "state": "queued"}) == "what other jobs are about to give back"
    assert waits_for({**none, "state": "suspended"}, lacks) == lacks
    assert facts["workers"] > 0
    smaller = {**facts, "workers": facts["workers"] + 1}
    size = f"{facts['workers']} workers and {facts['ps']} parameter servers"
    assert waits_for(smaller) == f"a resize to {size}, which is under way"
    assert waits_for(smaller, lacks) == f"a resize to {size}: {lacks}"


def test_what_a_job_waits_for(shell: Shell) -> None:
    submit(shell, "big", "--workers", "5", "--ps", "1")
    submit(shell, "late", "--workers", "2", "--ps", "1")
    deciding = Deciding(shell, "fifo")
    assert shell.type("explain", "big", "-o", "json").json["waitsFor"].startswith("the next decision")
    deciding.once()
    assert shell.type("explain", "big", "-o", "json").json["waitsFor"] == ""
    assert shell.type("explain", "late", "-o", "json").json["waitsFor"] == (
        "room: it needs at least 2.5 cores, and 0.5 of 6 cores are free"
    )
    shell.type("suspend", "late")
    assert "cluster-agent resume late" in shell.type("explain", "late", "-o", "json").json["waitsFor"]
    shell.type("cancel", "late")
    assert shell.type("explain", "late", "-o", "json").json["waitsFor"] == "nothing: it is cancelled"
    shell.world.backend.table.change("big", state=JobState.FAILED, ended_unix_seconds=5.0, failure="no more")
    assert "nothing: it has failed" in shell.type("explain", "big").out
    assert shell.type("cancel", "big").out == "big has failed\n"
    submit(shell, "newest")
    assert shell.type("explain", "newest", "-o", "json").json["waitsFor"].startswith("the next decision")


def test_for_how_long_a_job_is_what_it_is() -> None:
    answer = {"name": "one", "workers": 0, "ps": 0, "waitsFor": "room", "decision": None, "steps": [], "others": []}
    for state, since, ended, said in (
        ("suspended", 400.0, False, "suspended for 10m00s"),
        ("done", 400.0, True, "done, 10m00s ago"),
        ("starting", None, False, "starting"),
    ):
        facts = {**answer, "state": state, "stateSinceUnixSeconds": since, "ended": ended}
        shown = io.StringIO()
        Console(file=shown, width=100).print(explained(facts, now_unix_seconds=1000.0))
        lines = [" ".join(line.split()) for line in shown.getvalue().splitlines()]
        assert f"state {said}" in lines
    facts = {**answer, "state": "queued"}  # of an agent of before
    Console(file=shown, width=100).print(explained(facts, now_unix_seconds=1000.0))
    assert shown.getvalue().count("queued") == 1


def test_a_name_that_nobody_has_is_answered_with_the_nearest(shell: Shell) -> None:
    submit(shell, "digits")
    said = shell.type("explain", "digts")
    assert (said.code, said.err) == (2, "cluster-agent: no job named digts; did you mean digits?\n")


@pytest.mark.parametrize("torn", [b"", b'{"state":{"capacity_mo', b"\x00\xff\n"])
def test_the_last_whole_decision_is_found_before_a_torn_end(shell: Shell, torn: bytes) -> None:
    assert last_decision(shell.folder) is None
    submit(shell, "one")
    deciding = Deciding(shell, "fifo")
    for _ in range(4):
        deciding.once()
    deciding.recorder.close()
    with (shell.folder / "decisions.jsonl").open("ab") as log:
        log.write(torn)
    found = last_decision(shell.folder)
    assert found is not None
    assert found["number"] == 3
    assert found["allocation"] == {"one": [1, 1]}


def test_beliefs_that_cannot_be_read_leave_the_rest_of_the_answer(shell: Shell) -> None:
    submit(shell, "one")
    deciding = Deciding(shell, "set")
    deciding.once()
    Path(shell.folder / "agent.json").write_text("{", encoding="utf-8")
    facts = shell.type("explain", "one", "-o", "json").json
    assert facts["decision"]["policy"] == "set"
    assert facts["steps"] == []


def test_allocations_are_those_of_the_log(shell: Shell) -> None:
    submit(shell, "one")
    Deciding(shell, "drf").once()
    facts = shell.type("explain", "one", "-o", "json").json
    has = Allocation(facts["workers"], facts["ps"])
    assert has == Allocation(facts["decision"]["workers"], facts["decision"]["ps"])
