"""The connection to a learner under the identity in force: enrolls before the first call, renews in time.

Both happen within an ordinary call of an agent, or of a region to the learner above, by whichever thread comes first: a
program without its learner waits for nothing, and the retries that it has anyway cover them too.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc
import structlog

from foundation.followed_files import FollowedFiles
from policy_net.errors import CertificateRefused, IdentityFileError, LearnerRefused, LearnerUnreachable
from policy_net.exchange.connection_files import ConnectionFiles, follow_connection_files, read_connection_files
from policy_net.exchange.enrolled_identity import EnrolledIdentity, EnrollmentFile
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
    # Clients in one process share no connection.
    ("grpc.use_local_subchannel_pool", 1),
)
_CALL_AND_STATUS = re.compile(r"^\w+: ([A-Z_]+: )?")
RENEWAL_PAUSE_SECONDS = 60.0
"""Least time between two attempts to replace an identity, or a tenth of its life: failures must not hold up other
calls, and a clock that is far ahead must not ask for a certificate with every call."""

Call = Callable[[str, Callable[..., fleet_pb2.CertificateReply], object], fleet_pb2.CertificateReply]
"""Makes a call by name, with the deadline and the errors of all calls to the learner."""

OnEnrolled = Callable[[Sequence[SignedDocument]], None]
"""Is told which keys sign for the fleet that an agent was just enrolled in."""


@dataclass(frozen=True, slots=True)
class LearnerAddress:
    """Where a learner is, and as whom it is called.

    Attributes:
        addresses: HOST:PORT of all learners of the fleet, of which one is active at a time.
        enrollment_file: by which an identity is gained; None where there is none to gain.
        enroll_address: HOST:PORT to enroll at; the host of the address and the enrollment file's port unless set.
        tls: certificates that were made elsewhere (PEM): authorities, the caller's certificate, its key.
        serves: whether the caller serves nobody without this connection, as of a `SecretInUse`.
    """

    addresses: tuple[str, ...]
    cluster: str
    folder: Path
    words: CallerWords
    call_seconds: float
    enrollment_file: Path | None = None
    enroll_address: str | None = None
    tls: tuple[Path, Path, Path] | None = None
    serves: bool = True


class LearnerConnection:
    """The channels to the learner's service, one an address; safe to use from several threads.

    `clock` gives Unix seconds, `poll_clock` seconds that never go back. `on_enrolled` is told the fleet's keys that
    come with a certificate for a token, `on_replaced` the name of a secret whose files were replaced, as in `secrets`.
    """

    def __init__(
        self,
        address: LearnerAddress,
        call: Call,
        clock: Callable[[], float],
        on_enrolled: OnEnrolled = lambda _: None,
        on_replaced: Callable[[str], None] = lambda _: None,
        poll_clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Open a channel if that takes no enrollment; nothing is sent yet.

        Raises:
            IdentityFileError: a certificate, key or enrollment file cannot be used.
        """
        self._address = address
        self._section = address.words.section
        self._call = call
        self._clock = clock
        self._on_enrolled = on_enrolled
        self._lock = threading.Lock()
        self._addresses = address.addresses
        self._channels: list[grpc.Channel] = []
        self._stubs: list[fleet_pb2_grpc.FleetStub] = []
        self.turn = 0
        self._enrolled: EnrolledIdentity | None = None
        self._files: FollowedFiles[ConnectionFiles] | None = None
        self._not_before = 0.0
        self.enroll_address = ""
        if address.enrollment_file is not None:
            try:
                self._enrolled = EnrolledIdentity(address.folder, address.cluster, address.enrollment_file)
            except IdentityFileError as error:
                raise IdentityFileError(self._of_file(error)) from error
            if self._enrolled.present is not None:
                self._open(_credentials(self._enrolled.present))
        elif address.tls is not None:
            self._files = self._followed(address.tls, on_replaced, poll_clock)
            self._open(_credentials(self._files.value))
        else:
            self._open(None)

    @property
    def secrets(self) -> list[SecretInUse]:
        """The certificate that is shown, and those that the learner's is checked against."""
        files, serves = self._files, self._address.serves
        refusal = (lambda: "") if files is None else lambda: files.refusal
        poll = (lambda: None) if files is None else self._poll
        return [
            SecretInUse(self._section, lambda: self._validities()[0], refusal, poll, serves),
            SecretInUse(f"{self._section}-authority", lambda: self._validities()[1], refusal, serves=serves),
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
        return self._enrolled is not None or self._address.tls is not None

    def address_of(self, turn: int) -> str:
        """HOST:PORT of the learner that is asked in a turn."""
        return self._addresses[turn % len(self._addresses)]

    @property
    def advice(self) -> str:
        """What may be behind a learner that does not answer; mostly nothing."""
        if not 0.0 < self.certificate_expires <= self._clock():
            return ""
        expired = f"; this {self._address.words.caller}'s certificate has expired"
        if self._files is None:
            return f"{expired}: it needs a new enrollment file"
        return f"{expired}: replace the files of {self._section}.tls {self._files.refusal}".rstrip()

    def fleet(self) -> fleet_pb2_grpc.FleetStub:
        """The learner's service, under an identity that is good for a while.

        Raises:
            LearnerUnreachable: there is no identity yet, and the learner is not there to give one.
            LearnerRefused: the learner gives none.
        """
        if self._files is not None:
            self._poll()
        if self._enrolled is None:
            return self._stubs[self._place]
        with self._lock:
            self._refresh_identity(self._enrolled)
            if not self._stubs:
                caller = self._address.words.caller
                raise CertificateRefused(f"the enrollment file was refused; this {caller} needs a new one")
            return self._stubs[self._place]

    def leave(self, turn: int) -> None:
        """Try the next address from now on, as this one's learner did not answer; once, whoever else says so too."""
        if turn == self.turn and len(self._addresses) > 1:
            self.turn = turn + 1
            _log.info("learner-left", next=self._addresses[self._place])

    @property
    def _place(self) -> int:
        return self.turn % len(self._addresses)

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
        except (LearnerUnreachable, LearnerRefused, IdentityFileError) as error:
            if enrolled.present is None:
                if isinstance(error, IdentityFileError):
                    raise LearnerRefused(self._of_file(error)) from error
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
            cluster=self._address.cluster, token=invitation.token, signing_request=request.request
        )
        host = self._addresses[self._place].rpartition(":")[0]
        address = self.enroll_address = self._address.enroll_address or f"{host}:{invitation.enroll_port}"
        credentials = grpc.ssl_channel_credentials(invitation.authority.encode())
        with grpc.secure_channel(address, credentials, options=OPTIONS) as channel:
            try:
                reply = self._call("Enroll", fleet_pb2_grpc.EnrollmentStub(channel).Enroll, message)
            except LearnerRefused as error:
                enrolled.polled_at()  # The same token would be refused again; a new file is looked at.
                why = _CALL_AND_STATUS.sub("", str(error))
                raise CertificateRefused(
                    f"{self._address.enrollment_file}: the learner refuses this enrollment file: {why}"
                ) from error
        identity = enrolled.received(request.key, reply.certificate, reply.authority)
        self._on_enrolled(tuple(map(SignedDocument.of, reply.roots)))
        self._take(_credentials(identity))
        enrolled.on_token_used(invitation)
        _log.info("identity-enrolled", expires_unix_seconds=round(self.certificate_expires))

    def _renew(self, enrolled: EnrolledIdentity) -> None:
        request = enrolled.next_request()
        message = fleet_pb2.RenewCertificateRequest(cluster=self._address.cluster, signing_request=request.request)
        reply = self._call("RenewCertificate", self._stubs[self._place].RenewCertificate, message)
        self._take(_credentials(enrolled.received(request.key, reply.certificate, reply.authority)))
        _log.info("identity-renewed", expires_unix_seconds=round(self.certificate_expires))

    def _poll(self) -> None:
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

    def _followed(
        self, tls: tuple[Path, Path, Path], on_replaced: Callable[[str], None], poll_clock: Callable[[], float]
    ) -> FollowedFiles[ConnectionFiles]:
        setting = f"setting {self._section}.tls"

        def replaced(files: ConnectionFiles) -> None:
            self._on_files_replaced(files)
            on_replaced(self._section)

        def refused(reason: str) -> None:
            _log.error("identity-not-replaced", error=f"{setting}: {reason}", meaning="the one before serves on")

        try:
            files = follow_connection_files(
                lambda content: read_connection_files(*tls, content), replaced, refused, poll_clock, self._clock
            )
            exposed = tls[2].stat().st_mode & 0o007
        except (OSError, IdentityFileError) as error:
            raise IdentityFileError(f"{setting}: {error}") from error
        if exposed:
            _log.warning("key-exposed", file=str(tls[2]), advice="others on this machine may read it: chmod 600")
        return files

    def _of_file(self, error: IdentityFileError) -> str:
        return f"setting {self._section}.enrollment_file: {error}"


def _credentials(shown: IdentityFile | ConnectionFiles) -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials(shown.authority, shown.key, shown.certificate)
