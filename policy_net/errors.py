"""Errors of the brain; every message says what was wrong, where, and what to do.

`PolicyNetError` is the root. `BadInput` (exit code 2) is raised for files, flags and values that cannot be used; the
rest name one concept each. Errors of third-party libraries are translated where they are caught, and chained.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from foundation.errors import BAD_INPUT, ExpectedError


class PolicyNetError(ExpectedError):
    """Root of all errors raised by `policy_net`."""


class BadInput(PolicyNetError):
    """A file, option or value cannot be used; the message names it and says what to do."""

    exit_code: ClassVar[int] = BAD_INPUT


class MalformedRow(BadInput):
    """One row or record of a file cannot be used, but the rest may be.

    Attributes:
        reason: field and remedy without the value, by which like faults are counted.
    """

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class OtherColumns(BadInput):
    """A table lacks a column that its format needs.

    Attributes:
        names: of the columns that it has; one with all of the line where other marks divide them.
    """

    def __init__(self, message: str, names: Sequence[str], missing: Sequence[str]) -> None:
        super().__init__(message)
        self.names = names
        self.missing = missing


class NothingRecorded(BadInput):
    """A decision log is whole, and shows no job whose work is known yet."""


class UnknownPolicy(BadInput):
    """No policy is registered under this name and no file of this name exists."""


class PolicyFileError(BadInput):
    """A policy file is cut short, damaged, or of another specification than this program reads."""


class ImpossibleStatistics(BadInput):
    """Reports of speeds that cannot have been observed."""


class IdentityFileError(BadInput):
    """A key, a certificate, an enrollment file or a file of trusted keys is damaged, or something else."""


class SecretExposed(IdentityFileError):
    """A file with a secret can be read by others."""


class NotTrusted(PolicyNetError):
    """A statement is not the fleet's, or holds no longer.

    Attributes:
        reason: a word of a fixed set, for metrics and heartbeats.
    """

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class LearnerUnreachable(PolicyNetError):
    """No answer of a learner in time, or none at all; worth trying again."""


class LearnerRefused(PolicyNetError):
    """A learner answered that it does not want this request; trying it again would not help."""


class VersionUnavailable(LearnerRefused):
    """The learner's file of a version is damaged or gone; what acts here goes on acting."""


class CertificateRefused(LearnerRefused):
    """The learner gives no certificate for the enrollment file; another one is looked at when it comes."""


class VersionRejected(PolicyNetError):
    """A policy version cannot be acted with (signature, digest, spec or content); the agent keeps the one it has.

    Attributes:
        reason: a word of a fixed set, for metrics and heartbeats.
    """

    def __init__(self, message: str, reason: str = "unusable") -> None:
        super().__init__(message)
        self.reason = reason


class InvalidAllocation(PolicyNetError):
    """A decision names an unknown job, breaks a cap, or needs more than the cluster has."""


class NoProgress(PolicyNetError):
    """A policy keeps every remaining job from training, so that a simulation would never end."""


class SpecMismatch(PolicyNetError):
    """Weights or a gradient belong to another `PolicySpec` than the one in use."""
