"""Runs the real `global-learner serve` as a process, and talks to it."""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import grpc
import yaml
from learner_makers import SPEC, policy
from reserved_port import ReservedPort

from global_learner.operator_socket import OPERATOR_SOCKET, SocketAddress
from policy_net.exchange.generated import fleet_pb2, fleet_pb2_grpc
from policy_net.exchange.policy_file import write_policy_file
from policy_net.exchange.spec import PolicySpec

DEADLINE_SECONDS = 90.0
FORKS = sys.platform == "linux"
"""Whether forks end with whoever forked them, and tell by /proc that they have ended."""
_WITH_CONSTANTS = """
import policy_net.settings
policy_net.settings.CONSTANT = ""
from global_learner.cli import main
main()
"""
"""As `program_forks.py`: the configuration may hold constants."""
_WITH_LIMIT = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.RLIM_INFINITY))
os.execv(sys.argv[2], sys.argv[2:])
"""
"""Not `preexec_fn`, which forks a test's process with whatever threads gRPC has there."""


class ProgramForks:
    """A process that has imported what learners and agents need, and forks them (see `program_forks.py`)."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("program_forks.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        self._one_at_a_time = threading.Lock()
        assert self._answer() == "ready"
        atexit.register(self.close)

    def ask(self, **order: Any) -> int:
        assert self._process.stdin is not None
        with self._one_at_a_time:
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
            return int(self._answer())

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(DEADLINE_SECONDS)

    def _answer(self) -> str:
        assert self._process.stdout is not None
        reported, _, _ = select.select([self._process.stdout], [], [], DEADLINE_SECONDS)
        assert reported, f"the server of forks has not answered for {DEADLINE_SECONDS} s"
        return self._process.stdout.readline().strip()


@cache
def program_forks() -> ProgramForks:
    """The one of this process of pytest."""
    return ProgramForks()


class ForkedProgram:
    """One fork, with what is used of `subprocess.Popen`.

    Args:
        module: whose `main` is run.
        log: for what it prints.
        errors: for what it says on standard error; the log unless stated.
        environment: this process's unless stated.
        imports: modules that it need not import itself.
    """

    def __init__(
        self,
        module: str,
        arguments: Sequence[str],
        log: Path,
        *,
        errors: Path | None = None,
        environment: Mapping[str, str] = os.environ,
        imports: Sequence[str] = (),
    ) -> None:
        self._module = module
        self._forks = program_forks()
        self._code: int | None = None
        self.pid = self._forks.ask(
            module=module,
            arguments=list(arguments),
            log=str(log),
            errors=str(errors or log),
            folder=str(Path.cwd()),
            environment={**environment, "OMP_NUM_THREADS": "1"},
            imports=list(imports),
        )

    def poll(self) -> int | None:
        if self._code is None and Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
            self._code = self._forks.ask(wait=self.pid)
        return self._code

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:  # as Popen: what was waited for may be another's number by now
            os.kill(self.pid, number)

    def wait(self, seconds: float) -> int:
        deadline = time.monotonic() + seconds
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(self._module, seconds)
            time.sleep(0.005)
        return code


def answered(module: str, *words: str, imports: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    """A command at its end, which is a fork where that can be.

    Args:
        module: whose `main` is run.
        imports: modules that it need not import itself.
    """
    if not FORKS:
        command = [sys.executable, "-m", module, *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False)
    with tempfile.TemporaryDirectory() as folder:
        out, errors = Path(folder) / "out", Path(folder) / "errors"
        code = ForkedProgram(module, words, out, errors=errors, imports=imports).wait(DEADLINE_SECONDS)
        said = [path.read_text(encoding="utf-8") for path in (out, errors)]
    return subprocess.CompletedProcess([module, *words], code, *said)


class LearnerProcess:
    """A learner in a folder; starts again on the same port.

    A fork each time, where there are forks; a `LearnerProgram` is started by its command.
    """

    forked = FORKS

    def __init__(self, folder: Path, spec: PolicySpec = SPEC, **sections: Any) -> None:
        self.folder = folder
        self.config = folder / "learner.yaml"
        self.log = folder / "learner.log"
        self.state_dir = folder / "state"
        self.files_may_grow_to: int | None = None
        self._reserved = ReservedPort()
        self.port = self._reserved.port
        self.sections = sections
        self._process: subprocess.Popen[bytes] | ForkedProgram | None = None
        write_policy_file(folder / "v1.safetensors", policy(spec))

    def start(self) -> None:
        self.begin()
        self.wait()

    def begin(self) -> None:
        """Start it, as one that may have to wait for its turn."""
        (self.folder / "ports.json").unlink(missing_ok=True)
        content = {
            "state_dir": "state",
            "initial_policy": "v1.safetensors",
            "listen": f"127.0.0.1:{self.port}",
            "port_file": "ports.json",
            "telemetry": {"http_listen": "127.0.0.1:0", "log_level": "info"},
            "scores": {"enabled": False},
            **self.sections,
        }
        self.config.write_text(yaml.safe_dump(content))
        self._process = self._spawn()

    @property
    def serves(self) -> bool:
        return (self.folder / "ports.json").exists()

    def wait(self) -> None:
        """Wait until it serves."""
        assert self._process is not None
        ports = self.folder / "ports.json"
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not ports.exists():
            assert self._process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, "the learner did not serve in time"
            time.sleep(0.02)
        found = json.loads(ports.read_text())
        assert found["port"] == self.port
        self.http_port = found["http_port"]

    def _spawn(self) -> subprocess.Popen[bytes] | ForkedProgram:
        if self.forked and self.files_may_grow_to is None:
            return ForkedProgram("global_learner.cli", ["serve", "--config", str(self.config)], self.log)
        words = ["serve", "--config", str(self.config)]
        command = [sys.executable, "-c", _WITH_CONSTANTS, *words]
        if self.files_may_grow_to is not None:
            command = [sys.executable, "-c", _WITH_LIMIT, str(self.files_may_grow_to), *command]
        with self.log.open("ab") as stream:
            return subprocess.Popen(command, stdout=stream, stderr=stream, env={**os.environ, "OMP_NUM_THREADS": "1"})

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and wait; the exit code."""
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(number)
        code = self._process.wait(DEADLINE_SECONDS)
        self._process = None
        return code

    def wait_end(self) -> int:
        """Wait until it has ended by itself; the exit code."""
        assert self._process is not None
        code = self._process.wait(DEADLINE_SECONDS)
        self._process = None
        return code

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        self.end(signal.SIGKILL)

    def close(self) -> None:
        if self._process is not None:
            self.kill()
        self._reserved.close()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def channel(self) -> grpc.Channel:
        return grpc.insecure_channel(
            self.address,
            options=[
                ("grpc.max_receive_message_length", -1),
                ("grpc.use_local_subchannel_pool", 1),
                ("grpc.initial_reconnect_backoff_ms", 50),
                ("grpc.min_reconnect_backoff_ms", 50),
                ("grpc.max_reconnect_backoff_ms", 200),
            ],
        )

    @property
    def operator_address(self) -> str:
        return f"unix:{self.state_dir / OPERATOR_SOCKET}"

    @contextmanager
    def operators(self) -> Iterator[grpc.Channel]:
        """A channel to the operators' socket."""
        with closing(SocketAddress(self.state_dir / OPERATOR_SOCKET)) as address:
            options = [("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
            with grpc.insecure_channel(address.target, options) as channel:
                yield channel

    def fleet(self) -> fleet_pb2.GetFleetReply:
        with self.operators() as channel:
            return fleet_pb2_grpc.AdminStub(channel).GetFleet(
                fleet_pb2.GetFleetRequest(), timeout=DEADLINE_SECONDS, wait_for_ready=True
            )


class LearnerProgram(LearnerProcess):
    """The same, started by its command as users do."""

    forked = False
