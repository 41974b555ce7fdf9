"""What can go wrong in the learner; every message says what was wrong, with the value, and what to do.

`LearnerError` is the root. `BadConfig` and `StateUnusable` (exit code 2) are for the platform owner to mend, and stop
the start. `UpdateRejected`, `BeliefsRefused`, `EnrollmentRefused`, `DiskFull` and `Unknown` answer one request and
change nothing. `LogBroken` (exit code 1) means that the disk failed in a write: the learner stops rather than
acknowledge what it cannot keep; on a full disk it goes on, and acknowledges nothing until there is room. `Unreachable`
(exit code 3) is policyctl's. Errors of gRPC, SQLAlchemy and the system are translated where they are caught, and
chained.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType


class Rejection(StrEnum):
    """Why an update is not applied; agents and metrics know exactly these words."""

    UNKNOWN_INCARNATION = "unknown-incarnation"
    BAD_SEQUENCE = "bad-sequence"
    WRONG_SPEC = "wrong-spec"
    WRONG_SHAPE = "wrong-shape"
    BAD_SAMPLES = "bad-samples"
    AHEAD_OF_HEAD = "ahead-of-head"
    TOO_STALE = "too-stale"
    HEAD_RESET = "head-reset"
    NOT_FINITE = "not-finite"
    NORM_TOO_LARGE = "norm-too-large"
    QUARANTINED = "quarantined"
    ROUNDS_ONLY = "rounds-only"


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


class LearnerError(Exception):
    """Root of all errors raised by `global_learner`."""


class BadConfig(LearnerError):
    """The configuration file or something that it names cannot be used. Exit code 2."""


class StateUnusable(LearnerError):
    """The state directory cannot be used: locked, unreadable, damaged, or of another spec. Exit code 2."""


class UpdateRejected(LearnerError):
    """A gradient update is not applied; `reason` is one of a fixed set of words."""

    def __init__(self, reason: Rejection, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason


class BadRequest(LearnerError):
    """A request holds a value that no agent sends."""


class BeliefRefusal(StrEnum):
    """Why a report of speeds is not taken; metrics know exactly these words."""

    BAD_REVISION = "bad-revision"
    TOO_MANY_TYPES = "too-many-types"
    TOO_MANY_STATISTICS = "too-many-statistics"
    BAD_NAME = "bad-name"
    IMPOSSIBLE = "impossible"
    OUT_OF_RANGE = "out-of-range"


class BeliefsRefused(BadRequest):
    """A report of speeds is not taken; `reason` is one of a fixed set of words."""

    def __init__(self, reason: BeliefRefusal, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason


class UnknownIncarnation(LearnerError):
    """A cluster has to register, or to register again."""


class NoRounds(LearnerError):
    """A cluster polls, and this learner does not work in rounds."""


class FleetFull(LearnerError):
    """No further cluster is taken."""


class IdentityRefused(LearnerError):
    """A caller is not who its request says, or may not ask this; `reason` is one of a fixed set of words."""

    def __init__(self, message: str, reason: str = "refused") -> None:
        super().__init__(message)
        self.reason = reason


class EnrollmentRefused(LearnerError):
    """No certificate is given; `reason` is one of a fixed set of words."""

    def __init__(self, reason: str) -> None:
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


class Unknown(LearnerError):
    """What a request names does not exist. Exit code 2."""


class UnknownCluster(Unknown):
    """No cluster of this name was ever enrolled, or none is registered."""


class UnknownPolicyVersion(Unknown):
    """No version has this number, or its file is no longer kept."""


class DiskFull(LearnerError):
    """There is no room for what a request would make the learner keep; it may be sent again later."""


class LogBroken(LearnerError):
    """The update log cannot be written; nothing more may be acknowledged. Exit code 1."""


class Unreachable(LearnerError):
    """No learner answers at this address. Exit code 3."""


EXIT_CODES: Mapping[type[BaseException], int] = MappingProxyType(
    {BadConfig: 2, BadRequest: 2, StateUnusable: 2, Unknown: 2, Unreachable: 3, LearnerError: 1}
)
"""What the command lines end with, asked in this order."""
