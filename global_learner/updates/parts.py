"""Parts of a running learner that its rules share: what is learned, where it is kept, and the process around both."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from global_learner.fleet import Fleet
from global_learner.registry.registry_thread import RegistryThread
from global_learner.storage.log_writer import LogWriter
from global_learner.storage.state_dir import StateDir
from global_learner.storage.update_records import AppliedUpdate
from global_learner.telemetry import LearnerTelemetry
from global_learner.updates.head import Head
from global_learner.updates.quarantine import Quarantine
from policy_net.exchange.spec import Spec

MakeRecords = Callable[[int], Sequence[AppliedUpdate]]
"""Makes the records from the head's next step on, which it is told; between it and the log nothing else happens."""


@dataclass(frozen=True, slots=True)
class Learned:
    """The head, of which spec it is, the clusters that it is learned from and for, and their quarantines."""

    spec: Spec
    head: Head
    fleet: Fleet
    quarantine: Quarantine


@dataclass(frozen=True, slots=True)
class DurableStores:
    """What is on disk, and durable before anybody is told of it."""

    state: StateDir
    registry: RegistryThread
    log: LogWriter


@dataclass(frozen=True, slots=True)
class Process:
    """What every part reports to; `failed` resolves if the learner cannot go on, and whoever runs it has to end it."""

    telemetry: LearnerTelemetry
    wall_clock: Callable[[], float]
    failed: asyncio.Future[BaseException]

    def fail(self, error: BaseException) -> None:
        """Say that the learner cannot go on, and why; the first reason counts."""
        if not self.failed.done():
            self.failed.set_result(error)
