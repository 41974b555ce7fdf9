"""Measurement of a job by its coordinator, and the handle by which the backend reaches a job's processes."""

from __future__ import annotations

import contextlib
import os
import signal
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cluster_agent.backends.local.job_table import LocalJobRecord
from cluster_agent.backends.local.launchers import Launchers
from cluster_agent.backends.local.shares.machine_shares import thread_variables
from elastic_runtime.control.messages import RequestState
from elastic_runtime.errors import ElasticError
from elastic_runtime.launcher.job_folder import holder_of, remove_folder
from elastic_runtime.protocol.plan import JobPhase
from policy_net.domain import SUSPENDED, Allocation

_UNDER_WAY = frozenset({JobPhase.STARTING, JobPhase.RECOVERING, JobPhase.RESIZING, JobPhase.SUSPENDING})


@dataclass(frozen=True, slots=True)
class LocalMeasurement:
    """What a job's coordinator said of it last.

    Attributes:
        phase: None as long as nobody has said anything.
        held: what works now; `target` was asked for last.
        samples: trained, repeated ones once.
        total_epochs: of the whole job, as its script says; 0: it has not.
        fresh: whether the coordinator said it just now; else it is what its launcher wrote down last.
        seen_unix_seconds: when it was fresh last; 0: not since this agent began.
        failures: of its script, after which it went on; `last_failure` is the newest, in a line.
        damage: what of the job's folder cannot be used, in a line; empty if it was not in the way.
    """

    phase: JobPhase | None = None
    held: Allocation = SUSPENDED
    target: Allocation = SUSPENDED
    samples: float = 0.0
    epoch: float = 0.0
    total_epochs: float = 0.0
    stall_seconds: float = 0.0
    failure: str = ""
    requests: tuple[RequestState, ...] = ()
    fresh: bool = False
    seen_unix_seconds: float = 0.0
    steps: float = 0.0
    failures: int = 0
    last_failure: str = ""
    damage: str = ""

    @property
    def current(self) -> Allocation:
        """What it has, or is about to have: a change that is under way goes on by itself.

        As long as nobody has said how far that is, it may have the more of both.
        """
        if not self.fresh:
            return self.held.most(self.target)
        return self.target if self.phase in _UNDER_WAY else self.held

    @property
    def is_settled(self) -> bool:
        """Whether it trains with what it was asked to have."""
        return self.phase is JobPhase.RUNNING and self.held == self.target

    @property
    def is_ending(self) -> bool:
        """Whether nothing can be asked of it any more; its tasks may still write what they have trained."""
        return self.phase in (JobPhase.FINISHED, JobPhase.FAILED)

    @property
    def samples_per_epoch(self) -> float:
        """0 until the first sample."""
        return self.samples / self.epoch if self.epoch > 0 and self.samples > 0 else 0.0

    @property
    def steps_per_epoch(self) -> float:
        """0 until the first step."""
        return self.steps / self.epoch if self.epoch > 0 else 0.0


class JobProcesses(ABC):
    """A job's processes, whatever they are; they outlive who asks.

    Nothing is remembered here: whoever opens the job's folder next finds its launcher by the lock that it holds. A
    request has an id under which it may be sent again.
    """

    def __init__(
        self, jobs: Path, record: LocalJobRecord, environment: Mapping[str, str], launchers: Launchers
    ) -> None:
        """Take the folder of all jobs' folders; the environment is inherited, with the job's own `env`."""
        self.name = record.name
        self.log_folder = jobs / record.name / "logs"
        self._path = jobs / record.name
        self._file = record.file
        self._launchers = launchers
        self._environment = {**environment, **thread_variables(record.file.worker.cpu), **record.file.env}

    @property
    def launcher(self) -> int | None:
        """Process number of the launcher that looks after it now, or is about to; 0 where it has not said it yet."""
        try:
            holder = self._holder()
        except ElasticError:  # its own lock cannot be asked; what is handed to it by this agent can
            holder = None
        return self._launchers.running(self.name) if holder is None else holder

    @abstractmethod
    def start(self, allocation: Allocation) -> None:
        """Start it, or go on with it from its last checkpoint, under a launcher that outlives this process.

        Raises:
            OSError: it could not be started.
        """

    @abstractmethod
    def measure(self) -> LocalMeasurement:
        """How it is doing: as its coordinator says, or as its launcher wrote down last."""

    @abstractmethod
    def cpu_seconds(self) -> float | None:
        """Processor time that its processes have used, where its script alone says what it has trained; else None."""

    @abstractmethod
    def request(self, request_id: str, allocation: Allocation, *, resume: bool) -> str:
        """Ask for another size, 0/0 to suspend; what is refused is told in a line, empty: it was taken.

        `resume` says whether the job is suspended now.
        """

    def terminate(self) -> None:
        """Tell the launcher to end the job; told twice, it may do so at once, without a checkpoint."""
        launcher = self.launcher
        if launcher:
            with contextlib.suppress(ProcessLookupError):
                os.kill(launcher, signal.SIGTERM)

    def clear(self) -> None:
        """End whatever a launcher that is gone left behind."""
        self._launchers.clear(self.name)

    def begin_anew(self) -> None:
        """Forget a job that has trained nothing, so that its next start is a first one; its launcher is gone."""
        self.clear()
        remove_folder(self._path)

    def _holder(self) -> int | None:
        return holder_of(self._path)
