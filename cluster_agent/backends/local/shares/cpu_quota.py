"""CPU quota of each job, kept by the kernel: a control group below one that the operator names.

Both versions of Linux's control groups are understood, as machines with the first are still about; which one it is
shows in the files that the folder has.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

import structlog

from cluster_agent.errors import BadConfig

_log = structlog.get_logger()
_PERIOD_MICROSECONDS = 100_000
_PROCESSES = "cgroup.procs"
_V1_QUOTA = "cpu.cfs_quota_us"
_V1_PERIOD = "cpu.cfs_period_us"
_V2_QUOTA = "cpu.max"
_V2_CONTROLLERS = "cgroup.subtree_control"


class CpuQuota:
    """Control groups of jobs, below one folder.

    Args:
        folder: a control group with the cpu controller that this user may write to; made where it is not there.

    Raises:
        BadConfig: it cannot be used.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        trial = folder / ".trial"
        try:
            folder.mkdir(exist_ok=True)
            if (folder / _V2_CONTROLLERS).exists():
                (folder / _V2_CONTROLLERS).write_text("+cpu\n", encoding="ascii")
            trial.mkdir(exist_ok=True)
            self._limit(trial, 1000)
        except OSError as error:
            raise BadConfig(
                f"setting backend.cgroup = {folder}: no CPU quota can be set there ({error.strerror}); name a control "
                "group with the cpu controller that this user may write to (systemd: Delegate=yes), or leave it out"
            ) from error
        finally:
            _remove(trial)

    def keep(self, name: str, processes: Iterable[int], cpu_milli: int) -> None:
        """Keep a job to so many millicores: these processes, and all that they will start."""
        group = self._folder / name
        try:
            group.mkdir(exist_ok=True)
            self._limit(group, cpu_milli)
            for number in processes:
                with contextlib.suppress(ProcessLookupError):
                    (group / _PROCESSES).write_text(f"{number}\n", encoding="ascii")
        except OSError as error:
            _log.warning("cpu-quota-not-kept", job=name, path=str(group), error=str(error))

    def release(self, name: str) -> None:
        """Nothing runs of a job any more."""
        _remove(self._folder / name)

    @staticmethod
    def _limit(group: Path, cpu_milli: int) -> None:
        quota = cpu_milli * _PERIOD_MICROSECONDS // 1000
        if (group / _V1_QUOTA).exists():
            (group / _V1_PERIOD).write_text(f"{_PERIOD_MICROSECONDS}\n", encoding="ascii")
            (group / _V1_QUOTA).write_text(f"{quota}\n", encoding="ascii")
        else:  # opened, not made: what is no control group has no such file
            with (group / _V2_QUOTA).open("r+", encoding="ascii") as file:
                file.write(f"{quota} {_PERIOD_MICROSECONDS}\n")


def _remove(group: Path) -> None:
    with contextlib.suppress(OSError):  # never made, or a process of it is still being reaped
        group.rmdir()
