"""Where a coordinator's Unix socket is: in the job's folder, else in one as closed; nobody but its owner gets there."""

from __future__ import annotations

import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from job_makers import WAITS, Launcher, make_job, wait_for

from elastic_runtime.control.credentials import (
    ServerCredentials,
    bind,
    check_coordinator,
    is_loopback,
    path_of_socket,
    socket_address,
)
from elastic_runtime.errors import BadInput
from elastic_runtime.launcher.coordinator_keeper import ControlSocket, remove_left
from elastic_runtime.launcher.job_folder import read_json
from elastic_runtime.launcher.job_status import client_of


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder whose sockets have short enough names, whatever pytest calls its own."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)


@pytest.mark.parametrize("name", ["job", "a job", "50%", "what? #1", "größer"])
def test_it_is_in_the_jobs_folder_whatever_that_is_called(short: Path, name: str) -> None:
    folder = short / name
    folder.mkdir(mode=0o700)
    place = ControlSocket(folder)
    assert path_of_socket(check_coordinator(place.address)) == folder / "control"
    assert is_loopback(place.address)
    place.close()
    assert folder.is_dir()


def test_where_none_can_be_it_is_in_a_folder_of_its_own_that_is_removed_in_the_end(tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 60) / ("y" * 60)
    deep.mkdir(parents=True)
    places = [ControlSocket(deep) for _ in range(2)]
    paths = [path_of_socket(place.address) for place in places]
    assert len(set(paths)) == 2
    for place, path in zip(places, paths, strict=True):
        assert path is not None
        assert mode(path.parent) == 0o700
        assert path.parent.parent == Path(tempfile.gettempdir())
        place.close()
        assert not path.parent.exists()


def test_what_a_killed_launcher_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 60) / ("y" * 60)
    deep.mkdir(parents=True)
    left = ControlSocket(deep)
    path = path_of_socket(left.address)
    assert path is not None
    for record in (None, {}, {"address": "127.0.0.1:80"}, {"address": socket_address(tmp_path / "control")}):
        remove_left(record)
    assert path.parent.is_dir()
    assert tmp_path.is_dir()
    remove_left({"address": left.address})
    assert not path.parent.exists()


def test_a_folder_that_others_enter_is_refused(short: Path) -> None:
    server = grpc.server(None)
    folder = short
    for bits in (0o755, 0o710, 0o702):
        folder.chmod(bits)
        with pytest.raises(BadInput, match="others can enter the socket's folder"):
            bind(server, socket_address(folder / "control"), ServerCredentials("token"))
    with pytest.raises(BadInput, match="cannot be the folder of a socket"):
        bind(server, socket_address(folder / "missing" / "control"), ServerCredentials("token"))
    folder.chmod(0o700)
    bind(server, socket_address(folder / "control"), ServerCredentials("token"))
    assert mode(folder / "control") == 0o600


@pytest.mark.parametrize("address", ["unix:", "unix:relative", "unix:/a b", "unix:///a", "unix:/%zz/x", "uni:/x"])
def test_what_is_no_address_is_said(address: str) -> None:
    with pytest.raises(BadInput, match="is no address"):
        check_coordinator(address)


@pytest.mark.heavy
def test_a_job_on_one_machine_listens_on_no_port(tmp_path: Path) -> None:
    job = make_job(tmp_path, WAITS)
    with Launcher(job) as launcher:
        pids = launcher.pids(3)
        wait_for(lambda: "worker-0 | at work" in launcher.output(), "worker")
        path = path_of_socket((read_json(job.address_file) or {})["address"])
        assert path is not None
        assert mode(path.parent) == 0o700
        sockets = {str(one.readlink()) for one in Path(f"/proc/{pids['coordinator']}/fd").iterdir()}
        listening = [
            line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()
        ]
        ports = [row[1] for row in listening if row[3] == "0A" and f"socket:[{row[9]}]" in sockets]
        assert not ports
        with client_of(job, 100.0) as client:
            assert client.status().step == 12
