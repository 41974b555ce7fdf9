"""Commands of `policyctl version`: which versions there are, what is known of them, which are kept."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foundation.command_line import group_with_habits, with_option_groups
from foundation.tables import Column, FactSheet, FittedTable
from foundation.text import parse_json
from global_learner.errors import BadLearnerConfig, LearnerError, StateUnusable, VersionsUnsound
from global_learner.policyctl.options import CallOptions, PollOptions, Reason, VersionArgument, parsed_version
from global_learner.policyctl.version_views import (
    alias_facts,
    alias_table,
    note_facts,
    note_table,
    pin_table,
    version_facts,
    version_table,
    versions_table,
)
from global_learner.policyctl.views import Facts
from global_learner.registry.version_words import named_content
from policy_net.errors import NotTrusted
from policy_net.exchange.generated import fleet_pb2
from policy_net.exchange.signed_documents import (
    KeyRole,
    Root,
    SignedDocument,
    VersionStatement,
    follow_roots,
    read_root,
    version_statement,
)

if TYPE_CHECKING:
    from global_learner.policyctl.client import AdminClient

_HABITS = {
    "name": "policyctl version alias",
    "rename": "policyctl version alias",
    "tag": "policyctl version alias",
    "label": "policyctl version alias",
    "untag": "policyctl version unalias",
    "annotate": "policyctl version note",
    "describe": "policyctl version show",
    "get": "policyctl version list",
    "ls": "policyctl version list",
}
version_app = typer.Typer(cls=group_with_habits(_HABITS), no_args_is_help=True, help="Published policy versions.")


def trusted_root(messages: Sequence[fleet_pb2.SignedDocument], expected_key: str | None) -> Root:
    """The learner's root, followed from the expected key or from its own first one.

    Raises:
        NotTrusted: it cannot.
    """
    documents = tuple(map(SignedDocument.of, messages))
    root = follow_roots(documents)
    if expected_key is not None and not any(
        expected_key in read_root(document).keys[KeyRole.ROOT] for document in documents
    ):
        raise NotTrusted(f"no root of the learner's was signed with key {expected_key[:16]}", "other-fleet")
    return root


def verified(client: AdminClient, card: fleet_pb2.VersionCard, root: Root) -> Facts:
    """Check of one version's signature and file."""
    facts: Facts = {"version": card.version, "name": f"v{card.version}", "ok": False, "kept": card.kept, "problem": ""}
    try:
        stated = version_statement(SignedDocument.of(card.signed), root)
    except NotTrusted as error:
        return {**facts, "problem": str(error)}
    reported = VersionStatement(root.fleet, card.version, card.parent, card.head_step, card.digest, card.spec_digest)
    if stated != reported:
        names = [name for name in VersionStatement.__slots__ if getattr(stated, name) != getattr(reported, name)]
        return {**facts, "problem": f"its card says another {', '.join(names)} than what was signed"}
    try:
        client.policy_file(card)
    except LearnerError as error:
        return {**facts, "problem": str(error)}
    return {**facts, "ok": True}


def check_file(path: Path, card: fleet_pb2.VersionCard) -> None:
    """Raise BadConfig if a file at hand cannot be read, or is not the version's."""
    from policy_net.exchange.policy_file import digest_of  # noqa: PLC0415  (loads NumPy)

    try:
        found = digest_of(path.read_bytes())
    except OSError as error:
        raise BadLearnerConfig(f"--file {path}: cannot be read ({error.strerror})") from error
    if found != card.digest:
        raise BadLearnerConfig(
            f"--file {path}: is not v{card.version}: its digest is {found[:12]}, that of v{card.version} is "
            f"{card.digest[:12]}; do not use it"
        )


def signer(client: AdminClient, card: fleet_pb2.VersionCard) -> Facts:
    """Signer of a version, for its card; none from a learner that is older than signatures."""
    try:
        root = trusted_root(client.ask(fleet_pb2.GetKeysRequest()).roots, None)
        version_statement(SignedDocument.of(card.signed), root)
    except (NotTrusted, LearnerError) as error:
        return {"fleet": None, "key": None, "problem": str(error)}
    return {"fleet": root.fleet, "key": card.signed.signatures[0].key.hex(), "problem": ""}


def verify_table(results: Sequence[Facts]) -> FittedTable:
    """Versions, and what is wrong with each."""
    columns = (Column("version"), Column("signed\nand whole", text=True), Column("remarks", words=True))
    rows = [
        (
            facts["name"],
            "yes" if facts["ok"] else "NO",
            facts["problem"] or ("" if facts["kept"] else "its file is no longer kept"),
        )
        for facts in results
    ]
    return FittedTable("", columns, rows)


@version_app.command("list")
@with_option_groups
def list_versions(
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, max=2**31 - 1, help="Show so many, the newest; all unless given.")
    ] = None,
    *,
    options: PollOptions,
) -> None:
    """All versions, oldest first: what made them, how they score, what they take on disk."""
    newest = slice(None if limit is None else -limit, None)
    options.poll(lambda client: [version_facts(card) for card in client.versions()[newest]], versions_table)


@version_app.command("show")
@with_option_groups
def show_version(version: VersionArgument, options: PollOptions) -> None:
    """One version's whole card, and the spec of its weights."""
    parsed = parsed_version(version)

    def shown(client: AdminClient) -> Facts:
        found = _version(client, parsed)
        spec = parse_json(found.spec_json)
        return {**version_facts(found.card), "spec": spec, "signed_by": signer(client, found.card)}

    options.poll(shown, version_table)


@version_app.command("diff")
@with_option_groups
def diff_versions(first: VersionArgument, second: VersionArgument, options: PollOptions) -> None:
    """How two versions differ: cards, specs, weights by layer, scores on the same replays, fixed decisions."""
    both = parsed_version(first), parsed_version(second)
    from global_learner.policyctl.version_diff import diff_table, difference  # noqa: PLC0415  (loads NumPy)

    def differ(client: AdminClient) -> Facts:
        one, other = (_version(client, each) for each in both)
        return difference(one, other, client.policy_file(one.card), client.policy_file(other.card))

    options.poll(differ, diff_table)


@version_app.command("verify")
@with_option_groups
def verify_versions(
    version: Annotated[
        str | None, typer.Argument(help="A version such as 3 or v3, its alias, or `latest`; all unless given.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", help="Look at this copy of the version's policy file too.")
    ] = None,
    root_key: Annotated[
        str | None,
        typer.Option("--root-key-id", help="A public root key (hex) that you know from `policyctl key show`."),
    ] = None,
    *,
    options: CallOptions,
) -> None:
    """Whether versions bear the fleet's signature, and their files are what was signed; exit code 1 if one is not."""
    if file is not None and version is None:
        raise BadLearnerConfig(
            "--file needs the version that it is said to be: `policyctl version verify v3 --file FILE`"
        )
    parsed = None if version is None else parsed_version(version)
    with options.client() as client:
        roots = client.ask(fleet_pb2.GetKeysRequest()).roots
        cards = client.versions()
        if parsed is not None:
            number = client.number_of(parsed)
            cards = [card for card in cards if card.version == number] or [_version(client, number).card]
        try:
            root = trusted_root(roots, root_key)
        except NotTrusted as error:
            raise StateUnusable(f"the learner's keys are not trusted: {error}") from error
        results = [verified(client, card, root) for card in cards]
    if file is not None:
        check_file(file, cards[0])
    options.show(results, verify_table(results))
    unsound = [facts["name"] for facts in results if not facts["ok"]]
    if unsound:
        raise VersionsUnsound(
            f"not as signed: {', '.join(unsound)}; put a sound copy of the file back with `policyctl version restore`"
        )


@version_app.command("pin")
@with_option_groups
def pin_version(version: VersionArgument, reason: Reason = "", *, options: CallOptions) -> None:
    """Keep a version's files, whatever the retention settings say."""
    _pin(version, True, reason, options)


@version_app.command("unpin")
@with_option_groups
def unpin_version(version: VersionArgument, reason: Reason = "", *, options: CallOptions) -> None:
    """Leave a version to the retention settings again."""
    _pin(version, False, reason, options)


@version_app.command("note")
@with_option_groups
def note_version(
    version: VersionArgument,
    text: Annotated[str, typer.Argument(help="What is to be said of it, in a line; empty: nothing any more.")],
    options: CallOptions,
) -> None:
    """Say something of a version to whoever looks at it; `list`, `show` and the audit log have it, with your name."""
    with options.client_and_number(version) as (client, number):
        changed = client.ask(fleet_pb2.NoteVersionRequest(version=number, text=text)).changed
        facts: Facts = {
            "version": number,
            "name": f"v{number}",
            "note": note_facts(_version(client, number).card),
            "changed": changed,
        }
    options.show(facts, note_table(facts))


@version_app.command("restore")
@with_option_groups
def restore_version(
    version: VersionArgument,
    file: Annotated[Path, typer.Option("--from", help="A copy of its policy file, or of the head beside it.")],
    reason: Reason = "",
    *,
    options: CallOptions,
) -> None:
    """Put a version's file back that was damaged or lost; one with another digest than was published is refused."""
    data = named_content("--from", file)
    with options.client_and_number(version) as (client, number):
        request = fleet_pb2.RestoreVersionRequest(version=number, file=data, reason=reason)
        changed = client.ask(request).changed
    facts: Facts = {"version": number, "name": f"v{number}", "changed": changed}
    outcome = "put back" if changed else "was there, and whole"
    options.show(facts, FactSheet("", [("version", f"v{number}"), ("its file", outcome)]))


@version_app.command("publish")
@with_option_groups
def publish_version(
    file: Annotated[
        Path, typer.Argument(help="A policy file that was trained elsewhere, as `policy-net train` writes.")
    ],
    note: Annotated[str, typer.Option("--note", help="What is to be said of it, in a line.")] = "",
    *,
    options: CallOptions,
) -> None:
    """Make a policy that was trained elsewhere the next version. Nothing acts on it before a rollout brings it."""
    data = named_content("FILE", file)
    with options.client() as client:
        card = client.ask(fleet_pb2.PublishVersionRequest(policy_file=data, note=note)).card
    bring = f"policyctl rollout start v{card.version}"
    rows = [("published", f"v{card.version}"), ("digest", card.digest), ("bring it to the fleet", bring)]
    options.show(version_facts(card), FactSheet("", rows))


@version_app.command("alias")
@with_option_groups
def alias_version(
    version: VersionArgument,
    alias: Annotated[str, typer.Argument(help="A word such as `stable`.")],
    move: Annotated[bool, typer.Option("--move", help="Take it from the version that has it.")] = False,
    reason: Reason = "",
    *,
    options: CallOptions,
) -> None:
    """Let a word mean a version wherever one is asked for; the version is kept as long as it has one."""
    with options.client_and_number(version) as (client, number):
        request = fleet_pb2.AliasVersionRequest(alias=alias, version=number, move=move, reason=reason)
        before = client.ask(request).from_version
    facts = alias_facts(alias, before, number)
    options.show(facts, alias_table(facts))


@version_app.command("unalias")
@with_option_groups
def unalias_version(
    alias: Annotated[str, typer.Argument(help="The word that is to mean no version any more.")],
    reason: Reason = "",
    *,
    options: CallOptions,
) -> None:
    """Take an alias away; its version is left to the retention settings again."""
    with options.client() as client:
        before = client.ask(fleet_pb2.AliasVersionRequest(alias=alias, reason=reason)).from_version
    facts = alias_facts(alias, before, 0)
    options.show(facts, alias_table(facts))


def _version(client: AdminClient, version: int | str) -> fleet_pb2.ShowVersionReply:
    request = fleet_pb2.ShowVersionRequest(version=client.number_of(version))
    reply: fleet_pb2.ShowVersionReply = client.ask(request)
    return reply


def _pin(version: str, pinned: bool, reason: str, options: CallOptions) -> None:
    with options.client_and_number(version) as (client, number):
        request = fleet_pb2.PinVersionRequest(version=number, pinned=pinned, reason=reason)
        changed = client.ask(request).changed
    facts: Facts = {"version": number, "name": f"v{number}", "pinned": pinned, "changed": changed}
    options.show(facts, pin_table(facts))
