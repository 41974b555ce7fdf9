"""A launcher with real processes: it does what the coordinator wants, and leaves nothing behind however it ends."""

import contextlib
import os
import queue
import re
import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from job_makers import WAITS, Launcher, all_gone, gone, make_job, wait_for
from reserved_port import ReservedPort

from elastic_runtime.control.client import ControlClient
from elastic_runtime.control.credentials import ClientCredentials
from elastic_runtime.errors import CoordinatorUnreachable
from elastic_runtime.launcher.job_folder import holder_of, read_json
from elastic_runtime.launcher.job_status import read_state
from elastic_runtime.launcher.supervisor import LauncherStopSignals

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(400)]


def test_a_job_runs_to_its_end_with_the_tasks_that_the_coordinator_wants(tmp_path: Path) -> None:
    shows = "import os, time\nprint(sorted(k for k in os.environ if k.startswith('ELASTIC_')))\n"
    learns = "task = os.environ['ELASTIC_TASK']\nprint(task, 'learns')\n"
    # If worker-0 ended first, worker-1 would be the one that is shown.
    waits = "while task == 'worker-0' and not os.path.exists('go'):\n    time.sleep(0.01)\n"
    job = make_job(tmp_path, shows + learns + waits, servers=1, workers=2)
    with Launcher(job) as launcher:
        wait_for(lambda: any(end[0] == "worker-1" for end in launcher.state().get("ended", [])), "end of worker-1")
        (tmp_path / "go").touch()
        assert launcher.end() == 0
        assert "over: finished" in launcher.output()
        assert "worker-0 | worker-0 learns" in launcher.output()
        assert "worker-1 learns" not in launcher.output()
        # Their first ends: with a pause of 10 ms a view of before an end may have one begin once more, and be ended.
        ends = {task: code for task, code, _ in reversed(launcher.state()["ended"])}
        pids = launcher.pids(4)
    assert ends["worker-0"] == ends["worker-1"] == 0
    assert "worker-1 learns" in (job.log_folder / "worker-1.log").read_text(encoding="utf-8")
    reported = (job.log_folder / "worker-0.log").read_text(encoding="utf-8")
    assert {"'ELASTIC_COORDINATOR'", "'ELASTIC_TASK'", "'ELASTIC_TOKEN_FILE'"} <= set(re.findall(r"'\w+'", reported))
    all_gone(pids.values())
    assert read_state(job)["phase"] == "finished"
    assert holder_of(job.path) is None


def test_a_script_that_raises_fails_the_job_with_its_last_line(tmp_path: Path) -> None:
    job = make_job(tmp_path, "raise RuntimeError('the data are gone')\n", restarts=1)
    with Launcher(job) as launcher:
        assert launcher.end() == 1
        # Both raise; whichever is the second is the one that is not started again.
        failed = re.search(r"failed: (worker-[01]): RuntimeError: the data are gone", launcher.output())
        reported = re.findall(r"elastic-run: (worker-[01]) ended with exit code 1( \(see|: )", launcher.output())
        codes = [(task, code) for task, code, _ in launcher.state()["ended"] if task.startswith("worker")]
    assert failed is not None
    assert dict(reported).get("worker-0", " (see") == " (see", "its last line stands above, where its output is shown"
    assert [task for task, code in codes if code == 1][-1] == failed[1], "the other one may have been ended for it"
    assert {code for _, code in codes} <= {1, -signal.SIGTERM}


def test_a_worker_that_is_killed_is_reported_and_replaced(tmp_path: Path) -> None:
    job = make_job(tmp_path, WAITS)
    with Launcher(job) as launcher:
        wait_for(lambda: "worker-0 | at work" in launcher.output(), "worker")
        os.kill(launcher.pids(3)["worker-0"], signal.SIGKILL)
        wait_for(lambda: "worker-1" in launcher.pids(3), "replacement")
        assert launcher.state()["ended"][0] == ["worker-0", -signal.SIGKILL, "at work"]


def test_a_coordinator_that_is_killed_is_started_again_at_its_address_and_no_task_ends(tmp_path: Path) -> None:
    job = make_job(tmp_path, WAITS)
    with Launcher(job) as launcher:
        before = launcher.pids(3)
        address = job.address_file.read_text(encoding="utf-8")
        os.kill(before["coordinator"], signal.SIGKILL)
        after = wait_for(lambda: pids if (pids := launcher.pids(3)) != before else None, "second coordinator")
        assert {task for task in after if after[task] == before[task]} == {"ps-0", "worker-0"}
        wait_for(job.address_file.exists, "address")
        assert job.address_file.read_text(encoding="utf-8").split('"pid"')[0] == address.split('"pid"')[0]
        os.kill(before["worker-0"], signal.SIGKILL)
        wait_for(lambda: launcher.state().get("ended"), "report to the second coordinator")
        assert not gone(before["ps-0"])


def test_while_a_coordinator_is_away_nobody_gets_its_port_and_who_connects_waits_for_the_next(tmp_path: Path) -> None:
    reserved = ReservedPort()
    reserved.close()
    job = make_job(tmp_path, WAITS, port=reserved.port)
    with Launcher(job) as launcher:
        before = launcher.pids(3)
        found = wait_for(lambda: read_json(job.address_file), "address")
        host, port = "127.0.0.1", reserved.port
        assert found["address"] == f"{host}:{port}"
        launcher.process.send_signal(signal.SIGSTOP)
        os.kill(before["coordinator"], signal.SIGKILL)
        all_gone([before["coordinator"]])
        for shared in (False, True):
            with pytest.raises(OSError, match="in use"):
                socket.create_server((host, port), reuse_port=shared)
        with ControlClient(found["address"], job.name, ClientCredentials(job.token()), 100.0) as client:
            with ThreadPoolExecutor(1) as thread:
                status = thread.submit(client.status)
                launcher.process.send_signal(signal.SIGCONT)
                with contextlib.suppress(CoordinatorUnreachable):  # gRPC waits some seconds for a connection to speak
                    assert status.result().step == 12
            wait_for(lambda: launcher.pids(3)["coordinator"] != before["coordinator"], "the next coordinator")
            wait_for(job.address_file.exists, "address")
            assert client.status().step == 12
        os.kill(before["worker-0"], signal.SIGKILL)
        wait_for(lambda: launcher.state().get("ended"), "report to another coordinator")
        assert not gone(before["ps-0"])


def test_a_launcher_that_is_killed_takes_everything_with_it_and_the_next_one_goes_on(tmp_path: Path) -> None:
    job = make_job(tmp_path, WAITS)
    with Launcher(job) as launcher:
        pids = launcher.pids(3)
        wait_for(lambda: "running" in launcher.output(), "view")
        launcher.end(signal.SIGKILL)
        all_gone(pids.values())
    assert holder_of(job.path) is None
    with Launcher(job) as launcher:
        again = wait_for(lambda: found if (found := launcher.pids(3)).keys() and found != pids else None, "processes")
        wait_for(lambda: all(pid != pids[task] for task, pid in launcher.pids(3).items()), "new processes")
        assert set(again) == set(pids)


def test_the_first_signal_suspends_and_ends_in_good_order(tmp_path: Path) -> None:
    job = make_job(tmp_path, WAITS)
    with Launcher(job) as launcher:
        pids = launcher.pids(3)
        wait_for(lambda: "worker-0 | at work" in launcher.output(), "worker")
        assert launcher.end(signal.SIGINT) == 0
        assert "over: suspended" in launcher.output()
        assert launcher.state()["calls"] == ["suspend"]
    all_gone(pids.values())
    assert read_state(job)["phase"] == "suspended"


def test_a_terminal_that_is_closed_suspends_too_unless_nobody_minds(tmp_path: Path) -> None:
    job = make_job(tmp_path, WAITS)
    news: queue.SimpleQueue[None] = queue.SimpleQueue()
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whoever runs these tests may do so under nohup
    try:
        with Launcher(job) as launcher:
            wait_for(lambda: "worker-0 | at work" in launcher.output(), "worker")
            assert launcher.end(signal.SIGHUP) == 0
            assert "over: suspended" in launcher.output()
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        with LauncherStopSignals(news) as signals:
            os.kill(os.getpid(), signal.SIGHUP)
            os.kill(os.getpid(), signal.SIGTERM)
            news.get(timeout=100)
        assert signals.count == 1
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_signal_that_comes_twice_in_a_moment_is_one_wish_and_ctrl_c_counts_each_time() -> None:
    now = [0.0]
    news: queue.SimpleQueue[None] = queue.SimpleQueue()
    with LauncherStopSignals(news, lambda: now[0]) as signals:
        for at, number, count in (
            (0.0, signal.SIGTERM, 1),
            (0.5, signal.SIGTERM, 1),
            (1.5, signal.SIGTERM, 2),
            (1.6, signal.SIGINT, 3),
            (1.7, signal.SIGINT, 4),
        ):
            now[0] = at
            signal.raise_signal(number)
            assert signals.count == count


def test_a_second_signal_ends_everything_at_once(tmp_path: Path) -> None:
    job = make_job(tmp_path, WAITS)
    with Launcher(job) as launcher:
        pids = launcher.pids(3)
        wait_for(lambda: "worker-0 | at work" in launcher.output(), "worker")
        os.kill(pids["coordinator"], signal.SIGSTOP)  # it will not answer
        launcher.process.send_signal(signal.SIGINT)
        wait_for(lambda: "being stopped" in launcher.output(), "first signal")
        assert launcher.end(signal.SIGINT) == 1
        assert "stopped at once" in launcher.output()
    all_gone(pids.values())


def test_what_a_task_leaves_behind_ends_with_it(tmp_path: Path) -> None:
    leaves = "import subprocess, sys\np = subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'])\n"
    job = make_job(tmp_path, leaves + "print('left', p.pid, flush=True)\n")
    with Launcher(job) as launcher:
        assert launcher.end() == 0
        left = int(launcher.output().partition("left ")[2].split()[0])
    all_gone([left])
