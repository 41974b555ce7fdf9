"""Identity of this agent, as `policy_net.exchange.enrolled_identity` keeps it, with the agent's errors.

What stops a start is the configuration's fault; what a learner sends while the agent runs is a refusal like any other.
"""

from __future__ import annotations

from pathlib import Path

from cluster_agent.errors import BadConfig, LearnerRefused
from policy_net.errors import IdentityFileError
from policy_net.exchange import enrolled_identity
from policy_net.exchange.enrollment_file import EnrollmentFile
from policy_net.exchange.identity_file import IdentityFile


class EnrolledIdentity(enrolled_identity.EnrolledIdentity):
    """The identity in a folder, and the enrollment file by which it is to be gained.

    Raises:
        BadConfig: neither an identity nor an enrollment file can be used.
    """

    def __init__(self, folder: Path, cluster: str, enrollment_file: Path) -> None:
        """Read what is there."""
        try:
            super().__init__(folder, cluster, enrollment_file)
        except IdentityFileError as error:
            raise BadConfig(f"setting learner.enrollment_file: {error}") from error

    def invitation(self) -> EnrollmentFile | None:
        """An enrollment file that was not used yet; None if there is none, or none that is new.

        Raises:
            LearnerRefused: it cannot be used.
        """
        try:
            return super().invitation()
        except IdentityFileError as error:
            raise LearnerRefused(f"setting learner.enrollment_file: {error}") from error

    def received(self, key: bytes, certificate: bytes, authority: bytes) -> IdentityFile:
        """Keep a certificate that the learner made.

        Raises:
            LearnerRefused: it is not ours, or of another name.
            OSError: the disk refuses.
        """
        try:
            return super().received(key, certificate, authority)
        except IdentityFileError as error:
            raise LearnerRefused(str(error)) from error
