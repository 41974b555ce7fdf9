"""Commands of `policyctl key`: the keys that sign for the fleet, and new ones in their place.

A root key that is not on the learner's machine signs here: the learner sends the next root, this program checks it,
signs it and sends it back. The key itself is never sent.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foundation.command_line import with_option_groups
from foundation.tables import Column, FactSheet, FittedTable
from global_learner.errors import BadLearnerConfig, ChangedSince, StateUnusable
from global_learner.policyctl.options import CallOptions, PollOptions
from global_learner.policyctl.views import SHOWN_OF_A_KEY, Facts
from policy_net.errors import NotTrusted
from policy_net.exchange.generated import fleet_pb2
from policy_net.exchange.signed_documents import (
    KeyRole,
    Root,
    SignedDocument,
    follow_roots,
    public_hex,
    read_root,
    signed,
)

if TYPE_CHECKING:
    from global_learner.policyctl.client import AdminClient

key_app = typer.Typer(no_args_is_help=True, help="The keys that sign for the fleet.")


@key_app.command("show")
@with_option_groups
def show_keys(options: PollOptions) -> None:
    """The fleet, and the public key of every role; whether the root's private key is on the learner's machine."""
    options.poll(_keys, keys_table)


def _keys(client: AdminClient) -> Facts:
    reply = client.ask(fleet_pb2.GetKeysRequest())
    root = _newest(reply.roots)
    return {
        "fleet": root.fleet,
        "root": root.number,
        "root_key_present": reply.root_key_present,
        "keys": {role.value: list(root.keys[role]) for role in KeyRole},
    }


@key_app.command("rotate")
@with_option_groups
def rotate_key(
    role: Annotated[KeyRole, typer.Argument(help="Whose key: root, version or timestamp.")],
    root_key: Annotated[
        Path | None,
        typer.Option("--root-key", help="The root's private key, if the learner's machine lacks it."),
    ] = None,
    new_root_key: Annotated[
        Path | None, typer.Option("--new-root-key", help="Where the new root's private key is to be written.")
    ] = None,
    from_root: Annotated[
        int | None,
        typer.Option(
            "--from", min=1, max=2**31 - 1, help="The newest root's number as you saw it; refused if there is another."
        ),
    ] = None,
    *,
    options: CallOptions,
) -> None:
    """Put a new key in a role's place; agents follow by themselves, and versions are signed again."""
    if (new_root_key is not None) is not (role is KeyRole.ROOT and root_key is not None):
        raise BadLearnerConfig("--new-root-key FILE goes with `rotate root --root-key FILE`, and with nothing else")
    with options.client() as client:
        before = _newest(client.ask(fleet_pb2.GetKeysRequest()).roots)
        seen = before.number if from_root is None else from_root
        if root_key is None:
            reply = client.ask(fleet_pb2.RotateKeyRequest(role=role, seen_root=seen))
            if reply.unsigned_root:
                raise BadLearnerConfig(
                    "the root key is not on the learner's machine: name it with --root-key FILE; nothing was changed"
                )
        else:
            root = _signed_root(client, role, before, root_key, new_root_key, seen).message()
            reply = client.ask(fleet_pb2.RotateKeyRequest(role=role, root=root, seen_root=seen))
    after = _newest(reply.roots)
    facts: Facts = {
        "role": role.value,
        "root": after.number,
        "from_key": before.keys[role][0],
        "to_key": after.keys[role][0],
    }
    options.show(facts, rotated_table(facts))


def _signed_root(
    client: AdminClient, role: KeyRole, before: Root, root_key: Path, new_root_key: Path | None, seen: int
) -> SignedDocument:
    """The next root, checked and signed here; `seen` is the newest root's number as the user knows it."""
    if seen != before.number:
        raise ChangedSince(f"root {before.number} is the newest by now, not {seen}; no key was replaced")
    # Only whoever signs waits for what a learner's own keys need.
    from global_learner.registry.fleet_keys import new_signing_key, read_signing_key  # noqa: PLC0415

    key = read_signing_key(root_key)
    if public_hex(key) not in before.keys[KeyRole.ROOT]:
        raise BadLearnerConfig(f"{root_key}: is not the root key of fleet {before.fleet[:12]}")
    if role is KeyRole.ROOT:
        assert new_root_key is not None  # noqa: S101  (looked at before)
        following = new_signing_key(new_root_key)
        keys = {**before.keys, KeyRole.ROOT: (public_hex(following),)}
        payload = dataclasses.replace(before, number=before.number + 1, keys=keys).to_bytes()
        return signed(payload, [key, following])
    payload = client.ask(fleet_pb2.RotateKeyRequest(role=role, seen_root=seen)).unsigned_root
    if not payload:
        raise BadLearnerConfig(
            "the root key is on the learner's machine, which has signed by itself; remove it from there"
        )
    proposed = read_root(SignedDocument(payload, ()))
    expected = dataclasses.replace(before, number=before.number + 1, keys={**before.keys, role: proposed.keys[role]})
    if proposed != expected or expected.to_bytes() != payload:
        raise StateUnusable(f"the learner's next root changes more than its {role} key; it was not signed")
    return signed(payload, [key])


def _newest(messages: Sequence[fleet_pb2.SignedDocument]) -> Root:
    try:
        return follow_roots(tuple(map(SignedDocument.of, messages)))
    except NotTrusted as error:
        raise StateUnusable(f"the learner's roots cannot be followed: {error}") from error


def keys_table(facts: Facts) -> FactSheet:
    """The public key of every role, whole, as it is passed on to others."""
    where = "on the learner's machine" if facts["root_key_present"] else "kept elsewhere"
    rows = [
        ("fleet", facts["fleet"]),
        ("root", f"number {facts['root']}, whose private key is {where}"),
        *((f"key of {role}", ", ".join(keys)) for role, keys in facts["keys"].items()),
    ]
    return FactSheet("", rows)


def rotated_table(facts: Facts) -> FittedTable:
    """The key that went, and the one in its place."""
    columns = (Column("role"), Column("key before", text=True), Column("key now", text=True), Column("root", 1))
    keys = (facts["from_key"][:SHOWN_OF_A_KEY], facts["to_key"][:SHOWN_OF_A_KEY])
    return FittedTable("", columns, [(facts["role"], *keys, str(facts["root"]))])
