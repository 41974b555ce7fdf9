"""Tables that stay readable where there is little room."""

from __future__ import annotations

import csv
import io
import json
import math

import pytest
from rich.console import Console
from rich.table import Table

from foundation.output import Form, show
from foundation.tables import NOTHING
from global_learner.errors import UnknownCluster
from global_learner.policyctl.audit_commands import chains_table
from global_learner.policyctl.rollout_views import changes_table, history_table, line_of, rollout_facts, rollout_table
from global_learner.policyctl.version_views import version_facts, version_table, versions_table
from global_learner.policyctl.views import FleetColumn, certificates_table, fleet_facts, fleet_table
from global_learner.storage.audit_chain import Chain
from policy_net.exchange.generated import fleet_pb2 as pb

NOON = 1_790_000_000.0


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


@pytest.mark.parametrize(
    ("order", "names"),
    [
        (None, ["south", "north", "east", "west"]),
        (FleetColumn.CLUSTER, ["east", "north", "south", "west"]),
        (FleetColumn.HEARD, ["north", "south", "west", "east"]),
        (FleetColumn.JCT, ["south", "north", "east", "west"]),
        (FleetColumn.RUNNING, ["north", "south", "east", "west"]),
        (FleetColumn.REJECTED, ["west", "east", "north", "south"]),
        (FleetColumn.UPDATES, ["south", "east", "north", "west"]),
        (FleetColumn.WAITING, ["north", "south", "east", "west"]),
        (FleetColumn.DONE, ["north", "south", "east", "west"]),
        (FleetColumn.STALE, ["east", "north", "south", "west"]),
        (FleetColumn.SPEEDS, ["east", "north", "south", "west"]),
    ],
)
def test_clusters_are_ordered_by_a_column_and_of_whom_nothing_is_known_comes_last(
    order: FleetColumn | None, names: list[str]
) -> None:
    views = [
        pb.ClusterView(
            cluster="south",
            seconds_since_heard=5.0,
            updates_accepted=9,
            status=pb.ClusterStatus(jobs_running=1, avg_jct_seconds=90.0),
        ),
        pb.ClusterView(
            cluster="north", seconds_since_heard=70.0, status=pb.ClusterStatus(jobs_running=3, avg_jct_seconds=10.0)
        ),
        pb.ClusterView(cluster="east", seconds_since_heard=-1.0),
        pb.ClusterView(cluster="west", seconds_since_heard=1.0, updates_rejected={"stale": 2, "norm": 1}),
    ]
    fleet = fleet_facts(pb.GetFleetReply(clusters=views), (), order)
    assert [view["cluster"] for view in fleet["clusters"]] == names


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
        "1,234 pairs of blocks",
        "ada: pin cluster-0: too busy",
        "begun 2027-01-15 08:00 by ada",
        "learner: heard on what cluster-1 acts",
    ):
        assert word in shown
    assert "jobs in the system +1.2% (-2.0% to +5.0%), + is worse" in " ".join(shown.split())
    history = printed(history_table([facts]), 80)
    for word in ("12", "v119", "running", "canary", "2027-01-15"):
        assert word in history
    changes = {**facts, "changes": ["rollout-assigned north: v1 to v2"], "dry_run": True, "note": ""}
    assert "would change" in printed(changes_table(changes), 80)
    stages = [{"kind": "gate"}, {"kind": "shadow", "hours": 24.0}, {"kind": "canary", "count": 2, "days": 14.0}]
    stages += [{"kind": "wave", "share": 0.5, "days": 7.0}, {"kind": "fleet", "days": 14.0}]
    started = {**changes, "changes": ["rollout-started rollout 12: v119, stage gate"], "plan": {"stages": stages}}
    planned = printed(changes_table(started), 100)
    for words in (
        "stage 1, gate    replays, no cluster",
        "stage 2, shadow  all 3 clusters, 24 hours",
        "stage 3, canary  2 of 3 clusters, at most 14 days",
        "stage 4, wave    no further cluster: what the stages before brought decides, at once where",
        "stage 5, fleet   all 3 clusters, at most 14 days",
    ):
        assert words in planned
    wider = printed(changes_table({**started, "plan": {"stages": [{"kind": "wave", "share": 0.6, "days": 7.0}]}}), 100)
    assert "stage 1, wave  2 of 3 clusters, with those before, at most 7 days" in wider
    named = [{"kind": "canary", "clusters": [f"cluster-{number}" for number in range(3)], "count": 2, "days": 14.0}]
    whole = printed(changes_table({**started, "plan": {"stages": [*named, stages[-1]]}}), 100)
    assert "stage 1, canary  cluster-0, cluster-1, cluster-2, at most 14 days" in whole
    assert "stage 2, fleet   no further cluster: what the stages before brought decides" in whole
    for text in (shown, history):
        assert max(map(len, text.splitlines())) <= 80


def test_a_verdict_of_the_gate_is_of_replays_and_has_no_pairs() -> None:
    rollout = pb.Rollout(number=1, candidate_version=2, phase="running", stages=["gate", "fleet"])
    rollout.verdicts.add(outcome="pass", loss=0.002, loss_lower=-0.01, loss_upper=0.014)
    rollout.verdicts.add(outcome="pass", loss=math.nan, loss_lower=-math.inf, loss_upper=math.inf)
    facts = rollout_facts(rollout)
    gate = printed(rollout_table({**facts, "verdicts": facts["verdicts"][:1]}), 100)
    assert "pass; time of jobs in replays +0.2% (-1.0% to +1.4%), + is worse" in gate
    assert "pairs" not in printed(rollout_table(facts), 100)


def test_a_figure_that_rests_on_one_cluster_alone_is_not_told_as_the_fleets() -> None:
    rollout = pb.Rollout(number=1, candidate_version=2, phase="asking", stages=["gate", "fleet"])
    rollout.verdicts.add(
        outcome="inconclusive", loss=-0.15, loss_lower=-0.2, loss_upper=-0.1, pairs=90, rests_on="mallory"
    )
    facts = rollout_facts(rollout)
    assert facts["verdicts"][0]["rests_on"] == "mallory"
    shown = printed(rollout_table(facts), 100)
    assert "inconclusive, 90 pairs of blocks; what is known rests on mallory alone" in shown
    assert "-15.0%" not in shown


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


def test_the_fleets_table_says_who_is_away_who_alternates_and_nothing_of_the_revoked() -> None:
    alternating = pb.ClusterStatus(
        acting_version=20, rollout=1, rollout_role="alternating", beside_version=20, jobs_done=3
    )
    clusters = [
        pb.ClusterView(cluster="east", seconds_since_heard=230.0, assigned_version=1, status=pb.ClusterStatus()),
        pb.ClusterView(cluster="north", seconds_since_heard=2.0, assigned_version=1, status=alternating),
        pb.ClusterView(cluster="west", seconds_since_heard=900.0, identity="revoked"),
    ]
    facts = fleet_facts(pb.GetFleetReply(clusters=clusters, away_seconds=180.0))
    assert [view["away"] for view in facts["clusters"]] == [True, False, False]
    table = fleet_table(facts, "lab (127.0.0.1:7070)")
    assert table.title.startswith("lab (127.0.0.1:7070): head step 0")
    east, north = table.rows
    assert [row[1] for row in table.cells] == ["230.000", "2.000"], "programs read bare numbers"
    assert (east[-1], north[4], north[-1]) == ("away", "v1/v20", "alternates in rollout 1")
    assert "not shown: 1 revoked cluster" in printed(table, 100)
    assert len(fleet_table(facts, revoked=True).cells) == 3
    assert "policyctl cluster enroll NAME" in printed(fleet_table(fleet_facts(pb.GetFleetReply())), 100)


def test_clusters_are_shown_by_name_and_one_that_is_not_there_is_refused() -> None:
    reply = pb.GetFleetReply(clusters=[pb.ClusterView(cluster=name) for name in ("north", "south")])
    assert [view["cluster"] for view in fleet_facts(reply, ["south"])["clusters"]] == ["south"]
    with pytest.raises(UnknownCluster, match="no cluster 'nort' is registered; did you mean north"):
        fleet_facts(reply, ["nort"])


def test_programs_read_whole_moments_bytes_and_digests_of_lists() -> None:
    digest = "0f" * 32
    card = pb.VersionCard(version=3, created_unix_seconds=NOON + 0.5, digest=digest, size_bytes=1234, kept=True)
    (row,) = versions_table([version_facts(card)]).cells
    assert (row[2], row[5], row[9]) == ("2026-09-21T14:13:20.500+00:00", "1234", digest)
    gone = versions_table([version_facts(pb.VersionCard(version=2, size_bytes=1234, digest=digest))])
    assert gone.cells[0][5] == "0"

    north = {"cluster": "north", "state": "revoked", "fingerprint": digest}
    moments = {"issued_unix_seconds": NOON, "expires_unix_seconds": NOON + 9.0, "revoked_unix_seconds": NOON + 1.0}
    west = {"cluster": "west", "state": "invited", "fingerprint": None}
    unknown = dict.fromkeys(moments)
    rows = certificates_table([{**north, **moments}, {**west, **unknown}], "cluster").cells
    assert rows[0] == ("north", "revoked", "2026-09-21T14:13:21.000+00:00", "2026-09-21T14:13:20.000+00:00", digest)
    assert rows[1] == ("west", "invited", NOTHING, NOTHING, NOTHING)

    begun = {"number": 1, "candidate_version": 3, "phase": "done", "started_unix_seconds": NOON, "stage": ""}
    (line,) = history_table([{**begun, "actor": "ada", "why": "", "reason": ""}]).cells
    assert line[3] == "2026-09-21T14:13:20.000+00:00"


def in_csv(table: Table, capsys: pytest.CaptureFixture[str]) -> list[dict[str, str]]:
    show(Form.CSV, None, table)
    return list(csv.DictReader(io.StringIO(capsys.readouterr().out)))


def test_a_csv_has_one_bare_value_a_column(capsys: pytest.CaptureFixture[str]) -> None:
    score = pb.ReplayScore(state="scored", over={"drf": 0.704})
    card = pb.VersionCard(
        version=3, kept=True, pinned=True, size_bytes=9, score=score, contributions={"north": 1, "west": 2}
    )
    (version,) = in_csv(versions_table([version_facts(card)]), capsys)
    assert (version["over drf"], version["score"], version["files"], version["pinned"]) == (
        "-0.296",
        "scored",
        "9",
        "yes",
    )
    assert (version["clusters"], version["from"]) == ("2", "")

    status = pb.ClusterStatus(
        jobs_running=8, jobs_done=172, acting_version=1, rollout=4, rollout_role="alternating", beside_version=2
    )
    view = pb.ClusterView(cluster="north", seconds_since_heard=1.0, assigned_version=1, held=True, status=status)
    (north,) = in_csv(fleet_table(fleet_facts(pb.GetFleetReply(clusters=[view]))), capsys)
    assert [north[f"jobs {what}"] for what in ("running", "waiting", "done")] == ["8", "0", "172"]
    assert [north[heading] for heading in ("acts on", "beside", "to act on", "held")] == ["v1", "v2", "v1", "yes"]

    members = [
        pb.RolloutMember(cluster="north", role="alternating", incumbent_version=1, away=True),
        pb.RolloutMember(cluster="west", role="shadow", acting_version=1, shadow_decisions=9, shadow_agreed=5),
    ]
    rollout = pb.Rollout(number=1, candidate_version=2, phase="running", members=members)
    first, second = in_csv(rollout_table(rollout_facts(rollout)), capsys)
    assert [first[heading] for heading in ("role", "away", "acts on", "in turn with")] == [
        "alternating",
        "yes",
        "v1",
        "v2",
    ]
    assert (second["alike"], second["shadowed"]) == ("5", "9")

    logs = in_csv(chains_table([Chain("versions", 3, 5, "0f", None)], "whole"), capsys)
    assert logs == [{"log": "versions", "first line": "3", "lines": "5", "head": "0f"}]
