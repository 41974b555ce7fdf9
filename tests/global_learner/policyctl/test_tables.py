"""Tables that stay readable where there is little room."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.table import Table

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
