"""Shares of the machine by job: grown before the job is asked to grow, and taken back once it has shrunk."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType

import structlog

from cluster_agent.backend_settings import LocalBackendSettings
from cluster_agent.errors import BadAgentConfig
from elastic_runtime.launcher.gpu_seats import read_gpus, read_used, used_file, write_gpus
from elastic_runtime.launcher.warm.forked_task import THREAD_VARIABLES
from foundation.figures import counted
from policy_net.domain import Node, Resources

_log = structlog.get_logger()
_PERIOD_MICROSECONDS = 100_000
_PROCESSES = "cgroup.procs"
_V1_QUOTA = "cpu.cfs_quota_us"
_V1_PERIOD = "cpu.cfs_period_us"
_V2_QUOTA = "cpu.max"
_V2_CONTROLLERS = "cgroup.subtree_control"


class CpuQuota:
    """Control groups of jobs (of either version), in a folder with the cpu controller that this user may write to.

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
            raise BadAgentConfig(
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


class CoreMap:
    """The cores of one machine, of which each job's processes may use so many, the least crowded ones.

    A job that was given 1500m runs on two cores, and may use more of them than that when nobody else does, unless there
    is a quota. It keeps cores that it has, so that caches stay warm.
    """

    def __init__(
        self, cores: Sequence[int], processes: Callable[[str], Iterable[int]], quota: CpuQuota | None = None
    ) -> None:
        self._all = list(cores)
        self._processes = processes
        self._quota = quota
        self._granted: dict[str, tuple[int, list[int]]] = {}

    def cores_of(self, name: str) -> list[int]:
        """The cores that a job's processes may use; all where it holds nothing."""
        return sorted(self._granted.get(name, (0, self._all))[1])

    def grant(self, name: str, cpu_milli: int) -> None:
        """A job has so many millicores from now on; its processes are told by `bind`."""
        count = min(len(self._all), max(1, -(-cpu_milli // 1000)))
        _, mine = self._granted.pop(name, (0, []))
        crowd = self._crowd()
        kept = sorted(mine, key=lambda core: crowd[core])[:count]
        others = sorted((core for core in self._all if core not in kept), key=lambda core: crowd[core])
        self._granted[name] = (cpu_milli, kept + others[: count - len(kept)])

    def bind(self, name: str) -> None:
        """Keep all processes of a job to what it has, and those that they will start."""
        if name not in self._granted:
            return
        cpu_milli, _ = self._granted[name]
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
        if self._granted.pop(name, None) is not None and self._quota is not None:
            self._quota.release(name)

    def _crowd(self) -> dict[int, float]:
        """Millicores that jobs may use on each core, were they to use all of theirs alike."""
        crowd = dict.fromkeys(self._all, 0.0)
        for cpu_milli, cores in self._granted.values():
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


def gpu_file(jobs: Path, name: str) -> Path:
    """Where the GPUs of a job are listed."""
    return jobs / f"{name}.gpus"


class GpuLedger:
    """The GPUs of one machine, as `CUDA_VISIBLE_DEVICES` names them.

    A job's GPUs stand in a file that its launcher reads when it starts a worker. They are taken back when the job has
    given up tasks and no worker uses them any more, which may be some time after its coordinator has let it go. Jobs
    that are `running` may have some from an agent before; of `suspended` ones processes may still use some.
    """

    def __init__(
        self, jobs: Path, gpus: Sequence[str], running: Iterable[str] = (), suspended: Iterable[str] = ()
    ) -> None:
        self._jobs = jobs
        self._gpus = tuple(gpus)
        self._needed = dict.fromkeys(suspended, 0)
        self._granted = {name: list(read_gpus(gpu_file(jobs, name))) for name in (*running, *self._needed)}
        self._unwritten: set[str] = set()

    @property
    def granted(self) -> dict[str, tuple[str, ...]]:
        """What each job has."""
        return {name: tuple(gpus) for name, gpus in self._granted.items() if gpus}

    def lacks(self, name: str, count: int) -> str:
        """Why a job cannot have so many in all, in a line; empty if it can."""
        missing = count - len(self._granted.get(name, ()))
        if missing > len(self._free):
            for other in [other for other in self._needed if other != name]:
                self.settle(other, self._needed[other])
        free = len(self._free)
        if missing <= free:
            return ""
        return f"it needs {counted(missing, 'more GPU')}, and {free or 'none'} {'is' if free < 2 else 'are'} free"

    def grow(self, name: str, count: int) -> str:
        """Give a job more, up to a number of them; a line if there are too few. Changes nothing on an OSError."""
        if lacking := self.lacks(name, count):
            return lacking
        mine = self._granted.get(name, [])
        if count > len(mine):
            self._put(name, [*mine, *self._free[: count - len(mine)]])
        self._needed.pop(name, None)
        return ""

    def settle(self, name: str, count: int) -> None:
        """A job holds as many tasks as it was told to: what they do not need goes back, once none of them uses it."""
        mine = self._granted.get(name, [])
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
        if self._granted.pop(name, None):
            file = gpu_file(self._jobs, name)
            for path in (file, used_file(file)):
                path.unlink(missing_ok=True)

    @property
    def _free(self) -> list[str]:
        taken = {gpu for gpus in self._granted.values() for gpu in gpus}
        return [gpu for gpu in self._gpus if gpu not in taken]

    def _put(self, name: str, gpus: list[str]) -> None:
        # A list that a launcher could read before it is in the ledger would be given twice after a crash: the file is
        # what the next agent reads, so it is written first.
        self._jobs.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_gpus(gpu_file(self._jobs, name), gpus)
        self._granted[name] = gpus
        self._unwritten.discard(name)


def thread_variables(cpu_milli: int) -> dict[str, str]:
    """Variables that keep the usual libraries of one worker to as many threads as it has whole cores."""
    return dict.fromkeys(THREAD_VARIABLES, str(max(1, cpu_milli // 1000)))


class MachineShares:
    """Cores and GPUs that each job holds of this machine."""

    def __init__(self, cores: CoreMap, gpus: GpuLedger) -> None:
        self._cores = cores
        self._gpus = gpus

    def lacks(self, name: str, most: Resources) -> str:
        """Why `grow` would refuse now, in a line; empty if it would not. It may be another moment later."""
        return self._gpus.lacks(name, most.gpu)

    def grow(self, name: str, most: Resources) -> str:
        """Give a job what it may take during a change that it is about to be asked for; a line if it cannot have it.

        Raises:
            OSError: it cannot be written down.
        """
        line = self._gpus.grow(name, most.gpu)
        if not line:
            self._cores.grant(name, most.cpu_milli)
            self._cores.bind(name)
        return line

    def bind(self, name: str) -> None:
        """Keep the processes that a job has now to its share."""
        self._cores.bind(name)

    def settle(self, name: str, takes: Resources) -> None:
        """Note that a job holds what it was told to, and takes so much."""
        self._gpus.settle(name, takes.gpu)
        self._cores.grant(name, takes.cpu_milli)
        self._cores.bind(name)

    def release(self, name: str) -> None:
        """Note that nothing runs of a job any more."""
        self._cores.release(name)
        self._gpus.release(name)


# UUIDs, unlike indices, mean the same device to every process, whatever `CUDA_VISIBLE_DEVICES` the agent has.


def gpus_here(environment: Mapping[str, str], nvml: ModuleType | None = None) -> tuple[str, ...]:
    """UUIDs of the GPUs that jobs could have, in the driver's order; `CUDA_VISIBLE_DEVICES` narrows them down."""
    try:
        library = import_module("pynvml") if nvml is None else nvml
    except ImportError:
        return ()
    try:
        library.nvmlInit()
    except library.NVMLError as error:  # no driver, or none of its devices may be used
        _log.info("no-gpus", reason=str(error))
        return ()
    try:
        handles = [library.nvmlDeviceGetHandleByIndex(number) for number in range(library.nvmlDeviceGetCount())]
        found = [_text(library.nvmlDeviceGetUUID(handle)) for handle in handles]
    except library.NVMLError as error:
        _log.warning("gpus-not-listed", reason=str(error))
        return ()
    finally:
        library.nvmlShutdown()
    return tuple(_visible(found, environment.get("CUDA_VISIBLE_DEVICES")))


def _visible(found: list[str], stated: str | None) -> list[str]:
    """Source: CUDA's rules: indices or beginnings of UUIDs, up to the first that names no device."""
    if stated is None:
        return found
    chosen: list[str] = []
    for word in (part.strip() for part in stated.split(",")):
        if word.isdigit() and int(word) < len(found):
            chosen.append(found[int(word)])
            continue
        match = [gpu for gpu in found if word and gpu.startswith(word)]
        if len(match) != 1:
            break
        chosen.append(match[0])
    return list(dict.fromkeys(chosen))


def _text(value: str | bytes) -> str:
    """Older bindings give bytes."""
    return value.decode("ascii") if isinstance(value, bytes) else value


NODE = "this-machine"
_CGROUP_LIMIT = Path("/sys/fs/cgroup/cpu.max")


def this_node(settings: LocalBackendSettings, gpus: int, cgroup_limit: Path = _CGROUP_LIMIT) -> Node:
    """Share of this machine that jobs may have: what this process may use, less what the operator keeps back.

    Raises:
        BadConfig: nothing is left, or there are not so many GPUs.
    """
    if settings.gpus is not None and settings.gpus > gpus:
        raise BadAgentConfig(
            f"setting backend.gpus = {settings.gpus}: NVIDIA's library finds {gpus} here; install nvidia-ml-py and a "
            "driver, or leave it out"
        )
    usable = len(os.sched_getaffinity(0)) * 1000
    limit = _container_limit_milli(cgroup_limit)
    if limit is not None:
        usable = min(usable, limit)
    cpu_milli = (usable if settings.cpu_milli is None else settings.cpu_milli) - settings.reserved_cpu_milli
    if cpu_milli <= 0:
        raise BadAgentConfig(
            f"setting backend.reserved_cpu_milli = {settings.reserved_cpu_milli}: nothing is left of this machine's "
            f"{usable} millicores"
        )
    return Node(NODE, Resources(cpu_milli, gpus if settings.gpus is None else settings.gpus))


def job_cores(node: Node) -> list[int]:
    """The cores that jobs run on: the last ones, as systems do their own work on the first."""
    usable = sorted(os.sched_getaffinity(0))
    return usable[-min(len(usable), -(-node.capacity.cpu_milli // 1000)) :]


def _container_limit_milli(file: Path) -> int | None:
    """A container's share of the cores; None where there is no limit. Source: cgroup v2, cpu.max: quota and period."""
    try:
        quota, period = file.read_text(encoding="ascii").split()
        return max(1, int(quota) * 1000 // int(period))
    except (OSError, ValueError):
        return None
