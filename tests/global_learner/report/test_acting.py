"""Which version acts where and how it fared, and what happened when."""

import random

import pytest
from report_makers import NOW, replays, report, view
from rollout_histories import three_rollouts

from global_learner.report.content import report_content
from global_learner.report.events import MOST_EVENTS
from policy_net.exchange.generated import fleet_pb2 as pb

DRAW = random.Random(11)


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[pb.Rollout], float]:
    """Rollouts, newest first, of which one runs, one was rolled back and one is done; and when that was."""
    return three_rollouts(tmp_path_factory.mktemp("state"), "ada", "learned from the new queue")


def fleet() -> list[pb.ClusterView]:
    return [
        view("north", DRAW, acting_version=6),
        view("south", DRAW, acting_version=6),
        view("west", DRAW, acting_version=1),
        view("never", DRAW, incarnation=0),
    ]


def test_versions_that_act_come_first_with_their_clusters_and_their_score() -> None:
    rows = report_content(report(fleet(), versions=8, scores=True))["acting"]
    assert [(row["version"], row["clusters"]) for row in rows] == [(6, ["north", "south"]), (1, ["west"])]
    assert [row["from"] for row in rows] == ["learned by this fleet", "what the fleet began with"]
    assert [row["fared"] for row in rows] == ["4% more time than DRF", "6% more time than DRF"]
    assert [row["rollout"] for row in rows] == [None, None]


def test_with_replays_the_table_has_the_same_figures_as_the_curve() -> None:
    content = report_content(report(fleet(), versions=8, scores=True), replays(["north", "south", "west"]))
    curve = {point["version"]: point["mean"] for point in content["learning"]["points"]}
    assert {row["version"]: row["score"] for row in content["acting"]} == {6: curve[6], 1: curve[1]}


def test_what_a_rollout_judged_is_there_with_the_outcome(reported: tuple[list[pb.Rollout], float]) -> None:
    rollouts, now = reported
    content = report_content(report(fleet(), versions=8, rollouts=rollouts, made_unix_seconds=now))
    rows = {row["version"]: row for row in content["acting"]}
    cards = {card["version"]: card for card in content["rollouts"]["cards"]}
    assert cards.keys() <= rows.keys()
    for version, card in cards.items():
        assert (rows[version]["rollout"]["word"], rows[version]["rollout"]["tone"]) == (card["word"], card["tone"])
        assert rows[version]["rollout"]["said"] == (card["said"][0] if card["word"] == "rolled back" else "")
        assert rows[version]["fared"] == "not scored"


def test_of_the_newest_version_is_said_that_it_was_taken_back(reported: tuple[list[pb.Rollout], float]) -> None:
    rollouts, now = reported
    back = next(rollout.candidate_version for rollout in rollouts if rollout.phase == "rolled-back")
    found = report(fleet(), versions=back, rollouts=rollouts, made_unix_seconds=now)
    found.fleet.latest_version = back
    assert report_content(found)["learner"]["latest_taken_back"] == (
        f"rolled back; v{back - 1} is the newest that was not"
    )
    del found.versions[:-1]  # of no other is anything known
    assert report_content(found)["learner"]["latest_taken_back"] == "rolled back"


def test_a_version_that_was_brought_again_after_it_had_been_taken_back_is_not_said_to_be(
    reported: tuple[list[pb.Rollout], float],
) -> None:
    rollouts, now = reported
    back = next(rollout for rollout in rollouts if rollout.phase == "rolled-back")
    again = pb.Rollout()
    again.CopyFrom(next(rollout for rollout in rollouts if rollout.phase == "done"))
    again.candidate_version, again.number = back.candidate_version, 99
    found = report(fleet(), versions=8, rollouts=[again, *rollouts], made_unix_seconds=now)
    found.fleet.latest_version = back.candidate_version
    assert report_content(found)["learner"]["latest_taken_back"] == ""


def test_of_a_learner_that_has_ended_what_was_assigned_stands_for_what_acts() -> None:
    found = report(fleet(), versions=8)
    found.ended = True
    rows = report_content(found)["acting"]
    assert (rows[0]["version"], rows[0]["clusters"]) == (41, ["north", "south", "west"])


def test_events_are_versions_and_rollouts_newest_first_and_alerts_are_marked(
    reported: tuple[list[pb.Rollout], float],
) -> None:
    rollouts, now = reported
    lost = view("lost", DRAW, seconds_since_heard=7200.0)
    content = report_content(report([*fleet(), lost], versions=3, rollouts=rollouts, made_unix_seconds=now))
    entries = content["events"]["entries"]
    moments = [entry["unix_seconds"] for entry in entries]
    assert moments == sorted(moments, reverse=True)
    said = {entry["text"]: entry for entry in entries}
    assert said["lost: not heard for 2 h"]["unix_seconds"] == now - 7200.0
    (published,) = [entry for text, entry in said.items() if text.startswith("v3 published, after ")]
    assert (published["unix_seconds"], published["kind"]) == (NOW, "event")
    history = [line for card in content["rollouts"]["cards"] for line in card["history"]]
    assert sum(entry["text"].startswith("rollout ") for entry in entries) == len(history)
    alerts = [entry["text"] for entry in entries if entry["kind"] == "alert"]
    assert sorted(alerts) == sorted(["lost: not heard for 2 h", *(text for text in said if " failed" in text)])
    assert len(alerts) > 1


def test_two_agents_of_one_name_are_an_alert_while_it_lasts() -> None:
    for contested in (True, False):
        content = report_content(report([view("north", DRAW, contested=contested), view("south", DRAW)], versions=3))
        alerts = [entry["text"] for entry in content["events"]["entries"] if entry["kind"] == "alert"]
        said = "north: two agents call themselves north; name each cluster differently, or stop one"
        assert alerts == ([said] if contested else [])
        assert (said in content["attention"]) == contested


def test_of_very_many_events_the_newest_are_shown_and_the_others_counted() -> None:
    events = report_content(report(fleet(), versions=MOST_EVENTS + 5))["events"]
    assert (len(events["entries"]), events["left_out"]) == (MOST_EVENTS, 5)
