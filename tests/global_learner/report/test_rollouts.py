"""What the report says of rollouts that the learner's own driver brought somewhere."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest
from report_makers import report, three
from rollout_histories import CLUSTERS, MOST_BEHIND, PLAN, simulated_fleet, three_rollouts
from rollout_makers import CANDIDATE, started, take

from global_learner.policyctl.rollout_views import line_of, rollout_facts, rollout_table
from global_learner.report.content import report_content
from global_learner.report.offline import report_of_files
from global_learner.report.rollouts import evidence, rollout_section, waiting
from global_learner.rollout.evidence_store import KeptEvent, KeptVerdict
from global_learner.rollout.plan import RolloutPlan
from global_learner.rollout.rollout_messages import MOST_ROLLOUTS, Overview, overview_message
from global_learner.rollout.rollout_store import RolloutRecord
from global_learner.rollout.state import Abort, EventContent, Pause, Pin, Promote, RolloutPhase, RolloutState
from global_learner.storage.audit import Order
from policy_net.exchange.generated import fleet_pb2 as pb

REASON = "learned from the new queue"


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[pb.Rollout], float]:
    """One that runs, one that was rolled back and one that is done; and when that was."""
    return three_rollouts(tmp_path_factory.mktemp("state"), "ada", REASON)


@pytest.fixture(scope="module")
def cards(reported: tuple[list[pb.Rollout], float]) -> list[dict[str, Any]]:
    """Of the three."""
    rollouts, now = reported
    content = report_content(report(three(), rollouts=rollouts, made_unix_seconds=now))
    json.dumps(content, allow_nan=False)
    section = content["rollouts"]
    assert section["left_out"] == 0
    return list(section["cards"])


def by_name(card: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["cluster"]: row for row in card["clusters"]}


def texts(card: dict[str, Any]) -> list[str]:
    return [entry["text"] for entry in card["history"]]


def test_a_stage_is_as_long_as_its_plan_says_in_a_unit_that_can_be_read(
    reported: tuple[list[pb.Rollout], float],
) -> None:
    (first, *_), now = reported
    rollout = pb.Rollout.FromString(first.SerializeToString())
    plan = json.loads(rollout.plan_json)
    for hours, said in ((8, "8 h in every cluster"), (2 / 3600, "2 s in every cluster")):
        plan["stages"][1]["hours"] = hours
        rollout.plan_json = json.dumps(plan)
        (card,) = rollout_section([rollout], now)["cards"]
        assert card["stages"][1]["plan"] == said


def test_one_that_is_done_says_so_and_who_had_a_word_in_it(cards: list[dict[str, Any]]) -> None:
    card = cards[2]
    assert (card["word"], card["tone"], card["over"]) == ("done", "good", True)
    assert card["title"] == "v2 reached the fleet: it acts in 7 clusters"
    assert card["said"] == ["Left as they were: par-speech."]
    assert (card["actor"], card["why"]) == ("ada", REASON)
    assert [stage["word"] for stage in card["stages"]] == 5 * ["passed"]
    assert all(stage["ended_unix_seconds"] > stage["began_unix_seconds"] for stage in card["stages"])
    assert card["stages"][-1]["ended_unix_seconds"] == card["ended_unix_seconds"]
    assert [entry["text"] for entry in reversed(card["history"]) if entry["actor"] == "ada"] == [
        "began to bring v2 to the fleet",
        "paused it",
        "pinned par-speech",
        "resumed it",
    ]
    assert {entry["why"] for entry in card["history"] if entry["text"] in ("paused it", "pinned par-speech")} == {
        REASON
    }
    rows = by_name(card)
    assert rows["par-speech"]["note"] == f"pinned by ada: {REASON}"
    assert card["clusters"][0]["cluster"] == "par-speech"  # what somebody may ask about stands first
    assert {row["acts"] for name, row in rows.items() if name != "par-speech"} == {"v2"}
    reached = [name for stage in card["stages"] for name in CLUSTERS if name in stage["clusters"]]
    assert sorted(reached) == [name for name in CLUSTERS if name != "par-speech"]


def test_one_that_failed_says_why_in_an_operators_words_and_where_clusters_are_now(cards: list[dict[str, Any]]) -> None:
    card = cards[1]
    assert (card["word"], card["title"]) == ("rolled back", "v3 was taken back in the canary stage")
    why, now = card["said"]
    assert why.startswith("It failed in the canary stage: ")
    assert "jobs in the system" in why or "worse off by themselves" in why
    assert now == "Every cluster acts again on what it had before."
    assert [stage["word"] for stage in card["stages"]] == ["passed", "passed", "failed", "not reached", "not reached"]
    assert {row["acts"] for row in card["clusters"]} == {"v2", "v1"}
    assert "The canary stage failed" in texts(card)


def test_one_that_runs_says_what_acts_where_who_is_held_and_who_is_away(cards: list[dict[str, Any]]) -> None:
    card = cards[0]
    assert (card["word"], card["over"], card["ended_unix_seconds"]) == ("running", False, None)
    assert "v4 takes turns with what acted before in" in card["title"]
    rows = by_name(card)
    assert (rows[MOST_BEHIND]["role"], rows[MOST_BEHIND]["tone"]) == ("held", "bad")
    assert rows[MOST_BEHIND]["note"].startswith("did worse by itself")
    assert f"Held: {MOST_BEHIND}" in texts(card)
    assert rows["vie-ads"]["away"]
    turns = [row for row in card["clusters"] if row["role"] == "alternating"]
    assert turns
    assert {row["acts"] for row in turns} <= {"v2 and v4 in turn", "v1 and v4 in turn"}
    assert sum(stage["word"] == "now" for stage in card["stages"]) == 1


def test_the_chart_crosses_its_limits_where_the_verdicts_say_so(cards: list[dict[str, Any]]) -> None:
    for card in cards:
        evidence = card["evidence"]
        points = evidence["points"]
        assert evidence["margin"] == 0.03
        assert [point["pairs"] for point in points] == sorted(point["pairs"] for point in points)
        assert [point["seconds"] for point in points] == sorted(point["seconds"] for point in points)
        for point in points:
            if point["least"] is None:
                continue
            assert point["estimate"] is None or point["least"] <= point["estimate"] <= point["most"]
            if point["outcome"] == "pass":
                assert point["most"] < evidence["margin"]
            elif point["outcome"] == "wait":
                assert point["least"] <= 0.0
    done = cards[2]["evidence"]
    assert {point["outcome"] for point in done["points"]} == {"wait", "pass"}
    assert sum(point["outcome"] == "pass" for point in done["points"]) == 3  # a stage each
    assert "jobs in the system" in done["finding"]


def test_a_bound_that_cannot_be_is_not_told_and_fewer_jobs_than_none_are_never_said() -> None:
    said = pb.Rollout(number=1, candidate_version=2)
    for loss, least, most in ((-0.03, -1.27, 1.113), (-0.3, -0.5, -0.1)):
        verdict = said.verdicts.add(stage=2, pairs=13, loss=loss, outcome="wait")
        verdict.loss_at_least, verdict.loss_at_most = least, most
    assert RolloutPlan().stages[2].kind == "canary"
    early = pb.Rollout(number=1, candidate_version=2, verdicts=said.verdicts[:1])
    reported, later = evidence(early, RolloutPlan()), evidence(said, RolloutPlan())
    assert reported is not None
    assert reported["points"][0]["least"] == -1.0
    assert reported["finding"] == (
        "With v2 the clusters have at most 111.3% more jobs in the system, after 13 pairs of blocks: 3.0% fewer by"
        " estimate."
    )
    assert later is not None
    assert "have at least 10.0% fewer jobs in the system" in later["finding"]


def test_one_that_was_aborted_without_a_verdict_is_not_decided_and_no_alarm() -> None:
    aborted = only(after(Promote(), Abort(why="no verdict in time")))
    assert (aborted["word"], aborted["tone"]) == ("not decided", "warn")
    assert "was aborted in the shadow stage" in aborted["title"]


def test_an_estimate_that_rests_on_one_cluster_alone_is_no_figure() -> None:
    said = pb.Rollout(number=1, candidate_version=2)
    said.verdicts.add(
        stage=2, pairs=90, loss=-0.15, loss_at_least=-0.02, loss_at_most=0.2, outcome="wait", rests_on="mallory"
    )
    reported = evidence(said, RolloutPlan())
    assert reported is not None
    assert reported["points"][0]["estimate"] is None
    assert reported["finding"].endswith("after 90 pairs of blocks: the estimate rests on mallory alone.")


def test_no_rollout_yet_is_no_card() -> None:
    assert report_content(report(three()))["rollouts"] == {"cards": [], "left_out": 0}


def message(state: RolloutState, events: list[KeptEvent], verdicts: tuple[KeptVerdict, ...] = ()) -> pb.Rollout:
    return overview_message(Overview(RolloutRecord(state, 7, "ada", ""), {}, {}, verdicts, events))


def after(*contents: EventContent) -> pb.Rollout:
    """A rollout that was told these, as the store would have kept them."""
    state, events = started(), [KeptEvent(0, 0.0, "ada", "start", "", ())]
    for number, what in enumerate(contents, 1):
        transition = take(state, what, actor="ben")
        state = transition.state
        lines = tuple(f"{line.action} {line.subject}: {line.detail}" for line in transition.audit)
        why, subject = getattr(what, "why", ""), getattr(what, "cluster", "")
        events.append(KeptEvent(number, state.latest_unix_seconds, "ben", what.kind, subject, lines, why))
    return message(state, events)


def only(rollout: pb.Rollout) -> dict[str, Any]:
    (card,) = rollout_section([rollout], rollout.latest_unix_seconds)["cards"]
    return dict(card)


def test_whoever_paused_or_aborted_is_named_with_the_reason() -> None:
    paused = only(after(Pause(why="a migration")))
    assert paused["title"] == f"v{CANDIDATE} is paused in the gate"
    assert paused["said"][0].startswith("ben paused it: a migration.")
    silent = only(after(Pause()))
    assert silent["said"][0].startswith("ben paused it.")
    aborted = only(after(Promote(), Promote(), Abort(why="users complain")))
    assert aborted["said"][0] == "ben aborted it in the canary stage: users complain"
    assert aborted["said"][1].startswith("Told to go back, and not yet heard that they did: ")
    assert [stage["word"] for stage in aborted["stages"]] == [
        "promoted by ben", "promoted by ben", "aborted", "not reached", "not reached",
    ]  # fmt: skip


def test_a_rollout_says_for_which_cluster_it_waits_and_what_to_do() -> None:
    rollout = after(Promote())
    rollout.members[1].refused_version, rollout.members[1].refused_reason = CANDIDATE, "expired"
    cluster = rollout.members[1].cluster
    assert only(rollout)["said"] == [f"Waits for {cluster}: it refused v{CANDIDATE}: expired; look at its clock."]
    facts = rollout_facts(rollout)
    assert line_of(facts).endswith(f"; {cluster} refused v{CANDIDATE}: expired; look at its clock")
    table = rollout_table(facts)
    assert "refused" not in table.title
    assert f"waits: {cluster} refused v{CANDIDATE}: expired; look at its clock" in table.below
    assert facts["clusters"][1]["refused_reason"] == "expired"
    assert facts["clusters"][0]["refused_version"] is None


def test_a_rollout_that_waits_for_somebody_is_said_at_the_top_of_the_page() -> None:
    assert waiting([after(Pause())]) == [f"rollout 1 of v{CANDIDATE} is paused: resume or abort it"]
    assert waiting([after(Promote())]) == []
    found = report_content(report(three(), rollouts=[after(Pause())]))
    assert found["attention"][0].startswith("rollout 1 of")
    ended = report_content(report(three(), rollouts=[after(Pause())], ended=True))
    assert not [line for line in ended["attention"] if line.startswith("rollout")]


def test_stages_are_right_though_events_of_long_ago_are_left_out() -> None:
    rollout = after(Promote(), Promote(), Promote(), Pin(cluster="cluster-1"))
    cut = pb.Rollout()
    cut.CopyFrom(rollout)
    del cut.events[:3]
    whole, rest = only(rollout), only(cut)
    assert [stage["name"] for stage in rest["stages"]] == [stage["name"] for stage in whole["stages"]]
    assert rest["stages"][3] == whole["stages"][3]
    assert rest["stages"][1]["began_unix_seconds"] is None


def test_what_is_in_every_phase_can_be_shown() -> None:
    for phase in RolloutPhase:
        card = only(message(started().model_copy(update={"phase": phase, "reason": "something"}), []))
        assert card["title"].startswith(f"v{CANDIDATE} ")
        assert card["word"] != phase or phase in ("running", "paused", "done")


async def _pauses(folder: Path) -> None:
    async with simulated_fleet(folder, CLUSTERS[:4]) as fleet:
        for _ in range(MOST_ROLLOUTS + 1):
            await fleet.driver.begin(2, json.dumps(PLAN), Order("ada", fleet.now, REASON))
            await fleet.driver.act("abort", "", Order("ben", fleet.now, "not today"))
            assert (await fleet.until("rolled-back")).phase == "rolled-back"


def test_the_files_of_a_learner_that_has_ended_hold_its_rollouts(tmp_path: Path) -> None:
    asyncio.run(_pauses(tmp_path))
    content = report_content(report_of_files(tmp_path, time.time()))
    section = content["rollouts"]
    assert [card["number"] for card in section["cards"]] == [5, 4, 3, 2]
    assert section["left_out"] == 1
    assert section["cards"][0]["said"][0] == "ben aborted it in the gate: not today"
