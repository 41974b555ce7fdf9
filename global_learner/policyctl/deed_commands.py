"""`policyctl assign`, `unassign`, `head reset` and `audit`: what an operator does, and what was done."""

from __future__ import annotations

import sys
import time
from typing import Annotated

import typer

from global_learner.errors import BadConfig
from global_learner.policyctl.client import TlsFiles
from global_learner.policyctl.deed_views import (
    assignment_facts,
    assignments_table,
    audit_facts,
    audit_table,
    reset_facts,
    reset_table,
)
from global_learner.policyctl.options import (
    LEARNER,
    TIMEOUT_SECONDS,
    Address,
    Ca,
    Certificate,
    Debug,
    Key,
    Output,
    OutputOption,
    Timeout,
    asked,
    show,
)
from global_learner.policyctl.since import moment_of
from global_learner.policyctl.version_names import VersionArgument, version_number

head_app = typer.Typer(no_args_is_help=True, help="The learner's head: the newest weights.")

Clusters = Annotated[list[str] | None, typer.Option("--cluster", help="A cluster's name (repeatable).")]
All = Annotated[bool, typer.Option("--all", help="Every cluster that is registered now.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


def assign_version(
    version: VersionArgument,
    cluster: Clusters = None,
    every: All = False,
    yes: Yes = False,
    learner: Address = LEARNER,
    output: OutputOption = Output.TABLE,
    timeout: Timeout = TIMEOUT_SECONDS,
    ca: Ca = None,
    cert: Certificate = None,
    key: Key = None,
    debug: Debug = False,
) -> None:
    """Let clusters act on a version from their next heartbeat on, and hold them there."""
    del debug  # The error boundary looks for the flag itself.
    _check_whom(cluster, every)
    number = version_number(version)
    with asked(learner, TlsFiles(ca, cert, key), timeout) as client:
        number = number or client.newest_version()
        if every:
            _confirm(f"let every cluster act on v{number}", yes)
        facts = [assignment_facts(entry) for entry in client.assign(number, cluster or [], every)]
    show(output, facts, assignments_table(facts))


def unassign_version(
    cluster: Clusters = None,
    every: All = False,
    yes: Yes = False,
    learner: Address = LEARNER,
    output: OutputOption = Output.TABLE,
    timeout: Timeout = TIMEOUT_SECONDS,
    ca: Ca = None,
    cert: Certificate = None,
    key: Key = None,
    debug: Debug = False,
) -> None:
    """Hold clusters no longer: they act on v1 again, or on the newest version where publish.auto_assign is on."""
    del debug
    _check_whom(cluster, every)
    with asked(learner, TlsFiles(ca, cert, key), timeout) as client:
        if every:
            _confirm("let no cluster be held on a version", yes)
        facts = [assignment_facts(entry) for entry in client.assign(0, cluster or [], every)]
    show(output, facts, assignments_table(facts))


@head_app.command("reset")
def reset_head(
    to: Annotated[str, typer.Option("--to", help="A version such as 3 or v3, or `latest`.")],
    yes: Yes = False,
    learner: Address = LEARNER,
    output: OutputOption = Output.TABLE,
    timeout: Timeout = TIMEOUT_SECONDS,
    ca: Ca = None,
    cert: Certificate = None,
    key: Key = None,
    debug: Debug = False,
) -> None:
    """Let the head go on from a version: weights and moments. What was learned since is given up."""
    del debug
    number = version_number(to)
    with asked(learner, TlsFiles(ca, cert, key), timeout) as client:
        number = number or client.newest_version()
        _confirm(f"reset the head to v{number}, and give up what it learned since", yes)
        facts = reset_facts(number, client.reset_head(number))
    show(output, facts, reset_table(facts))


def show_audit(
    since: Annotated[
        str | None, typer.Option("--since", help="From when on: 30m, 12h, 7d, or 2026-01-31 or 2026-01-31T12:00 (UTC).")
    ] = None,
    learner: Address = LEARNER,
    output: OutputOption = Output.TABLE,
    timeout: Timeout = TIMEOUT_SECONDS,
    ca: Ca = None,
    cert: Certificate = None,
    key: Key = None,
    debug: Debug = False,
) -> None:
    """Who did what, when, to clusters, versions and the head; oldest first."""
    del debug
    from_when = 0.0 if since is None else moment_of(since, time.time())
    with asked(learner, TlsFiles(ca, cert, key), timeout) as client:
        facts = [audit_facts(entry) for entry in client.audit(from_when)]
    show(output, facts, audit_table(facts))


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
