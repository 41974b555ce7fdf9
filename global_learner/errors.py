"""Errors of the learner; every message says what was wrong, with the value, and what to do.

`LearnerError` is the root. `BadLearnerConfig` and `StateUnusable` (exit code 2) are for the platform owner to mend, and
stop the start. `UpdateRejected`, `BeliefsRefused`, `EnrollmentRefused`, `DiskFull` and `Unknown` answer one request and
change nothing. `LogBroken` (exit code 1) means that the disk failed in a write: the learner stops rather than
acknowledge what it cannot keep; on a full disk it goes on, and acknowledges nothing until there is room. A database
that is away (`DatabaseAway`) is waited for in the same way; who is no longer the active learner (`LeaseLost`) ends.
`Unreachable` (exit code 3) is policyctl's. Errors of gRPC, SQLAlchemy and the system are translated where they are
caught, and chained.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import ClassVar

from foundation.errors import BAD_INPUT, UNREACHABLE, ExpectedError


class Rejection(StrEnum):
    """Why an update is not applied; agents and metrics know exactly these words."""

    UNKNOWN_INCARNATION = "unknown-incarnation"
    """The cluster has to register (again): it registered anew meanwhile, or never."""
    BAD_SEQUENCE = "bad-sequence"
    """Its number is nought, no count, or so old that nobody knows whether it was applied."""
    WRONG_SPEC = "wrong-spec"
    """It is for weights of another spec than the head's."""
    WRONG_SHAPE = "wrong-shape"
    """It has more or fewer values than the spec has parameters, or values of another type."""
    BAD_SAMPLES = "bad-samples"
    """It was computed from no samples, or from a number that is none."""
    AHEAD_OF_HEAD = "ahead-of-head"
    """It says that it was computed at a head that does not exist yet."""
    TOO_STALE = "too-stale"
    """It was computed at a head that is too long ago."""
    HEAD_RESET = "head-reset"
    """It was computed at a head that was reset since; pull the new one."""
    NOT_FINITE = "not-finite"
    """It holds NaN or infinity."""
    NORM_TOO_LARGE = "norm-too-large"
    """It is larger than any sound gradient."""
    QUARANTINED = "quarantined"
    """Too many of the cluster's latest updates were faulty; `policyctl cluster release` ends it."""
    ROUNDS_ONLY = "rounds-only"
    """This learner works in rounds, and takes no pushed updates."""
    PRIVACY_SPENT = "privacy-spent"
    """The cluster's updates have cost all that `privacy.target_epsilon` allows; it acts on, and teaches no more."""
    LIVE_GRADIENT = "live-gradient"
    """It comes from live experience, and this learner takes replays (`optimizer.units`; of a `dl2` policy without a
    critic in any case): set the agent's `learning.source` to auto, or upgrade it."""
    NOT_NOISED = "not-noised"
    """This learner leaves the noise to the clusters, and the update says of none, or of less than is asked."""


FAULTY = frozenset(
    {
        Rejection.WRONG_SPEC,
        Rejection.WRONG_SHAPE,
        Rejection.BAD_SAMPLES,
        Rejection.AHEAD_OF_HEAD,
        Rejection.NOT_FINITE,
        Rejection.NORM_TOO_LARGE,
    }
)
"""What a sound agent never sends; the other reasons befall any agent that was away, or was restarted."""


class CallRefusal(StrEnum):
    """Why a call is not done; metrics know exactly these words. A refused update has a `Rejection` instead."""

    BAD_REQUEST = "bad-request"
    """It cannot be read, or holds a value that no agent and no policyctl sends."""
    TOO_LARGE = "too-large"
    """Its message is larger than its method takes."""
    NOT_RECEIVED = "not-received"
    """Its message never came whole: larger than anything that is taken, or the caller went away."""
    TOO_BUSY = "too-busy"
    """As many calls as there is room for are in progress, of all callers, and none ended in time."""
    SHARE_TAKEN = "share-taken"
    """As many calls of this caller as are its share are in progress and wait already; others are served."""
    TOO_OFTEN = "too-often"
    """The caller asked this more often than its rate allows."""
    NOT_SENT = "not-sent"
    """It was answered, and the caller did not read the answer in time."""
    TOO_FAST = "too-fast"
    """The cluster sends more updates than its decisions can make (`ingest.updates_per_second`); it may come again."""
    UNKNOWN_METHOD = "unknown-method"
    """It names no method of this learner."""
    WRONG_IDENTITY = "wrong-identity"
    """The caller is not who it says, or may not ask this; the metric of identities says more."""
    NOT_ENROLLED = "not-enrolled"
    """No certificate is given; the metric of enrollments says more."""
    NO_AUTHORITY = "no-authority"
    """This learner signs no certificates."""
    UNKNOWN_INCARNATION = "unknown-incarnation"
    """The cluster has to register (again)."""
    NO_ROUNDS = "no-rounds"
    """A cluster polls, and this learner does not work in rounds."""
    WRONG_SPEC = "wrong-spec"
    """The agent runs policies of another spec."""
    FLEET_FULL = "fleet-full"
    """No further cluster is taken."""
    NOT_FOUND = "not-found"
    """What it names does not exist."""
    DISK_FULL = "disk-full"
    """The learner's disk is nearly full, and nothing is taken that would have to be kept."""
    DATABASE_AWAY = "database-away"
    """The database server does not answer, and nothing is taken that would have to be kept there."""
    NOT_ACTIVE = "not-active"
    """Another learner may have the lease; agents try the next address."""
    NO_HEAD = "no-head"
    """This learner is a region's and has not reached the learner above yet; agents come again."""
    ROLLOUT_REFUSED = "rollout-refused"
    """A rollout cannot begin, or does not take what an operator asks of it as it stands."""
    CHANGED_SINCE = "changed-since"
    """What an operator's word is about is no longer as it was when the operator looked."""
    FAILED = "failed"
    """The learner's own fault: its disk, its state, or an error that its log shows."""


class LearnerError(ExpectedError):
    """Root of all errors raised by `global_learner`. Exit code 1."""


class BadLearnerConfig(LearnerError):
    """The configuration file or something that it names cannot be used. Exit code 2."""

    exit_code: ClassVar[int] = BAD_INPUT


class StateUnusable(LearnerError):
    """The state directory cannot be used: locked, unreadable, damaged, or of another spec. Exit code 2."""

    exit_code: ClassVar[int] = BAD_INPUT


class NotCopied(LearnerError):
    """A state directory could not be copied whole: try again, or mend what the message names."""


class VersionsUnsound(LearnerError):
    """Versions do not bear the fleet's signature, or their files are not what was signed."""


class AuditUnsound(LearnerError):
    """A line of the audit log is not what was written, or is missing."""


class UpdateRejected(LearnerError):
    """A gradient update is not applied; `reason` is one of a fixed set of words."""

    def __init__(self, reason: Rejection, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason


class BadRequest(LearnerError):
    """A request holds a value that no agent sends."""

    exit_code: ClassVar[int] = BAD_INPUT


class BeliefRefusal(StrEnum):
    """Why a report of speeds is not taken; metrics know exactly these words."""

    BAD_REVISION = "bad-revision"
    """Its number is nought, or no count."""
    TOO_MANY_TYPES = "too-many-types"
    """It names more job types than are taken."""
    TOO_MANY_STATISTICS = "too-many-statistics"
    """It holds more statistics than are taken."""
    BAD_NAME = "bad-name"
    """A job type's name has unprintable letters."""
    IMPOSSIBLE = "impossible"
    """Something in it cannot have been observed: no workers, a kind that there is not, lists of different lengths."""
    OUT_OF_RANGE = "out-of-range"
    """A speed, or a number of observations, is beyond all computers."""


class BeliefsRefused(BadRequest):
    """A report of speeds is not taken; `reason` is one of a fixed set of words."""

    def __init__(self, reason: BeliefRefusal, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason


class EvidenceRefusal(StrEnum):
    """Why evidence of a rollout is not taken; metrics know exactly these words."""

    TOO_MANY = "too-many"
    """A call holds more blocks than are taken at once."""
    OUT_OF_ORDER = "out-of-order"
    """Blocks do not rise in number, or go beyond what a rollout can last."""
    NOT_ASKED = "not-asked"
    """Blocks come from a cluster that only shadows."""
    WRONG_COIN = "wrong-coin"
    """Another version is said to have acted in a block than its coin chose."""
    OUT_OF_RANGE = "out-of-range"
    """A figure cannot have been: not finite, negative, or more of something than there was."""


class EvidenceRefused(BadRequest):
    """Evidence of a rollout is not taken; `reason` is one of a fixed set of words."""

    def __init__(self, reason: EvidenceRefusal, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason


class MessageTooLarge(LearnerError):
    """A request is larger than its method takes."""


class TooBusy(LearnerError):
    """As many calls as there is room for are in progress; a call may be made again later."""


class ShareTaken(TooBusy):
    """One caller has as many calls in progress and waiting as are its share."""


class TooOften(TooBusy):
    """One caller asked something more often than its rate allows."""


class TooFast(LearnerError):
    """A cluster sends more updates than its decisions can make; this one may be sent again later."""


class UnknownIncarnation(LearnerError):
    """A cluster has to register, or to register again."""


class NoRounds(LearnerError):
    """A cluster polls, and this learner does not work in rounds."""


class FleetFull(LearnerError):
    """No further cluster is taken."""


class IdentityRefusal(StrEnum):
    """Why a caller's certificate does not count; metrics know exactly these words."""

    WRONG_NAME = "wrong-name"
    """The request names another cluster than the certificate."""
    WRONG_ROLE = "wrong-role"
    """Its role is too little for what is asked, a cluster asks what only people may, or the other way round."""
    EXPIRED = "expired"
    """It ended while its connection was open."""
    UNKNOWN_CERTIFICATE = "unknown-certificate"
    """It is none that this learner issued, or it was replaced."""
    REVOKED = "revoked"
    """Somebody turned its holder out."""
    OTHER = "other"
    """Anything else; policyctl's, which has the learner's line alone."""


class IdentityRefused(LearnerError):
    """A caller is not who its request says, or may not ask this; `reason` is one of a fixed set of words."""

    def __init__(self, message: str, reason: IdentityRefusal = IdentityRefusal.OTHER) -> None:
        super().__init__(message)
        self.reason = reason


class EnrollmentRefusal(StrEnum):
    """Why no certificate is given; metrics know exactly these words."""

    UNKNOWN_TOKEN = "unknown-token"  # noqa: S105  (a word, no secret)
    """Made by another learner, or replaced by a newer token."""
    EXPIRED_TOKEN = "expired-token"  # noqa: S105
    """Not used within an hour."""
    USED_TOKEN = "used-token"  # noqa: S105
    """Traded for a certificate already, with another key."""
    WRONG_NAME = "wrong-name"
    """Made for another cluster's name."""
    REVOKED = "revoked"
    """The present certificate was revoked, and is not renewed."""


class EnrollmentRefused(LearnerError):
    """No certificate is given; `reason` is one of a fixed set of words."""

    def __init__(self, reason: EnrollmentRefusal) -> None:
        super().__init__(f"{reason}: {_ENROLLMENT_ADVICE[reason]}")
        self.reason = reason


_ENROLLMENT_ADVICE: Mapping[str, str] = MappingProxyType(
    {
        "unknown-token": "this learner made no such token, or a newer one replaced it; ask for a new enrollment file",
        "expired-token": "the token's time is over; ask for a new enrollment file",
        "used-token": "the token was traded for a certificate already, with another key; ask for a new "
        "enrollment file, and find out who used this one",
        "wrong-name": "the token was made for another name; set the agent's cluster to the name that was enrolled",
        "revoked": "the present certificate was revoked",
    }
)


class NoAuthority(LearnerError):
    """This learner signs no certificates."""


class RolloutRefused(LearnerError):
    """A rollout cannot begin, or does not take what an operator asks of it as it stands. Exit code 2."""

    exit_code: ClassVar[int] = BAD_INPUT


class ChangedSince(LearnerError):
    """What an operator's word is about is no longer as it was seen; nothing was changed. Exit code 2."""

    exit_code: ClassVar[int] = BAD_INPUT


class RolledBack(LearnerError):
    """A rollout that was watched ended, and its version was taken back."""


class Unknown(LearnerError):
    """What a request names does not exist. Exit code 2."""

    exit_code: ClassVar[int] = BAD_INPUT


class UnknownCluster(Unknown):
    """No cluster of this name was ever enrolled, or none is registered."""


class UnknownPerson(Unknown):
    """Nobody of this name was ever enrolled."""


class UnknownRollout(Unknown):
    """No rollout has this number, or there was none yet."""


class UnknownPolicyVersion(Unknown):
    """No version has this number, or its file is no longer kept."""


class NotNow(LearnerError):
    """Nothing can be kept at the moment; what was asked may be asked again later."""


class DiskFull(NotNow):
    """There is no room for what a request would make the learner keep; it may be sent again later."""


class DatabaseAway(NotNow):
    """The database server cannot be asked at the moment; nothing is known to have changed."""


class NotActive(NotNow):
    """Another learner may be the active one: nothing is taken, told or written."""


class NoHeadYet(NotNow):
    """A region has no head of the learner above yet, or none any more: there is nothing to compute a gradient at."""


class LeaseLost(NotActive):
    """Another learner is the active one; this one ends. Exit code 1."""


class LogBroken(LearnerError):
    """The update log cannot be written; nothing more may be acknowledged. Exit code 1."""


class Unreachable(LearnerError):
    """No learner answers at this address. Exit code 3."""

    exit_code: ClassVar[int] = UNREACHABLE
