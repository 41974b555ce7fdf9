"""Commands of `policyctl version`: which versions there are, what is known of them, which are kept."""

from __future__ import annotations

import typer

from foundation.option_groups import with_option_groups
from global_learner.policyctl.options import CallOptions, VersionArgument, version_number
from global_learner.policyctl.version_diff import diff_table, difference
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
@with_option_groups
def list_versions(options: CallOptions) -> None:
    """All versions, oldest first: what made them, how they score, what they take on disk."""
    with options.client() as client:
        facts = [version_facts(card) for card in client.versions()]
    options.show(facts, versions_table(facts))


@version_app.command("show")
@with_option_groups
def show_version(version: VersionArgument, options: CallOptions) -> None:
    """One version's whole card, and the spec of its weights."""
    number = version_number(version)
    with options.client() as client:
        facts = shown_version_facts(client.version(number or client.newest_version()))
    options.show(facts, version_table(facts))


@version_app.command("diff")
@with_option_groups
def diff_versions(first: VersionArgument, second: VersionArgument, options: CallOptions) -> None:
    """How two versions differ: cards, specs, weights by layer, scores on the same replays, fixed decisions."""
    numbers = version_number(first), version_number(second)
    with options.client() as client:
        one, other = (client.version(number or client.newest_version()) for number in numbers)
        facts = difference(one, other, client.policy_file(one.card), client.policy_file(other.card))
    options.show(facts, diff_table(facts))


@version_app.command("pin")
@with_option_groups
def pin_version(version: VersionArgument, options: CallOptions) -> None:
    """Keep a version's files, whatever the retention settings say."""
    _pin(version, True, options)


@version_app.command("unpin")
@with_option_groups
def unpin_version(version: VersionArgument, options: CallOptions) -> None:
    """Leave a version to the retention settings again."""
    _pin(version, False, options)


def _pin(version: str, pinned: bool, options: CallOptions) -> None:
    with options.client() as client:
        number = version_number(version) or client.newest_version()
        changed = client.pin(number, pinned)
    facts: Facts = {"version": number, "name": f"v{number}", "pinned": pinned, "changed": changed}
    options.show(facts, pin_table(facts))
