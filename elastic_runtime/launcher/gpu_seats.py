"""GPUs of a job's workers: which of those that the job has each worker sees, and which are in use.

Whoever shares out the machine's GPUs lists those that the job has in a file, and may change it at any time. The
launcher writes beside it which worker uses which: what stands there must not be given to another job.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from foundation.files import PRIVATE, read_ordinary, write_whole
from foundation.text import parse_json


def used_file(gpu_file: Path) -> Path:
    """File in which a launcher says which GPUs its workers use."""
    return gpu_file.with_name(gpu_file.name + ".used")


def read_gpus(gpu_file: Path | None) -> tuple[str, ...]:
    """The GPUs that a job has; none where nobody listed any that can be read."""
    found = None if gpu_file is None else _read(gpu_file)
    return tuple(str(gpu) for gpu in found) if isinstance(found, list) else ()


def write_gpus(gpu_file: Path, gpus: Sequence[str]) -> None:
    """List the GPUs that a job has.

    Raises:
        OSError: the file cannot be written.
    """
    write_whole(gpu_file, json.dumps(list(gpus)), mode=PRIVATE)


def read_used(gpu_file: Path) -> dict[str, tuple[str, ...]]:
    """GPUs in use, by worker; none where that cannot be read."""
    found = _read(used_file(gpu_file))
    if not isinstance(found, dict):
        return {}
    return {task: tuple(map(str, gpus)) for task, gpus in found.items() if isinstance(gpus, list)}


def write_used(gpu_file: Path, used: Mapping[str, Sequence[str]]) -> None:
    """Write down the GPUs in use.

    Raises:
        OSError: the file cannot be written.
    """
    write_whole(used_file(gpu_file), json.dumps({task: list(gpus) for task, gpus in used.items()}), mode=PRIVATE)


class GpuSeats:
    """GPUs of one launcher's workers."""

    def __init__(self, gpu_file: Path, each: int) -> None:
        self._file = gpu_file
        self._each = each
        self._taken: dict[str, tuple[str, ...]] = {}

    def is_to_wait(self, stay: Collection[str]) -> bool:
        """Whether another worker has too few only as long as the processes of some that go still use theirs."""
        used = {gpu for gpus in self._taken.values() for gpu in gpus}
        kept = {gpu for task, gpus in self._taken.items() if task in stay for gpu in gpus}
        mine = read_gpus(self._file)
        return sum(gpu not in used for gpu in mine) < self._each <= sum(gpu not in kept for gpu in mine)

    def take(self, task: str) -> tuple[str, ...]:
        """Take GPUs that no other worker has for a worker that starts.

        Raises:
            OSError: there are too few, or it cannot be written down.
        """
        used = {gpu for gpus in self._taken.values() for gpu in gpus}
        free = [gpu for gpu in read_gpus(self._file) if gpu not in used]
        if len(free) < self._each:
            raise OSError(f"{task} needs {self._each} GPUs, and {len(free)} of the job's are free")
        taken = tuple(free[: self._each])
        write_used(self._file, {**self._taken, task: taken})
        self._taken[task] = taken
        return taken

    def give_back(self, task: str) -> None:
        """Free the GPUs of a worker that has ended. What cannot be written down stays in use for others."""
        if self._taken.pop(task, None) is not None:
            try:
                write_used(self._file, self._taken)
            except OSError:
                return


def _read(path: Path) -> object:
    try:
        return parse_json(read_ordinary(path))
    except (OSError, ValueError):
        return None
