"""Tables that stay readable where there is little room."""

from __future__ import annotations

import io
import json
import math

import pytest
from rich.console import Console
from rich.table import Table

from global_learner.policyctl.rollout_views import changes_table, history_table, line_of, rollout_facts, rollout_table
from global_learner.policyctl.version_views import version_facts, version_table, versions_table
from global_learner.policyctl.views import fleet_facts, fleet_table
from policy_net.exchange.generated import fleet_pb2 as pb


def printed(table: Table, width: int) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(table)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [80, 160])
def test_counts_of_jobs_are_never_cut(width: int) -> None:
    status = pb.ClusterStatus(
        jobs_running=14, jobs_waiting=3, jobs_done=1317, avg_jct_seconds=33_480.0, acting_version=90
    )
    view = pb.ClusterView(cluster="north", status=status, assigned_version=90, held=True, updates_accepted=297)
    text = printed(fleet_table(fleet_facts(pb.GetFleetReply(clusters=[view]))), width)
    assert "14/3/1317" in text
    assert "9.3 h" in text


def test_a_cluster_that_was_turned_out_is_shown_as_such() -> None:
    views = [
        pb.ClusterView(cluster="north", identity="enrolled", seconds_since_heard=3.0),
        pb.ClusterView(cluster="south", identity="revoked", seconds_since_heard=3.0),
    ]
    fleet = fleet_facts(pb.GetFleetReply(clusters=views))
    assert [entry["identity"] for entry in fleet["clusters"]] == ["enrolled", "revoked"]
    text = printed(fleet_table(fleet), 80)
    assert text.count("revoked") == 1
    assert text.count("3 s ago") == 1


def test_a_region_says_in_one_line_how_it_stands_with_the_learner_above() -> None:
    above = pb.UpstreamView(
        address="root:7070",
        name="east",
        seconds_since_heard=2.0,
        base_step=812,
        waiting_updates=7,
        fault="[x] no answer",
    )
    fleet = fleet_facts(pb.GetFleetReply(upstream=above))
    text = " ".join(printed(fleet_table(fleet), 160).split())
    assert "region east of root:7070: heard 2 s ago, teaching at its step 812, 7 updates wait for the next push" in text
    assert "FAULT: [x] no answer" in text
    assert fleet["upstream"]["version_above"] is None
    assert fleet_facts(pb.GetFleetReply())["upstream"] is None


def test_names_steps_and_days_of_versions_are_never_cut() -> None:
    contributions = {"fourth": 2, "north": 3, "south": 3, "west": 2}
    card = pb.VersionCard(version=119, parent=118, head_step=1180, updates=10, kept=True, contributions=contributions)
    text = printed(versions_table([version_facts(card)]), 80)
    for word in ("v119", "v118", "1180", "1970-01-01"):
        assert word in text


def test_a_version_whose_file_went_before_it_was_scored_does_not_wait_for_a_score() -> None:
    assert "before its turn" in printed(version_table(version_facts(pb.VersionCard(version=3))), 100)
    kept = pb.VersionCard(version=3, kept=True, score=pb.ReplayScore(state="waiting"))
    assert "none yet: it waits for its turn" in printed(version_table(version_facts(kept)), 100)
    kept.score.state = "off"
    assert "none: scores.enabled is off" in printed(version_table(version_facts(kept)), 100)


def test_rollouts_fit_a_terminal() -> None:
    members = [
        pb.RolloutMember(
            cluster=f"cluster-{number}", role="alternating", incumbent_version=117, acting_version=119, away=True,
            blocks=4095, shadow_decisions=123_456, shadow_agreed=120_000,
        )
        for number in range(3)
    ]  # fmt: skip
    verdict = pb.RolloutVerdict(
        outcome="wait",
        loss=0.012,
        loss_lower=-0.02,
        loss_upper=0.05,
        pairs=1234,
        reasons=["it may be 5%: " + 9 * "word "],
    )
    event = pb.RolloutEvent(
        number=3, actor="ada", what="pin", subject="cluster-0", why="too busy", came_of_it=["rollout-assigned x: y"]
    )
    seen = pb.RolloutEvent(number=4, actor="learner", what="seen", subject="cluster-1", came_of_it=["rolled-back"])
    rollout = pb.Rollout(
        number=12, candidate_version=119, phase="running", stage=2, stages=["gate", "shadow", "canary", "fleet"],
        members=members, verdicts=[verdict], events=[event, seen], actor="ada", started_unix_seconds=1.8e9,
    )  # fmt: skip
    facts = rollout_facts(rollout)
    shown = printed(rollout_table(facts), 80)
    for word in (
        "alternating (away)",
        "v117",
        "v119",
        "4095",
        "120000/123456",
        "loss +1.2% (-2.0% to +5.0%)",
        "ada: pin cluster-0: too busy",
        "begun 2027-01-15 08:00 by ada",
        "learner: heard on what cluster-1 acts",
    ):
        assert word in shown
    history = printed(history_table([facts]), 80)
    for word in ("12", "v119", "running", "canary", "2027-01-15"):
        assert word in history
    changes = {**facts, "changes": ["rollout-assigned north: v1 to v2"], "dry_run": True, "note": ""}
    assert "would change" in printed(changes_table(changes), 80)
    for text in (shown, history):
        assert max(map(len, text.splitlines())) <= 80


def test_a_rollouts_line_changes_only_when_it_stands_elsewhere() -> None:
    rollout = pb.Rollout(number=1, candidate_version=2, phase="asking", stages=["gate", "fleet"], reason="few pairs")
    line = line_of(rollout_facts(rollout))
    assert line == "rollout 1 of v2: asking, stage 1/2 gate (); few pairs"
    rollout.verdicts.add(pairs=3)
    assert line_of(rollout_facts(rollout)) == line


def test_what_is_not_known_is_null_and_no_infinity() -> None:
    rollout = pb.Rollout(verdicts=[pb.RolloutVerdict(loss_lower=-math.inf, loss_upper=math.inf)], stages=["fleet"])
    (verdict,) = json.loads(json.dumps(rollout_facts(rollout), allow_nan=False))["verdicts"]
    assert (verdict["loss_lower"], verdict["loss_upper"]) == (None, None)
