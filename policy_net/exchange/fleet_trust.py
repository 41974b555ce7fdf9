"""Trust of a cluster in its fleet's keys: pinned once, followed through rotations, and asked before a version acts.

The keys are pinned at enrollment; an agent that was not enrolled pins the first that it is shown. From then on a
version acts only if the fleet's key signed its number, digest and spec, and a timestamp that has not expired says that
this cluster is to act on it now. Timestamps only go forward. What is refused is counted and told the learner; the
version that acts goes on acting. A region trusts the learner above likewise, and signs again for its own clusters.
Source: The Update Framework; see `policy_net/exchange/signed_documents.py`.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import structlog

from foundation.files import PRIVATE, read_ordinary, write_whole
from foundation.text import parse_json, plain_line, with_checksum, without_checksum
from policy_net.errors import IdentityFileError, NotTrusted, VersionRejected
from policy_net.exchange.rollout_assignment import RolloutAssignment
from policy_net.exchange.signed_documents import (
    Distrust,
    Root,
    SignedDocument,
    Timestamp,
    follow_roots,
    read_root,
    timestamp,
    version_statement,
)
from policy_net.exchange.wire import FetchedPolicy

_log = structlog.get_logger()

TRUST_FILE = "trust.json"
_LARGEST_BYTES = 1 << 20
_OLDER_LEARNER = (
    "either this learner is older than this agent (update it, or set learner.unsigned_versions to allow until it is), "
    "or something else answers in its place"
)


class FleetTrust:
    """What is trusted, kept in a file of the state directory; safe to use from several threads.

    Args:
        allow_unsigned: while no key is pinned, versions without a signature may act.
    """

    def __init__(self, state_dir: Path, cluster: str, allow_unsigned: bool, clock: Callable[[], float]) -> None:
        """Read what was pinned.

        Raises:
            IdentityFileError: the file cannot be used.
        """
        self._path = state_dir / TRUST_FILE
        self._cluster = cluster
        self._allow_unsigned = allow_unsigned
        self._clock = clock
        self._lock = threading.Lock()
        self._pinned: SignedDocument | None = None
        self._number = 0
        self._expires_unix_seconds = 0
        try:
            content = without_checksum(parse_json(read_ordinary(self._path, _LARGEST_BYTES)))
            self._pinned = SignedDocument.from_json(content["root"])
            self._root: Root = read_root(self._pinned)
            self._number = int(content["timestamp_number"])
        except FileNotFoundError:
            return
        except (OSError, NotTrusted, KeyError, TypeError, ValueError) as error:
            raise IdentityFileError(
                f"{self._path}: cannot be used ({error}); restore it from a copy, or move it away to trust the keys "
                "that the learner shows next"
            ) from error

    @property
    def pinned(self) -> Root | None:
        """The root that is trusted; None before the first."""
        return None if self._pinned is None else self._root

    @property
    def fleet(self) -> str:
        """The fleet that is trusted; empty before the first."""
        return "" if self._pinned is None else self._root.fleet

    @property
    def timestamp_expires(self) -> float:
        """When the latest timestamp expires, in Unix seconds; 0 without one."""
        return float(self._expires_unix_seconds)

    def on_enrolled(self, roots: Sequence[SignedDocument]) -> None:
        """Pin the keys that come with a new certificate, in the place of those of an earlier enrollment.

        An operator carried the enrollment file here: it says whom to trust. A learner from before there were
        signatures sends none, and nothing changes.
        """
        if not roots:
            return
        with self._lock:
            try:
                root = follow_roots(roots)
            except NotTrusted as error:
                _log.error("fleet-keys-refused", reason=error.reason, error=str(error))
                return
            if self._pinned is None or root.fleet != self._root.fleet or root.number >= self._root.number:
                other = self._pinned is None or root.fleet != self._root.fleet
                self._pin(roots[-1], root, 0 if other else self._number)

    def check(self, fetched: FetchedPolicy, assigned_by: SignedDocument | None = None) -> None:
        """See that a fetched version is the fleet's, and this cluster's to act on now; its digest is not looked at.

        Args:
            assigned_by: the timestamp for which it was fetched. A learner that publishes often has assigned the next
                version by the time at which this one is here: it may act until that one does. One that was taken back
                meanwhile may not.

        Raises:
            VersionRejected: it is not, or cannot be known to be.
            OSError: what is trusted from now on cannot be kept.
        """
        with self._lock:
            if fetched.signed is None and not fetched.roots:
                self._check_unsigned(fetched.version)
                return
            try:
                root = follow_roots(fetched.roots, self._pinned)
                stamp = self._checked(fetched, assigned_by, root)
            except NotTrusted as error:
                raise self._rejected(fetched.version, error) from error
            self._pin(fetched.roots[-1], root, stamp.number)
            self._expires_unix_seconds = stamp.expires_unix_seconds

    def check_assignment(self, version: int, document: SignedDocument | None) -> None:
        """See that a heartbeat's answer says what the fleet's key says; nothing to see before a key is pinned.

        A root that was rotated since is only followed with the next version, whose check then decides.

        Raises:
            VersionRejected: an old answer, somebody else's, or none that is signed.
        """
        with self._lock:
            if self._pinned is None:
                return
            try:
                if document is None:
                    raise NotTrusted("there is no timestamp", Distrust.UNSIGNED)  # noqa: TRY301
                stamp = self._checked_timestamp(document, self._root, version)
            except NotTrusted as error:
                raise self._rejected(version, error) from error
            self._number, self._expires_unix_seconds = stamp.number, stamp.expires_unix_seconds

    def check_rollout_assignment(
        self, version: int, rollout_assignment: RolloutAssignment | None, document: SignedDocument | None
    ) -> float:
        """See that what a rollout asks is what the fleet's key says; until when that holds, in Unix seconds.

        Unlike an assignment, nothing is asked of an agent that knows no key.

        Args:
            rollout_assignment: None if the answer asks nothing, which has to be signed too.

        Raises:
            VersionRejected: an old answer, somebody else's, another assignment, or none that is signed.
        """
        challenger = 0 if rollout_assignment is None else rollout_assignment.beside_version
        with self._lock:
            try:
                if self._pinned is None or document is None:
                    raise NotTrusted("there is no timestamp, or no known key", Distrust.UNSIGNED)  # noqa: TRY301
                stamp = self._checked_timestamp(document, self._root, version)
                if stamp.rollout_assignment != rollout_assignment:
                    raise NotTrusted("its timestamp asks something else of it", Distrust.OTHER_ASSIGNMENT)  # noqa: TRY301
            except NotTrusted as error:
                raise self._rejected(challenger, error) from error
            return float(stamp.expires_unix_seconds)

    def check_challenger(self, fetched: FetchedPolicy) -> None:
        """See that a version that a signed assignment names is the fleet's; its digest is not looked at.

        Raises:
            VersionRejected: it is not.
            OSError: what is trusted from now on cannot be kept.
        """
        with self._lock:
            try:
                root = follow_roots(fetched.roots, self._pinned)
                self._check_statement(fetched, root)
            except NotTrusted as error:
                raise self._rejected(fetched.version, error) from error
            if self._pinned is None or root != self._root:
                self._pin(fetched.roots[-1], root, self._number)

    def _check_statement(self, fetched: FetchedPolicy, root: Root) -> None:
        if fetched.signed is None:
            raise NotTrusted("it comes without a signed statement", Distrust.UNSIGNED)
        stated = version_statement(fetched.signed, root)
        if stated.version != fetched.version:
            raise NotTrusted(f"the signature is of v{stated.version}", Distrust.OTHER_VERSION)
        if stated.digest != fetched.digest:
            raise NotTrusted(
                f"the signature is of digest {stated.digest[:12]}, the learner says {fetched.digest[:12]}",
                Distrust.BAD_DIGEST,
            )

    def _checked(self, fetched: FetchedPolicy, assigned_by: SignedDocument | None, root: Root) -> Timestamp:
        self._check_statement(fetched, root)
        if fetched.timestamp is None:
            raise NotTrusted("it comes without a signed timestamp", Distrust.UNSIGNED)
        stamp = self._checked_timestamp(fetched.timestamp, root)
        if assigned_by is not None and fetched.version < stamp.assigned_version:
            with contextlib.suppress(NotTrusted):
                self._checked_timestamp(assigned_by, root, fetched.version)
                return stamp
        return self._checked_timestamp(fetched.timestamp, root, fetched.version)

    def _checked_timestamp(self, document: SignedDocument, root: Root, version: int | None = None) -> Timestamp:
        stamp = timestamp(document, root)
        if stamp.cluster != self._cluster:
            raise NotTrusted(f"its timestamp is cluster {stamp.cluster[:63]}'s", Distrust.OTHER_ASSIGNMENT)
        late_seconds = self._clock() - stamp.expires_unix_seconds
        if late_seconds >= 0:
            raise NotTrusted(
                f"its timestamp expired {late_seconds:.0f} s ago by this machine's clock: an old answer, or a wrong "
                "clock",
                Distrust.EXPIRED,
            )
        if stamp.number < self._number:
            raise NotTrusted("its timestamp is older than one that was seen: an old answer", Distrust.REPLAYED)
        if version is not None and stamp.assigned_version != version:
            raise NotTrusted(
                f"its timestamp assigns v{stamp.assigned_version} to this cluster", Distrust.OTHER_ASSIGNMENT
            )
        return stamp

    def _check_unsigned(self, version: int) -> None:
        if self._pinned is not None:
            raise VersionRejected(
                f"v{version} comes without a signature, and this agent knows the keys of fleet "
                f"{self._root.fleet[:12]}: it is not acted with; if the learner was set back to an older program, move "
                f"{self._path} away and set learner.unsigned_versions to allow",
                Distrust.UNSIGNED,
            )
        if not self._allow_unsigned:
            raise VersionRejected(f"v{version} comes without a signature: {_OLDER_LEARNER}", Distrust.UNSIGNED)

    def _rejected(self, version: int, error: NotTrusted) -> VersionRejected:
        advice = "what acts goes on acting"
        if error.reason is Distrust.OTHER_FLEET:
            advice += f"; if this agent is to follow another fleet, enroll it anew, or move {self._path} away"
        return VersionRejected(f"v{version} is not acted with: {plain_line(str(error))}; {advice}", error.reason)

    def _pin(self, document: SignedDocument, root: Root, number: int) -> None:
        before = self.pinned
        content = {"root": document.to_json(), "timestamp_number": number}  # nobody has signed the number
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(self._path, json.dumps(with_checksum(content), indent=1), mode=PRIVATE)
        self._pinned, self._root, self._number = document, root, number
        if before is None or before.fleet != root.fleet:
            _log.info("fleet-keys-pinned", fleet=root.fleet, root=root.number, file=str(self._path))
        elif before.number != root.number:
            _log.info("fleet-keys-followed", fleet=root.fleet, root=root.number)
