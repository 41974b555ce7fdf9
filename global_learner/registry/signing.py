"""Signatures of versions, on the registry's thread, and of assignments (timestamps), on the event loop.

A timestamp is signed anew when a third of its life is over, or when the assignment changes: not at each heartbeat.
"""

from __future__ import annotations

import json
import threading
import zlib
from collections.abc import Callable
from pathlib import Path

import structlog
from google.protobuf.message import DecodeError
from sqlalchemy import select
from sqlalchemy.orm import Session

from foundation.files import PRIVATE, write_whole
from foundation.text import parse_json
from global_learner.errors import StateUnusable
from global_learner.registry.fleet_keys import FOLDER, FleetKeys
from global_learner.registry.policy_store import PolicyStore
from global_learner.registry.tables import VersionRow
from global_learner.storage.commits import TIMESTAMPS, Commits
from policy_net.errors import NotTrusted
from policy_net.exchange.generated import fleet_pb2
from policy_net.exchange.rollout_assignment import RolloutAssignment
from policy_net.exchange.signed_documents import (
    KeyRole,
    Root,
    SignedDocument,
    Timestamp,
    VersionStatement,
    is_signed_by,
    version_statement,
)

_log = structlog.get_logger()

_NUMBERS = "timestamp.json"
_RESERVED = 60_000
"""Numbers are milliseconds of a clock that goes on; one a minute is written down, and a restart begins behind it."""
_MOST_CLUSTERS = 200_000


def statement_of(row: VersionRow, fleet: str) -> VersionStatement:
    """Statement of what a version is, from the registry."""
    return VersionStatement(fleet, row.version, row.parent, row.head_step, row.digest, row.spec_digest)


class Signing:
    """Signs for a fleet.

    Args:
        lifetime_seconds: of a timestamp.
        clock: Unix seconds.
        commits: the state directory's record, in which roots and timestamps are counted.

    Attributes:
        reserved_number: bound of the timestamps' numbers, on disk.
    """

    def __init__(
        self, state_dir: Path, lifetime_seconds: float, clock: Callable[[], float], commits: Commits | None = None
    ) -> None:
        """Open the keys, or make them.

        Raises:
            StateUnusable: they cannot be used.
            SecretExposed: others may read them.
        """
        self.keys = FleetKeys(state_dir / FOLDER, commits)
        self._commits = commits
        self._lifetime_seconds = lifetime_seconds
        self._clock = clock
        self._numbers = state_dir / FOLDER / _NUMBERS
        self._number = self.reserved_number = self._read_reserved()
        self._issued: dict[str, tuple[Timestamp, float, SignedDocument]] = {}
        self._lock = threading.Lock()

    @property
    def root(self) -> Root:
        """Which keys sign now."""
        return self.keys.root

    def sign(self, row: VersionRow) -> None:
        """Sign what a version is, in its row."""
        document = self.keys.sign(KeyRole.VERSION, statement_of(row, self.root.fleet).to_bytes())
        row.signed = document.message().SerializeToString()

    def is_due(self, row: VersionRow) -> bool:
        """Whether a version was never signed, or only with a key from before a rotation."""
        if row.signed is None:
            return True
        document = signed_document(row.signed)
        same = document.payload == statement_of(row, self.root.fleet).to_bytes()
        return same and is_signed_by(document, self.keys.earlier_version_keys)

    def is_sound(self, row: VersionRow) -> bool:
        """Whether a version's signature holds, and its statement is the registry's."""
        try:
            stated = version_statement(signed_document(row.signed or b""), self.root)
        except NotTrusted:
            return False
        return stated == statement_of(row, self.root.fleet)

    def sign_due(self, session: Session, policies: PolicyStore) -> tuple[int, list[int]]:
        """Sign the versions that are due; how many, and the unsound ones, which are left as they are."""
        done, unsound = 0, []
        for row in session.scalars(select(VersionRow).order_by(VersionRow.version)):
            if self.is_sound(row):
                continue
            if self.is_due(row) and not (row.kept and _is_damaged(policies, row.digest)):
                self.sign(row)
                done += 1
            else:
                unsound.append(row.version)
        return done, unsound

    def rotate(self, role: KeyRole) -> None:
        """Rotate a key, see `FleetKeys.rotate`; versions are to be signed again."""
        with self._lock:
            self.keys.rotate(role)
            self._issued.clear()

    def install(self, role: KeyRole, root: SignedDocument) -> None:
        """Take a root that was signed elsewhere, see `FleetKeys.install`; versions are to be signed again."""
        with self._lock:
            self.keys.install(role, root)
            self._issued.clear()

    def timestamp(
        self, cluster: str, assigned_version: int, rollout_assignment: RolloutAssignment | None = None
    ) -> SignedDocument:
        """Signed assignment of a cluster for now.

        Raises:
            OSError: the number cannot be written down.
        """
        now = self._clock()
        with self._lock:
            known = self._issued.get(cluster)
            if known is not None:
                statement, until, document = known
                fresh = until - self._lifetime_seconds / 3 <= now < until
                if (statement.assigned_version, statement.rollout_assignment) == (
                    assigned_version,
                    rollout_assignment,
                ) and fresh:
                    return document
            number = max(self._number + 1, int(1000 * now))
            if number >= self.reserved_number:
                self._reserve(number + _RESERVED)
            self._number = number
            expires = int(now + self._lifetime_seconds) + 1
            made = Timestamp(self.root.fleet, cluster, number, assigned_version, expires, rollout_assignment)
            document = self.keys.sign(KeyRole.TIMESTAMP, made.to_bytes())
            if len(self._issued) >= _MOST_CLUSTERS:
                self._issued.clear()
            self._issued[cluster] = (made, now + self._lifetime_seconds / 3, document)
            return document

    def _reserve(self, number: int) -> None:
        write_whole(self._numbers, json.dumps({"reserved": number, "crc": _checksum(number)}) + "\n", mode=PRIVATE)
        self.reserved_number = number
        if self._commits is not None:
            self._commits.committed(TIMESTAMPS, number)

    def _read_reserved(self) -> int:
        """Number in the file, or in the commit record where the file is damaged, gone or older."""
        known = 0 if self._commits is None else self._commits.count(TIMESTAMPS)
        try:
            content = parse_json(self._numbers.read_bytes())
            reserved = content["reserved"]
            if (
                type(reserved) is not int
                or reserved < 0
                or content.get("crc", _checksum(reserved)) != _checksum(reserved)
            ):
                raise ValueError("no number, or not the one that was written")  # noqa: TRY301
        except FileNotFoundError:
            reserved = 0
        except (OSError, KeyError, TypeError, ValueError, AttributeError) as error:
            if not known:
                raise StateUnusable(
                    f"{self._numbers}: cannot be used ({error}); remove it, if this machine's clock was never set back"
                ) from error
            _log.warning("timestamp-record-damaged", file=str(self._numbers), reason=str(error), went_on_from=known)
            reserved = 0
        return max(reserved, known)


def _checksum(number: int) -> int:
    return zlib.crc32(str(number).encode())


def signed_document(data: bytes) -> SignedDocument:
    """Signed document from the registry's bytes; one without signatures if they are damaged."""
    try:
        return SignedDocument.of(fleet_pb2.SignedDocument.FromString(data))
    except DecodeError:
        return SignedDocument(b"", ())


def _is_damaged(policies: PolicyStore, digest: str) -> bool:
    try:
        policies.read(digest)
    except StateUnusable:
        return True
    return False
