"""Identity setup: what tells callers apart, opened from the settings and the state directory.

It has the service `Enrollment` of fleet.proto too, on a port of its own: the only call that needs no certificate.
"""

# ruff: noqa: N802  # methods are named by fleet.proto

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import structlog
from cryptography import x509

from foundation.followed_files import POLL_SECONDS, Content, FollowedFiles
from global_learner.enrollment.authority import (
    ADMINISTRATOR,
    ADMINISTRATOR_FILE,
    AUTHORITY_KEY_FILE,
    Authority,
    ensure_administrator,
    follow_authority,
    open_authority,
)
from global_learner.enrollment.identity_store import IdentityStore
from global_learner.enrollment.registrar import EnrollmentRules, Registrar
from global_learner.errors import BadLearnerConfig, EnrollmentRefused, LearnerError, StateUnusable
from global_learner.identity import CallerIdentity
from global_learner.registry.registry_thread import RegistryThread
from global_learner.section_settings import CallSettings, IdentitySettings
from global_learner.service.admission import AdmissionLimits, Context, answered, bounded_server, calling_host
from global_learner.service.connection_guard import ConnectionGuard
from global_learner.service.lanes import QueueShare, one_lane
from global_learner.service.listener import bind, server_credentials
from global_learner.settings import LearnerSettings, TlsSettings, split_address
from global_learner.storage.state_dir import IDENTITY_FOLDER
from global_learner.telemetry import LearnerTelemetry
from policy_net.errors import IdentityFileError
from policy_net.exchange.connection_files import ConnectionFiles, follow_connection_files, read_connection_files
from policy_net.exchange.generated import fleet_pb2, fleet_pb2_grpc
from policy_net.exchange.identity_file import make_private_folder
from policy_net.exchange.secrets_in_use import SecretInUse, Validity, validity_of

_log = structlog.get_logger()

ADMINISTRATOR_CHECK_SECONDS = 3600.0
"""An identity file is good for a year and due for renewal after two thirds; an hour is early enough."""
ENROLL_LIMITS = AdmissionLimits(
    message_bytes=32 * 1024, connections=64, patience=CallSettings(arrival_seconds=10.0), handshake_seconds=10.0
)
_REFUSED_SECONDS = 0.5
_ENROLL_SHARE = QueueShare(seats=16, seats_per_caller=4, waiting_per_caller=64, bytes_per_caller=1 << 20)
"""Anybody may call: little memory, and never enough work to keep the learner from its updates."""


@dataclass(frozen=True, slots=True)
class Identities:
    """What the services need to tell callers apart; credentials are None for plain text."""

    identity: CallerIdentity
    registrar: Registrar
    credentials: grpc.ServerCredentials | None
    enroll_credentials: grpc.ServerCredentials | None
    check_administrator: Callable[[], None] = lambda: None
    """Renews the owner's identity file if it is time; blocks, on the registry's thread."""


@dataclass(frozen=True, slots=True)
class ExternalCredentials:
    """What the settings name that was made elsewhere: a pair of certificate and key, or an authority."""

    files: FollowedFiles[ConnectionFiles] | None = None
    authority: FollowedFiles[Authority] | None = None
    secrets: tuple[SecretInUse, ...] = ()


def read_external_credentials(
    settings: LearnerSettings,
    clock: Callable[[], float],
    on_replaced: Callable[[str], None] = lambda _: None,
    poll_clock: Callable[[], float] = time.monotonic,
) -> ExternalCredentials:
    """Read what was made elsewhere, before anything is begun; it is read again when it changes, and `on_replaced` told.

    Raises:
        BadConfig, SecretExposed: a certificate or key cannot be used.
    """
    tls, own = settings.tls, settings.identity
    if tls is not None:
        return _follow_files(tls, clock, on_replaced, poll_clock)
    if own is None or own.ca_certificate_file is None or own.ca_key_file is None:
        return ExternalCredentials()
    authority = follow_authority(
        own.ca_certificate_file, own.ca_key_file, clock, lambda: on_replaced("authority"), poll_clock
    )
    secret = SecretInUse(
        "authority", lambda: authority.value.validity, lambda: authority.refusal, poll=authority.current
    )
    return ExternalCredentials(authority=authority, secrets=(secret,))


def _follow_files(
    tls: TlsSettings,
    clock: Callable[[], float],
    on_replaced: Callable[[str], None],
    poll_clock: Callable[[], float],
) -> ExternalCredentials:
    def replaced(found: ConnectionFiles) -> None:
        _log.info("certificate-replaced", expires_unix_seconds=round(found.validity.ends_unix_seconds))
        on_replaced("service")

    def refused(reason: str) -> None:
        _log.error("certificate-not-replaced", reason=reason, meaning="the one before serves on")

    def read(content: Content) -> ConnectionFiles:
        try:
            return read_connection_files(tls.client_ca_file, tls.certificate_file, tls.key_file, content)
        except IdentityFileError as error:
            raise BadLearnerConfig(f"setting tls: {error}") from error

    files = follow_connection_files(read, replaced, refused, poll_clock, clock)
    if tls.key_file.stat().st_mode & 0o007:
        _log.warning("key-exposed", file=str(tls.key_file), advice="others on this machine may read it: chmod 600")

    def refusal() -> str:
        return files.refusal

    secrets = [SecretInUse("service", lambda: files.value.validity, refusal, files.current)]
    if tls.client_ca_file is not None:
        secrets.append(SecretInUse("client-authority", lambda: files.value.authority_validity, refusal))
    return ExternalCredentials(files, secrets=tuple(secrets))


class OwnCertificate:
    """The learner's certificate under its own authority, for the names that agents may dial; made anew in time."""

    def __init__(self, authority: Authority, names: tuple[str, ...], clock: Callable[[], float]) -> None:
        self._authority, self._names, self._clock = authority, names, clock
        self._lock = threading.Lock()
        self._made = self._make()

    @property
    def validity(self) -> Validity:
        """Of the one in force."""
        return self._made.validity

    def current(self) -> ConnectionFiles:
        """The one in force; another one after two thirds of its life, or of a renewed authority."""
        with self._lock:
            begins, ends = self._made.validity
            due = self._clock() >= begins + (ends - begins) * 2.0 / 3.0
            if due or self._made.authority != self._authority.pem:
                self._made = self._make()
            return self._made

    def _make(self) -> ConnectionFiles:
        key, certificate = self._authority.for_server(self._names, self._clock())
        validity = validity_of(x509.load_pem_x509_certificate(certificate))
        return ConnectionFiles(self._authority.pem, certificate, key, validity, self._authority.validity)


@contextlib.contextmanager
def open_identities(
    settings: LearnerSettings,
    external: ExternalCredentials,
    state_dir: Path,
    thread: RegistryThread,
    telemetry: LearnerTelemetry,
    clock: Callable[[], float],
) -> Iterator[Identities]:
    """Open the store, and the authority if there is one; the store is closed at the end.

    Raises:
        BadConfig, SecretExposed: the authority's files cannot be used.
        StateUnusable: the folder or the store cannot.
    """
    folder = state_dir / IDENTITY_FOLDER
    try:
        make_private_folder(folder)
    except OSError as error:
        raise StateUnusable(f"{folder}: cannot be used ({error.strerror}); name a state_dir of one's own") from error
    with contextlib.closing(IdentityStore(folder, thread.registry.commits, thread.registry.shared)) as store:
        credentials, enroll_credentials = None, None
        authority = None if external.authority is None else external.authority.value
        if external.files is not None:
            only_certified = external.files.value.authority is not None
            credentials = server_credentials(external.files.current, only_certified=only_certified)
        if settings.identity is not None:
            if authority is None and store.known and not (folder / AUTHORITY_KEY_FILE).exists():
                raise StateUnusable(
                    f"{folder / AUTHORITY_KEY_FILE}: the authority's key is gone, and certificates that it signed are "
                    "in use; restore it from a backup, or enroll all anew in an empty folder"
                )
            authority = authority or _own_authority(folder, clock())
            own = OwnCertificate(authority, _names(settings), clock)
            # The fleet must show certificates, and who enrolls cannot yet.
            credentials = server_credentials(own.current, only_certified=True)
            enroll_credentials = server_credentials(own.current, only_certified=False)
            telemetry.secrets.add(SecretInUse("service", lambda: own.validity, poll=own.current))
            if external.authority is None:
                telemetry.secrets.add(SecretInUse("authority", lambda: authority.validity))
            if not store.known and (folder / ADMINISTRATOR_FILE).exists():
                raise StateUnusable(
                    f"{folder}: holds an administrator's file, and a book of identities without any: it was emptied or "
                    "is gone, and with it who may call; restore it from a copy, or enroll all anew in an empty folder"
                )
            try:
                ensure_administrator(folder / ADMINISTRATOR_FILE, authority, store, clock())
            except OSError as error:
                raise StateUnusable(f"{folder}: cannot be written ({error.strerror}); free space") from error
        admin_names = settings.tls.admin_names if settings.tls is not None else ()
        identity = CallerIdentity(
            settings.authenticated, admin_names, store, issuing=authority is not None, clock=clock
        )
        rules = EnrollmentRules(
            settings.identity or IdentitySettings(),
            revocable=settings.authenticated,
            reserved=frozenset((ADMINISTRATOR, "global-learner", *_names(settings))),
        )
        registrar = Registrar(store, thread, authority, rules, telemetry, clock)

        def check_administrator() -> None:
            if settings.identity is not None and authority is not None:
                ensure_administrator(folder / ADMINISTRATOR_FILE, authority, store, clock())

        yield Identities(identity, registrar, credentials, enroll_credentials, check_administrator)


async def follow_secrets(
    telemetry: LearnerTelemetry, sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
) -> None:
    """Look at the files of secrets for as long as the learner runs, so that a replacement is told of in time."""
    while True:
        await sleep(POLL_SECONDS)
        await asyncio.to_thread(telemetry.secrets.poll)


async def keep_administrator(
    identities: Identities, thread: RegistryThread, sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
) -> None:
    """See to the owner's identity file for as long as the learner runs; what fails is tried again."""
    while True:
        await sleep(ADMINISTRATOR_CHECK_SECONDS)
        try:
            await thread.call(identities.check_administrator)
        except LearnerError as error:
            _log.warning("administrator-not-renewed", reason=str(error))


class EnrollmentService(fleet_pb2_grpc.EnrollmentServicer):
    """Answers agents that have a token and no certificate yet."""

    def __init__(self, registrar: Registrar, telemetry: LearnerTelemetry) -> None:
        self.telemetry = telemetry
        self._registrar = registrar

    @answered
    async def Enroll(self, request: fleet_pb2.EnrollRequest, context: Context) -> fleet_pb2.CertificateReply:
        """A certificate for a token; the token says for which name."""
        del context
        try:
            grant = await self._registrar.enroll(request.cluster, request.token, request.signing_request)
        except EnrollmentRefused:
            # It keeps one of its host's few seats meanwhile: so seldom can anybody be wrong.
            await asyncio.sleep(_REFUSED_SECONDS)
            raise
        return self._registrar.reply(grant)


async def start_enrollment(
    settings: LearnerSettings, identities: Identities, telemetry: LearnerTelemetry
) -> tuple[grpc.aio.Server, ConnectionGuard]:
    """Answer on the port for enrollment, if there is one; the server to be stopped, and the guard of its connections.

    Raises:
        BadConfig: the address cannot be listened on.
    """
    guard = ConnectionGuard(ENROLL_LIMITS.connections, callers_stay=False)
    server = bounded_server(ENROLL_LIMITS, calling_host, one_lane(_ENROLL_SHARE), telemetry, guard)
    address = settings.enroll_address
    if address is not None:
        service = EnrollmentService(identities.registrar, telemetry)
        fleet_pb2_grpc.add_EnrollmentServicer_to_server(service, server)
        identities.registrar.enroll_port = bind("identity.enroll_port", server, address, identities.enroll_credentials)
        await server.start()
    return server, guard


def _own_authority(folder: Path, now: float) -> Authority:
    try:
        return open_authority(folder, now)
    except OSError as error:
        raise StateUnusable(f"{folder}: cannot be written ({error.strerror}); free space") from error


def _names(settings: LearnerSettings) -> tuple[str, ...]:
    """What agents may dial; on the learner's own machine also loopback."""
    named = settings.identity.names if settings.identity is not None else ()
    return tuple(dict.fromkeys((*(named or (split_address(settings.listen)[0],)), "127.0.0.1", "localhost")))
