"""Commands of the operator, `policyctl assign`, `unassign`, `rollback` and `head reset`, and what they print."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from foundation.option_groups import with_option_groups
from foundation.tables import Column, FactSheet, FittedTable
from global_learner.errors import BadConfig
from global_learner.policyctl.options import CallOptions, DryRun, Reason, VersionArgument, version_number
from global_learner.policyctl.views import Facts, version_name
from policy_net.exchange.generated import fleet_pb2

head_app = typer.Typer(no_args_is_help=True, help="The learner's head: the newest weights.")

Clusters = Annotated[list[str] | None, typer.Option("--cluster", help="A cluster's name (repeatable).")]
All = Annotated[bool, typer.Option("--all", help="Every cluster that is registered now.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


@with_option_groups
def assign_version(
    version: VersionArgument,
    cluster: Clusters = None,
    every: All = False,
    yes: Yes = False,
    reason: Reason = "",
    *,
    options: CallOptions,
) -> None:
    """Let clusters act on a version from their next heartbeat on, and hold them there."""
    _check_whom(cluster, every)
    number = version_number(version)
    with options.client() as client:
        number = number or client.newest_version()
        if every:
            _confirm(f"let every cluster act on v{number}", yes)
        reply = client.assign(number, cluster or [], every, reason)
    facts = assigned_facts(reply)
    options.show(facts, assignments_table(facts, pinned_line(reply)))


@with_option_groups
def unassign_version(
    cluster: Clusters = None,
    every: All = False,
    yes: Yes = False,
    reason: Reason = "",
    *,
    options: CallOptions,
) -> None:
    """Hold clusters no longer: they act on v1 again, or on the newest version where publish.auto_assign is on."""
    _check_whom(cluster, every)
    with options.client() as client:
        if every:
            _confirm("let no cluster be held on a version", yes)
        reply = client.assign(0, cluster or [], every, reason)
    facts = assigned_facts(reply)
    options.show(facts, assignments_table(facts, pinned_line(reply)))


@with_option_groups
def roll_back(
    cluster: Clusters = None,
    every: All = False,
    yes: Yes = False,
    reason: Reason = "",
    dry_run: DryRun = False,
    *,
    options: CallOptions,
) -> None:
    """Let clusters act again on the version on which each acted before; not while a rollout runs."""
    _check_whom(cluster, every)
    with options.client() as client:
        if every and not dry_run:
            _confirm("let every cluster go back to the version before", yes)
        facts = back_facts(client.roll_back(cluster or [], every, reason, dry_run), dry_run)
    options.show(facts, back_table(facts))


@head_app.command("reset")
@with_option_groups
def reset_head(
    to: Annotated[str, typer.Option("--to", help="A version such as 3 or v3, or `latest`.")],
    yes: Yes = False,
    *,
    options: CallOptions,
) -> None:
    """Let the head go on from a version: weights and moments. What was learned since is given up."""
    number = version_number(to)
    with options.client() as client:
        number = number or client.newest_version()
        _confirm(f"reset the head to v{number}, and give up what it learned since", yes)
        facts = reset_facts(number, client.reset_head(number))
    options.show(facts, reset_table(facts))


def _check_whom(clusters: list[str] | None, every: bool) -> None:
    if every is bool(clusters):
        raise BadConfig("say whom: --cluster NAME (repeatable), or --all")


def _confirm(what: str, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise BadConfig(f"to {what}, add --yes: there is no terminal to ask on")
    if not typer.confirm(f"{what[0].upper()}{what[1:]}?", err=True):
        raise BadConfig("nothing was changed")


def assignment_facts(entry: fleet_pb2.Assignment) -> Facts:
    """One cluster's assignment as JSON shows it."""
    return {
        "cluster": entry.cluster,
        "from_version": entry.from_version,
        "to_version": entry.to_version,
        "held": entry.held,
        "changed": entry.from_version != entry.to_version,
    }


def assigned_facts(reply: fleet_pb2.AssignVersionReply) -> list[Facts]:
    """All clusters of a command as JSON shows them; of each, whether a running rollout leaves it alone from now on."""
    pinned = set(reply.pinned)
    return [
        {**assignment_facts(entry), "pinned_in_rollout": reply.rollout if entry.cluster in pinned else None}
        for entry in reply.assignments
    ]


def back_facts(assignments: Sequence[fleet_pb2.Assignment], dry_run: bool) -> list[Facts]:
    """All clusters of a way back as JSON shows them."""
    return [{**assignment_facts(entry), "dry_run": dry_run} for entry in assignments]


def back_table(facts: list[Facts]) -> FittedTable:
    """All clusters of a way back."""
    if any(entry["dry_run"] for entry in facts):
        return assignments_table(facts, "nothing was changed: --dry-run", in_force=False)
    return assignments_table(facts)


def pinned_line(reply: fleet_pb2.AssignVersionReply) -> str:
    """What a running rollout makes of the command; empty if nothing."""
    return f"rollout {reply.rollout} leaves alone: {', '.join(reply.pinned)}" if reply.pinned else ""


def assignments_table(assignments: list[Facts], more: str = "", *, in_force: bool = True) -> FittedTable:
    """All clusters of a command."""
    below = ["in force at a cluster's next heartbeat"] if in_force else []
    columns = (
        Column("cluster"),
        Column("was to\nact on", 1),
        Column("is to\nact on"),
        Column("held", 2, text=True),
    )
    rows = [
        (
            entry["cluster"],
            version_name(entry["from_version"]),
            version_name(entry["to_version"]),
            "held" if entry["held"] else "not held",
        )
        for entry in assignments
    ]
    return FittedTable("", columns, rows, below + ([more] if more else []))


def reset_facts(version: int, reply: fleet_pb2.ResetHeadReply) -> Facts:
    """A reset as JSON shows it."""
    return {
        "version": version,
        "from_step": reply.from_step,
        "head_step": reply.head_step,
        "moments": "kept" if reply.moments_kept else "zero",
        "changed": reply.changed,
    }


def reset_table(facts: Facts) -> FactSheet:
    """What the head is now."""
    kept = "the version's own" if facts["moments"] == "kept" else "zero: the version's were not kept"
    return FactSheet(
        "",
        [
            ("head", f"reset to v{facts['version']}"),
            ("step before", str(facts["from_step"])),
            ("step now", str(facts["head_step"]) + ("" if facts["changed"] else " (it was there already)")),
            ("moments", kept),
        ],
    )
