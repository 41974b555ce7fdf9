"""The connection to the learner under the identity in force: enrolls before the first call, renews in time.

Both happen within an ordinary call to the learner, by whichever thread comes first, so that an agent without a learner
waits for nothing and the retries that its threads have anyway cover them too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import grpc
import structlog

from cluster_agent.errors import BadConfig, EnrollmentRefused, LearnerRefused, LearnerUnreachable
from cluster_agent.fleet.enrollment import EnrolledIdentity
from cluster_agent.settings import LearnerSettings, TlsSettings
from foundation.followed_files import FollowedFiles
from policy_net.errors import IdentityFileError
from policy_net.exchange.connection_files import ConnectionFiles, follow_connection_files, read_connection_files
from policy_net.exchange.enrollment_file import EnrollmentFile
from policy_net.exchange.generated import fleet_pb2, fleet_pb2_grpc
from policy_net.exchange.identity_file import BACKDATE_SECONDS, IdentityFile
from policy_net.exchange.other_server import CallerWords
from policy_net.exchange.secrets_in_use import NO_CERTIFICATE, SecretInUse, Validity
from policy_net.exchange.signed_documents import SignedDocument

_log = structlog.get_logger()

MAX_MESSAGE_BYTES = 256 * 1024 * 1024
"""Room for a policy of 64 million parameters; gRPC's own 4 MB would refuse one of 256-wide layers and J = 200."""

OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # gRPC reconnects by itself; it must not wait longer than our own backoff does.
    ("grpc.initial_reconnect_backoff_ms", 100),
    # How long gRPC lets one attempt take, whatever its name says: a tenth of a second is too little for TLS on a busy
    # machine or over an ocean.
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.enable_retries", 0),
    # No compression: a message is measured before it is unpacked, and a small one may unpack to gigabytes.
    ("grpc.compression_enabled_algorithms_bitset", 1),
)
RENEWAL_PAUSE_SECONDS = 60.0
"""Least time between two attempts to replace an identity, or a tenth of its life: failures must not hold up other
calls, and a clock that is far ahead must not ask for a certificate with every call."""

WORDS = CallerWords(
    "learner",
    "learner.address",
    "set learner.enroll_address to the HOST:PORT of a learner's `identity.enroll_port`",
    "name this agent's enrollment file (learner.enrollment_file) or certificates (learner.tls)",
    "enroll this agent with that learner, or name its certificates in learner.tls",
    "leave out learner.tls and learner.enrollment_file, or name another address",
)
"""An agent's settings, for lines about a port that is no learner's."""

Call = Callable[[str, Callable[..., fleet_pb2.CertificateReply], object], fleet_pb2.CertificateReply]
"""Makes a call by name, with the deadline and the errors of all calls to the learner."""

OnEnrolled = Callable[[Sequence[SignedDocument]], None]
"""Is told which keys sign for the fleet that an agent was just enrolled in."""


class Connection:
    """The channels to the learner's service, one an address; safe to use from several threads.

    Args:
        call: how calls are made.
        folder: where the identity is kept.
        clock: Unix seconds.
        on_enrolled: is told the fleet's keys that come with a certificate for a token.
        on_replaced: is told the name of a secret whose files were replaced, as in `secrets`.
        look_clock: seconds that never go back, for looks at files.
    """

    def __init__(
        self,
        settings: LearnerSettings,
        cluster: str,
        folder: Path,
        call: Call,
        clock: Callable[[], float],
        on_enrolled: OnEnrolled = lambda _: None,
        on_replaced: Callable[[str], None] = lambda _: None,
        look_clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Open a channel if that takes no enrollment; nothing is sent yet.

        Raises:
            BadConfig: a certificate, key or enrollment file cannot be used.
        """
        self._settings = settings
        self._cluster = cluster
        self._call = call
        self._clock = clock
        self._on_enrolled = on_enrolled
        self._lock = threading.Lock()
        self._addresses = (settings.address, *settings.further_addresses)
        self._channels: list[grpc.Channel] = []
        self._stubs: list[fleet_pb2_grpc.FleetStub] = []
        self._turn = 0
        self._enrolled: EnrolledIdentity | None = None
        self._files: FollowedFiles[ConnectionFiles] | None = None
        self._not_before = 0.0
        self._enroll_address = ""
        if settings.enrollment_file is not None:
            self._enrolled = EnrolledIdentity(folder, cluster, settings.enrollment_file)
            if self._enrolled.present is not None:
                self._open(_credentials(self._enrolled.present))
        elif settings.tls is not None:
            self._files = _followed(settings.tls, self._on_files_replaced, on_replaced, clock, look_clock)
            self._open(_credentials(self._files.value))
        else:
            self._open(None)

    @property
    def secrets(self) -> list[SecretInUse]:
        """The certificate that is shown, and those that the learner's is checked against."""
        files = self._files
        refusal = (lambda: "") if files is None else lambda: files.refusal
        look = (lambda: None) if files is None else self._look
        return [
            SecretInUse("learner", lambda: self._validities()[0], refusal, look),
            SecretInUse("learner-authority", lambda: self._validities()[1], refusal),
        ]

    @property
    def certificate_expires(self) -> float:
        """When the certificate that is shown expires, in Unix seconds; 0 without one."""
        return self._validities()[0].ends_unix_seconds

    def _validities(self) -> tuple[Validity, Validity]:
        if self._files is not None:
            return self._files.value.validity, self._files.value.authority_validity
        present = None if self._enrolled is None else self._enrolled.present
        return (NO_CERTIFICATE, NO_CERTIFICATE) if present is None else (present.validity, present.authority_validity)

    @property
    def certified(self) -> bool:
        """Whether calls go by TLS."""
        return self._enrolled is not None or self._settings.tls is not None

    @property
    def enroll_address(self) -> str:
        """HOST:PORT where this agent asked for a certificate last; empty if it did not."""
        return self._enroll_address

    def address_of(self, turn: int) -> str:
        """HOST:PORT of the learner that is asked in a turn."""
        return self._addresses[turn % len(self._addresses)]

    @property
    def advice(self) -> str:
        """What may be behind a learner that does not answer; mostly nothing."""
        if not 0.0 < self.certificate_expires <= self._clock():
            return ""
        if self._files is None:
            return "; this agent's certificate has expired: it needs a new enrollment file"
        return (
            f"; this agent's certificate has expired: replace the files of learner.tls {self._files.refusal}".rstrip()
        )

    def fleet(self) -> fleet_pb2_grpc.FleetStub:
        """The learner's service, under an identity that is good for a while.

        Raises:
            LearnerUnreachable: there is no identity yet, and the learner is not there to give one.
            LearnerRefused: the learner gives none.
        """
        if self._files is not None:
            self._look()
        if self._enrolled is None:
            return self._stubs[self._place]
        with self._lock:
            self._refresh_identity(self._enrolled)
            if not self._stubs:
                raise EnrollmentRefused("the enrollment file was refused; this cluster needs a new one")
            return self._stubs[self._place]

    @property
    def turn(self) -> int:
        """Counts the learners that were left; to be told to `leave`."""
        return self._turn

    def leave(self, turn: int) -> None:
        """Try the next address from now on, as this one's learner did not answer; once, whoever else says so too."""
        if turn == self._turn and len(self._addresses) > 1:
            self._turn = turn + 1
            _log.info("learner-left", next=self._addresses[self._place])

    @property
    def _place(self) -> int:
        return self._turn % len(self._addresses)

    def close(self) -> None:
        """Close all channels; calls under way fail."""
        for channel in self._channels:
            channel.close()

    def _refresh_identity(self, enrolled: EnrolledIdentity) -> None:
        now = self._clock()
        try:
            invitation = enrolled.invitation() if enrolled.present is None or now >= self._not_before else None
            if invitation is not None:
                self._pause(enrolled.present, now)
                self._enroll(enrolled, invitation)
            elif enrolled.present is not None and self._not_before <= now >= enrolled.present.renewal_unix_seconds():
                self._pause(enrolled.present, now)
                self._renew(enrolled)
        except (LearnerUnreachable, LearnerRefused) as error:
            if enrolled.present is None:
                raise
            _log.warning(
                "identity-not-replaced", error=str(error), expires_unix_seconds=round(self.certificate_expires)
            )
        except OSError as error:
            raise LearnerRefused(f"the identity cannot be kept ({error}); mend the disk") from error

    def _pause(self, present: IdentityFile | None, now: float) -> None:
        life_seconds = (
            0.0 if present is None else present.ends_unix_seconds - present.begins_unix_seconds - BACKDATE_SECONDS
        )
        self._not_before = now + min(RENEWAL_PAUSE_SECONDS, 0.1 * max(0.0, life_seconds))

    def _enroll(self, enrolled: EnrolledIdentity, invitation: EnrollmentFile) -> None:
        request = enrolled.first_request()
        message = fleet_pb2.EnrollRequest(
            cluster=self._cluster, token=invitation.token, signing_request=request.request
        )
        host = self._addresses[self._place].rpartition(":")[0]
        address = self._enroll_address = self._settings.enroll_address or f"{host}:{invitation.enroll_port}"
        credentials = grpc.ssl_channel_credentials(invitation.authority.encode())
        with grpc.secure_channel(address, credentials, options=OPTIONS) as channel:
            try:
                reply = self._call("Enroll", fleet_pb2_grpc.EnrollmentStub(channel).Enroll, message)
            except LearnerRefused as error:
                enrolled.looked_at()  # The same token would be refused again; a new file is looked at.
                why = str(error).split(": ", 2)[-1]  # behind the call's name and gRPC's code
                raise EnrollmentRefused(
                    f"{self._settings.enrollment_file}: the learner refuses this enrollment file: {why}"
                ) from error
        identity = enrolled.received(request.key, reply.certificate, reply.authority)
        self._on_enrolled(tuple(map(SignedDocument.of, reply.roots)))
        self._take(_credentials(identity))
        enrolled.settled(invitation)
        _log.info("identity-enrolled", expires_unix_seconds=round(self.certificate_expires))

    def _renew(self, enrolled: EnrolledIdentity) -> None:
        request = enrolled.next_request()
        message = fleet_pb2.RenewCertificateRequest(cluster=self._cluster, signing_request=request.request)
        reply = self._call("RenewCertificate", self._stubs[self._place].RenewCertificate, message)
        self._take(_credentials(enrolled.received(request.key, reply.certificate, reply.authority)))
        _log.info("identity-renewed", expires_unix_seconds=round(self.certificate_expires))

    def _look(self) -> None:
        if self._files is not None:
            with self._lock:
                self._files.current()

    def _on_files_replaced(self, files: ConnectionFiles) -> None:
        self._take(_credentials(files))
        _log.info("identity-replaced", expires_unix_seconds=round(files.validity.ends_unix_seconds))

    def _take(self, credentials: grpc.ChannelCredentials) -> None:
        self._open(credentials)
        # Other threads may be amid a call on the channel before this one; the one before that is long unused.
        while len(self._channels) > 2 * len(self._addresses):
            self._channels.pop(0).close()

    def _open(self, credentials: grpc.ChannelCredentials | None) -> None:
        opened = [
            grpc.insecure_channel(address, options=OPTIONS)
            if credentials is None
            else grpc.secure_channel(address, credentials, options=OPTIONS)
            for address in self._addresses
        ]
        self._channels += opened
        self._stubs = [fleet_pb2_grpc.FleetStub(channel) for channel in opened]


def _credentials(shown: IdentityFile | ConnectionFiles) -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials(shown.authority, shown.key, shown.certificate)


def _followed(
    tls: TlsSettings,
    on_files_replaced: Callable[[ConnectionFiles], None],
    on_replaced: Callable[[str], None],
    clock: Callable[[], float],
    look_clock: Callable[[], float],
) -> FollowedFiles[ConnectionFiles]:
    def replaced(files: ConnectionFiles) -> None:
        on_files_replaced(files)
        on_replaced("learner")

    def refused(reason: str) -> None:
        _log.error("identity-not-replaced", error=f"setting learner.tls: {reason}", meaning="the one before serves on")

    try:
        files = follow_connection_files(
            lambda content: read_connection_files(tls.ca_file, tls.certificate_file, tls.key_file, content),
            replaced,
            refused,
            look_clock,
            clock,
        )
        exposed = tls.key_file.stat().st_mode & 0o007
    except (OSError, IdentityFileError) as error:
        raise BadConfig(f"setting learner.tls: {error}") from error
    if exposed:
        _log.warning("key-exposed", file=str(tls.key_file), advice="others on this machine may read it: chmod 600")
    return files
