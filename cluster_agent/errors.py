"""Errors of an agent; every message says what was wrong, with the value, and what to do.

`AgentError` is the root. `BadConfig` (exit code 2) is the operator's to mend. `NoPolicy` (exit code 3) means that there
is nothing to schedule with. The learner's errors never stop an agent: `LearnerUnreachable` is retried, `LearnerRefused`
is not, since the same request would be refused again. gRPC's own errors are translated at the boundary and chained.
"""

from __future__ import annotations

from typing import ClassVar

from foundation.errors import BAD_INPUT, UNREACHABLE, ExpectedError


class AgentError(ExpectedError):
    """Root of all errors raised by `cluster_agent`."""


class BadConfig(AgentError):
    """The configuration file or something that it names cannot be used. Exit code 2."""

    exit_code: ClassVar[int] = BAD_INPUT


class NoPolicy(AgentError):
    """No policy is available on this machine and none can be fetched. Exit code 3."""

    exit_code: ClassVar[int] = UNREACHABLE


class BackendUnavailable(AgentError):
    """The cluster does not answer; the loop tries again at the next decision."""


class StateDamaged(AgentError):
    """A file in the state directory cannot be read back, or belongs to another configuration. Exit code 2."""

    exit_code: ClassVar[int] = BAD_INPUT


class LearnerUnreachable(AgentError):
    """No answer in time, or none at all; worth trying again."""


class NameContested(LearnerUnreachable):
    """Another agent registers under this one's name; the name is taken back later."""


class LearnerRefused(AgentError):
    """The learner answered that it does not want this request; trying it again would not help."""


class VersionUnavailable(LearnerRefused):
    """The learner's file of a version is damaged or gone; what acts here goes on acting."""


class EnrollmentRefused(LearnerRefused):
    """The learner gives no certificate for the enrollment file; another one is looked at when it comes."""


class VersionRejected(AgentError):
    """A policy version cannot be acted with (signature, digest, spec or content); the agent keeps the one it has.

    Attributes:
        reason: a word of a fixed set, for metrics and heartbeats.
    """

    def __init__(self, message: str, reason: str = "unusable") -> None:
        super().__init__(message)
        self.reason = reason


class PolicyNotKept(AgentError):
    """Logged decisions cannot be made again, as the policy's file is not at hand. Exit code 2."""

    exit_code: ClassVar[int] = BAD_INPUT


class BadJobFile(AgentError):
    """A job cannot be submitted as it is described. Exit code 2."""

    exit_code: ClassVar[int] = BAD_INPUT


class JobRefused(AgentError):
    """What was asked of a job cannot be done now; the line says why. Exit code 2."""

    exit_code: ClassVar[int] = BAD_INPUT


class JobNotDone(AgentError):
    """A job that was waited for has failed, or was cancelled. Exit code 1."""


class AgentUnreachable(AgentError):
    """No agent answers on its socket. Exit code 3."""

    exit_code: ClassVar[int] = UNREACHABLE


class ClusterUnreachable(AgentError):
    """A Kubernetes API server that a user's command asked does not answer. Exit code 3."""

    exit_code: ClassVar[int] = UNREACHABLE


class ClusterRefused(AgentError):
    """A Kubernetes API server does not let this user do what their command needs. Exit code 1."""
