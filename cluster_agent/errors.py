"""Errors of an agent; every message says what was wrong, with the value, and what to do.

The learner's errors, of `policy_net.errors`, never stop an agent: `LearnerUnreachable` is retried, `LearnerRefused` is
not, since the same request would be refused again.
"""

from __future__ import annotations

from typing import ClassVar

from foundation.errors import BAD_INPUT, UNREACHABLE, ExpectedError
from policy_net.errors import LearnerUnreachable


class AgentError(ExpectedError):
    """Root of all errors raised by `cluster_agent`."""


class BadAgentConfig(AgentError):
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


class NameContested(LearnerUnreachable):
    """Another agent registers under this one's name; the name is taken back later."""


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
