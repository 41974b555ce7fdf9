"""Check of a configuration: all that a learner reads before it begins, and what its policy fits into.

A start reads these first, so that nothing is begun where one of them cannot be used; `serve --check` reads no more.
"""

from __future__ import annotations

import errno
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from foundation.files import PARTIAL
from global_learner.aggregation.modes import build_aggregator
from global_learner.errors import BadLearnerConfig
from global_learner.service.admission import AdmissionLimits
from global_learner.service.identity_setup import ExternalCredentials, read_external_credentials
from global_learner.service.listener import most_connections
from global_learner.settings import LearnerSettings
from global_learner.storage.update_records import log_limit_bytes
from policy_net.errors import IdentityFileError
from policy_net.exchange.enrolled_identity import EnrolledIdentity
from policy_net.exchange.policy_file import PolicyFile, read_policy_file
from policy_net.exchange.spec import PolicySpec, WeightSpec
from policy_net.privacy.settings import budget

UPSTREAM_FOLDER = "upstream"
"""In the state directory of a region: its identity at the learner above, and the keys that it trusts."""
_LEAST_CONNECTIONS = 256
"""Open at a time, however few clusters there may be: operators and strangers have some, too."""
_ENVELOPE_BYTES = 1 << 20
"""Room beside the gradient in a request: names, statistics, protobuf's own framing."""


@dataclass(frozen=True, slots=True)
class CheckedConfig:
    """What was read, for the start."""

    initial: PolicyFile
    limits: AdmissionLimits
    external: ExternalCredentials


def read_named_files(settings: LearnerSettings, on_replaced: Callable[[str], None] = lambda _: None) -> CheckedConfig:
    """Read what the settings name, and see that it fits; `on_replaced` is told of secrets that are replaced later.

    Raises:
        BadConfig, PolicyFileError, SecretExposed: something cannot be used; nothing was begun.
    """
    initial = read_policy_file(settings.initial_policy)
    limits = _limits(settings, initial.spec)
    log_limit_bytes(settings.durability.max_log_bytes, initial.spec.parameter_count)
    build_aggregator(settings.aggregation, settings.optimizer_for(initial.spec), initial.spec)
    _check_noise(settings, initial.spec)
    check_port_file(settings.port_file)
    return CheckedConfig(initial, limits, read_external_credentials(settings, time.time, on_replaced))


def check_config(settings: LearnerSettings) -> list[str]:
    """Read what the settings name and begin nothing; what was found, one line each. Ports are not tried.

    Raises:
        BadConfig, PolicyFileError, SecretExposed: something cannot be used, as a start would find.
    """
    checked = read_named_files(settings)
    path = settings.state_dir
    there = next((folder for folder in (path, *path.parents) if folder.exists()), Path("/"))
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise BadLearnerConfig(f"setting state_dir: {path} cannot be used, as {there} is no folder that can be written")
    above = settings.upstream
    if above is not None and above.enrollment_file is not None:
        identity = path / UPSTREAM_FOLDER
        with tempfile.TemporaryDirectory() as folder:
            try:
                # Whoever opens an identity makes its folder.
                kept = identity if identity.is_dir() else Path(folder) / UPSTREAM_FOLDER
                EnrolledIdentity(kept, above.name, above.enrollment_file)
            except IdentityFileError as error:
                raise BadLearnerConfig(f"setting upstream.enrollment_file: {error}") from error
    return [
        f"state_dir {path}" + ("" if there == path else ", which will be made"),
        f"initial_policy {settings.initial_policy}, {checked.initial.spec.parameter_count} parameters",
        f"listen {settings.listen}, which was not tried",
    ]


def check_port_file(path: Path | None) -> None:
    """Try to write beside where the ports will be written, which is too late to find out.

    Raises:
        BadConfig: nothing can be written there.
    """
    if path is None:
        return
    probe = path.with_name(f".{path.name}.{os.getpid()}{PARTIAL}")
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise BadLearnerConfig(
            f"setting port_file: {path} cannot be written ({error.strerror}); name a file in a folder that exists"
        ) from error


def _check_noise(settings: LearnerSettings, spec: WeightSpec) -> None:
    """See that a network's updates can be told from the noise of privacy.

    Were all gradients alike, the sum of those that M clusters may give would be √(M·budget/P) times as long as its
    noise in P parameters, whatever the noise of one.

    Raises:
        BadConfig: not with as many clusters as there may be.
    """
    privacy = settings.privacy
    if privacy is None or privacy.target_epsilon is None or not isinstance(spec, PolicySpec):
        return
    needed = spec.parameter_count / budget(privacy.target_epsilon, privacy.delta)
    if needed > settings.ingest.max_clusters:
        raise BadLearnerConfig(
            f"setting privacy.target_epsilon = {privacy.target_epsilon:g}: noise in {spec.parameter_count} parameters "
            f"hides all that fewer than {needed:.2g} clusters may say, and ingest.max_clusters is "
            f"{settings.ingest.max_clusters}: begin with a set policy, or leave out privacy, or its limit"
        )


def _limits(settings: LearnerSettings, spec: WeightSpec) -> AdmissionLimits:
    gradient = 4 * spec.parameter_count
    return AdmissionLimits(
        gradient + _ENVELOPE_BYTES,
        most_connections(settings.ingest.max_connections or max(_LEAST_CONNECTIONS, 4 * settings.ingest.max_clusters)),
        settings.calls,
        large_methods=frozenset({"Push", "Reply", "ShareBeliefs", "RestoreVersion", "PublishVersion"}),
        envelope_bytes=_ENVELOPE_BYTES,
    )
