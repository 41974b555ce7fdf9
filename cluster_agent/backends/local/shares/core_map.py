"""Map of the cores that jobs run on: each job's processes may use so many of them, the least crowded ones.

A job is kept to whole cores: one that was given 1500m runs on two cores, and may use more of them than that when nobody
else does. Where the operator names a control group, the kernel also keeps each job to its exact millicores. A job keeps
cores that it has, so that caches stay warm.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Sequence

from cluster_agent.backends.local.shares.cpu_quota import CpuQuota


class CoreMap:
    """The cores of one machine.

    Args:
        cores: that jobs may use.
        processes: of a job, by its name.
        quota: of each job; None: there is none.
    """

    def __init__(
        self, cores: Sequence[int], processes: Callable[[str], Iterable[int]], quota: CpuQuota | None = None
    ) -> None:
        self._all = list(cores)
        self._processes = processes
        self._quota = quota
        self._held: dict[str, tuple[int, list[int]]] = {}

    def cores_of(self, name: str) -> list[int]:
        """The cores that a job's processes may use; all where it holds nothing."""
        return sorted(self._held.get(name, (0, self._all))[1])

    def hold(self, name: str, cpu_milli: int) -> None:
        """A job has so many millicores from now on; its processes are told by `bind`."""
        wanted = min(len(self._all), max(1, -(-cpu_milli // 1000)))
        _, mine = self._held.pop(name, (0, []))
        crowd = self._crowd()
        kept = sorted(mine, key=lambda core: crowd[core])[:wanted]
        others = sorted((core for core in self._all if core not in kept), key=lambda core: crowd[core])
        self._held[name] = (cpu_milli, kept + others[: wanted - len(kept)])

    def bind(self, name: str) -> None:
        """Keep all processes of a job to what it has, and those that they will start."""
        if name not in self._held:
            return
        cpu_milli, _ = self._held[name]
        cores = set(self.cores_of(name))
        done: set[int] = set()
        # What was forked while others were told has still what its parent had: looked again until nobody is new.
        while new := set(self._processes(name)) - done:
            if self._quota is not None:
                self._quota.keep(name, new, cpu_milli)
            for number in new:
                _keep_to(number, cores)
            done |= new

    def release(self, name: str) -> None:
        """Nothing runs of a job any more."""
        if self._held.pop(name, None) is not None and self._quota is not None:
            self._quota.release(name)

    def _crowd(self) -> dict[int, float]:
        """Millicores that jobs may use on each core, were they to use all of theirs alike."""
        crowd = dict.fromkeys(self._all, 0.0)
        for cpu_milli, cores in self._held.values():
            for core in cores:
                crowd[core] += cpu_milli / len(cores)
        return crowd


def _keep_to(number: int, cores: set[int]) -> None:
    """All threads of a process; those that end meanwhile need nothing. Linux only."""
    if not hasattr(os, "sched_setaffinity"):
        return
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{number}/task"):  # noqa: PTH208  (no paths are needed, and it is done often)
            with contextlib.suppress(OSError):
                os.sched_setaffinity(int(thread), cores)
