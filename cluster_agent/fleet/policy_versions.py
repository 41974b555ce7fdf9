"""Policy versions that the learner assigns: fetched, checked, and kept on disk; the first of them starts an agent.

An agent starts with the version that it last acted with, with its configured policy, or with one fetched right now.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cluster_agent.active_policy import Candidate, CandidateFactory, PolicyIdentity
from cluster_agent.backends.base import Wait
from cluster_agent.errors import NoPolicy, StateDamaged
from cluster_agent.fleet.session import LearnerAccess
from cluster_agent.recording.state_files import write_bytes
from cluster_agent.settings import Acting, PolicySettings
from foundation.files import read_ordinary
from policy_net.errors import (
    CertificateRefused,
    LearnerRefused,
    LearnerUnreachable,
    PolicyFileError,
    VersionRejected,
    VersionUnavailable,
)
from policy_net.exchange.fleet_trust import FleetTrust
from policy_net.exchange.policy_file import digest_of
from policy_net.exchange.signed_documents import UNAVAILABLE, UNUSABLE, Distrust, SignedDocument
from policy_net.exchange.spec import SetSpec, WeightSpec
from policy_net.exchange.wire import FetchedPolicy

_KEPT = re.compile(r"^v(\d+)\.safetensors$")
_CHALLENGER = "policies-beside"
_LARGEST_BYTES = 1 << 30


def checked_candidate(fetched: FetchedPolicy, spec: WeightSpec, factory: CandidateFactory) -> Candidate:
    """A fetched version, ready to act.

    Raises:
        VersionRejected: its digest, spec or content is not what was announced.
    """
    name = f"v{fetched.version}"
    digest = digest_of(fetched.data)
    if digest != fetched.digest:
        raise VersionRejected(
            f"{name} as the learner sent it: its digest is {digest}, expected {fetched.digest}; it is fetched again "
            "later, and what acts goes on acting",
            Distrust.BAD_DIGEST,
        )
    try:
        candidate = factory.from_bytes(fetched.data, PolicyIdentity(name, version=fetched.version))
    except PolicyFileError as error:
        raise VersionRejected(str(error)) from error
    if candidate.spec is None or candidate.spec.digest != spec.digest:
        raise VersionRejected(f"{name}: is of another spec than the fleet's {spec.digest[:12]}")
    return candidate


def refusal_word(error: VersionRejected | LearnerRefused) -> str:
    """The word of `VERSION_REFUSALS` for why a version is not acted with."""
    if isinstance(error, VersionRejected):
        return error.reason
    return UNAVAILABLE if isinstance(error, VersionUnavailable) else UNUSABLE


class KeptVersion:
    """A version on disk, the assigned one or the `challenger`: an agent that starts without a learner acts with it."""

    def __init__(self, state_dir: Path, *, challenger: bool = False) -> None:
        self._folder = state_dir / (_CHALLENGER if challenger else "policies")

    def keep(self, fetched: FetchedPolicy) -> None:
        """Keep this one and forget the others."""
        write_bytes(self._folder / f"v{fetched.version}.safetensors", fetched.data)
        for path, version in self._files():
            if version != fetched.version:
                path.unlink(missing_ok=True)

    def forget(self) -> None:
        """Keep none."""
        for path, _ in self._files():
            path.unlink(missing_ok=True)

    def load(self, factory: CandidateFactory) -> Candidate | None:
        """The kept version; None if there is none.

        Raises:
            StateDamaged: it cannot be used.
        """
        files = self._files()
        if not files:
            return None
        path, version = files[-1]
        try:
            return factory.from_bytes(_read(path), PolicyIdentity(f"v{version}", version=version))
        except (OSError, PolicyFileError) as error:
            raise StateDamaged(f"{path}: cannot be used ({error}); remove it, and it is fetched again") from error

    def copy_of(self, digest: str) -> bytes | None:
        """The kept file of this digest; None if there is none."""
        for path, _ in self._files():
            with contextlib.suppress(OSError):
                data = _read(path)
                if digest_of(data) == digest:
                    return data
        return None

    def _files(self) -> list[tuple[Path, int]]:
        """Kept files and their versions, the newest file last."""
        if not self._folder.is_dir():
            return []
        found = [(path, _KEPT.match(path.name)) for path in self._folder.iterdir()]
        files = [(path, int(match.group(1))) for path, match in found if match is not None]
        return sorted(files, key=lambda file: file[0].stat().st_mtime_ns)


def _read(path: Path) -> bytes:
    return read_ordinary(path, _LARGEST_BYTES)


@dataclass(frozen=True, slots=True)
class PolicySource:
    """Where an agent's policies come from: its settings, how they are built, the version on disk, whose keys count."""

    settings: PolicySettings
    factory: CandidateFactory
    kept: KeptVersion
    trust: FleetTrust | None = None

    def checked(self, fetched: FetchedPolicy, spec: WeightSpec, assigned_by: SignedDocument | None = None) -> Candidate:
        """A fetched version that the fleet's key vouches for, ready to act; `assigned_by` as in `FleetTrust.check`.

        Raises:
            VersionRejected: it cannot be acted with.
            OSError: what is trusted from now on cannot be kept.
        """
        if self.trust is not None:
            self.trust.check(fetched, assigned_by)
        return checked_candidate(fetched, spec, self.factory)


def local_policy(source: PolicySource) -> Candidate | None:
    """The version that acted here last, else the configured policy; None if there is neither.

    Raises:
        UnknownPolicy, PolicyFileError: the configured one cannot be used.
        StateDamaged: the kept one cannot be used.
    """
    settings, factory = source.settings, source.factory
    configured = None if settings.initial is None else factory.from_name_or_file(settings.initial)
    remembered = source.kept.load(factory) if settings.acting is Acting.ASSIGNED else None
    return remembered or configured


def fetched_policy(
    source: PolicySource, access: LearnerAccess, longest_seconds: float, clock: Callable[[], float], wait: Wait
) -> Candidate:
    """What the learner wants this cluster to act with.

    Raises:
        NoPolicy: it could not be had within so many seconds, or cannot be used, or the agent is to stop.
    """
    deadline = clock() + longest_seconds
    while True:
        try:
            return _fetch(source, access)
        except LearnerUnreachable as error:
            pause = access.backoff.next_seconds()
            if clock() + pause > deadline or wait(pause):
                raise NoPolicy(
                    f"no policy to schedule with: none is kept here, and the learner is not reachable ({error}); "
                    "set policy.initial or start the learner"
                ) from error
        except VersionRejected as error:
            if error.reason != Distrust.OTHER_ASSIGNMENT or clock() > deadline:
                raise NoPolicy(f"no policy to schedule with: {error}; set policy.initial") from error
            # It was assigned another one since it registered: ask anew which.
            registration = access.session.registration
            if registration is not None:
                access.session.forget(registration.incarnation)
            if wait(access.backoff.next_seconds()):
                raise NoPolicy(f"no policy to schedule with: {error}; set policy.initial") from error
        except CertificateRefused as error:
            raise NoPolicy(f"{error}; until then there is no policy to schedule with") from error
        except LearnerRefused as error:
            raise NoPolicy(f"no policy to schedule with: {error}; set policy.initial") from error


def _fetch(source: PolicySource, access: LearnerAccess) -> Candidate:
    learner = access.learner
    registration = access.session.registered()
    if source.settings.acting is Acting.HEAD:
        if isinstance(registration.spec, SetSpec) and registration.assigned_version:
            # The head is weights alone; what is believed of speeds at first stands in the version's file.
            fetched = learner.fetch_policy(registration.assigned_version)
            source.checked(fetched, registration.spec, registration.timestamp)
        head = learner.pull_head(registration, None)
        if head is None:
            raise LearnerRefused("PullHead: the learner sent no head")
        return source.factory.from_head(registration.spec, head.weights, head.step)
    if registration.assigned_version == 0:
        raise LearnerRefused("the learner has assigned no version to this cluster")
    fetched = learner.fetch_policy(registration.assigned_version)
    candidate = source.checked(fetched, registration.spec, registration.timestamp)
    source.kept.keep(fetched)
    return candidate
