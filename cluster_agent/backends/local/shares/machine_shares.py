"""Shares of the machine by job: grown before the job is asked to grow, and taken back once it has shrunk."""

from __future__ import annotations

from typing import Protocol

from cluster_agent.backends.local.shares.core_map import CoreMap
from cluster_agent.backends.local.shares.gpu_ledger import GpuLedger
from elastic_runtime.launcher.warm.becoming import THREAD_VARIABLES
from policy_net.domain import Resources


def thread_variables(cpu_milli: int) -> dict[str, str]:
    """Variables that keep the usual libraries of one worker to as many threads as it has whole cores."""
    return dict.fromkeys(THREAD_VARIABLES, str(max(1, cpu_milli // 1000)))


class Shares(Protocol):
    """What each job holds of the machine."""

    def lacks(self, name: str, most: Resources) -> str:
        """Why `grow` would refuse now, in a line; empty if it would not. It may be another moment later."""
        ...

    def grow(self, name: str, most: Resources) -> str:
        """A job is about to be asked for a change during which it may take so much; a line if it cannot have it.

        Raises:
            OSError: it cannot be written down.
        """
        ...

    def bind(self, name: str) -> None:
        """Keep the processes that a job has now to its share."""
        ...

    def settle(self, name: str, takes: Resources) -> None:
        """A job holds what it was told to, and takes so much."""
        ...

    def release(self, name: str) -> None:
        """Nothing runs of a job any more."""
        ...


class MachineShares:
    """Cores and GPUs of this machine; see `Shares`."""

    def __init__(self, cores: CoreMap, gpus: GpuLedger) -> None:
        self._cores = cores
        self._gpus = gpus

    def lacks(self, name: str, most: Resources) -> str:
        """See `Shares`."""
        return self._gpus.lacks(name, most.gpu)

    def grow(self, name: str, most: Resources) -> str:
        """See `Shares`."""
        line = self._gpus.grow(name, most.gpu)
        if not line:
            self._cores.hold(name, most.cpu_milli)
            self._cores.bind(name)
        return line

    def bind(self, name: str) -> None:
        """See `Shares`."""
        self._cores.bind(name)

    def settle(self, name: str, takes: Resources) -> None:
        """See `Shares`."""
        self._gpus.settle(name, takes.gpu)
        self._cores.hold(name, takes.cpu_milli)
        self._cores.bind(name)

    def release(self, name: str) -> None:
        """See `Shares`."""
        self._cores.release(name)
        self._gpus.release(name)
