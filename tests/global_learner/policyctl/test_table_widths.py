"""Every table of policyctl at the widths of terminals: no figure or version cut, nothing wider, no field's raw name."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Group, RenderableType
from table_suite import WIDTHS, check_table, printed

from foundation.tables import FactSheet, FittedTable
from foundation.text import parse_json
from global_learner import policyctl
from global_learner.policyctl.audit_commands import audit_table, chains_table
from global_learner.policyctl.cli import report_table
from global_learner.policyctl.cluster_commands import enrolled_table, enrollment_table
from global_learner.policyctl.context_commands import context_facts, contexts_table
from global_learner.policyctl.contexts import Context
from global_learner.policyctl.key_commands import keys_table, rotated_table
from global_learner.policyctl.operator_commands import assignment_facts, assignments_table, reset_table
from global_learner.policyctl.rollout_views import changes_table, history_table, rollout_facts, rollout_table
from global_learner.policyctl.version_commands import verify_table
from global_learner.policyctl.version_diff import diff_table, difference
from global_learner.policyctl.version_views import (
    alias_facts,
    alias_table,
    note_table,
    pin_table,
    version_facts,
    version_table,
    versions_table,
)
from global_learner.policyctl.views import (
    certificate_facts,
    certificates_table,
    facts_of,
    fleet_facts,
    fleet_table,
    tried_sheet,
)
from global_learner.report.fleet import ClusterCounts
from global_learner.storage.audit_chain import Chain
from policy_net.domain import JobKind
from policy_net.exchange.generated import fleet_pb2 as pb
from policy_net.exchange.policy_file import PolicyFile
from policy_net.exchange.spec import SetSpec
from policy_net.exchange.statistics import SpeedStatistic
from policy_net.set_policy.residual import initial_residual

LATE = 1_790_000_000.0
DIGEST = "0f1e2d3c4b5a69788796a5b4c3d2e1f0" * 2
NAME = "gpu-cluster-of-the-northern-hall-17"


def cards() -> list[pb.VersionCard]:
    made = []
    for number in (9, 119):
        card = pb.VersionCard(
            version=number, parent=number - 1, head_step=103_480 + number, updates=71_234, kept=number > 9, pinned=True,
            created_unix_seconds=LATE + 86_400 * number, size_bytes=1_234_567, head_size_bytes=2_345_678, digest=DIGEST,
            spec_digest=DIGEST[::-1], staleness_p50=12.5, contributions={NAME: 70_000, "south": 1234 + number},
        )  # fmt: skip
        card.details.CopyFrom(
            pb.VersionDetails(
                policy="set", origin="trained", rejections={"head-reset": 12, "not-finite": 3}, staleness_p90=33.25,
                staleness_max=103, aggregation="a3c", prior_statistics=628, notes="after the outage of 2026-09-01",
                privacy=pb.Privacy(
                    mode="central", epsilon=7.125, delta=1e-6, target_epsilon=8.0, clip_norm=0.5, noise_multiplier=1.25,
                    updates_of_one_cluster=321, sampling="none",
                ),
            )
        )  # fmt: skip
        card.score.CopyFrom(
            pb.ReplayScore(
                state="scored", replay_set="fixed-1", replay_set_digest=DIGEST, over={"drf": 0.9012, "optimus": 1.0345},
                decisions=[1, 2, number], cpu_seconds=12.5,
                replays=[
                    pb.ReplayResult(
                        replay="crowded", avg_jct_seconds=103_480.0 + number,
                        baseline_jct_seconds={"drf": 123_456.0, "optimus": 98_765.0, "oracle": 87_654.0},
                    )
                ],
            )
        )  # fmt: skip
        if number > 9:
            card.aliases.extend(["calm", "the-one-of-1189-jobs"])
        made.append(card)
    return made


def rollout() -> pb.Rollout:
    members = [
        pb.RolloutMember(
            cluster=name, role="alternating", incumbent_version=117, acting_version=119, away=True,
            blocks=40_954, shadow_decisions=123_456, shadow_agreed=120_000,
        )
        for name in (NAME, "south")
    ]  # fmt: skip
    verdict = pb.RolloutVerdict(
        unix_seconds=LATE, outcome="wait", loss=0.01234, loss_lower=-0.0203, loss_upper=0.0512, pairs=12_345,
        reasons=["it may be 5.12% worse, and 1.00% is allowed", "query waits: not asked yet"],
    )  # fmt: skip
    return pb.Rollout(
        number=12, candidate_version=119, phase="rolled-back", stage=2, stages=["gate", "shadow", "canary", "fleet"],
        members=members, verdicts=[verdict], actor="ada.lovelace@example.org", started_unix_seconds=LATE,
        why="v117 waits 103.48 h too long on weekends", reason="the loss is 5.12% or more, and 1.00% is allowed",
        sketches=[pb.RolloutSketch(cluster=NAME, state="dropped", reason="took longer than 60.0 s")],
        queries=[pb.RolloutQuery(name="failed", state="waiting", said="query failed: 3 to 1 is beyond its bounds")],
        events=[
            pb.RolloutEvent(
                number=3, unix_seconds=LATE, actor="ada", what="pin", subject=NAME, came_of_it=["assigned: v119"]
            )
        ],
    )  # fmt: skip


def fleet() -> RenderableType:
    views = [
        pb.ClusterView(
            cluster=name, seconds_since_heard=12_345.0, assigned_version=1190, held=True, updates_accepted=71_234,
            updates_rejected={"head-reset": 12, "not-finite": 345}, last_staleness=103, identity="enrolled",
            quarantined_until_unix_seconds=LATE if name == "south" else 0.0, speed_statistics=1234,
            status=pb.ClusterStatus(
                acting_version=1189, jobs_running=142, jobs_waiting=3456, jobs_done=131_789,
                avg_jct_seconds=372_528.0, refused_version=1190, refused_reason="its file has 12345 bytes of 23456",
            ),
        )
        for name in (NAME, "south")
    ]  # fmt: skip
    above = pb.UpstreamView(
        address="root.example.org:7070", name="east", seconds_since_heard=2.0, base_step=812_345, waiting_updates=71,
        open_push_updates=12, fault="no answer for 103.48 s",
    )  # fmt: skip
    reply = pb.GetFleetReply(
        head_step=103_480, latest_version=1190, updates_accepted=1_234_567, updates_rejected=89_012, clusters=views,
        disk_bytes={"log": 123_456_789}, upstream=above, privacy=cards()[0].details.privacy,
    )  # fmt: skip
    return fleet_table(fleet_facts(reply))


def difference_table(*, kept: bool = True) -> RenderableType:
    def file(workers: tuple[int, ...], seed: int) -> PolicyFile:
        spec = SetSpec()
        priors = [SpeedStatistic("inception-bn", JobKind.PS, 1, count, seed + count / 7, 4) for count in workers]
        priors.append(SpeedStatistic(f"a-model-of-user-{seed}", JobKind.PS, 1, 1, 1.0, 4))
        return PolicyFile(spec, initial_residual(spec, seed) + seed / 10, {}, tuple(priors))

    one, other = (pb.ShowVersionReply(card=card, spec_json=SetSpec().to_json()) for card in cards())
    other.spec_json = SetSpec(prices=1).to_json()
    files = (file((1, 2, 3), 1), file((1, 2, 4), 2)) if kept else (None, None)
    return diff_table(difference(one, other, *files))


def audit() -> RenderableType:
    entries = [
        pb.AuditEntry(
            unix_seconds=LATE + 60 * number, actor=actor, action=action, subject=NAME, detail=detail, log="versions",
            number=number, before=DIGEST, digest=DIGEST,
        )
        for number, (actor, action, detail) in enumerate(
            [
                ("ada.lovelace@example.org", "rollout-assigned", "v1189 to v1190, of rollout 12"),
                ("administrator", "operator-enrolled", ""),
                ("operator", "head-reset", "step 103480 to 103481, from v1189, because the updates of 71234 were poor"),
            ]
        )
    ]  # fmt: skip
    return audit_table([facts_of(entry) for entry in entries])


def people() -> RenderableType:
    person = pb.OperatorIdentity(
        name="ada.lovelace@example.org", role="operator", state="revoked", issued_unix_seconds=LATE,
        revoked_unix_seconds=LATE + 1e6, fingerprint=DIGEST,
    )  # fmt: skip
    return certificates_table([certificate_facts(person)], "name", "role")


def assignments() -> RenderableType:
    given = [pb.Assignment(cluster=name, from_version=1189, to_version=1190, held=True) for name in (NAME, "south")]
    return assignments_table(assignment_facts(given, dry_run=False), [f"rollout 12 leaves alone: {NAME}"])


def enrollment() -> RenderableType:
    file = "/home/somebody/of-a-long-name/enrollments/2026-09-21/gpu-cluster-of-the-northern-hall-17.enrollment"
    facts = {"cluster": NAME, "file": file, "expires_unix_seconds": LATE, "voided_tokens": 1, "file_replaced": True}
    return enrollment_table(facts)


def keys() -> RenderableType:
    return keys_table(
        {"fleet": DIGEST, "root": 12, "root_key_present": False, "keys": {"root": [DIGEST], "version": [DIGEST]}}
    )


def shown_version() -> RenderableType:
    reply = pb.ShowVersionReply(card=cards()[1], spec_json=SetSpec().to_json())
    signer = {"fleet": DIGEST, "key": DIGEST, "problem": ""}
    return version_table({**version_facts(reply.card), "spec": parse_json(reply.spec_json), "signed_by": signer})


def changes() -> RenderableType:
    lines = [f"rollout-assigned {NAME}: v1189 to v1190", "rollout-assigned south: v1188 to v1190"]
    facts = {**rollout_facts(rollout()), "changes": lines, "dry_run": True, "note": "12 of 1234 clusters are away"}
    return changes_table(facts)


def verified() -> RenderableType:
    problem = f"its digest is {DIGEST[:12]}, that of v1190 is {DIGEST[-12:]}"
    facts = {"version": 1190, "name": "v1190", "ok": False, "kept": True, "problem": problem}
    return verify_table([facts, {**facts, "ok": True, "kept": False, "problem": ""}])


SAMPLES: dict[Callable[..., object], Callable[[], RenderableType]] = {
    assignments_table: assignments,
    audit_table: audit,
    certificates_table: people,
    chains_table: lambda: chains_table([Chain("versions", 12, 1234, DIGEST, None)], "1234 lines in audit.jsonl"),
    changes_table: changes,
    contexts_table: lambda: contexts_table(
        [context_facts(NAME, Context("learner.north.example:7070", "/etc/fedl2/ca.pem", "/home/ada/ada.pem"), NAME)]
    ),
    diff_table: difference_table,
    enrolled_table: lambda: enrolled_table(
        {"role": "operator", "name": "ada", "file": "ada.pem", "expires_unix_seconds": LATE, "replaced": 12}
    ),
    enrollment_table: enrollment,
    fleet_table: fleet,
    history_table: lambda: history_table([rollout_facts(rollout())] * 2),
    keys_table: keys,
    note_table: lambda: note_table(
        {
            "name": "v119",
            "note": {"text": "of the queue of 1189 jobs", "actor": "ada", "unix_seconds": LATE},
            "changed": True,
        }
    ),
    alias_table: lambda: alias_table(alias_facts("the-one-of-1189-jobs", 1189, 119)),
    pin_table: lambda: pin_table({"name": "v1190", "pinned": True, "changed": False}),
    report_table: lambda: report_table(
        {"page": "report/index.html", "headline": "12 of 1234 clusters learn", "versions": 119},
        str(ClusterCounts(1234, not_yet=120, turned_out=1100)),
    ),
    reset_table: lambda: reset_table(
        {
            "version": 1190,
            "from_step": 103_480,
            "head_step": 103_481,
            "moments": "kept",
            "changed": False,
            "dry_run": True,
        }
    ),
    tried_sheet: lambda: tried_sheet(
        "forgotten", NAME, [("had registered", "yes"), ("updates in the head", "123456, which stay")], dry_run=True
    ),
    rollout_table: lambda: rollout_table(rollout_facts(rollout())),
    rotated_table: lambda: rotated_table({"role": "version", "from_key": DIGEST, "to_key": DIGEST, "root": 12}),
    verify_table: verified,
    version_table: shown_version,
    versions_table: lambda: versions_table([version_facts(card) for card in cards()]),
}


def test_every_table_of_the_program_is_looked_at_here() -> None:
    tables = set()
    for module in pkgutil.iter_modules(policyctl.__path__, f"{policyctl.__name__}."):
        for function in vars(importlib.import_module(module.name)).values():
            kinds = ("FittedTable", "FactSheet", "Group", "RenderableType")
            if inspect.isfunction(function) and function.__annotations__.get("return") in kinds:
                tables.add(function)
    public = {table for table in tables if not table.__name__.startswith("_")}
    assert public == set(SAMPLES)
    for path in Path(policyctl.__path__[0]).glob("*.py"):
        assert "rich.table" not in path.read_text(encoding="utf-8"), f"{path.name} has a table of another style"


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("sample", SAMPLES.values(), ids=[table.__name__ for table in SAMPLES])
def test_a_table_fits_with_every_figure_and_version_whole(sample: Callable[[], RenderableType], width: int) -> None:
    check_table(sample, width)


def test_what_tells_most_is_there_in_the_narrowest_terminal() -> None:
    found = {table.__name__: printed(sample(), 60) for table, sample in SAMPLES.items()}
    for name, words in {
        "fleet_table": ("v1189", "held v1190", "refused v1190", "quarantined until 2026-09-21"),
        "versions_table": ("v119", "-9.9%", "103599"),
        "rollout_table": ("alternating (away)", "v119", "v117", "+1.2% (-2.0% to +5.1%)"),
        "history_table": ("12", "v119", "rolled-back", "103.48 h too long", "5.12% or more"),
        "audit_table": ("2026-09-21", "rollout-assigned", f"{NAME}: v1189 to v1190, of rollout 12"),
        "assignments_table": ("v1189", "v1190", "rollout 12 leaves alone"),
        "diff_table": ("v9 → v119", "head step", "103489 → 103599", "all of them", "× ", "-9.9%"),
        "version_table": ("staleness, median", "12.5", "7.125", "2027-01-18"),
        "changes_table": ("would change", f"rollout-assigned {NAME}: v1189 to v1190"),
    }.items():
        flowing = " ".join(found[name].split())
        assert [word for word in words if word not in flowing] == []


def test_a_difference_has_its_parts_whether_files_are_kept_or_not() -> None:
    parts = difference_table()
    assert isinstance(parts, Group)
    tables = [part for part in parts.renderables if isinstance(part, FittedTable)]
    assert [table.rows[0][0] for table in tables] == ["all of them", "inception-bn", "over drf"]
    text = printed(difference_table(kept=False), 100)
    assert max(map(len, text.splitlines())) <= 100
    assert "not compared: a policy file is no longer kept" in text


def test_a_sheet_shows_no_field_twice() -> None:
    sheet = shown_version()
    assert isinstance(sheet, FactSheet)
    labels = [label for label, _ in sheet.facts]
    assert len(labels) == len(set(labels)) > 20


GUIDE = Path(__file__).parents[3] / "docs/guide/policyctl.md"
STATED = {
    "`fleet`": fleet_table,
    "`version list`": versions_table,
    "`rollout status`": rollout_table,
    "`rollout history`": history_table,
    "`assign`, `unassign`": assignments_table,
    "`cluster list`, `operator list`": certificates_table,
}


@pytest.mark.parametrize("command", STATED)
def test_columns_are_left_out_in_the_order_that_the_guide_states(command: str) -> None:
    (row,) = [line for line in GUIDE.read_text(encoding="utf-8").splitlines() if line.startswith(f"| {command} |")]
    stated = row.split("|")[2].strip().split(", ")
    table = SAMPLES[STATED[command]]()
    assert isinstance(table, FittedTable)
    order: list[str] = []
    for width in range(160, 20, -1):
        order += sorted(set(table.left_out(width)) - set(order))
        if len(order) >= len(stated):
            break
    assert order[: len(stated)] == stated
