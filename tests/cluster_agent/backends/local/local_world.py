"""A machine whose jobs' processes are simulated: they start, resize, train and die on a clock that tests turn.

Its GPUs are handed out by the real ledger and the real launcher's seats; at each moment nothing may have two holders.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from cluster_agent.backend_settings import LocalBackendSettings
from cluster_agent.backends.base import AgentParts
from cluster_agent.backends.local.backend import LocalBackend, LocalMachine
from cluster_agent.backends.local.job_file import JobFile
from cluster_agent.backends.local.job_processes import LocalMeasurement
from cluster_agent.backends.local.job_table import JobState, JobTable, LocalJobRecord
from cluster_agent.backends.local.machine_shares import CoreMap, GpuLedger, MachineShares, gpu_file
from elastic_runtime.control.messages import RequestOutcome, RequestState, Size
from elastic_runtime.launcher.gpu_seats import GpuSeats
from elastic_runtime.protocol.plan import JobPhase
from policy_net.domain import SUSPENDED, Allocation, Node, Resources

SAMPLES_PER_EPOCH = 100.0
SAMPLES_PER_STEP = 10.0
SAMPLES_PER_WORKER_SECOND = 10.0
START_SECONDS = 2.0
RESIZE_SECONDS = 0.5
END_SECONDS = 1.0
_UNDER_WAY = (JobPhase.STARTING, JobPhase.RESIZING, JobPhase.SUSPENDING, JobPhase.RECOVERING)


class AgentKilled(BaseException):
    """The agent is gone at this instant: nothing after it happened, all before it did."""


@dataclass
class SimulatedJob:
    """One job's processes; they live in the world, and not with whoever handles them."""

    record: LocalJobRecord
    log_folder: Path
    now: Callable[[], float]
    instant: Callable[[], None]
    """Before and after everything that the agent does to the world: an instant in which it may be killed."""
    process: int | None = None
    phase: JobPhase | None = None
    held: Allocation = SUSPENDED
    target: Allocation = SUSPENDED
    due_seconds: float = 0.0
    samples: float = 0.0
    requests: list[RequestState] = field(default_factory=list)
    starts: int = 0
    deaf: bool = False
    """It takes requests and never carries them out."""
    broken: bool = False
    """Its launcher ends as soon as it was started."""
    cleared: int = 0
    silent_until_seconds: float = 0.0
    fits: Allocation | None = None
    """The most that its coordinator lets it begin with."""
    failure: str = ""
    refuses: str = ""
    """In which words it refuses every change."""
    trains_epochs: float | None = None
    """What its script trains, whatever was stated with it."""
    says_total: bool = True
    """Whether its script says that as soon as it runs."""
    seats: GpuSeats | None = None
    seated: dict[str, tuple[str, ...]] = field(default_factory=dict)
    lingers_seconds: float = 0.0
    """For how long the process of a worker that its coordinator has let go is still there, and uses its GPU."""
    leaving: dict[str, float] = field(default_factory=dict)
    newcomers: int = 0
    lies_samples: float = 0.0
    """That its script says it has trained beside what it has."""
    busy: float | None = None
    """Share of a core that each of its workers is at work; None: nobody needs to know, its coordinator counts."""
    worked_seconds: float = 0.0

    @property
    def launcher(self) -> int | None:
        return self.process

    @property
    def taken(self) -> Resources:
        """What its processes take: cores as it is kept to, GPUs of newcomers and of those who go alike."""
        if self.process is None:
            return Resources(0)
        file = self.record.file

        def takes(size: Allocation) -> Resources:
            return file.worker.demand * size.workers + file.ps.demand * size.ps

        either = (takes(self.held), takes(self.target))
        return Resources(max(each.cpu_milli for each in either), takes(self.held.most(self.target)).gpu)

    def start(self, allocation: Allocation) -> None:
        self.instant()
        assert self.process is None, "it runs already"
        self.starts += 1
        if not self.broken:
            self._start(allocation)
        self.instant()

    def _start(self, allocation: Allocation) -> None:
        self.process, self.phase = 1000 + self.starts, JobPhase.STARTING
        self.held, self.target, self.due_seconds = SUSPENDED, allocation, self.now() + START_SECONDS
        if self.record.file.fixed:
            self.samples = 0.0
        file = gpu_file(self.log_folder.parent / "jobs", self.record.name)
        self.seats = GpuSeats(file, self.record.file.worker.gpu) if self.record.file.worker.gpu else None
        self.seat(allocation.workers)

    def seat(self, workers: int) -> None:
        """So many workers run from now on: newcomers take GPUs, those that go give theirs back."""
        if self.seats is None:
            return
        stay = [name for name in self.seated if name not in self.leaving]
        for _ in range(len(stay), workers):
            self.newcomers += 1
            name = f"worker-{self.newcomers}"
            self.seated[name] = self.seats.take(name)
        for name in stay[workers:]:
            self.leaving[name] = self.now() + self.lingers_seconds
        self.let_go()

    def let_go(self) -> None:
        """Processes that have ended by now use nothing any more."""
        for name, due_seconds in list(self.leaving.items()):
            if self.now() >= due_seconds:
                del self.leaving[name], self.seated[name]
                if self.seats is not None:
                    self.seats.give_back(name)

    def measure(self) -> LocalMeasurement:
        if self.phase is None:
            return LocalMeasurement()
        alive = self.process is not None
        return LocalMeasurement(
            self.phase,
            self.held if alive else SUSPENDED,
            self.target if alive else SUSPENDED,
            self.samples + self.lies_samples,
            self.samples / SAMPLES_PER_EPOCH,
            self.total_samples / SAMPLES_PER_EPOCH if self.says_total else 0.0,
            failure=self.failure,
            requests=tuple(self.requests),
            fresh=alive and self.now() >= self.silent_until_seconds,
            steps=self.samples // SAMPLES_PER_STEP,
        )

    def cpu_seconds(self) -> float | None:
        return None if self.busy is None else self.worked_seconds

    def lose_coordinator(self) -> None:
        """It is started again by its launcher, from its journal; nobody answers meanwhile."""
        self.silent_until_seconds = self.now() + START_SECONDS

    def lose_task(self) -> None:
        """A server, or a worker: the job goes back to its last checkpoint, and trains on with as many."""
        if self.process is not None and self.phase in (JobPhase.RUNNING, JobPhase.RESIZING, JobPhase.STARTING):
            self.phase, self.due_seconds = JobPhase.RECOVERING, self.now() + START_SECONDS
            self.samples = max(0.0, self.samples - SAMPLES_PER_EPOCH / 10)

    def request(self, request_id: str, allocation: Allocation, *, resume: bool) -> str:
        self.instant()
        line = self._request(request_id, allocation, resume=resume)
        self.instant()
        return line

    def _request(self, request_id: str, allocation: Allocation, *, resume: bool) -> str:
        if self.refuses:
            return self.refuses
        if self.now() < self.silent_until_seconds:
            return "its coordinator does not answer"
        if self.process is None:
            return "nothing of it runs"
        assert resume == (self.phase is JobPhase.SUSPENDED)
        assert not (self.record.file.fixed and allocation.workers), "it has a fixed size"
        if self.phase is JobPhase.FINISHED:
            return "it has finished; nothing can be changed any more"
        if not any(row.request_id == request_id for row in self.requests):
            target = Size(allocation.ps, allocation.workers)
            self.requests.append(RequestState(request_id, "resize", RequestOutcome.RUNNING, target=target))
            if not self.deaf:
                self.target = allocation
                self.seat(max(len(self.seated) - len(self.leaving), allocation.workers))
                self.phase = JobPhase.RESIZING if allocation.workers else JobPhase.SUSPENDING
                self.due_seconds = self.now() + (START_SECONDS if resume else RESIZE_SECONDS)
        return ""

    def terminate(self) -> None:
        self.instant()
        self.kill()
        self.instant()

    def kill(self) -> None:
        """The launcher dies, and all with it; what was trained since the last checkpoint is a tenth of an epoch."""
        self.process = None
        self.held = self.target = SUSPENDED
        self.seated, self.leaving, self.seats = {}, {}, None
        if self.phase is not JobPhase.FINISHED:
            self.samples = max(0.0, self.samples - SAMPLES_PER_EPOCH / 10)

    def clear(self) -> None:
        assert self.process is None, "its launcher looks after it"
        self.cleared += 1

    def begin_anew(self) -> None:
        self.instant()
        self.clear()
        assert not self.samples, "it has trained"
        self.phase, self.failure, self.held, self.target = None, "", SUSPENDED, SUSPENDED
        self.instant()

    @property
    def total_samples(self) -> float:
        work = self.record.file.work
        stated = work.epochs or 1.0 if work is not None else 1.0
        return SAMPLES_PER_EPOCH * (stated if self.trains_epochs is None else self.trains_epochs)

    def pass_time(self, seconds: float) -> None:
        """Train, and carry out what is due."""
        self.let_go()
        if self.process is None:
            return
        self.worked_seconds += seconds * self.held.workers * (self.busy or 0.0)
        if self.phase is JobPhase.FINISHED:
            if self.now() >= self.due_seconds:
                self.seat(0)
                if not self.leaving:  # a launcher outlives its tasks
                    self.process, self.held, self.target = None, SUSPENDED, SUSPENDED
            return
        if self.phase is JobPhase.SUSPENDED and not self.record.file.kind.uses_ps and not self.leaving:
            self.process = None  # such a launcher ends with its job's suspension
            return
        if self.phase is JobPhase.STARTING and self.now() >= self.due_seconds and self._is_too_much(self.target):
            self.phase, self.failure = JobPhase.FAILED, "worker-0: elastic_runtime.errors.BadInput: ask for less"
            self.process, self.held, self.target = None, SUSPENDED, SUSPENDED
            return
        if self.held.workers and (self.held.ps or not self.record.file.kind.uses_ps):
            self.samples += seconds * SAMPLES_PER_WORKER_SECOND * self.held.workers
        if self.samples >= self.total_samples:
            self.samples, self.phase, self.due_seconds = self.total_samples, JobPhase.FINISHED, self.now() + END_SECONDS
        elif self.phase in _UNDER_WAY and self.now() >= self.due_seconds:
            self.held = self.target
            self.seat(self.held.workers)
            self.phase = JobPhase.RUNNING if self.held.workers else JobPhase.SUSPENDED

    def _is_too_much(self, size: Allocation) -> bool:
        return self.fits is not None and size.most(self.fits) != self.fits


class WatchedTable(JobTable):
    """Counts ends, and lets the agent die before and after each write."""

    def __init__(self, folder: Path, world: LocalWorld) -> None:
        super().__init__(folder)
        self._world = world

    def _write(self, record: LocalJobRecord) -> None:
        self._world.instant()
        before = self.get(record.name)
        super()._write(record)
        if record.state.ended and not (before is not None and before.state.ended):
            self._world.ends[record.name] = self._world.ends.get(record.name, 0) + 1
        self._world.instant()


class WatchedLedger(GpuLedger):
    """Lets the agent die before and after each write."""

    def __init__(self, world: LocalWorld, gpus: list[str], running: list[str], suspended: list[str]) -> None:
        super().__init__(world.folder / "jobs", gpus, running, suspended)
        self._world = world

    def _put(self, name: str, gpus: list[str]) -> None:
        self._world.instant()
        super()._put(name, gpus)
        self._world.instant()


class LocalWorld:
    """Clock, jobs and the one backend that handles them; `restart` gives them to another one, as after a kill."""

    def __init__(self, folder: Path, cpu_milli: int = 6000, gpus: int = 0, **settings: object) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.capacity = Resources(cpu_milli, gpus)
        self.settings = LocalBackendSettings.model_validate(
            {"cpu_milli": cpu_milli, "slot_seconds": 10.0, "debounce_seconds": 1.0, "until_done": True, **settings}
        )
        self.now = 1000.0
        self.stopped = False
        self.longest_seconds = 100_000.0
        self.instants = 0
        self.kill_agent_at: int | None = None
        self.ends: dict[str, int] = {}
        self.jobs: dict[str, SimulatedJob] = {}
        self.most_taken = Resources(0)
        self.at: list[tuple[float, Callable[[], object]]] = []
        self.script = folder / "train.py"
        self.script.write_text("import elastic_runtime\n", encoding="utf-8")
        self.restart()

    def restart(self) -> None:
        """Another agent begins, with what is on disk and the processes that there are."""
        parts = AgentParts(self.folder, "drf", None, self.wait, lambda: self.now)
        table = WatchedTable(self.folder / "submitted", self)
        node = Node("this-machine", self.capacity)
        alive = {name for name, job in self.jobs.items() if job.process is not None}
        running = [record.name for record in table if record.state is JobState.RUNNING]
        suspended = [name for name in alive if (there := table.get(name)) and there.state is JobState.SUSPENDED]
        self.ledger = WatchedLedger(self, [f"GPU-{n}" for n in range(self.capacity.gpu)], running, suspended)
        self.cores = CoreMap(range(-(-self.capacity.cpu_milli // 1000)), lambda name: ())
        machine = LocalMachine(table, node, self.open_job, MachineShares(self.cores, self.ledger))
        self.backend = LocalBackend(self.settings, parts, machine, lambda: self.now)

    def open_job(self, record: LocalJobRecord) -> SimulatedJob:
        job = self.jobs.get(record.name)
        if job is None:
            job = self.jobs[record.name] = SimulatedJob(
                record, self.folder / record.name, lambda: self.now, self.instant
            )
        return job

    def instant(self) -> None:
        """The agent may be killed now."""
        self.instants += 1
        if self.instants == self.kill_agent_at:
            raise AgentKilled

    def submit(self, name: str, epochs: float = 5.0, **more: object) -> SimulatedJob:
        content = {"name": name, "modelType": "mlp", "script": str(self.script), "work": {"epochs": epochs}, **more}
        file = JobFile.model_validate({"elastic": True, **content})
        return self.open_job(self.backend.table.add(file, self.now))

    def wait(self, seconds: float) -> bool:
        """Time passes, in steps that no change is shorter than."""
        assert self.now < self.longest_seconds, f"hangs: {[(job.record.name, job.phase) for job in self.jobs.values()]}"
        left = seconds
        while left > 1e-9:
            step = min(left, 0.1)
            self.now, left = self.now + step, left - step
            for due in [entry for entry in self.at if entry[0] <= self.now]:
                self.at.remove(due)
                due[1]()
            for job in self.jobs.values():
                job.pass_time(step)
            taken = sum((job.taken for job in self.jobs.values()), Resources(0))
            assert taken.fits_in(self.capacity), f"{taken} given away of {self.capacity}"
            self.most_taken = Resources(max(self.most_taken.cpu_milli, taken.cpu_milli))
            used = [gpu for job in self.jobs.values() for gpus in job.seated.values() for gpu in gpus]
            assert len(used) == len(set(used)), f"{used}: a GPU given twice"
        return self.stopped
