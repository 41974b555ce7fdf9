"""`policyctl assign`, `unassign`, `head reset` and `audit`: what an operator does, and what was done."""

from __future__ import annotations

import sys
import time
from typing import Annotated

import typer

from foundation.option_groups import with_option_groups
from global_learner.errors import BadConfig
from global_learner.policyctl.deed_views import (
    assignment_facts,
    assignments_table,
    audit_facts,
    audit_table,
    reset_facts,
    reset_table,
)
from global_learner.policyctl.options import CallOptions
from global_learner.policyctl.since import moment_of
from global_learner.policyctl.version_names import VersionArgument, version_number

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
        facts = [assignment_facts(entry) for entry in client.assign(number, cluster or [], every)]
    options.show(facts, assignments_table(facts))


@with_option_groups
def unassign_version(
    cluster: Clusters = None,
    every: All = False,
    yes: Yes = False,
    *,
    options: CallOptions,
) -> None:
    """Hold clusters no longer: they act on v1 again, or on the newest version where publish.auto_assign is on."""
    _check_whom(cluster, every)
    with options.client() as client:
        if every:
            _confirm("let no cluster be held on a version", yes)
        facts = [assignment_facts(entry) for entry in client.assign(0, cluster or [], every)]
    options.show(facts, assignments_table(facts))


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


@with_option_groups
def show_audit(
    since: Annotated[
        str | None, typer.Option("--since", help="From when on: 30m, 12h, 7d, or 2026-01-31 or 2026-01-31T12:00 (UTC).")
    ] = None,
    *,
    options: CallOptions,
) -> None:
    """Who did what, when, to clusters, versions and the head; oldest first."""
    from_when = 0.0 if since is None else moment_of(since, time.time())
    with options.client() as client:
        facts = [audit_facts(entry) for entry in client.audit(from_when)]
    options.show(facts, audit_table(facts))


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
