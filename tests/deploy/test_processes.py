import os
import socket
import sys
from pathlib import Path

import pytest

from deploy.demonstration.processes import DemoFailed, Processes
from foundation.kinship import cpu_seconds

DEADLINE_SECONDS = 100.0


def _module(folder: Path, name: str, body: str) -> str:
    (folder / f"{name}.py").write_text(body)
    return name


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path


def _wait(processes: Processes, name: str) -> int:
    return processes._running[name].wait(DEADLINE_SECONDS)


def test_what_a_process_prints_is_in_its_log(programs: Path) -> None:
    module = _module(programs, "speaker", "import sys; print('out'); print(sys.argv[1], file=sys.stderr)")
    with Processes(programs) as processes:
        processes.start("speaker", module, ["word"])
        assert _wait(processes, "speaker") == 0
        processes.check()
        assert processes.log_of("speaker").read_text().split() == ["out", "word"]


def test_a_failed_process_is_reported_with_its_last_line_and_its_log(programs: Path) -> None:
    module = _module(programs, "failing", "import sys; print('first'); sys.exit('port 1 is taken')")
    with Processes(programs) as processes:
        processes.start("failing", module, [])
        _wait(processes, "failing")
        with pytest.raises(DemoFailed, match=r"exit code 1: port 1 is taken .*failing\.log"):
            processes.check()


def test_leaving_the_context_ends_everything_also_after_an_error(programs: Path) -> None:
    module = _module(programs, "endless", "import time\nwhile True: time.sleep(0.05)")
    processes = Processes(programs)

    def fail_in_the_middle() -> None:
        with processes:
            for name in ("one", "two"):
                processes.start(name, module, [])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_in_the_middle()
    assert not processes.is_running("one")
    assert not processes.is_running("two")


def test_a_process_that_ignores_the_request_is_killed(programs: Path) -> None:
    body = "import signal, sys, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('ready', flush=True)\n"
    module = _module(programs, "stubborn", body + "while True: time.sleep(0.05)")
    with Processes(programs) as processes:
        processes.start("stubborn", module, [])
        log = processes.log_of("stubborn")
        while "ready" not in log.read_text():
            processes.check()
        processes.stop(["stubborn"], wait_seconds=0.1)
        assert _wait(processes, "stubborn") == -9


def test_a_port_is_the_programs_until_all_has_ended(programs: Path) -> None:
    body = "import socketserver, sys\nsocketserver.TCPServer.allow_reuse_address = True\n"
    body += "with socketserver.TCPServer(('127.0.0.1', int(sys.argv[1])), None): print('listens')"
    module = _module(programs, "listener", body)
    with Processes(programs) as processes:
        port = processes.port()
        if sys.platform == "linux":
            with pytest.raises(OSError, match="in use"), socket.socket() as other:
                other.bind(("127.0.0.1", port))
        for name in ("first", "second"):
            processes.start(name, module, [str(port)])
            assert _wait(processes, name) == 0, processes.log_of(name).read_text()
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))


def test_programs_run_with_this_interpreter(programs: Path) -> None:
    module = _module(programs, "interpreter", "import sys; print(sys.executable)")
    with Processes(programs) as processes:
        processes.start("interpreter", module, [])
        _wait(processes, "interpreter")
        assert processes.log_of("interpreter").read_text().strip() == sys.executable


@pytest.mark.skipif(sys.platform != "linux", reason="where there is no /proc, it is not known")
def test_what_a_process_has_had_of_the_processor_is_known_and_nothing_of_one_that_is_gone() -> None:
    used = os.times()
    assert cpu_seconds([os.getpid()]) == pytest.approx(sum(used[:4]), abs=1.0)
    assert cpu_seconds([2**22 + 1]) == 0.0
