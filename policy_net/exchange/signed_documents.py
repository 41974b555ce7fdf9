"""Signed statements of a fleet: which keys may sign for it, what a version is, and what a cluster is to act on now.

Three roles, each with keys of its own. A *root* says which keys sign in which role; the next one is signed by the keys
of the one before and by its own, so that whoever pinned a root can follow. A *version* statement says which bytes a
version is. A short-lived *timestamp* says which version one cluster is to act on: an old answer that somebody sends
again is not believed. Signatures are over the very bytes that travel, which are read only once one holds.
Source: The Update Framework (theupdateframework.io, specification 1.0), for roles, rotation and freshness.
Deviation: one signature of any key of a role is enough; a root does not expire (docs/decisions/0040).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeVar

from foundation.text import parse_json
from policy_net.errors import NotTrusted
from policy_net.exchange.generated import fleet_pb2
from policy_net.exchange.rollout_assignment import RolloutAssignment

if TYPE_CHECKING:  # loaded where something is signed or checked: policyctl's help knows the roles
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

_PURPOSE = b"fedl2 signed document 1\n"
"""Stands before what is signed, so that a signature made for something else is none of ours."""
_MOST_BYTES = 65_536
_MOST_SIGNATURES = 16
_MOST_ROOTS = 1000
_LARGEST = 2**63 - 1
_LONGEST_WORD = 128


class KeyRole(StrEnum):
    """What a key may sign."""

    ROOT = "root"
    VERSION = "version"
    TIMESTAMP = "timestamp"


class Distrust(StrEnum):
    """Why a statement is not believed; the words of metrics and heartbeats."""

    UNSIGNED = "unsigned"
    UNREADABLE = "unreadable"
    BAD_SIGNATURE = "bad-signature"
    OTHER_FLEET = "other-fleet"
    OTHER_VERSION = "other-version"
    BAD_DIGEST = "bad-digest"
    EXPIRED = "expired"
    REPLAYED = "replayed"
    OTHER_ASSIGNMENT = "other-assignment"
    OLD_ROOT = "old-root"


UNUSABLE = "unusable"
"""The word for a version that is the fleet's, and cannot be acted with: another spec, a damaged file."""
UNAVAILABLE = "unavailable"
"""The word for a version of which the learner's own file is damaged or gone."""
NOT_ALLOWED = "not-allowed"
"""The word for a candidate that the cluster's own operator does not let act, or be computed."""
VERSION_REFUSALS = (*Distrust, UNUSABLE, UNAVAILABLE, NOT_ALLOWED)
"""All words for why a cluster does not act on what it was assigned."""


@dataclass(frozen=True, slots=True)
class SignedDocument:
    """A statement's bytes, and signatures by public key; nothing is checked yet."""

    payload: bytes
    signatures: tuple[tuple[bytes, bytes], ...]

    @classmethod
    def of(cls, message: fleet_pb2.SignedDocument) -> SignedDocument:
        """From the wire."""
        return cls(message.payload, tuple((entry.key, entry.signature) for entry in message.signatures))

    def message(self) -> fleet_pb2.SignedDocument:
        """For the wire."""
        signatures = [fleet_pb2.Signature(key=key, signature=signature) for key, signature in self.signatures]
        return fleet_pb2.SignedDocument(payload=self.payload, signatures=signatures)

    def to_json(self) -> dict[str, Any]:
        """For a file."""
        pairs = [{"key": key.hex(), "signature": signature.hex()} for key, signature in self.signatures]
        return {"payload": self.payload.decode(), "signatures": pairs}

    @classmethod
    def from_json(cls, content: Any) -> SignedDocument:
        """The inverse.

        Raises:
            NotTrusted: it is something else.
        """
        try:
            pairs = [(bytes.fromhex(pair["key"]), bytes.fromhex(pair["signature"])) for pair in content["signatures"]]
            return cls(content["payload"].encode(), tuple(pairs))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise NotTrusted("this is no signed statement; it may be cut short", Distrust.UNREADABLE) from error


@dataclass(frozen=True, slots=True)
class Root:
    """Which keys (public, hex) sign in which role; `fleet` is drawn once, and `number` rises by one each time."""

    fleet: str
    number: int
    keys: Mapping[KeyRole, tuple[str, ...]]

    def to_bytes(self) -> bytes:
        """What is signed."""
        keys = {role.value: list(self.keys[role]) for role in KeyRole}
        return _payload("root", {"fleet": self.fleet, "number": self.number, "keys": keys})


@dataclass(frozen=True, slots=True)
class VersionStatement:
    """What a version is."""

    fleet: str
    version: int
    parent: int
    head_step: int
    digest: str
    spec_digest: str

    def to_bytes(self) -> bytes:
        """What is signed."""
        return _payload("version", asdict(self))


@dataclass(frozen=True, slots=True)
class Timestamp:
    """What one cluster is to act on, and until when that holds; numbers of one fleet's timestamps only rise.

    Attributes:
        rollout_assignment: what a rollout asks of it besides; None: nothing.
    """

    fleet: str
    cluster: str
    number: int
    assigned_version: int
    expires_unix_seconds: int
    rollout_assignment: RolloutAssignment | None = None

    def to_bytes(self) -> bytes:
        """What is signed; without an assignment what it was before there were any."""
        content: dict[str, Any] = asdict(self)
        del content["rollout_assignment"]
        return _payload(
            "timestamp",
            content if self.rollout_assignment is None else content | {"duty": self.rollout_assignment.to_json()},
        )


def public_hex(key: Ed25519PrivateKey | Ed25519PublicKey) -> str:
    """A key's public half, as roots name it."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat  # noqa: PLC0415

    public = key.public_key() if isinstance(key, Ed25519PrivateKey) else key
    return public.public_bytes(Encoding.Raw, PublicFormat.Raw).hex()


def signed(payload: bytes, keys: Iterable[Ed25519PrivateKey]) -> SignedDocument:
    """A statement, signed by each of the keys."""
    pairs = tuple((bytes.fromhex(public_hex(key)), key.sign(_PURPOSE + payload)) for key in keys)
    return SignedDocument(payload, pairs)


def is_signed_by(document: SignedDocument, keys: Sequence[str]) -> bool:
    """Whether one of these public keys (hex) has signed it."""
    if len(document.payload) > _MOST_BYTES:
        return False
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415

    for key, signature in document.signatures[:_MOST_SIGNATURES]:
        if key.hex() in keys:
            try:
                Ed25519PublicKey.from_public_bytes(key).verify(signature, _PURPOSE + document.payload)
            except (InvalidSignature, ValueError):
                continue
            return True
    return False


def follow_roots(documents: Sequence[SignedDocument], pinned: SignedDocument | None = None) -> Root:
    """The newest root of a chain that begins with a fleet's first; of one that was pinned, a continuation.

    Raises:
        NotTrusted: a link is not signed by the one before and by itself, is of another fleet or missing, or the chain
            ends before the pinned one.
    """
    if not 0 < len(documents) <= _MOST_ROOTS:
        raise NotTrusted(f"a chain of {len(documents)} roots cannot be followed", Distrust.UNSIGNED)
    root: Root | None = None
    passed_pinned = pinned is None
    for document in documents:
        following = read_root(document)
        if not is_signed_by(document, following.keys[KeyRole.ROOT]):
            raise NotTrusted(f"root {following.number} is not signed with its own key", Distrust.BAD_SIGNATURE)
        if root is None and following.number != 1:
            raise NotTrusted(f"the chain of roots begins with number {following.number}", Distrust.UNREADABLE)
        if root is not None:
            if (following.fleet, following.number) != (root.fleet, root.number + 1):
                raise NotTrusted(f"root {following.number} does not follow root {root.number}", Distrust.UNREADABLE)
            if not is_signed_by(document, root.keys[KeyRole.ROOT]):
                raise NotTrusted(
                    f"root {following.number} is not signed with the key of root {root.number}", Distrust.BAD_SIGNATURE
                )
        root = following
        passed_pinned = passed_pinned or (pinned is not None and document.payload == pinned.payload)
    assert root is not None  # noqa: S101  (there is one at least)
    if not passed_pinned and pinned is not None:
        known = read_root(pinned)
        if known.fleet == root.fleet and root.number < known.number:
            raise NotTrusted(f"root {root.number} is older than root {known.number}, known here", Distrust.OLD_ROOT)
        raise NotTrusted(
            f"the keys are those of fleet {root.fleet[:12]}, and not of fleet {known.fleet[:12]}, known here",
            Distrust.OTHER_FLEET,
        )
    return root


def read_root(document: SignedDocument) -> Root:
    """A root's content, unchecked but for its form.

    Raises:
        NotTrusted: it is no root.
    """

    def keys(value: Any) -> Mapping[KeyRole, tuple[str, ...]]:
        found = {role: tuple(value[role.value]) for role in KeyRole}
        if not all(isinstance(key, str) and len(bytes.fromhex(key)) == 32 for of in found.values() for key in of):
            raise ValueError("a key is not 32 bytes in hex")
        return found

    return _read(
        document,
        "root",
        lambda content: Root(**_values(Root, content), keys=keys(content["keys"])),
    )


def version_statement(document: SignedDocument, root: Root) -> VersionStatement:
    """A version's statement that the fleet has signed.

    Raises:
        NotTrusted: it has not.
    """
    return _signed_statement(
        document, root, KeyRole.VERSION, lambda content: VersionStatement(**_values(VersionStatement, content))
    )


def timestamp(document: SignedDocument, root: Root) -> Timestamp:
    """A timestamp that the fleet has signed; whether it has expired is the caller's to look at.

    Raises:
        NotTrusted: it has not.
    """

    def build(content: dict[str, Any]) -> Timestamp:
        stated = content.get("duty")
        assignment = None if stated is None else RolloutAssignment.from_json(stated)
        return Timestamp(**_values(Timestamp, content), rollout_assignment=assignment)

    return _signed_statement(document, root, KeyRole.TIMESTAMP, build)


Statement = TypeVar("Statement", VersionStatement, Timestamp)
Read = TypeVar("Read", Root, VersionStatement, Timestamp)


def _signed_statement(
    document: SignedDocument, root: Root, role: KeyRole, build: Callable[[dict[str, Any]], Statement]
) -> Statement:
    if not document.signatures:
        raise NotTrusted(f"there is no signature on its {role} statement", Distrust.UNSIGNED)
    if not is_signed_by(document, root.keys[role]):
        raise NotTrusted(
            f"its {role} statement is not signed with a {role} key of fleet {root.fleet[:12]}", Distrust.BAD_SIGNATURE
        )
    statement = _read(document, role.value, build)
    if statement.fleet != root.fleet:
        raise NotTrusted(f"a statement of fleet {statement.fleet[:12]}, not {root.fleet[:12]}", Distrust.OTHER_FLEET)
    return statement


def _payload(kind: str, content: Mapping[str, Any]) -> bytes:
    return json.dumps({"type": kind, **content}, sort_keys=True, separators=(",", ":")).encode()


def _read(document: SignedDocument, kind: str, build: Callable[[dict[str, Any]], Read]) -> Read:
    try:
        if len(document.payload) > _MOST_BYTES:
            raise ValueError("too long")  # noqa: TRY301
        content = parse_json(document.payload)
        if content["type"] != kind:
            raise ValueError(f"a {str(content['type'])[:20]!r}")  # noqa: TRY301
        return build(content)
    except (KeyError, TypeError, ValueError) as error:
        raise NotTrusted(f"this is no {kind} statement ({error})", Distrust.UNREADABLE) from error


def _values(statement: type, content: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, kind in statement.__annotations__.items():
        if kind not in ("str", "int"):
            continue
        value = found[name] = content[name]
        if kind == "str" and (not isinstance(value, str) or len(value) > _LONGEST_WORD):
            raise TypeError(f"{name} is no word")
        if kind == "int" and (type(value) is not int or not 0 <= value <= _LARGEST):
            raise TypeError(f"{name} is no whole number")
    return found
