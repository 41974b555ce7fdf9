"""Thread on which the registry runs alone, since databases block and an event loop must not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from sqlalchemy.exc import SQLAlchemyError

from global_learner.errors import DatabaseAway, DiskFull, LearnerError
from global_learner.postgres.lease import Lease
from global_learner.postgres.server import is_away
from global_learner.registry.registry import Registry
from global_learner.storage.disk import is_disk_full

P = ParamSpec("P")
T = TypeVar("T")


class RegistryThread:
    """Runs the registry's methods one after the other, off the event loop.

    Args:
        lease: of learners that share the state; None where there is one learner.
    """

    def __init__(self, registry: Registry, lease: Lease | None = None) -> None:
        self.registry = registry
        self._lease = lease
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="registry")

    async def call(self, method: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
        """Call a method that uses the registry.

        Raises:
            DiskFull: nothing was changed.
            DatabaseAway: the database server does not answer; a change may have been made.
            NotActive: another learner is the active one, or may be.
            LearnerError: the disk or the database refused; otherwise whatever the method raises.
        """
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._thread, lambda: method(*arguments, **options))
        except (OSError, SQLAlchemyError) as error:
            if is_disk_full(error):
                raise DiskFull(f"the registry cannot be written ({error}); free space, and ask again") from error
            if is_away(error):
                raise DatabaseAway(f"the registry cannot be asked ({error}); ask again") from error
            if self._lease is not None:
                self._lease.check()  # who was held up amid a version finds its file gone: no fault of the disk
            raise LearnerError(f"the registry cannot be used ({error}); free space or mend the disk") from error

    def close(self) -> None:
        """Finish, and close the registry."""
        self._thread.shutdown()
        self.registry.close()
