"""A version's file put back while no learner runs: the way on where a learner cannot start without that file."""

from __future__ import annotations

import asyncio
import contextlib

from foundation.locks import lock_holder
from global_learner.errors import BadLearnerConfig, StateUnusable
from global_learner.registry.registry import Registry
from global_learner.service.standby import term_of
from global_learner.settings import LearnerSettings
from global_learner.telemetry import LearnerTelemetry

_LEASES = 2.0
"""So many times the lease's length is waited for it: nobody renews it where no learner is active."""


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
    quiet = settings.telemetry.model_copy(update={"http_listen": None})  # nobody asks how this is
    asked = settings.model_copy(update={"telemetry": quiet})
    waiting = asyncio.get_running_loop().call_later(_LEASES * settings.lease_seconds, ending.set)
    if holder is None:
        async with term_of(asked, LearnerTelemetry(), ending) as term:
            waiting.cancel()
            if term is not None:
                state = term.state
                with contextlib.closing(Registry(state.path, state.commits, shared=state.shared)) as registry:
                    return registry.restore(version, data, actor, now)
    raise StateUnusable(
        f"state_dir {settings.state_dir}: a learner runs{f' (process {holder})' if holder else ''}; it takes the file "
        f"itself: `policyctl version restore v{version} --from FILE`"
    )
