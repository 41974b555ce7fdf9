"""Jobs, launchers and their processes as the launcher's tests make them; run as a program it is a launcher itself."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from elastic_runtime.control.credentials import ClientCredentials
from elastic_runtime.launcher.display import Display
from elastic_runtime.launcher.job_folder import JobFolder, JobLock, create, read_json
from elastic_runtime.launcher.job_spec import JobSpec, Programs, is_worker, spec_of
from elastic_runtime.launcher.settings import LauncherSettings
from elastic_runtime.launcher.supervisor import Supervisor

HERE = Path(__file__).parent
COORDINATOR = HERE / "scripted_coordinator.py"
DEADLINE_SECONDS = 100.0
WAITS = "import signal\nprint('at work', flush=True)\nsignal.pause()\n"
QUICK = LauncherSettings(
    restart_backoff_seconds=0.01,
    leave_seconds=0.05,
    unlisted_seconds=0.05,
    grace_seconds=50.0,
    suspend_seconds=DEADLINE_SECONDS,
    coordinator_start_seconds=DEADLINE_SECONDS,
    coordinator_restarts=1000,
)
Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class ScriptedPrograms(Programs):
    """The scripted coordinator, and parameter servers that do nothing until they are told to end."""

    def coordinator(self, bind: str, listener: int | None, again: bool = False) -> tuple[str, ...]:
        """The same arguments, for another program."""
        python, _, _, *arguments = Programs.coordinator(self, bind, listener)
        return (python, str(COORDINATOR), *arguments)

    def task(self, task: str) -> tuple[str, ...]:
        """Servers wait."""
        return Programs.task(self, task) if is_worker(task) else (sys.executable, "-c", "import signal; signal.pause()")


def make_job(
    folder: Path, source: str, servers: int = 1, workers: int = 1, restarts: int = 1, port: int = 0
) -> JobFolder:
    """A job that trains a script."""
    script = folder / "train.py"
    script.write_text(source, encoding="utf-8")
    spec = JobSpec(
        script=script,
        python=sys.executable,
        working_folder=folder,
        servers=servers,
        workers=workers,
        restarts=restarts,
        port=port,
    )
    return create(folder / "jobs", None, script, spec.record())


def launch(job: JobFolder) -> None:
    """Be the job's launcher until it is over."""
    with JobLock(job.path):
        programs = ScriptedPrograms(spec_of(job.record(), job.record_file), job, os.environ)
        display = Display("elastic-run", sys.stdout, sys.stderr, 100)
        try:
            phase = Supervisor(programs, ClientCredentials(job.token()), display, QUICK).run()
        finally:
            display.close()
    print(f"over: {phase.value}")


class Launcher:
    """A launcher in a process of its own, which a test may kill."""

    def __init__(self, job: JobFolder) -> None:
        self.job = job
        self._output = (job.path / "launcher.out").open("w+", encoding="utf-8")
        self.process = subprocess.Popen(
            [sys.executable, __file__, str(job.path)], stdout=self._output, stderr=subprocess.STDOUT
        )

    def __enter__(self) -> "Launcher":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        self._output.close()

    def output(self) -> str:
        """What it wrote so far."""
        return (self.job.path / "launcher.out").read_text(encoding="utf-8")

    def pids(self, count: int) -> dict[str, int]:
        """The processes of so many tasks, the coordinator's included, as soon as there are."""
        return wait_for(lambda: found if len(found := self._pids()) >= count else None, f"{count} processes")

    def state(self) -> dict:
        """What the scripted coordinator knows."""
        return read_json(self.job.journal_folder / "scripted.json") or {}

    def end(self, number: signal.Signals | None = None) -> int:
        """Signal it, wait for its end; its exit code."""
        if number is not None:
            self.process.send_signal(number)
        return self.process.wait(DEADLINE_SECONDS)

    def _pids(self) -> dict[str, int]:
        found = {}
        for log in self.job.log_folder.glob("*.log"):
            starts = [line for line in log.read_text(encoding="utf-8").splitlines() if line.startswith("--- ")]
            if starts:
                found[log.stem] = int(starts[-1].rpartition(" ")[2])
        return found


def wait_for(poll: Callable[[], Found | None], what: str) -> Found:
    """Look until there is something, or fail at the deadline."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not (found := poll()):
        assert time.monotonic() < deadline, f"no {what} within {DEADLINE_SECONDS} s"
        time.sleep(0.02)
    return found


def gone(pid: int) -> bool:
    """Whether a process has ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state == "Z"


def all_gone(pids: Iterable[int]) -> None:
    """Wait until processes have ended: one that was killed ends when it is next given a processor."""
    numbers = list(pids)
    wait_for(lambda: all(gone(pid) for pid in numbers), "end of all processes")


if __name__ == "__main__":
    job_folder = JobFolder(Path(sys.argv[1]))
    try:
        launch(job_folder)
    except Exception as error:
        print(json.dumps({"error": type(error).__name__, "says": str(error)}))
        sys.exit(1)
