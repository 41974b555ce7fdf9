"""Commands of the operator, `policyctl assign`, `unassign`, `rollback` and `head reset`, and what they print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foundation.figures import counted
from foundation.option_groups import with_option_groups
from foundation.tables import Column, FactSheet, FittedTable
from global_learner.errors import BadLearnerConfig, ChangedSince
from global_learner.policyctl.options import (
    CallOptions,
    DryRun,
    Reason,
    VersionArgument,
    Yes,
    confirm,
    version_asked,
)
from global_learner.policyctl.views import Facts, facts_of, version_name
from policy_net.exchange.generated import fleet_pb2

if TYPE_CHECKING:
    from global_learner.policyctl.client import AdminClient

head_app = typer.Typer(no_args_is_help=True, help="The learner's head: the newest weights.")

_UNCHANGED = "nothing was changed: --dry-run"


@dataclass(frozen=True, slots=True)
class Whom:
    """Clusters that a command is about, and the conditions of it; taken whole, under `with_option_groups`."""

    cluster: Annotated[list[str] | None, typer.Option("--cluster", help="A cluster's name (repeatable).")] = None
    every: Annotated[bool, typer.Option("--all", help="Every cluster that is registered now and was not revoked.")] = (
        False
    )
    yes: Yes = False
    from_version: Annotated[
        str | None,
        typer.Option("--from", help="Only if the clusters are to act on this version now; refused if not."),
    ] = None
    reason: Reason = ""
    dry_run: DryRun = False

    def check(self) -> None:
        """See that clusters are named, or all are meant.

        Raises:
            BadConfig: neither, or both.
        """
        if self.every is bool(self.cluster):
            raise BadLearnerConfig("say whom: --cluster NAME (repeatable), or --all")

    def asked(self, client: AdminClient, options: CallOptions, what: str) -> dict[str, Any]:
        """Fields of a request for these clusters; where all are meant, a person is asked first.

        Args:
            what: would happen to all of them.

        Raises:
            BadConfig: the answer is no, or --from names no version.
            ChangedSince: they are to act on something else than --from says.
        """
        seen = _seen(client, self.cluster, self.from_version)
        if self.every:
            confirm(what, self.yes or self.dry_run, lambda: _fleet_of(seen, options))
        return {
            "clusters": self.cluster,
            "all": self.every,
            "reason": self.reason,
            "dry_run": self.dry_run,
            "seen_versions": seen,
        }


@with_option_groups
def assign_version(version: VersionArgument, whom: Whom, options: CallOptions) -> None:
    """Let clusters act on a version from their next heartbeat on, and hold them there."""
    whom.check()
    asked = version_asked(version)
    with options.client() as client:
        number = client.number_of(asked)
        request = whom.asked(client, options, f"let every cluster act on v{number}")
        reply = client.ask(fleet_pb2.AssignVersionRequest(version=number, **request))
    _show_assigned(reply, whom, options)


@with_option_groups
def unassign_version(whom: Whom, options: CallOptions) -> None:
    """Hold clusters no longer: they act on what the latest finished rollout brought, or on v1 where there was none.

    Where publish.auto_assign is on, they act on the newest version.
    """
    whom.check()
    with options.client() as client:
        request = whom.asked(client, options, "let no cluster be held on a version")
        reply = client.ask(fleet_pb2.AssignVersionRequest(version=0, **request))
    _show_assigned(reply, whom, options)


def _show_assigned(reply: fleet_pb2.AssignVersionReply, whom: Whom, options: CallOptions) -> None:
    facts = assigned_facts(reply, whom.dry_run)
    options.show(facts, _assigned_table(facts, reply))


@with_option_groups
def roll_back(whom: Whom, options: CallOptions) -> None:
    """Let clusters act again on the version on which each acted before; not while a rollout runs."""
    whom.check()
    with options.client() as client:
        request = whom.asked(client, options, "let every cluster go back to the version before")
        reply = client.ask(fleet_pb2.RollBackRequest(just_looked=whom.from_version is None, **request))
    facts = back_facts(reply.assignments, whom.dry_run)
    options.show(facts, back_table(facts, reply.passed_over))


@head_app.command("reset")
@with_option_groups
def reset_head(
    to: Annotated[str, typer.Option("--to", help="A version such as 3 or v3, its alias, or `latest`.")],
    yes: Yes = False,
    from_step: Annotated[
        int | None,
        typer.Option(
            "--from", min=0, max=2**63 - 1, help="The head's step as you saw it; refused if the head was reset since."
        ),
    ] = None,
    reason: Reason = "",
    dry_run: DryRun = False,
    *,
    options: CallOptions,
) -> None:
    """Let the head go on from a version: weights and moments. What was learned since is given up."""
    asked = version_asked(to)
    with options.client() as client:
        number = client.number_of(asked)
        what = f"reset the head to v{number}, and give up what it learned since"
        fleet = client.fleet()
        if from_step is not None and from_step > fleet.head_step:
            raise BadLearnerConfig(
                f"--from {from_step}: the head has come to step {fleet.head_step}; nothing was changed"
            )
        confirm(what, yes or dry_run, lambda: _fleet_of(_assigned_in(fleet), options))
        seen_step = fleet.head_step if from_step is None else from_step
        reply = client.ask(
            fleet_pb2.ResetHeadRequest(version=number, reason=reason, dry_run=dry_run, seen_step=seen_step)
        )
        facts = {**reset_facts(number, reply), "dry_run": dry_run}
    options.show(facts, reset_table(facts))


def _assigned_in(fleet: fleet_pb2.GetFleetReply) -> dict[str, int]:
    """What every cluster that was not turned out is to act on."""
    return {view.cluster: view.assigned_version for view in fleet.clusters if view.identity != "revoked"}


def _seen(client: AdminClient, clusters: list[str] | None, from_version: str | None) -> dict[str, int]:
    """What the clusters that are meant are to act on now, which the learner compares when it acts.

    Args:
        clusters: None is all.
        from_version: what somebody saw before, if that is to be compared already here.

    Raises:
        BadConfig: that is no version.
        ChangedSince: they are to act on something else.
    """
    wanted = None if from_version is None else version_asked(from_version)
    seen = _assigned_in(client.fleet())
    if clusters:
        seen = {cluster: version for cluster, version in seen.items() if cluster in clusters}
    if wanted is not None:
        number = client.number_of(wanted)
        others = [f"{cluster} on v{version}" for cluster, version in seen.items() if version != number]
        if others:
            raise ChangedSince(f"not on v{number} by now: {', '.join(others)}; nothing was changed")
    return seen


def _fleet_of(seen: Mapping[str, int], options: CallOptions) -> str:
    """What a question about the whole fleet begins with: the learner, how many clusters, and on what they act now."""
    versions = ", ".join(version_name(number) for number in sorted(set(seen.values())))
    now = f", now on {versions}" if versions else ""
    return f"{options.place}, {counted(len(seen), 'cluster')}{now}"


def assignment_facts(entry: fleet_pb2.Assignment) -> Facts:
    """One cluster's assignment as JSON shows it."""
    return {**facts_of(entry), "changed": entry.from_version != entry.to_version}


def assigned_facts(reply: fleet_pb2.AssignVersionReply, dry_run: bool) -> list[Facts]:
    """All clusters of a command as JSON shows them; of each, whether a running rollout leaves it alone from now on."""
    pinned = set(reply.pinned)
    return [
        {
            **assignment_facts(entry),
            "pinned_in_rollout": reply.rollout if entry.cluster in pinned else None,
            "dry_run": dry_run,
        }
        for entry in reply.assignments
    ]


def back_facts(assignments: Sequence[fleet_pb2.Assignment], dry_run: bool) -> list[Facts]:
    """All clusters of a way back as JSON shows them."""
    return [{**assignment_facts(entry), "dry_run": dry_run} for entry in assignments]


def back_table(facts: list[Facts], passed_over: Sequence[str] = ()) -> FittedTable:
    """All clusters of a way back."""
    return assignments_table(facts, _passed_over(passed_over))


def _assigned_table(facts: list[Facts], reply: fleet_pb2.AssignVersionReply) -> FittedTable:
    """All clusters of a command, what a running rollout makes of it, and who was not meant."""
    pinned = [f"rollout {reply.rollout} leaves alone: {', '.join(reply.pinned)}"] if reply.pinned else []
    return assignments_table(facts, pinned + _passed_over(reply.passed_over))


def _passed_over(revoked: Sequence[str]) -> list[str]:
    return [f"passed over, as revoked: {', '.join(revoked)}"] if revoked else []


def assignments_table(assignments: list[Facts], more: Sequence[str] = ()) -> FittedTable:
    """All clusters of a command."""
    unchanged = any(entry.get("dry_run") for entry in assignments)
    below = [_UNCHANGED if unchanged else "in force at a cluster's next heartbeat"]
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
    return FittedTable("", columns, rows, [*below, *more])


def reset_facts(version: int, reply: fleet_pb2.ResetHeadReply) -> Facts:
    """A reset as JSON shows it."""
    moments = "kept" if reply.moments_kept else "zero"
    return {"version": version, **facts_of(reply, without=("moments_kept",)), "moments": moments}


def reset_table(facts: Facts) -> FactSheet:
    """What the head is now."""
    kept = "the version's own" if facts["moments"] == "kept" else "zero: the version's were not kept"
    return FactSheet(
        "",
        [
            ("head", f"{'would be ' if facts['dry_run'] else ''}reset to v{facts['version']}"),
            ("step before", str(facts["from_step"])),
            ("step now", str(facts["head_step"]) + ("" if facts["changed"] else " (it was there already)")),
            ("moments", kept),
        ],
        [_UNCHANGED] if facts["dry_run"] else [],
    )
