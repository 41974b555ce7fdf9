"""What tests of identities are made of: a clock that is set by hand, requests, a registrar in a folder."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from learner_makers import settings

from global_learner.registry.registry import Registry
from global_learner.registry.registry_thread import RegistryThread
from global_learner.service.identity_setup import Identities, open_identities, read_external_credentials
from global_learner.telemetry import LearnerTelemetry
from policy_net.exchange.identity_file import IdentityFile, new_key, parse_identity, signing_request

NOON = 1_790_000_000.0
ENROLL_PORT = 7072


class Clock:
    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> float:
        return self.now


@dataclass
class Enrolling:
    """A learner's identities, its clock and its counters."""

    identities: Identities
    telemetry: LearnerTelemetry
    clock: Clock
    folder: Path
    thread: RegistryThread

    def context(self, identity: IdentityFile) -> dict[str, list[bytes]]:
        """What gRPC would say of a caller that shows this identity."""
        return {"x509_common_name": [identity.name.encode()], "x509_pem_cert": [identity.certificate]}

    async def enroll(self, cluster: str, token: str, key: bytes | None = None) -> IdentityFile:
        key = key or new_key()
        grant = await self.identities.registrar.enroll(cluster, token, signing_request(key, cluster))
        return parse_identity(key + grant.pem + self.identities.registrar.authority_pem)

    async def member(self, cluster: str) -> IdentityFile:
        invitation = await self.identities.registrar.invite(cluster, "test")
        return await self.enroll(cluster, invitation.token)

    def counted(self, outcome: str) -> float:
        return self.telemetry.enrollments.labels(outcome)._value.get()


@contextlib.contextmanager
def enrolling(folder: Path, clock: Clock | None = None, **identity: object) -> Iterator[Enrolling]:
    config = settings(folder, identity=identity)
    clock = clock or Clock()
    telemetry = LearnerTelemetry()
    config.state_dir.mkdir(exist_ok=True)
    with contextlib.closing(RegistryThread(Registry(config.state_dir))) as thread:
        external = read_external_credentials(config, clock)
        with open_identities(config, external, config.state_dir, thread, telemetry, clock) as identities:
            identities.registrar.enroll_port = ENROLL_PORT
            yield Enrolling(identities, telemetry, clock, config.state_dir / "identity", thread)
