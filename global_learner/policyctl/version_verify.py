"""Verification of versions: signatures by the fleet's keys, and the bytes that they are of."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from foundation.tables import Column, FittedTable
from global_learner.errors import BadLearnerConfig, LearnerError
from global_learner.policyctl.views import Facts
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


def trusted_root(messages: Sequence[fleet_pb2.SignedDocument], expected_key: str | None) -> Root:
    """The root that the learner shows, if it can be followed from the expected key, or from its own first one.

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
    """One version: whose signature it bears, and what is wrong with it or its file, if anything."""
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
    """See that a file that is at hand is a version's.

    Raises:
        BadConfig: it cannot be read, or its bytes are others.
    """
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
    """Who signed a version, for its card; a learner from before there were signatures knows nobody."""
    try:
        root = trusted_root(client.ask(fleet_pb2.GetKeysRequest()).roots, None)
        version_statement(SignedDocument.of(card.signed), root)
    except (NotTrusted, LearnerError) as error:
        return {"fleet": None, "key": None, "problem": str(error)}
    return {"fleet": root.fleet, "key": card.signed.signatures[0].key.hex(), "problem": ""}


def verify_table(results: Sequence[Facts]) -> FittedTable:
    """A line a version."""
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
