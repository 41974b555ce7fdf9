"""Ledger of the machine's GPUs: which job has which, so that none is ever given twice.

A job's GPUs stand in a file that its launcher reads when it starts a worker. They are taken back when the job has given
up tasks, and only those that no worker of it uses any more: a worker's process may end some time after its coordinator
has let it go, so that whoever needs a GPU has that looked at again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import structlog

from elastic_runtime.launcher.gpu_seats import read_gpus, read_used, used_file, write_gpus
from foundation.figures import counted

_log = structlog.get_logger()


def gpu_file(jobs: Path, name: str) -> Path:
    """Where the GPUs of a job are listed."""
    return jobs / f"{name}.gpus"


class GpuLedger:
    """The GPUs of one machine.

    Args:
        jobs: the folder of all jobs' folders.
        gpus: what jobs may have, as `CUDA_VISIBLE_DEVICES` names them.
        running: names of jobs that may have some already, from an agent before this one.
        suspended: names of jobs that need none, of which processes may still use some.
    """

    def __init__(
        self, jobs: Path, gpus: Sequence[str], running: Iterable[str] = (), suspended: Iterable[str] = ()
    ) -> None:
        self._jobs = jobs
        self._gpus = tuple(gpus)
        self._needed = dict.fromkeys(suspended, 0)
        self._held = {name: list(read_gpus(gpu_file(jobs, name))) for name in (*running, *self._needed)}
        self._unwritten: set[str] = set()

    @property
    def held(self) -> dict[str, tuple[str, ...]]:
        """What each job has."""
        return {name: tuple(gpus) for name, gpus in self._held.items() if gpus}

    def lacks(self, name: str, count: int) -> str:
        """Why a job cannot have so many in all, in a line; empty if it can."""
        missing = count - len(self._held.get(name, ()))
        if missing > len(self._free):
            for other in [other for other in self._needed if other != name]:
                self.settle(other, self._needed[other])
        free = len(self._free)
        if missing <= free:
            return ""
        return f"it needs {counted(missing, 'more GPU')}, and {free or 'none'} {'is' if free < 2 else 'are'} free"

    def grow(self, name: str, count: int) -> str:
        """Give a job more, up to a number of them; a line if there are too few, and nothing has changed then.

        Raises:
            OSError: it cannot be written down; nothing has changed.
        """
        if lacking := self.lacks(name, count):
            return lacking
        mine = self._held.get(name, [])
        if count > len(mine):
            self._put(name, [*mine, *self._free[: count - len(mine)]])
        self._needed.pop(name, None)
        return ""

    def settle(self, name: str, count: int) -> None:
        """A job holds as many tasks as it was told to: what they do not need goes back, once none of them uses it."""
        mine = self._held.get(name, [])
        self._needed.pop(name, None)
        if len(mine) <= count:
            return
        used = {gpu for gpus in read_used(gpu_file(self._jobs, name)).values() for gpu in gpus}
        kept = [gpu for gpu in mine if gpu in used]
        spare = [gpu for gpu in mine if gpu not in used]
        self._needed[name] = count
        left = [*kept, *spare[: max(0, count - len(kept))]]
        if len(left) == len(mine):
            return  # while somebody waits for them, it is looked at ten times a second
        try:
            self._put(name, left)
        except OSError as error:  # they stay the job's until somebody needs them, or its next change
            if name not in self._unwritten:
                _log.warning("gpus-not-taken-back", job=name, error=str(error))
            self._unwritten.add(name)

    def release(self, name: str) -> None:
        """Nothing runs of a job any more."""
        self._needed.pop(name, None)
        self._unwritten.discard(name)
        if self._held.pop(name, None):
            file = gpu_file(self._jobs, name)
            for path in (file, used_file(file)):
                path.unlink(missing_ok=True)

    @property
    def _free(self) -> list[str]:
        taken = {gpu for gpus in self._held.values() for gpu in gpus}
        return [gpu for gpu in self._gpus if gpu not in taken]

    def _put(self, name: str, gpus: list[str]) -> None:
        # A list that a launcher could read before it is in the ledger would be given twice after a crash: the file is
        # what the next agent reads, so it is written first.
        self._jobs.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_gpus(gpu_file(self._jobs, name), gpus)
        self._held[name] = gpus
        self._unwritten.discard(name)
