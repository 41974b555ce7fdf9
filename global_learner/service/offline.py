"""Work at a learner's state while it does not serve: a version's file put back, the administrator's file handed over.

`admin-secret` runs before the learner does, in a container that alone has a token for the API server: what serves needs
none.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping
from pathlib import Path

from foundation.locks import lock_holder
from foundation.pod_secrets import PodSecrets, check_names
from global_learner.enrollment.authority import ADMINISTRATOR_FILE
from global_learner.errors import BadLearnerConfig, StateUnusable
from global_learner.registry.registry import Registry
from global_learner.service.config_check import read_named_files
from global_learner.service.identity_setup import open_identities
from global_learner.service.server import open_registry
from global_learner.service.standby import term_of
from global_learner.settings import LearnerSettings
from global_learner.storage.audit import Order
from global_learner.storage.state_dir import IDENTITY_FOLDER
from global_learner.telemetry import LearnerTelemetry

_LEASES = 2.0
"""So many times the lease's length is waited for it: nobody renews it where no learner is active."""
_POLLS_SECONDS = 1.0


async def restore_file(settings: LearnerSettings, version: int, data: bytes, actor: str, now: float) -> bool:
    """Put a version's file back; False if it was there, and whole.

    Raises:
        BadConfig: there is no state directory.
        StateUnusable: a learner runs, or the registry cannot be read.
        UnknownPolicyVersion, BadRequest: see `Registry.restore`.
    """
    if not settings.state_dir.is_dir():
        raise BadLearnerConfig(f"setting state_dir: {settings.state_dir} is no directory, so nothing is lost in it")
    holder = None
    if settings.database is None:
        with contextlib.suppress(OSError):  # who takes the lock says what is wrong with the directory
            holder = lock_holder(settings.state_dir / "lock")
    ending = asyncio.Event()
    waiting = asyncio.get_running_loop().call_later(_LEASES * settings.lease_seconds, ending.set)
    if holder is None:
        async with term_of(_quiet(settings), LearnerTelemetry(), ending) as term:
            waiting.cancel()
            if term is not None:
                state = term.state
                with contextlib.closing(Registry(state.path, state.commits, shared=state.shared)) as registry:
                    return registry.restore(version, data, Order(actor, now))
    raise StateUnusable(
        f"state_dir {settings.state_dir}: a learner runs{f' (process {holder})' if holder else ''}; it takes the file "
        f"itself: `policyctl version restore v{version} --from FILE`"
    )


def hand_over_administrator(settings: LearnerSettings, secret: str, account: Path, env: Mapping[str, str]) -> str:
    """Put the administrator's identity file into a Secret of this pod's namespace; a line that says so.

    Args:
        account: the folder of the pod's service account.
        env: the pod's environment.

    Raises:
        BadSecretName: no Secret can have this name.
        BadConfig, StateUnusable: the learner makes none, or could not start.
        NotInPod, ApiServerAway, SecretRefused: the Secret cannot be written.
    """
    check_names(secret)
    there = PodSecrets(account, env)
    changed = there.put(secret, {ADMINISTRATOR_FILE: asyncio.run(_administrator(settings))})
    return f"secret {secret} in namespace {there.namespace}: {'now has' if changed else 'has'} {ADMINISTRATOR_FILE}"


async def _administrator(settings: LearnerSettings) -> bytes:
    """The file, made where there is none yet; where learners share a database, by the first that may act.

    It is read while this learner is the active one: the next one moves the folder.
    """
    if settings.identity is None:
        raise BadLearnerConfig(
            "setting identity: without it the learner makes no certificates, and there is no admin.pem"
        )
    path = settings.state_dir / IDENTITY_FOLDER / ADMINISTRATOR_FILE
    content = None if settings.database is None else _read(path)
    if content is not None:
        return content
    external = read_named_files(settings).external
    found, telemetry = asyncio.Event(), LearnerTelemetry()
    poll = None if settings.database is None else asyncio.create_task(_until_there(path, found))
    async with term_of(_quiet(settings), telemetry, found) as term:
        if term is not None:
            with (
                contextlib.closing(open_registry(settings, term.state)) as registry,
                open_identities(settings, external, term.state.path, registry, telemetry, time.time),
            ):
                pass  # opening makes it
            content = _read(term.state.path / IDENTITY_FOLDER / ADMINISTRATOR_FILE)
    if poll is not None and term is None:
        content = await poll
    elif poll is not None:
        poll.cancel()
    if content is None:
        raise StateUnusable(f"{path}: another learner took over before it was read; start again")
    return content


async def _until_there(path: Path, found: asyncio.Event) -> bytes:
    while (content := _read(path)) is None:
        await asyncio.sleep(_POLLS_SECONDS)
    found.set()
    return content


def _read(path: Path) -> bytes | None:
    """None where it is not there, or is being moved by a learner that takes over."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StateUnusable(f"{path}: cannot be read ({error.strerror}); start again") from error


def _quiet(settings: LearnerSettings) -> LearnerSettings:
    """The settings without the HTTP port: nobody asks how this is."""
    telemetry = settings.telemetry.model_copy(update={"http_listen": None})
    return settings.model_copy(update={"telemetry": telemetry})
