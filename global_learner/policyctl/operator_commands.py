"""Commands `policyctl assign`, `unassign`, `rollback` and `head reset`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foundation.command_line import with_option_groups
from foundation.figures import counted
from foundation.tables import Column, FactSheet, FittedTable
from global_learner.errors import BadLearnerConfig, ChangedSince
from global_learner.policyctl.options import (
    CallOptions,
    DryRun,
    Reason,
    VersionArgument,
    Yes,
    confirm,
    parsed_version,
)
from global_learner.policyctl.views import UNCHANGED, Facts, facts_of, version_name
from policy_net.exchange.generated import fleet_pb2

if TYPE_CHECKING:
    from global_learner.policyctl.client import AdminClient

head_app = typer.Typer(no_args_is_help=True, help="The learner's head: the newest weights.")


@dataclass(frozen=True, slots=True)
class Whom:
    """Options of a command on clusters: which ones, and on what conditions."""

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
        """Raise BadConfig unless either clusters are named, or all are meant."""
        if self.every is bool(self.cluster):
            raise BadLearnerConfig("say whom: --cluster NAME (repeatable), or --all")

    def request_fields(self, client: AdminClient, options: CallOptions, what: str) -> dict[str, Any]:
        """Fields of a request for these clusters; where all are meant, a person confirms `what` first.

        The learner compares when it acts which versions they are to act on with what is known here.

        Raises:
            BadConfig: the answer is no, or --from names no version.
            ChangedSince: they are to act on something else than --from says.
        """
        expected = None if self.from_version is None else parsed_version(self.from_version)
        seen = _assigned_in(client.fleet())
        if self.cluster:
            seen = {cluster: version for cluster, version in seen.items() if cluster in self.cluster}
        if expected is not None:
            number = client.number_of(expected)
            others = [f"{cluster} on v{version}" for cluster, version in seen.items() if version != number]
            if others:
                raise ChangedSince(f"not on v{number} by now: {', '.join(others)}; nothing was changed")
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
    with options.client_and_number(version) as (client, number):
        request = whom.request_fields(client, options, f"let every cluster act on v{number}")
        reply = client.ask(fleet_pb2.AssignVersionRequest(version=number, **request))
    _show_assigned(reply, whom, options)


@with_option_groups
def unassign_version(whom: Whom, options: CallOptions) -> None:
    """Hold clusters no longer: they act on what the latest finished rollout brought, or on v1 where there was none.

    Where publish.auto_assign is on, they act on the newest version.
    """
    whom.check()
    with options.client() as client:
        request = whom.request_fields(client, options, "let no cluster be held on a version")
        reply = client.ask(fleet_pb2.AssignVersionRequest(version=0, **request))
    _show_assigned(reply, whom, options)


@with_option_groups
def roll_back(whom: Whom, options: CallOptions) -> None:
    """Let clusters act again on the version on which each acted before; not while a rollout runs."""
    whom.check()
    with options.client() as client:
        request = whom.request_fields(client, options, "let every cluster go back to the version before")
        reply = client.ask(fleet_pb2.RollBackRequest(just_looked=whom.from_version is None, **request))
    facts = assignment_facts(reply.assignments, dry_run=whom.dry_run)
    options.show(facts, assignments_table(facts, _passed_over(reply)))


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
    with options.client_and_number(to) as (client, number):
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
    moments = "kept" if reply.moments_kept else "zero"
    facts = {"version": number, **facts_of(reply, without=("moments_kept",)), "moments": moments, "dry_run": dry_run}
    options.show(facts, reset_table(facts))


def _assigned_in(fleet: fleet_pb2.GetFleetReply) -> dict[str, int]:
    """Version that every cluster is to act on, but revoked ones."""
    return {view.cluster: view.assigned_version for view in fleet.clusters if view.identity != "revoked"}


def _fleet_of(seen: Mapping[str, int], options: CallOptions) -> str:
    """Beginning of a question about the whole fleet: the learner, how many clusters, and on what they act now."""
    versions = ", ".join(version_name(number) for number in sorted(set(seen.values())))
    now = f", now on {versions}" if versions else ""
    return f"{options.place}, {counted(len(seen), 'cluster')}{now}"


def assignment_facts(assignments: Iterable[fleet_pb2.Assignment], *, dry_run: bool) -> list[Facts]:
    """A command's clusters as JSON shows them."""
    return [
        {**facts_of(entry), "changed": entry.from_version != entry.to_version, "dry_run": dry_run}
        for entry in assignments
    ]


def _show_assigned(reply: fleet_pb2.AssignVersionReply, whom: Whom, options: CallOptions) -> None:
    """Print what changed, and which clusters a running rollout leaves alone from now on."""
    facts = [
        {**entry, "pinned_in_rollout": reply.rollout if entry["cluster"] in reply.pinned else None}
        for entry in assignment_facts(reply.assignments, dry_run=whom.dry_run)
    ]
    pinned = [f"rollout {reply.rollout} leaves alone: {', '.join(reply.pinned)}"] if reply.pinned else []
    options.show(facts, assignments_table(facts, [*pinned, *_passed_over(reply)]))


def _passed_over(reply: fleet_pb2.AssignVersionReply | fleet_pb2.RollBackReply) -> list[str]:
    return [f"passed over, as revoked: {', '.join(reply.passed_over)}"] if reply.passed_over else []


def assignments_table(assignments: list[Facts], more: Sequence[str] = ()) -> FittedTable:
    """A command's clusters, with further lines below."""
    unchanged = any(entry["dry_run"] for entry in assignments)
    below = [UNCHANGED if unchanged else "in force at a cluster's next heartbeat"]
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


def reset_table(facts: Facts) -> FactSheet:
    """The head after a reset."""
    kept = "the version's own" if facts["moments"] == "kept" else "zero: the version's were not kept"
    return FactSheet(
        "",
        [
            ("head", f"{'would be ' if facts['dry_run'] else ''}reset to v{facts['version']}"),
            ("step before", str(facts["from_step"])),
            ("step now", str(facts["head_step"]) + ("" if facts["changed"] else " (it was there already)")),
            ("moments", kept),
        ],
        [UNCHANGED] if facts["dry_run"] else [],
    )
