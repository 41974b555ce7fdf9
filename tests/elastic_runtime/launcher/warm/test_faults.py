"""Whatever becomes of the fork server or of its launcher: no task is lost, none is doubled, none is left behind."""

import json
import os
import signal
import sys
from pathlib import Path

import pytest
from started_tasks import Tasks, gone, wait_for

from elastic_runtime.launcher.warm.starter import RESTARTS

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(600)]

STAYS = "import signal\nprint('at work', flush=True)\nsignal.pause()\n"


def processes_of(folder: Path) -> list[int]:
    """Processes that run in a folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if (entry / "cwd").readlink() == folder:
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def test_a_server_that_is_killed_takes_no_task_along_and_another_follows(tmp_path: Path) -> None:
    with Tasks(tmp_path) as tasks:
        server = tasks.server()
        assert server is not None
        task = tasks.start(STAYS)
        os.kill(server, signal.SIGKILL)
        wait_for(lambda: gone(server))
        assert tasks.run("print('hello')\n").out == "hello"
        assert not gone(task)
        other = tasks.server()
        assert other not in (None, server)
        assert tasks.run("print('hello')\n").warm
        assert tasks.reported() == [
            f"tasks start cold: the process that was to fork them ended (see {tmp_path}/fork-server.log)"
        ]
        os.kill(task, signal.SIGKILL)
        assert tasks.ask(do="ended", pid=task) == -signal.SIGKILL


def test_a_server_that_does_not_answer_is_done_without(tmp_path: Path) -> None:
    with Tasks(tmp_path, fork_seconds=0.5) as tasks:
        server = tasks.server()
        assert server is not None
        for process in [server, *children_of(server)]:
            os.kill(process, signal.SIGSTOP)
        done = tasks.run("print('hello')\n")
        assert (done.out, done.code, done.warm) == ("hello", 0, False)
        assert "does not answer" in tasks.reported()[0]
        wait_for(lambda: gone(server))


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()]


def test_a_server_that_dies_again_and_again_is_given_up(tmp_path: Path) -> None:
    with Tasks(tmp_path) as tasks:
        killed = set()

        def kill_until_given_up() -> bool:
            server = tasks.server()  # none is there while the next one's pause lasts
            if server is not None:
                os.kill(server, signal.SIGKILL)
                wait_for(lambda: gone(server))
                killed.add(server)
            return tasks.ask(do="given_up")

        wait_for(kill_until_given_up)
        assert len(killed) == 1 + RESTARTS
        assert tasks.server() is None
        assert not tasks.run("print('hello')\n").warm


def test_a_launcher_that_is_killed_leaves_neither_server_nor_tasks(tmp_path: Path) -> None:
    with Tasks(tmp_path) as tasks:
        tasks.server()
        tasks.start(STAYS)
        tasks.start(STAYS)
        assert len(processes_of(tmp_path)) >= 3
        tasks.process.kill()
        tasks.process.wait()
        wait_for(lambda: not processes_of(tmp_path))


def test_a_server_that_is_not_needed_ends_alone_and_starts_again_when_it_is(tmp_path: Path) -> None:
    with Tasks(tmp_path) as tasks:
        server = tasks.server()
        task = tasks.start(STAYS)
        tasks.ask(do="idle")
        assert server is not None
        assert gone(server)
        assert not gone(task)
        assert tasks.run("print('hello')\n").warm
        assert tasks.reported() == []


def test_orphans_of_tasks_are_let_go_of_when_they_end(tmp_path: Path) -> None:
    source = (
        "import subprocess, sys\n"
        "quick = subprocess.Popen([sys.executable, '-c', 'input()'], stdin=subprocess.PIPE, start_new_session=True)\n"
        "print(quick.pid)\nimport os\nos._exit(0)\n"
    )
    with Tasks(tmp_path) as tasks:
        server = tasks.server()
        orphan = int(tasks.run(source).out)
        wait_for(lambda: tasks.ask(do="children") == [server])
        assert gone(orphan)


def test_a_task_whose_launcher_has_given_it_up_never_runs(tmp_path: Path) -> None:
    with Tasks(tmp_path) as tasks:
        server = tasks.server()
        (tmp_path / "marks.py").write_text("open('mark', 'w').close()\n", encoding="utf-8")
        tasks.ask(do="start_and_forget", command=[sys.executable, str(tmp_path / "marks.py")])
        assert tasks.run("print('hello')\n").warm, "the server goes on"
        wait_for(lambda: tasks.ask(do="children") == [server])
        assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize(
    "does",
    [
        "import threading, time\nthreading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\n",
        "import os\nos._exit(1)\n",
        "import sys\nsys.exit(1)\n",
        "raise RuntimeError('broken')\n",
    ],
    ids=["starts a thread", "ends the process", "ends", "fails"],
)
def test_a_package_that_cannot_be_loaded_ahead_is_left_to_the_script(tmp_path: Path, does: str) -> None:
    """The standard library's folder stands for installed packages: it is the only other place that counts as such."""
    (tmp_path / "train.py").write_text("import this_package\nimport torch\n", encoding="utf-8")
    installed = tmp_path / "installed"
    installed.mkdir()
    (installed / "this_package.py").write_text(does, encoding="utf-8")
    (installed / "sitecustomize.py").write_text(
        f"import sysconfig\nbefore = sysconfig.get_path\n"
        f"sysconfig.get_path = lambda kind: {json.dumps(str(installed))} if kind == 'purelib' else before(kind)\n",
        encoding="utf-8",
    )
    with Tasks(tmp_path, {"PYTHONPATH": str(installed)}) as tasks:
        tasks.server()
        done = tasks.run("import sys\nprint('this_package' in sys.modules, 'torch' in sys.modules)\n")
        assert (done.warm, done.out) == (True, "False True"), tasks.reported()


def test_where_the_base_itself_cannot_be_forked_tasks_start_cold(tmp_path: Path) -> None:
    thread = "import threading, time\nthreading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\n"
    (tmp_path / "sitecustomize.py").write_text(
        f"import sys\nif 'fork_server.py' in ' '.join(sys.orig_argv):\n    exec({thread!r})\n", encoding="utf-8"
    )
    with Tasks(tmp_path, {"PYTHONPATH": str(tmp_path)}) as tasks:
        assert tasks.server() is None
        done = tasks.run("print('hello')\n")
        assert (done.warm, done.out) == (False, "hello")
        assert tasks.reported() == ["tasks start cold: what is imported for them starts threads (1)"]


def test_a_module_of_the_scripts_own_that_has_a_loaded_ones_name_is_found_cold(tmp_path: Path) -> None:
    with Tasks(tmp_path) as tasks:
        tasks.server()
        source = "import difflib\nprint(difflib.__file__)\n"
        assert tasks.run(source, name="other/script.py").warm
        (tmp_path / "other" / "difflib.py").touch()
        done = tasks.run(source, name="other/script.py")
        assert (done.warm, done.out) == (False, str(tmp_path / "other" / "difflib.py"))
        assert tasks.reported() == [
            "tasks start cold: difflib.py beside script.py has the name of a module that is imported already"
        ]


def test_variables_that_only_a_start_reads_are_read_by_one(tmp_path: Path) -> None:
    with Tasks(tmp_path) as tasks:
        tasks.server()
        source = "import warnings\nwarnings.warn('x')\n"
        done = tasks.run(source, variables={"PYTHONWARNINGS": "error"})
        assert (done.warm, done.code) == (False, 1)
        sets = "import os\nos.environ['OMP_NUM_THREADS'] = '2'\nimport torch\nprint(torch.get_num_threads())\n"
        done = tasks.run(sets)
        assert (done.warm, done.out) == (False, "2")
        assert "script.py touches the environment before it imports torch" in tasks.reported()[-1]


def test_only_what_can_be_forked_waits_for_the_server(tmp_path: Path) -> None:
    (tmp_path / "sets.py").write_text("import os\nos.environ['X'] = '1'\nimport torch\n", encoding="utf-8")
    with Tasks(tmp_path) as tasks:
        assert tasks.ask(do="waits", command=[sys.executable, str(tmp_path / "train.py")])
        assert tasks.ask(do="waits", command=[sys.executable, "-m", "elastic_runtime.server"])
        assert not tasks.ask(do="waits", command=[sys.executable, str(tmp_path / "sets.py")])
        assert not tasks.ask(do="waits", command=[sys.executable, "-m", "json.tool"])
        assert not tasks.ask(do="waits", command=["/bin/true"])
