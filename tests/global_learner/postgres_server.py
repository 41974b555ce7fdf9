"""A PostgreSQL server of Debian's package, started for tests by a user of its own, on loopback."""

from __future__ import annotations

import atexit
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path

import pytest
from reserved_port import ReservedPort

REQUIRED = "FEDL2_POSTGRES_REQUIRED"
DEADLINE_SECONDS = 90.0
_OWNERS = ("postgres", "nobody")
"""Root may not run a server; one of these does it instead."""


def programs() -> Path | None:
    """The folder of `initdb` and `postgres`; Debian keeps them off the path."""
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).resolve().parent
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    return versions[-1].parent if versions else None


class PostgresServer:
    """One server with a folder of its own; starts again on the same port."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self.folder = folder
        self._programs = programs
        self._reserved = ReservedPort()
        self.port = self._reserved.port
        self._numbers = itertools.count(1)
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = next(name for name in _OWNERS if _is_user(name)) if os.getuid() == 0 else None
        folder.chmod(0o700)
        if self._owner is not None:
            shutil.chown(folder, self._owner)
        self._run("initdb", "--no-sync", "--auth=trust", "--username=fleet", "--pgdata", str(folder / "data"))

    def start(self) -> None:
        options = {"listen_addresses": "127.0.0.1", "port": self.port, "unix_socket_directories": str(self.folder)}
        # What is tested is not the server's own durability; a kill of it loses nothing either way.
        options |= {"fsync": "off", "max_connections": 60, "log_min_messages": "warning"}
        command = [str(self._programs / "postgres"), "-D", str(self.folder / "data")]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, *(word for name, value in options.items() for word in ("-c", f"{name}={value}"))],
                stdout=log,
                stderr=log,
                cwd=self.folder,
                user=self._owner,
            )
        deadline = time.monotonic() + DEADLINE_SECONDS
        while self._ask("pg_isready", "--quiet").returncode != 0:
            assert self._process.poll() is None, (self.folder / "log").read_text()
            assert time.monotonic() < deadline, "the database server did not answer in time"
            time.sleep(0.02)

    def stop(self) -> None:
        """End it at once, with whatever is under way; it recovers as it starts again."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(DEADLINE_SECONDS)
            self._process = None

    def close(self) -> None:
        self.stop()
        self._reserved.close()

    def new_database(self) -> str:
        """An empty database; its URL."""
        name = f"fleet{next(self._numbers)}"
        self.sql("postgres", f"CREATE DATABASE {name}")
        return f"postgresql://fleet@127.0.0.1:{self.port}/{name}"

    def sql(self, database: str, statement: str) -> str:
        """What a statement prints; values alone, a row a line."""
        done = self._ask(
            "psql", "--dbname", database.rpartition("/")[2], "-qAtX", "-v", "ON_ERROR_STOP=1", "-c", statement
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def _ask(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        place = ("--host", "127.0.0.1", "--port", str(self.port), "--username", "fleet")
        command = [str(self._programs / program), *place, *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False)

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [str(self._programs / program), *arguments],
            check=True,
            capture_output=True,
            timeout=DEADLINE_SECONDS,
            cwd=self.folder,
            user=self._owner,
        )


@cache
def shared_server() -> PostgresServer:
    """The one of this process of pytest, running; the test is skipped where there is none to start."""
    return _started()


def own_server() -> PostgresServer:
    """One that a test may stop."""
    return _started()


def _started() -> PostgresServer:
    found = programs()
    if found is None:
        reason = "no PostgreSQL server is installed: apt-get install postgresql"
        if os.environ.get(REQUIRED):
            pytest.fail(reason)
        pytest.skip(reason)
    folder = Path(tempfile.mkdtemp(prefix="fedl2-postgres-"))
    server = PostgresServer(folder, found)
    atexit.register(shutil.rmtree, folder, True)
    atexit.register(server.close)
    server.start()
    return server


def _is_user(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True
