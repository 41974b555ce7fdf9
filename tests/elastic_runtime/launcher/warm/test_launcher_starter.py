"""Launchers that are forked: found, ended, and outliving as those that Python starts, whatever becomes of a server."""

import contextlib
import fcntl
import os
import shutil
import signal
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from started_tasks import DEADLINE_SECONDS, gone, wait_for

from elastic_runtime.launcher.warm.forked_task import THREAD_VARIABLES
from elastic_runtime.launcher.warm.launcher_starter import LauncherStarter, StarterSettings
from foundation.kinship import end_marked, marked_processes

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(600)]

MARK = "TEST_LAUNCHER"
STAYS = "import signal\nimport elastic_runtime\nsignal.pause()\n"


class Agent:
    """One that starts launchers of jobs in a folder."""

    def __init__(self, folder: Path, settings: StarterSettings | None = None) -> None:
        self.folder = folder
        self.now = 0.0
        self.reported: list[str] = []
        self.environment = {**os.environ, **dict.fromkeys(THREAD_VARIABLES, "1")}
        settings = settings or StarterSettings(start_seconds=DEADLINE_SECONDS, answer_seconds=100.0)
        self.starter = LauncherStarter(
            self.environment, folder / "server", MARK, self.reported.append, settings, lambda: self.now
        )
        (folder / "train.py").write_text(STAYS, encoding="utf-8")

    @property
    def mark(self) -> str:
        return str(self.folder)

    def be_ready(self) -> int:
        def ready() -> bool:
            self.starter.poll(needed=True)
            if self.starter.pid is None:
                self.now += 1.0
            return self.starter.is_ready

        wait_for(ready)
        assert self.starter.pid is not None
        return self.starter.pid

    def start(
        self,
        *arguments: str,
        variables: dict[str, str] | None = None,
        folder: Path | None = None,
        script: str = "train.py",
    ) -> int | None:
        """Start a launcher, which holds the lock; its process number if it was forked."""
        command = [sys.executable, "-m", "elastic_runtime.cli", *arguments]
        lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            environment = {**self.environment, MARK: self.mark, **(variables or {})}
            with (self.folder / "log").open("ab") as log:
                return self.starter.start(
                    command, folder or self.folder, environment, log.fileno(), (lock,), self.folder / script
                )
        finally:
            os.close(lock)

    def is_ready_for(self, script: Path) -> bool:
        return self.starter.is_ready_for(script, self.environment)

    def start_job(self) -> int:
        number = self.start(
            f"--folder={self.folder / 'jobs'}", "--name=job", "--ps=1", "--workers=1", str(self.folder / "train.py")
        )
        assert number is not None
        return number

    def processes(self) -> list[int]:
        return marked_processes(MARK, self.mark)

    def lock_is_free(self) -> bool:
        with (self.folder / "lock").open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

    def log(self) -> str:
        return (self.folder / "log").read_text(encoding="utf-8")


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    found = Agent(tmp_path)
    yield found
    found.starter.close()
    end_marked(MARK, found.mark)


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    """One whose server is ready, for tests that leave it as it is: a server takes seconds to begin."""
    found = Agent(tmp_path_factory.mktemp("ready"))
    found.be_ready()
    yield found
    found.starter.close()
    end_marked(MARK, found.mark)


def test_a_forked_launcher_says_and_ends_what_it_would_and_frees_its_lock(agent: Agent) -> None:
    agent.be_ready()
    assert agent.start("list", f"--folder={agent.folder / 'none'}") is not None
    wait_for(agent.lock_is_free)
    assert agent.log() == f"there is no job in {agent.folder / 'none'}\n"
    assert agent.start("resize", "job", "--workers=x") is not None
    wait_for(agent.lock_is_free)
    assert "'--workers': 'x' is no whole number" in agent.log()
    wait_for(lambda: not agent.processes())
    assert agent.reported == []


def test_all_processes_of_a_job_are_found_and_its_launcher_looks_like_one(agent: Agent) -> None:
    agent.be_ready()
    launcher = agent.start_job()
    worker = agent.folder / "jobs/job/logs/worker-0.log"
    wait_for(worker.exists)
    command = Path(f"/proc/{launcher}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    assert command[:3] == [os.fsencode(sys.executable), b"-m", b"elastic_runtime.cli"]
    assert launcher == os.getsid(launcher)
    assert str(Path(f"/proc/{launcher}/cwd").readlink()) == str(agent.folder)
    assert not agent.lock_is_free()
    tasks = (agent.folder / "jobs/job/logs").glob("*.log")
    assert sorted(log.stem for log in tasks) == ["coordinator", "ps-0", "worker-0"]
    wait_for(lambda: scores_of(agent.processes()) == {"0\n", "500\n"})
    assert Path(f"/proc/{launcher}/oom_score_adj").read_text(encoding="ascii") == "0\n"


def scores_of(processes: list[int]) -> set[str]:
    """How soon the kernel ends each where memory runs out; of those that have not ended meanwhile."""
    found = set()
    for number in processes:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found.add(Path(f"/proc/{number}/oom_score_adj").read_text(encoding="ascii"))
    return found


SEES = """
import gc, os, signal, sys, threading
import torch
print("argv", sys.argv, sys.orig_argv, __name__, __file__, sys.path, os.getcwd())
print("names", sorted(vars(sys.modules["__main__"])))
print("files", sorted(os.listdir("/proc/self/fd")), sys.stdin.read(), sys.stdout.line_buffering)
print("variables", sorted(os.environ.items()))
print("threads", torch.get_num_threads(), len(os.listdir("/proc/self/task")), threading.current_thread().name)
print("session", os.getsid(0) == os.getpid() == os.getpgid(0), open("/proc/self/oom_score_adj").read())
print("command", open("/proc/self/cmdline").read().rstrip("\\0").split("\\0"))
print("signals", [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGCHLD)])
print("end", gc.isenabled(), gc.get_threshold())
signal.pause()
"""


def test_a_worker_of_a_forked_launcher_sees_what_one_sees_that_python_started(agent: Agent) -> None:
    agent.be_ready()
    (agent.folder / "sees.py").write_text(SEES, encoding="utf-8")
    seen = []
    for more in ([], ["--cold"]):
        jobs = agent.folder / "jobs"
        words = [
            f"--folder={jobs}",
            "--name=job",
            "--ps=1",
            "--workers=1",
            *more,
            "--joins-elsewhere",
            str(agent.folder / "sees.py"),
            "x",
        ]
        launcher = agent.start(*words, script="sees.py")
        assert launcher is not None
        log = jobs / "job" / "logs" / "worker-0.log"
        wait_for(lambda path=log: path.exists() and "\nend " in path.read_text(encoding="utf-8"))
        seen.append(log.read_text(encoding="utf-8").splitlines()[1:])
        os.kill(launcher, signal.SIGKILL)
        wait_for(lambda: not agent.processes())
        shutil.rmtree(jobs)
    forked, cold = seen
    assert forked == cold


def test_a_launcher_outlives_its_server_and_whoever_started_it(agent: Agent) -> None:
    server = agent.be_ready()
    launcher = agent.start_job()
    wait_for(lambda: len(agent.processes()) >= 6)  # it, three tasks, and the server of each
    os.kill(server, signal.SIGKILL)
    wait_for(lambda: gone(server))
    agent.starter.close()
    wait_for(lambda: len(agent.processes()) >= 5)  # one that a task was forked by may still have been among the six
    assert not agent.lock_is_free()
    os.kill(launcher, signal.SIGKILL)
    wait_for(lambda: not agent.processes())
    wait_for(agent.lock_is_free)  # what a process had open is closed a moment after its memory is gone


def test_of_a_launcher_that_is_killed_at_any_moment_nothing_stays(agent: Agent) -> None:
    agent.be_ready()
    for wait_seconds in (0.0, 0.01, 0.03, 0.1, 0.2, 0.4, 0.8):
        launcher = agent.start_job()
        time.sleep(wait_seconds)
        os.kill(launcher, signal.SIGKILL)
        wait_for(agent.lock_is_free)
        wait_for(lambda: not agent.processes())
        (agent.folder / "jobs" / "job" / "job.json").unlink(missing_ok=True)
        (agent.folder / "jobs").rename(agent.folder / f"jobs-{wait_seconds}") if (agent.folder / "jobs").exists() else 0
    assert agent.reported == []


@pytest.mark.parametrize(
    ("variables", "forked"),
    [
        ({"PYTHONWARNINGS": "error"}, False),
        ({"SOMETHING": "new"}, False),
        ({**dict.fromkeys(THREAD_VARIABLES, "2"), "CUDA_VISIBLE_DEVICES": "3"}, True),
        ({"MKL_NUM_THREADS": "2"}, False),
        (dict.fromkeys(THREAD_VARIABLES, "2,1"), False),
        ({"ELASTIC_JOB_NOTE": "new"}, True),
        ({MARK: "x" * 5000}, False),
    ],
)
def test_what_only_a_start_of_python_reads_is_left_to_one(
    ready: Agent, variables: dict[str, str], forked: bool
) -> None:
    number = ready.start("list", f"--folder={ready.folder}", variables=variables)
    assert (number is not None) == forked
    wait_for(ready.lock_is_free)
    assert ready.start("list", folder=ready.folder / "missing") is None
    assert ready.reported == []
    assert ready.starter.is_ready, "else none is forked, whatever the variables"


def test_a_server_that_was_killed_is_followed_by_another_until_it_dies_too_often(agent: Agent) -> None:
    for _ in range(3):
        server = agent.be_ready()
        os.kill(server, signal.SIGKILL)
        wait_for(lambda number=server: gone(number))
        assert agent.start("list") is None
        assert agent.starter.pid is None
        agent.now += 61.0
    server = agent.be_ready()
    os.kill(server, signal.SIGKILL)
    wait_for(lambda: gone(server))
    assert agent.start("list") is None
    agent.now += 61.0
    agent.starter.poll(needed=True)
    assert agent.starter.pid is None
    agent.now += 600.0
    agent.be_ready()
    assert agent.reported == [f"the process that was to fork them ended; see {agent.folder}/server/launcher-server.log"]


def test_a_launcher_that_was_given_up_never_begins(tmp_path: Path) -> None:
    agent = Agent(tmp_path, StarterSettings(start_seconds=DEADLINE_SECONDS, answer_seconds=0.5))
    server = agent.be_ready()
    os.kill(server, signal.SIGSTOP)
    assert agent.start("list") is None
    assert "does not answer" in agent.reported[0]
    wait_for(lambda: gone(server))
    wait_for(agent.lock_is_free)
    assert agent.log() == ""
    assert agent.processes() == []


def test_a_server_ends_when_there_was_no_job_for_long_and_begins_again_with_one(agent: Agent) -> None:
    server = agent.be_ready()
    agent.now = 599.0
    agent.starter.poll(needed=False)
    assert agent.starter.pid == server
    agent.now = 601.0
    agent.starter.poll(needed=False)
    assert (agent.starter.pid, gone(server)) == (None, True)
    assert agent.be_ready() != server


@pytest.fixture
def packages(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of installed packages, of this process and of the servers."""
    folder = agent.folder / "installed"
    folder.mkdir()
    usual = sysconfig.get_path
    monkeypatch.setattr(sysconfig, "get_path", lambda kind: str(folder) if kind == "purelib" else usual(kind))
    monkeypatch.syspath_prepend(str(folder))
    (folder / "sitecustomize.py").write_text(
        f"import sysconfig\nbefore = sysconfig.get_path\n"
        f"sysconfig.get_path = lambda kind: {str(folder)!r} if kind == 'purelib' else before(kind)\n",
        encoding="utf-8",
    )
    agent.environment["PYTHONPATH"] = str(folder)
    agent.starter = LauncherStarter(
        agent.environment,
        agent.folder / "server",
        MARK,
        agent.reported.append,
        StarterSettings(start_seconds=DEADLINE_SECONDS, answer_seconds=100.0),
        lambda: agent.now,
    )
    return folder


def test_what_a_script_imports_is_imported_for_the_next_one_and_for_no_other(agent: Agent, packages: Path) -> None:
    (packages / "heavy_package.py").write_text(
        f"open({str(agent.folder / 'imported')!r}, 'a').write('x')\n", encoding="utf-8"
    )
    (agent.folder / "heavy.py").write_text("import heavy_package\n" + STAYS, encoding="utf-8")
    agent.be_ready()
    heavy, light = agent.folder / "heavy.py", agent.folder / "train.py"
    assert (agent.is_ready_for(heavy), agent.is_ready_for(light)) == (False, True)

    def become_ready() -> bool:
        assert agent.start("list", script="heavy.py") is not None
        wait_for(agent.lock_is_free)
        return agent.is_ready_for(heavy)

    wait_for(become_ready)
    assert (agent.folder / "imported").read_text() == "x"
    (packages / "another_package.py").touch()
    server = agent.starter.pid
    agent.starter.poll(needed=True)
    assert agent.starter.pid != server, "what is installed has changed"
    assert not agent.is_ready_for(heavy)


def test_a_server_of_some_imports_that_dies_takes_no_other_along(agent: Agent, packages: Path) -> None:
    (packages / "heavy_package.py").touch()
    (agent.folder / "heavy.py").write_text("import heavy_package\n" + STAYS, encoding="utf-8")
    server = agent.be_ready()

    def become_ready() -> bool:
        assert agent.start("list", script="heavy.py") is not None
        wait_for(agent.lock_is_free)
        return agent.is_ready_for(agent.folder / "heavy.py")

    wait_for(become_ready)
    for child in Path(f"/proc/{server}/task/{server}/children").read_text(encoding="ascii").split():
        os.kill(int(child), signal.SIGKILL)
        wait_for(lambda number=int(child): gone(number))
    agent.start("list", script="heavy.py")
    wait_for(agent.lock_is_free)
    assert agent.start("list", script="heavy.py") is not None
    wait_for(agent.lock_is_free)
    assert (agent.starter.pid, agent.reported) == (server, [])


def test_packages_that_are_being_installed_are_waited_for(agent: Agent, packages: Path) -> None:
    agent.be_ready()
    (packages / "half_there.py").touch()
    agent.starter.poll(needed=True)
    agent.starter.poll(needed=True)
    assert agent.starter.pid is None
    agent.now += 6.0
    agent.starter.poll(needed=True)
    assert agent.starter.pid is not None


@pytest.mark.parametrize(
    "does",
    [
        "import threading, time\nthreading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\n",
        "import os\nos._exit(1)\n",
    ],
    ids=["starts a thread", "ends the process"],
)
def test_a_package_that_cannot_be_loaded_ahead_is_left_to_its_scripts(agent: Agent, packages: Path, does: str) -> None:
    (packages / "odd_package.py").write_text(does, encoding="utf-8")
    (agent.folder / "odd.py").write_text("import odd_package\n" + STAYS, encoding="utf-8")
    server = agent.be_ready()
    for _ in range(3):
        assert agent.start("list", script="odd.py") is not None
        wait_for(agent.lock_is_free)
    assert not agent.is_ready_for(agent.folder / "odd.py")
    assert (agent.starter.pid, agent.reported) == (server, [])
