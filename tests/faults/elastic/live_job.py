"""An elastic job of real processes whose launcher is the test, which sees every view, and kills, stops, holds."""

import os
import signal
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from forks import Forks
from tiny_training import assert_same, training, undisturbed, written
from wire_proxy import Wire

from elastic_runtime.control.client import ControlClient
from elastic_runtime.control.credentials import ClientCredentials
from elastic_runtime.control.messages import JobStatus, RequestOutcome, ResizeMode, Size
from elastic_runtime.errors import CoordinatorUnreachable
from elastic_runtime.launcher.job_folder import read_json
from elastic_runtime.launcher.view_follower import ViewFollower
from elastic_runtime.plan import Phase, Timeline, View

HERE = Path(__file__).parent
DEADLINE_SECONDS = 30.0
NAME = "tiny"
TOKEN = "of-a-tiny-job-that-tests-run"  # noqa: S105  # of no job
SETTINGS = {
    "report-every-seconds": 0.1,
    "lost-seconds": 6.0,
    "silent-seconds": 8.0,
    "vote-seconds": 6.0,
    "replacement-seconds": 5.0,
    "control-delay-seconds": 0.02,
    "checkpoint-seconds": 0.3,
    "stage-fraction": 0.25,
}
COORDINATOR = "coordinator"


class LiveJob:
    """One job, from its coordinator's start until all its processes have ended."""

    def __init__(
        self,
        forks: Forks,
        folder: Path,
        servers: int = 1,
        workers: int = 2,
        steps: int = 48,
        limit: int = 12,
        environment: Mapping[str, str] | None = None,
        wired: str = "",
        apart: str = "",
        **settings: float,
    ) -> None:
        self.forks, self.folder, self.steps = forks, folder, steps
        self.checkpoints = folder / "checkpoints"
        self.environment = dict(environment or {})
        self.own_environment: dict[str, dict[str, str]] = {}
        self.held: set[str] = set()
        """Tasks that are not started though wanted; also roles: `ps`, `worker`."""
        self.views: list[View] = []
        self.pids: dict[str, int] = {}
        self.codes: dict[str, list[int]] = {}
        self._allowed_generation = 1
        self._told: list[tuple[str, int]] = []
        self._everybody: list[int] = []
        self._arguments = ["--job", NAME, "--servers", str(servers), "--workers", str(workers)]
        for name, value in {**SETTINGS, **{k.replace("_", "-"): v for k, v in settings.items()}}.items():
            self._arguments += [f"--{name}", str(value)]
        (folder / "token").write_text(TOKEN)
        (folder / "token").chmod(0o600)
        self.allow(limit)
        self.address = ""
        self._start_coordinator()
        self.wire = Wire(self.address)
        """To the coordinator, for the task `wired`."""
        self.own_environment[wired] = {"ELASTIC_COORDINATOR": self.wire.address}
        self.wires = [self.wire]
        self.data_wire = self.between(apart) if apart else self.wire
        self.client = ControlClient(self.address, NAME, ClientCredentials(TOKEN), 2.0)
        self._follower = _Listener(self.address, self.views)
        self.until(lambda: self.views, "the first view")

    def __enter__(self) -> "LiveJob":
        return self

    def __exit__(self, *_: object) -> None:
        self._follower.close()
        self.client.close()
        for wire in self.wires:
            wire.close()
        for pid in self._everybody:
            if self.forks.exit_code(pid) is None:
                os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + DEADLINE_SECONDS
        while any(self.forks.exit_code(pid) is None for pid in self._everybody) and time.monotonic() < deadline:
            time.sleep(0.01)

    # ---- what a launcher does

    @property
    def view(self) -> View:
        return self.views[-1]

    def look(self) -> None:
        """Start what is wanted, report what has ended, bring the coordinator back."""
        for task, pid in tuple(self.pids.items()):
            code = self.forks.exit_code(pid)
            if code is not None:
                del self.pids[task]
                self.codes.setdefault(task, []).append(code)
                if task != COORDINATOR:
                    self._told.append((task, code))
        over = bool(self.views) and self.view.phase in {Phase.FINISHED, Phase.FAILED}
        if COORDINATOR not in self.pids and COORDINATOR not in self.held and not over:
            self._start_coordinator()
        if not self.views:
            return
        for task in self.view.wanted:
            if task not in self.pids and task not in self.codes and not {task, task.split("-")[0]} & self.held:
                self.start(task)
        try:
            while self._told:
                self.client.task_ended(*self._told[0], self.last_line(self._told[0][0]))
                self._told.pop(0)
        except CoordinatorUnreachable:
            pass  # it is told again

    def start(self, task: str) -> None:
        """Start a task's process."""
        environment = {
            "ELASTIC_COORDINATOR": self.address,
            "ELASTIC_JOB": NAME,
            "ELASTIC_TASK": task,
            "ELASTIC_TOKEN_FILE": str(self.folder / "token"),
            "ELASTIC_CHECKPOINTS": str(self.checkpoints),
            "FOLDER": str(self.folder),
            "STEPS": str(self.steps),
            **self.environment,
            **self.own_environment.get(task, {}),
        }
        program = "server" if task.startswith("ps") else str(HERE / "train_tiny.py")
        self.pids[task] = self.forks.start(program, [], environment, self.log(task))
        self._everybody.append(self.pids[task])

    def until(self, done: Callable[[], object], what: str = "") -> None:
        """Be the launcher until something holds."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while True:
            self.look()
            if done():
                return
            assert time.monotonic() < deadline, f"not within {DEADLINE_SECONDS} s: {what}\n{self.story()}"
            time.sleep(0.01)

    @staticmethod
    def now() -> float:
        """Seconds, monotonic."""
        return time.monotonic()

    # ---- what a test does to it

    def allow(self, steps: int) -> None:
        """Let so many steps be computed."""
        self.limit = steps
        aside = self.folder / "limit.new"
        aside.write_text(str(steps))
        aside.replace(self.folder / "limit")

    def kill(self, task: str) -> None:
        """As a power failure would; what the test does next comes after the coordinator has heard of it."""
        pid = self.pids[task]
        os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + DEADLINE_SECONDS
        while self.forks.exit_code(pid) is None:
            assert time.monotonic() < deadline
            time.sleep(0.002)
        self.until(lambda: not self._told, "the coordinator hears of a task's end")

    def pause(self, task: str) -> None:
        """It does nothing any more, though it lives."""
        os.kill(self.pids[task], signal.SIGSTOP)

    def go_on(self, task: str) -> None:
        """It never noticed."""
        if task in self.pids and self.forks.exit_code(self.pids[task]) is None:
            os.kill(self.pids[task], signal.SIGCONT)

    def between(self, server: str) -> Wire:
        """A wire that all data for a server has to go through; made before the server is started."""
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        wire = Wire(f"127.0.0.1:{port}", ("127.0.0.2", port))
        self.wires.append(wire)
        self.own_environment[server] = {
            "ELASTIC_BIND": f"127.0.0.1:{port}",
            "ELASTIC_ADVERTISE": "127.0.0.2",
            "ELASTIC_SHARED_MEMORY": "0",
            "APART": "1",
        }
        return wire

    def status(self) -> JobStatus:
        """The coordinator's, waited for if it is away."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while True:
            self.look()
            try:
                return self.client.status()
            except CoordinatorUnreachable:
                assert time.monotonic() < deadline, self.story()

    def resize(
        self, servers: int, workers: int, request_id: str = "resize", mode: ResizeMode = ResizeMode.ROLLING
    ) -> None:
        """Ask for a size."""
        self.client.resize(request_id, Size(servers, workers), (), mode)

    def outcome(self, request_id: str = "resize") -> RequestOutcome | None:
        """What became of a request."""
        return next((row.state for row in self.status().requests if row.request_id == request_id), None)

    def train_until_durable(self) -> None:
        """Until a checkpoint of steps is complete; the workers stand soon after it."""

        self.until(lambda: self.allow_changes() or self.status().durable_step > 0, "a durable step")

    def settle(self, request_id: str = "resize") -> RequestOutcome | None:
        """Train just as far as the job's changes need it, until a request has ended; how."""
        ended = {RequestOutcome.DONE, RequestOutcome.ABORTED}
        self.until(lambda: self.allow_changes(moves=True) or self.outcome(request_id) in ended, "a request's end")
        return self.outcome(request_id)

    def allow_changes(self, moves: bool = False) -> None:
        """Let the steps be computed that checkpoints wait for, and (`moves`) all other changes."""
        if self.view.generation != self._allowed_generation:
            # Whoever stands in a batch of the generation before has to come out of it.
            self._allowed_generation = self.view.generation
            self.allow(self.limit + 1)
        changes = [change for change in self.view.changes if moves or change.checkpoint]
        last = max((change.clock + len(change.stages) for change in changes), default=0)
        if last + 1 > self.limit:
            self.allow(last + 1)

    def begun(self, step: int) -> bool:
        """Whether all workers of a step have begun it."""
        workers = Timeline(self.view).at(step).workers
        return all(any(noted == step for noted, _ in self.notes(worker)) for worker in workers)

    # ---- what came out

    def notes(self, worker: str) -> list[tuple[int, tuple[int, ...]]]:
        """Each step that a worker computed, and the samples."""
        path = self.folder / f"steps-{worker}"
        rows = [row.split() for row in path.read_text().splitlines()] if path.exists() else []
        return [(int(row[0]), tuple(map(int, row[1].split(",")))) for row in rows if len(row) == 2]

    def log(self, task: str) -> Path:
        return self.folder / f"{task}.log"

    def last_line(self, task: str) -> str:
        lines = self.log(task).read_text(errors="replace").strip().splitlines() if self.log(task).exists() else []
        return lines[-1] if lines else ""

    def finish(self) -> None:
        """Let it train to its end: the numbers are those of an undisturbed run, and nobody is left."""
        self.allow(self.steps)
        self.until(lambda: self.view.phase in {Phase.FINISHED, Phase.FAILED}, "the end")
        assert self.view.phase is Phase.FINISHED, self.story()
        # The coordinator stays for a moment, for whoever asks last.
        self.until(lambda: set(self.pids) <= {COORDINATOR}, "the end of all processes")
        assert_same(written(self.checkpoints), undisturbed(self.workers_of_steps()))
        self.assert_samples_once()

    def workers_of_steps(self) -> list[int]:
        """How many workers shared each step that counted in the end."""
        counts = [0] * self.steps
        for generation in range(1, self.view.generation + 1):
            views = [view for view in self.views if view.generation == generation]
            if not views:
                continue  # it was gone before anybody looked
            # The newest view has forgotten changes that are long over.
            changes = {change.number: change for view in views for change in view.changes}
            timeline = Timeline(replace(views[0], changes=tuple(changes[number] for number in sorted(changes))))
            for step in range(views[0].start_step, self.steps):
                counts[step] = len(timeline.at(step).workers)
        return counts

    def assert_samples_once(self) -> None:
        """In each step that counted, every sample once; a slice that two workers computed has the same samples.

        A worker repeats steps only after a durable one, and never leaves one out.
        """
        begins = {view.start_step for view in self.views}
        order = training(self.steps).order()
        for worker in {path.name.removeprefix("steps-") for path in self.folder.glob("steps-*")}:
            steps = [step for step, _ in self.notes(worker)]
            for one, following in pairwise(steps):
                assert following in {one, one + 1} or following in begins, f"{worker}: step {following} after {one}"
        computed = {
            (step, taken)
            for path in self.folder.glob("steps-*")
            for step, taken in self.notes(path.name.removeprefix("steps-"))
        }
        for step, workers in enumerate(self.workers_of_steps()):
            for index in range(workers):
                assert (step, tuple(order.slice_indices(step, index, workers).tolist())) in computed

    def story(self) -> str:
        """Everything that helps to understand a failure."""
        for pid in self.pids.values():
            os.kill(pid, signal.SIGUSR1)  # where it is now, into its log
        time.sleep(0.2)
        views = "\n".join(_short(view) for view in self.views[-6:])
        logs = "\n".join(
            f"== {log.name}\n{log.read_text(errors='replace')[-6000:]}" for log in self.folder.glob("*.log")
        )
        return f"views:\n{views}\nlogs:\n{logs}\nrunning: {self.pids}, ended: {self.codes}"

    # ---- its own

    def _start_coordinator(self) -> None:
        file = self.folder / "coordinator.json"
        file.unlink(missing_ok=True)
        arguments = [
            *self._arguments,
            *("--folder", str(self.folder / "journal"), "--checkpoints", str(self.checkpoints)),
            *("--address-file", str(file), "--token-file", str(self.folder / "token")),
            *("--bind", self.address or "127.0.0.1:0"),
        ]
        pid = self.forks.start(COORDINATOR, arguments, {}, self.log(COORDINATOR))
        self.pids[COORDINATOR] = pid
        self._everybody.append(pid)
        if self.address:
            return
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not (found := read_json(file)):
            assert time.monotonic() < deadline, self.story()
            assert self.forks.exit_code(pid) is None, self.story()
            time.sleep(0.01)
        self.address = str(found["address"])


def _short(view: View) -> str:
    changes = [(c.number, c.clock, len(c.stages), "checkpoint" * c.checkpoint, "halt" * c.halt) for c in view.changes]
    return (
        f"{view.number}: {view.phase.value} generation {view.generation} from {view.start_step}, changes {changes}, "
        f"proposal {view.proposal}, committed {view.committed}, members {[member.task for member in view.members]}, "
        f"wanted {view.wanted}, leaving {view.leaving}, substitutes {view.substitutes} {view.failure}"
    )


class _Listener(ViewFollower):
    """Keeps every view that it hears of."""

    def __init__(self, address: str, views: list[View]) -> None:
        self._views = views
        super().__init__(address, NAME, ClientCredentials(TOKEN), lambda: None)

    @property
    def view(self) -> View | None:  # type: ignore[override]
        return self._views[-1] if self._views else None

    @view.setter
    def view(self, view: View | None) -> None:
        if view is not None:
            self._views.append(view)
