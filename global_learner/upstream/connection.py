"""The connection to the learner above under the identity in force: enrolls before the first call, renews in time.

As an agent's, on the learner's event loop: one task makes all calls, so nothing is locked. Every call has a deadline,
and gRPC's errors become `ParentUnreachable` or `ParentRefused`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import grpc
import structlog

from foundation.text import plain_line
from global_learner.errors import BadConfig, ParentRefused, ParentUnreachable
from global_learner.settings import UpstreamSettings
from policy_net.errors import IdentityFileError
from policy_net.exchange.enrolled_identity import EnrolledIdentity
from policy_net.exchange.enrollment_file import EnrollmentFile
from policy_net.exchange.generated import fleet_pb2, fleet_pb2_grpc
from policy_net.exchange.identity_file import BACKDATE_SECONDS, IdentityFile
from policy_net.exchange.other_server import CallerWords, OtherServers
from policy_net.exchange.secrets_in_use import NO_CERTIFICATE, SecretInUse, Validity
from policy_net.exchange.signed_documents import SignedDocument

_log = structlog.get_logger()

_OPTIONS = (
    ("grpc.max_receive_message_length", 256 << 20),
    ("grpc.max_send_message_length", 256 << 20),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1000),  # how long one attempt may take
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.enable_retries", 0),
    ("grpc.compression_enabled_algorithms_bitset", 1),
    # Learners in one process, as tests have them, share no connection.
    ("grpc.use_local_subchannel_pool", 1),
)
_FINAL = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.UNIMPLEMENTED,
    grpc.StatusCode.DATA_LOSS,
}
"""Statuses that the same request would get again."""
_RENEWAL_PAUSE_SECONDS = 60.0
"""Least time between two attempts to replace an identity, or a tenth of its life: failures must not hold up other
calls."""

_WORDS = CallerWords(
    "learner above",
    "upstream.address",
    "set upstream.address to the learner that wrote the enrollment file, or put a new file in its place",
    "name this region's enrollment file in upstream.enrollment_file; `policyctl cluster enroll` there writes it",
    "put an enrollment file of that learner in the place of upstream.enrollment_file",
    "leave out upstream.enrollment_file, or name another address",
)
_NO_IDENTITY = (
    "the enrollment file was refused, or is gone; this region needs a new one, which `policyctl cluster enroll` at the "
    "learner above writes"
)

OnEnrolled = Callable[[Sequence[SignedDocument]], None]
"""Is told which keys sign for the fleet above, when this region was just enrolled there."""


class ConnectionAbove:
    """Channels to the learner above, one after the other.

    Args:
        folder: where the identity is kept.
        on_enrolled: see `OnEnrolled`.
        clock: Unix seconds.
    """

    def __init__(
        self,
        settings: UpstreamSettings,
        folder: Path,
        on_enrolled: OnEnrolled,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Read the identity, if there is one; nothing is sent yet.

        Raises:
            BadConfig: the identity or the enrollment file cannot be used.
        """
        self._settings = settings
        self._clock = clock
        self._on_enrolled = on_enrolled
        self._channel: grpc.aio.Channel | None = None
        self._enrolled: EnrolledIdentity | None = None
        self._not_before = 0.0
        self._others = OtherServers(_WORDS, settings.call_seconds)
        if settings.enrollment_file is not None:
            try:
                self._enrolled = EnrolledIdentity(folder, settings.name, settings.enrollment_file)
            except IdentityFileError as error:
                raise BadConfig(f"setting upstream.enrollment_file: {error}") from error

    @property
    def secrets(self) -> list[SecretInUse]:
        """The certificate that this region shows above, and those that the learner's there is checked against."""

        def present() -> IdentityFile | None:
            return None if self._enrolled is None else self._enrolled.present

        def validity() -> Validity:
            return NO_CERTIFICATE if (found := present()) is None else found.validity

        def authority_validity() -> Validity:
            return NO_CERTIFICATE if (found := present()) is None else found.authority_validity

        # The region's own clusters are served without.
        return [
            SecretInUse("upstream", validity, serves=False),
            SecretInUse("upstream-authority", authority_validity, serves=False),
        ]

    async def close(self) -> None:
        """Close the channel; a call under way fails."""
        if self._channel is not None:
            await self._channel.close()
            self._channel = None

    async def call(self, name: str, request: object) -> Any:
        """Call a method of `Fleet` by name.

        Raises:
            ParentUnreachable: no answer came in time.
            ParentRefused: the answer was no.
        """
        if self._enrolled is not None:
            await self._refresh(self._enrolled)
        if self._channel is None:
            self._open(None if self._enrolled is None else self._enrolled.present)
        return await self._answered(name, getattr(fleet_pb2_grpc.FleetStub(self._channel), name), request)

    @property
    def _advice(self) -> str:
        present = None if self._enrolled is None else self._enrolled.present
        if present is not None and present.ends_unix_seconds <= self._clock():
            return "; this region's certificate has expired: it needs a new enrollment file from the learner above"
        return ""

    async def _answered(
        self, name: str, method: Callable[..., Any], request: object, address: str | None = None
    ) -> Any:
        try:
            return await method(request, timeout=self._settings.call_seconds)
        except grpc.aio.AioRpcError as error:
            kind = ParentRefused if error.code() in _FINAL else ParentUnreachable
            details, address, certified = (
                error.details() or "",
                address or self._settings.address,
                self._enrolled is not None,
            )
            # What is there may have to be asked, for seconds; the region's clusters are served meanwhile.
            said = await asyncio.to_thread(self._others.explained, name, error.code().name, details, address, certified)
            raise kind(f"{name}: {said or plain_line(details) or 'no reason was given'}{self._advice}") from error
        except grpc.aio.UsageError as error:  # of a channel that was closed amid the call
            raise ParentUnreachable(f"{name}: the connection is closed") from error

    async def _refresh(self, enrolled: EnrolledIdentity) -> None:
        now = self._clock()
        if enrolled.present is not None and now < self._not_before:
            return
        self._not_before = now + _pause_seconds(enrolled.present)
        try:
            invitation = enrolled.invitation()
            if invitation is not None:
                await self._enroll(enrolled, invitation)
            elif enrolled.present is None:
                raise ParentRefused(_NO_IDENTITY)  # noqa: TRY301  (told like all that stands in the way of an identity)
            elif now >= enrolled.present.renewal_unix_seconds():
                await self._renew(enrolled)
        except (ParentUnreachable, ParentRefused, IdentityFileError) as error:
            if enrolled.present is None:
                if isinstance(error, IdentityFileError):
                    raise ParentRefused(f"setting upstream.enrollment_file: {error}") from error
                raise
            _log.warning("identity-above-not-replaced", error=str(error))
        except OSError as error:
            raise ParentRefused(f"the identity cannot be kept ({error}); mend the disk") from error

    async def _enroll(self, enrolled: EnrolledIdentity, invitation: EnrollmentFile) -> None:
        request = enrolled.first_request()
        message = fleet_pb2.EnrollRequest(
            cluster=self._settings.name, token=invitation.token, signing_request=request.request
        )
        address = f"{self._settings.address.rpartition(':')[0]}:{invitation.enroll_port}"
        credentials = grpc.ssl_channel_credentials(invitation.authority.encode())
        async with grpc.aio.secure_channel(address, credentials, options=_OPTIONS) as channel:
            try:
                reply = await self._answered("Enroll", fleet_pb2_grpc.EnrollmentStub(channel).Enroll, message, address)
            except ParentRefused:
                enrolled.looked_at()  # The same token would be refused again; a new file is looked at.
                raise
        identity = enrolled.received(request.key, reply.certificate, reply.authority)
        self._on_enrolled(tuple(map(SignedDocument.of, reply.roots)))
        await self._take(identity)
        enrolled.settled(invitation)
        _log.info("region-enrolled", name=identity.name, expires_unix_seconds=round(identity.ends_unix_seconds))

    async def _renew(self, enrolled: EnrolledIdentity) -> None:
        request = enrolled.next_request()
        message = fleet_pb2.RenewCertificateRequest(cluster=self._settings.name, signing_request=request.request)
        if self._channel is None:
            self._open(enrolled.present)
        reply = await self._answered(
            "RenewCertificate", fleet_pb2_grpc.FleetStub(self._channel).RenewCertificate, message
        )
        await self._take(enrolled.received(request.key, reply.certificate, reply.authority))

    async def _take(self, identity: IdentityFile) -> None:
        await self.close()
        self._open(identity)

    def _open(self, identity: IdentityFile | None) -> None:
        if identity is None:
            self._channel = grpc.aio.insecure_channel(self._settings.address, options=_OPTIONS)
            return
        credentials = grpc.ssl_channel_credentials(identity.authority, identity.key, identity.certificate)
        self._channel = grpc.aio.secure_channel(self._settings.address, credentials, options=_OPTIONS)


def _pause_seconds(present: IdentityFile | None) -> float:
    if present is None:
        return 0.0
    life_seconds = present.ends_unix_seconds - present.begins_unix_seconds - BACKDATE_SECONDS
    return min(_RENEWAL_PAUSE_SECONDS, 0.1 * max(0.0, life_seconds))
