"""The learner's side of signatures: a fleet's keys, and versions and timestamps that they sign."""

import dataclasses

from agent_fakes import SPEC, WEIGHTS
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from policy_net.exchange.policy_file import PolicyFile, digest_of
from policy_net.exchange.signed_documents import (
    KeyRole,
    Root,
    SignedDocument,
    Timestamp,
    VersionStatement,
    public_hex,
    signed,
)
from policy_net.exchange.wire import FetchedPolicy

DATA = PolicyFile(SPEC, WEIGHTS, {}).to_bytes()


class SigningFleet:
    """A learner's side of it."""

    def __init__(self, name: str = "f" * 32) -> None:
        self.keys = {role: Ed25519PrivateKey.generate() for role in KeyRole}
        self.root = Root(name, 1, self._publics())
        self.roots = [signed(self.root.to_bytes(), [self.keys[KeyRole.ROOT]])]
        self.number = 1

    def rotate(self, role: KeyRole) -> None:
        before = self.keys[KeyRole.ROOT]
        self.keys[role] = Ed25519PrivateKey.generate()
        self.root = dataclasses.replace(self.root, number=self.root.number + 1, keys=self._publics())
        self.roots.append(signed(self.root.to_bytes(), [before, self.keys[KeyRole.ROOT]]))

    def timestamp(self, version: int, cluster: str = "north", expires: int = 200) -> SignedDocument:
        self.number += 1
        stamp = Timestamp(self.root.fleet, cluster, self.number, version, expires)
        return signed(stamp.to_bytes(), [self.keys[KeyRole.TIMESTAMP]])

    def version(self, number: int, **changes: object) -> FetchedPolicy:
        digest = digest_of(DATA)
        statement = VersionStatement(self.root.fleet, number, number - 1, 100 * number, digest, SPEC.digest)
        document = signed(statement.to_bytes(), [self.keys[KeyRole.VERSION]])
        sound = FetchedPolicy(number, DATA, digest, document, self.timestamp(number), tuple(self.roots))
        return dataclasses.replace(sound, **changes)  # type: ignore[arg-type]

    def _publics(self) -> dict[KeyRole, tuple[str, ...]]:
        return {role: (public_hex(key),) for role, key in self.keys.items()}
