"""The learner as its operator sees it while a fleet runs: policyctl's own client."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deploy.local.processes import DemoFailed
from global_learner.errors import LearnerError, Unknown, Unreachable
from global_learner.policyctl.client import AdminClient, TlsFiles
from policy_net.exchange.generated import fleet_pb2
from policy_net.exchange.policy_file import PolicyFile

CALL_SECONDS = 30.0
"""Deadline of one question; the learner answers in milliseconds unless the machine is overloaded."""


class LearnerWatch(AdminClient):
    """An operator's client, to which a learner may be away for a while.

    Args:
        identity_file: of the operator; plain text without.
    """

    def __init__(self, address: str, identity_file: Path | None = None) -> None:
        super().__init__(address, TlsFiles(certificate=identity_file), CALL_SECONDS)

    def now(self) -> fleet_pb2.GetFleetReply | None:
        """The fleet as it is; None if the learner does not answer, so that a restarted one only pauses the display."""
        try:
            return self.fleet()
        except Unreachable:
            return None

    def policy(self, version: int) -> PolicyFile:
        """A version's policy file.

        Raises:
            Unknown: the learner does not keep it any more.
        """
        content = self.policy_file(self.ask(fleet_pb2.ShowVersionRequest(version=version)).card)
        if content is None:
            raise Unknown(f"version {version} is not kept any more")
        return content


@contextmanager
def operator(address: str, identity: Path | None) -> Iterator[LearnerWatch]:
    """A client with the administrator's identity.

    Raises:
        DemoFailed: the learner refuses what is asked within, or does not answer.
    """
    client = LearnerWatch(address, identity)
    try:
        yield client
    except LearnerError as error:
        raise DemoFailed(f"the learner: {error}") from error
    finally:
        client.close()
