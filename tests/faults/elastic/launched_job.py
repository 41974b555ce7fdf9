"""The processes of an elastic job whose launcher is the test: it sees every view, and kills, stops, holds, cuts off."""

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Self, TypeVar

from forks import Forks
from reserved_port import ReservedPort
from tiny_job import NAME, SETTINGS, TOKEN
from views_heard import Listener, in_short
from wire_proxy import Wire

from elastic_runtime.control.client import ControlClient
from elastic_runtime.control.credentials import ClientCredentials
from elastic_runtime.control.messages import JobStatus
from elastic_runtime.errors import CoordinatorUnreachable
from elastic_runtime.launcher.job_folder import read_json
from elastic_runtime.protocol.plan import JobPhase, View

HERE = Path(__file__).parent
DEADLINE_SECONDS = 100.0
COORDINATOR = "coordinator"
OVER = {JobPhase.FINISHED, JobPhase.FAILED}
_T = TypeVar("_T")


class LaunchedJob:
    """One job, from its coordinator's start until all its processes have ended.

    Args:
        environment: of all tasks.
        held: tasks that are not started though wanted; also roles: `ps`, `worker`.
        wired: a task between which and the coordinator there is a wire.
        apart: a server that is reached through a wire, as if it were on another machine.
        settings: of the coordinator, in place of `SETTINGS`.
        script: what workers run.
    """

    def __init__(
        self,
        forks: Forks,
        folder: Path,
        servers: int,
        workers: int,
        environment: Mapping[str, str],
        held: Collection[str] = (),
        wired: str = "",
        apart: str = "",
        settings: Mapping[str, float] = MappingProxyType({}),
        script: Path = HERE / "train_tiny.py",
    ) -> None:
        self.forks, self.folder, self._script = forks, folder, script
        self.checkpoints = folder / "checkpoints"
        self.environment = dict(environment)
        self.own_environment: dict[str, dict[str, str]] = {}
        self.held: set[str] = set(held)
        self.views: list[View] = []
        self.pids: dict[str, int] = {}
        self.codes: dict[str, list[int]] = {}
        self._reported: list[tuple[str, int]] = []
        self._everybody: list[int] = []
        self._dismissed: set[str] = set()
        self._ports: list[ReservedPort] = []
        self._arguments = ["--job", NAME, "--servers", str(servers), "--workers", str(workers)]
        for name, value in {**SETTINGS, **{k.replace("_", "-"): v for k, v in settings.items()}}.items():
            self._arguments += [f"--{name}", str(value)]
        (folder / "token").write_text(TOKEN)
        (folder / "token").chmod(0o600)
        self._adjusted: dict[str, float] = {}
        self.adjust()
        self.address = self._reserve().address
        self._start_coordinator()
        self.wire = Wire(self.address)
        """To the coordinator, for the task `wired`."""
        self.own_environment[wired] = {"ELASTIC_COORDINATOR": self.wire.address}
        self.wires = [self.wire]
        self.data_wire = self.between(apart) if apart else self.wire
        self.client = ControlClient(self.address, NAME, ClientCredentials(TOKEN), DEADLINE_SECONDS)
        self._follower = Listener(self.address, NAME, TOKEN, self.views)
        self.until(lambda: self.views, "the first view")

    def __enter__(self) -> Self:
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
        for port in self._ports:
            port.close()

    # ---- what a launcher does

    @property
    def view(self) -> View:
        return self.views[-1]

    def poll(self) -> None:
        """Start what is wanted, report what has ended, bring the coordinator back."""
        for task, pid in tuple(self.pids.items()):
            code = self.forks.exit_code(pid)
            if code is not None:
                del self.pids[task]
                if task not in self._dismissed:
                    self.codes.setdefault(task, []).append(code)
                if task != COORDINATOR:
                    self._reported.append((task, code))
        over = bool(self.views) and self.view.phase in OVER
        if over:
            self._dismiss_latecomers()
        elif COORDINATOR not in self.pids and COORDINATOR not in self.held:
            self._start_coordinator()
        if not self.views:
            return
        for task in self.view.wanted:
            if task not in self.pids and task not in self.codes and not {task, task.split("-")[0]} & self.held:
                self.start(task)
        try:
            while self._reported:
                self.client.task_ended(*self._reported[0], self.last_line(self._reported[0][0]))
                self._reported.pop(0)
        except CoordinatorUnreachable:
            if over:
                self._reported.clear()  # a coordinator whose job is over does not stay for long
            # Else it is told again.

    def _dismiss_latecomers(self) -> None:
        """Who comes after the end would wait long for a coordinator that has gone."""
        for task, pid in self.pids.items():
            if task in {COORDINATOR, *self._dismissed} or any(view.member(task) for view in self.views):
                continue
            self._dismissed.add(task)
            if self.forks.exit_code(pid) is None:
                os.kill(pid, signal.SIGTERM)

    def start(self, task: str) -> None:
        """Start a task's process."""
        environment = {
            "ELASTIC_COORDINATOR": self.address,
            "ELASTIC_JOB": NAME,
            "ELASTIC_TASK": task,
            "ELASTIC_TOKEN_FILE": str(self.folder / "token"),
            "ELASTIC_CHECKPOINTS": str(self.checkpoints),
            "FOLDER": str(self.folder),
            **self.environment,
            **self.own_environment.get(task, {}),
        }
        program = "server" if task.startswith("ps") else str(self._script)
        self.pids[task] = self.forks.start(program, [], environment, self.log(task))
        self._everybody.append(self.pids[task])

    def until(self, done: Callable[[], object], what: str = "") -> None:
        """Be the launcher until something holds."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while True:
            self.poll()
            if done():
                return
            assert time.monotonic() < deadline, f"not within {DEADLINE_SECONDS} s: {what}\n{self.story()}"
            time.sleep(0.01)

    @staticmethod
    def now() -> float:
        """Seconds, monotonic."""
        return time.monotonic()

    # ---- what a test does to it

    def adjust(self, **settings: float) -> None:
        """Change settings of the coordinator from now on; it looks at each setting whenever it needs it."""
        self._adjusted |= settings
        aside = self.folder / "adjusted.new"
        aside.write_text(json.dumps(self._adjusted))
        aside.replace(self.folder / "adjusted")

    def catch_up(self) -> None:
        """See everything that the coordinator has published so far."""
        published: list[View] = []
        listener = Listener(self.address, NAME, TOKEN, published)
        try:
            self.until(lambda: published and self.view.number >= published[0].number, "the newest view")
        finally:
            listener.close()

    def kill(self, task: str, may_have_ended: bool = False) -> None:
        """As a power failure would; what the test does next comes after the coordinator has heard of it."""
        pid = self.pids[task]
        with contextlib.suppress(*([ProcessLookupError] if may_have_ended else [])):
            os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + DEADLINE_SECONDS
        while self.forks.exit_code(pid) is None:
            assert time.monotonic() < deadline
            time.sleep(0.002)
        self.until(lambda: not self._reported, "the coordinator hears of a task's end")

    def pause(self, task: str) -> None:
        """It does nothing any more, though it lives."""
        os.kill(self.pids[task], signal.SIGSTOP)

    def go_on(self, task: str) -> None:
        """It never noticed."""
        if task in self.pids and self.forks.exit_code(self.pids[task]) is None:
            os.kill(self.pids[task], signal.SIGCONT)

    def between(self, server: str) -> Wire:
        """A wire that all data for a server has to go through; made before the server is started."""
        while True:
            port = self._reserve()
            try:
                wire = Wire(port.address, ("127.0.0.2", port.port))
                break
            except OSError:
                pass  # somebody else has this number at the other address
        self.wires.append(wire)
        self.own_environment[server] = {
            "ELASTIC_BIND": port.address,
            "ELASTIC_ADVERTISE": "127.0.0.2",
            "ELASTIC_SHARED_MEMORY": "0",
            "APART": "1",
        }
        return wire

    # ---- what is known of it

    def asked(self, ask: Callable[[], _T]) -> _T:
        """What the coordinator answers, waited for if it is away; asked again, it is the same request."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while True:
            self.poll()
            try:
                return ask()
            except CoordinatorUnreachable:
                assert time.monotonic() < deadline, self.story()

    def status(self) -> JobStatus:
        """The coordinator's word."""
        return self.asked(self.client.status)

    def log(self, task: str) -> Path:
        return self.folder / f"{task}.log"

    def last_line(self, task: str) -> str:
        lines = self.log(task).read_text(errors="replace").strip().splitlines() if self.log(task).exists() else []
        return lines[-1] if lines else ""

    def story(self) -> str:
        """Everything that helps to understand a failure."""
        for pid in self.pids.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGUSR1)  # where it is now, into its log
        time.sleep(0.2)
        views = "\n".join(in_short(view) for view in self.views[-6:])
        logs = "\n".join(
            f"== {log.name}\n{log.read_text(errors='replace')[-6000:]}" for log in self.folder.glob("*.log")
        )
        return f"views:\n{views}\nlogs:\n{logs}\nrunning: {self.pids}, ended: {self.codes}"

    # ---- its own

    def _reserve(self) -> ReservedPort:
        self._ports.append(ReservedPort())
        return self._ports[-1]

    def _start_coordinator(self) -> None:
        file = self.folder / "coordinator.json"
        file.unlink(missing_ok=True)
        arguments = [
            *self._arguments,
            *("--folder", str(self.folder / "journal"), "--checkpoints", str(self.checkpoints)),
            *("--address-file", str(file), "--token-file", str(self.folder / "token")),
            *("--bind", self.address),
        ]
        adjusted = {"ADJUSTED": str(self.folder / "adjusted")}
        pid = self.forks.start(COORDINATOR, arguments, adjusted, self.log(COORDINATOR))
        self.pids[COORDINATOR] = pid
        self._everybody.append(pid)
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not (self.views or read_json(file)):
            assert time.monotonic() < deadline, self.story()
            assert self.forks.exit_code(pid) is None, self.story()
            time.sleep(0.01)
