"""`policyctl version`: which versions there are, what is known of them, which are kept."""

from __future__ import annotations

import typer

from global_learner.policyctl.client import AdminClient, TlsFiles
from global_learner.policyctl.diff_views import diff_table
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
from global_learner.policyctl.version_diff import difference
from global_learner.policyctl.version_names import VersionArgument, version_number
from global_learner.policyctl.version_views import (
    pin_table,
    shown_version_facts,
    version_facts,
    version_table,
    versions_table,
)
from global_learner.policyctl.views import Facts

version_app = typer.Typer(no_args_is_help=True, help="Published policy versions.")


@version_app.command("list")
def list_versions(
    learner: Address = LEARNER,
    output: OutputOption = Output.TABLE,
    timeout: Timeout = TIMEOUT_SECONDS,
    ca: Ca = None,
    cert: Certificate = None,
    key: Key = None,
    debug: Debug = False,
) -> None:
    """All versions, oldest first: what made them, how they score, what they take on disk."""
    del debug  # The error boundary looks for the flag itself.
    with asked(learner, TlsFiles(ca, cert, key), timeout) as client:
        facts = [version_facts(card) for card in client.versions()]
    show(output, facts, versions_table(facts))


@version_app.command("show")
def show_version(
    version: VersionArgument,
    learner: Address = LEARNER,
    output: OutputOption = Output.TABLE,
    timeout: Timeout = TIMEOUT_SECONDS,
    ca: Ca = None,
    cert: Certificate = None,
    key: Key = None,
    debug: Debug = False,
) -> None:
    """One version's whole card, and the spec of its weights."""
    del debug
    number = version_number(version)
    with asked(learner, TlsFiles(ca, cert, key), timeout) as client:
        facts = shown_version_facts(client.version(number or client.newest_version()))
    show(output, facts, version_table(facts))


@version_app.command("diff")
def diff_versions(
    first: VersionArgument,
    second: VersionArgument,
    learner: Address = LEARNER,
    output: OutputOption = Output.TABLE,
    timeout: Timeout = TIMEOUT_SECONDS,
    ca: Ca = None,
    cert: Certificate = None,
    key: Key = None,
    debug: Debug = False,
) -> None:
    """How two versions differ: cards, specs, weights by layer, scores on the same replays, fixed decisions."""
    del debug
    numbers = version_number(first), version_number(second)
    with asked(learner, TlsFiles(ca, cert, key), timeout) as client:
        one, other = (client.version(number or client.newest_version()) for number in numbers)
        facts = difference(one, other, client.policy_file(one.card), client.policy_file(other.card))
    show(output, facts, diff_table(facts))


@version_app.command("pin")
def pin_version(
    version: VersionArgument,
    learner: Address = LEARNER,
    output: OutputOption = Output.TABLE,
    timeout: Timeout = TIMEOUT_SECONDS,
    ca: Ca = None,
    cert: Certificate = None,
    key: Key = None,
    debug: Debug = False,
) -> None:
    """Keep a version's files, whatever the retention settings say."""
    del debug
    with asked(learner, TlsFiles(ca, cert, key), timeout) as client:
        facts = _pin(client, version, pinned=True)
    show(output, facts, pin_table(facts))


@version_app.command("unpin")
def unpin_version(
    version: VersionArgument,
    learner: Address = LEARNER,
    output: OutputOption = Output.TABLE,
    timeout: Timeout = TIMEOUT_SECONDS,
    ca: Ca = None,
    cert: Certificate = None,
    key: Key = None,
    debug: Debug = False,
) -> None:
    """Leave a version to the retention settings again."""
    del debug
    with asked(learner, TlsFiles(ca, cert, key), timeout) as client:
        facts = _pin(client, version, pinned=False)
    show(output, facts, pin_table(facts))


def _pin(client: AdminClient, version: str, pinned: bool) -> Facts:
    number = version_number(version) or client.newest_version()
    return {"version": number, "name": f"v{number}", "pinned": pinned, "changed": client.pin(number, pinned)}
