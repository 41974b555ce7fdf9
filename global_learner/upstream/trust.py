"""Trust of a region in the keys of the learner above: pinned once, followed through rotations, kept in a file.

What an agent does, for a learner: a version is taken only if the fleet above signed it, and signed that this region is
to act on it now. The region signs it again for its own clusters, which know the region's keys alone.
Source: The Update Framework; see `policy_net/exchange/signed_documents.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import structlog

from foundation.files import PRIVATE, write_whole
from foundation.text import parse_json, with_checksum, without_checksum
from global_learner.errors import ParentRefused, StateUnusable
from global_learner.upstream.messages import VersionAbove
from policy_net.errors import NotTrusted
from policy_net.exchange.policy_file import digest_of
from policy_net.exchange.signed_documents import (
    UNUSABLE,
    Distrust,
    Root,
    SignedDocument,
    follow_roots,
    read_root,
    timestamp,
    version_statement,
)

_log = structlog.get_logger()

TRUST_FILE = "trust.json"


class TrustAbove:
    """The keys that are trusted, in a folder.

    Args:
        name: this region's, there.
        clock: Unix seconds.
    """

    def __init__(self, folder: Path, name: str, clock: Callable[[], float]) -> None:
        """Read what was pinned.

        Raises:
            StateUnusable: the file cannot be used.
        """
        self._path = folder / TRUST_FILE
        self._name = name
        self._clock = clock
        self._pinned: SignedDocument | None = None
        self._root: Root | None = None
        self._number = 0
        try:
            content = without_checksum(parse_json(self._path.read_text()))
            self._pinned = SignedDocument.from_json(content["root"])
            self._root = read_root(self._pinned)
            self._number = int(content["timestamp_number"])
        except FileNotFoundError:
            pass
        except (OSError, NotTrusted, KeyError, TypeError, ValueError) as error:
            raise StateUnusable(
                f"{self._path}: cannot be used ({error}); restore it from a copy, or move it away to trust the keys "
                "that the learner above shows next"
            ) from error

    @property
    def fleet(self) -> str:
        """The fleet that is trusted; empty before the first."""
        return "" if self._root is None else self._root.fleet

    def on_enrolled(self, roots: Sequence[SignedDocument]) -> None:
        """Pin the keys that came with a certificate: whoever carried the enrollment file says whom to trust.

        Raises:
            ParentRefused: they do not hold together.
            OSError: they cannot be kept.
        """
        if not roots:
            return
        try:
            root = follow_roots(roots)
        except NotTrusted as error:
            raise ParentRefused(f"the keys of the learner above cannot be used: {error}") from error
        self._pin(roots[-1], root, self._number if root.fleet == self.fleet else 0)

    def check(self, version: VersionAbove, spec_digest: str) -> None:
        """See that a version is the fleet's above, and this region's to act on now.

        Raises:
            ParentRefused: it is not.
            OSError: what is trusted from now on cannot be kept.
        """
        try:
            root = follow_roots(version.roots, self._pinned)
            number = self._checked(version, spec_digest, root)
        except NotTrusted as error:
            raise ParentRefused(f"v{version.version} of the learner above is not taken: {error}") from error
        self._pin(version.roots[-1], root, number)

    def _checked(self, version: VersionAbove, spec_digest: str, root: Root) -> int:
        if version.signed is None or version.timestamp is None:
            raise NotTrusted("it comes without a signature", Distrust.UNSIGNED)
        stated, stamp = version_statement(version.signed, root), timestamp(version.timestamp, root)
        if (stated.version, stated.digest) != (version.version, digest_of(version.data)):
            raise NotTrusted(f"the signature is of v{stated.version} with another content", Distrust.BAD_DIGEST)
        if stated.spec_digest != spec_digest:
            raise NotTrusted(
                f"it is of spec {stated.spec_digest[:12]}, and this region's is {spec_digest[:12]}", UNUSABLE
            )
        if (stamp.cluster, stamp.assigned_version) != (self._name, version.version):
            raise NotTrusted(
                f"its timestamp assigns v{stamp.assigned_version} to {stamp.cluster[:63]}", Distrust.OTHER_ASSIGNMENT
            )
        if self._clock() >= stamp.expires_unix_seconds or stamp.number < self._number:
            raise NotTrusted(
                "its timestamp has expired or is an old one, or this machine's clock is wrong", Distrust.EXPIRED
            )
        return stamp.number

    def _pin(self, document: SignedDocument, root: Root, number: int) -> None:
        if (document, number) == (self._pinned, self._number):
            return
        # Nobody has signed the number.
        content = json.dumps(with_checksum({"root": document.to_json(), "timestamp_number": number}), indent=1)
        write_whole(self._path, content + "\n", mode=PRIVATE)
        if root.fleet != self.fleet:
            _log.info("keys-above-pinned", fleet=root.fleet, root=root.number, file=str(self._path))
        self._pinned, self._root, self._number = document, root, number
