"""An all-reduce process in a pod: asked by who has the token, stopped by SIGTERM, heard at its end."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from certificates import certificate_files
from forks import Forks
from reserved_port import ReservedPort

from elastic_runtime.checkpoint.rank_files import FOLDER_VARIABLE, RankFiles, RankProgress
from elastic_runtime.control.client import ControlClient
from elastic_runtime.control.credentials import ClientCredentials
from elastic_runtime.control.messages import Size
from elastic_runtime.errors import BadInput, CoordinatorUnproven
from elastic_runtime.protocol.plan import JobPhase
from elastic_runtime.worker.ranks.rank_pod import BIND_VARIABLE, END_FILE_VARIABLE, RankPlace, RankPod

DEADLINE_SECONDS = 280.0
SHARED = "of-a-job-that-tests-run"
SCRIPT = """
import torch
from torch import nn
import elastic_runtime as elastic

data = torch.zeros(64, 3), torch.zeros(64, 1)
model = nn.Linear(3, 1)
job = elastic.join(model, elastic.SGD(lr=0.1), data, global_batch=4, epochs=10**6)
for batch in job:
    inputs, targets = batch.data
    job.step(nn.functional.mse_loss(model(inputs), targets))
    if job.global_step == 3:
        print("trains", flush=True)
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    _, certificate, key = certificate_files(tmp_path)
    (tmp_path / "token").write_text(SHARED, encoding="ascii")
    return {
        BIND_VARIABLE: "127.0.0.1:7770",
        END_FILE_VARIABLE: str(tmp_path / "end"),
        FOLDER_VARIABLE: str(tmp_path / "volume" / "job"),
        "ELASTIC_JOB": "digits-01234567",
        "ELASTIC_TOKEN_FILE": str(tmp_path / "token"),
        "ELASTIC_CERTIFICATE_FILE": str(certificate),
        "ELASTIC_KEY_FILE": str(key),
    }


@pytest.fixture
def place(environment: dict[str, str]) -> RankPlace:
    found = RankPlace.read({**environment, BIND_VARIABLE: f"127.0.0.1:{_free_port()}"})
    assert found is not None
    return found


@pytest.fixture(autouse=True)
def _signals() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def _free_port() -> int:
    port = ReservedPort()
    port.close()
    return port.port


def asked(place: RankPlace, ca: Path, token: str = SHARED) -> ControlClient:
    return ControlClient(place.address, place.job, ClientCredentials(token, ca.read_bytes()), 20.0)


def ca_of(environment: dict[str, str]) -> Path:
    return Path(environment["ELASTIC_CERTIFICATE_FILE"])  # it is its own authority


def test_the_first_process_says_how_far_it_is_to_who_has_the_token(
    place: RankPlace, environment: dict[str, str]
) -> None:
    now = 100.0
    pod = RankPod(place, 0, 3, lambda: now, lambda: 1_800_000_000.9)
    with asked(place, ca_of(environment)) as client:
        status = client.status()
        assert (status.phase, status.size, status.generation) == (JobPhase.STARTING, Size(0, 3), 1_800_000_000)
        pod.report(RankProgress(3, 1, 10, 100, 1.0, 4.0), 40)
        now = 102.0
        pod.report(RankProgress(3, 1, 20, 200, 2.0, 4.0), 40)
        status = client.status()
        assert (status.phase, status.step, status.total_steps, status.samples) == (JobPhase.RUNNING, 20, 40, 200)
        assert (status.epoch, status.total_epochs, status.samples_per_second) == (2.0, 4.0, 50.0)
        with pytest.raises(BadInput, match="takes no requests itself"):
            client.resize("r1", Size(0, 2))
        with pytest.raises(BadInput, match="takes no requests itself"):
            client.suspend("r2")
        with pytest.raises(BadInput, match="takes no requests itself"):
            client.resume("r3", Size(0, 2))
        pod.report(RankProgress(3, 1, 40, 400, 4.0, 4.0, finished=True), 40)
        assert client.status().phase is JobPhase.FINISHED
    with asked(place, ca_of(environment), "another-job-s-token") as stranger, pytest.raises(CoordinatorUnproven):
        stranger.status()
    assert (place.end_file or Path()).read_text() == "finished: 4 epochs, 400 samples"


def test_what_has_finished_stays_so_whatever_signal_comes(place: RankPlace) -> None:
    signal.signal(signal.SIGTERM, lambda *_: None)
    pod = RankPod(place, 1, 3)
    pod.report(RankProgress(3, 1, 40, 400, 4.0, 4.0, finished=True), 40)
    os.kill(os.getpid(), signal.SIGTERM)
    assert (place.end_file or Path()).read_text() == "finished: 4 epochs, 400 samples"


def test_a_signal_is_a_wish_to_stop_and_what_was_there_before_hears_it_too(place: RankPlace) -> None:
    heard: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
    pod = RankPod(place, 1, 3)
    assert not pod.stop_requested
    os.kill(os.getpid(), signal.SIGTERM)
    assert pod.stop_requested
    assert heard == [signal.SIGTERM]
    pod.report(RankProgress(3, 1, 1, 10, 0.25, 4.0), 40)
    assert place.end_file is not None
    assert place.end_file.read_text() == "stopped: it was told to end", "that handler may have ended it"
    pod.report(RankProgress(3, 1, 2, 20, 0.5, 4.0), 40, stopped=True)
    assert pod.status.phase is JobPhase.SUSPENDING
    assert place.end_file.read_text() == "stopped: 0.5 epochs, 20 samples"


def test_a_port_that_is_taken_costs_the_progress_and_not_the_training(place: RankPlace) -> None:
    assert RankPod(place, 0, 1).port
    assert RankPod(place, 0, 1).port == 0


def test_an_end_that_cannot_be_said_is_logged(place: RankPlace, tmp_path: Path, capsys: Any) -> None:
    nowhere = RankPlace(place.address, place.job, place.credentials, tmp_path / "nowhere" / "end")
    RankPod(nowhere, 1, 1).report(RankProgress(1, 1, 1, 1, 1.0, 1.0, finished=True), 1)
    assert "end-not-said" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("variable", "value", "line"),
    [
        (BIND_VARIABLE, "nowhere", f"{BIND_VARIABLE} = nowhere: "),
        (BIND_VARIABLE, "a\nb:1", f"{BIND_VARIABLE} = "),
        ("ELASTIC_JOB", "../x", "ELASTIC_JOB: "),
        ("ELASTIC_JOB", "", "ELASTIC_JOB not set, and ELASTIC_RANKS_BIND is"),
        ("ELASTIC_TOKEN_FILE", "/nowhere", "the token file /nowhere cannot be read"),
        ("ELASTIC_CERTIFICATE_FILE", "/dev/null", "the certificate /dev/null is not in PEM format"),
        ("ELASTIC_KEY_FILE", "/nowhere", "the certificate's key /nowhere cannot be read"),
        (FOLDER_VARIABLE, "/dev/null/job", f"{FOLDER_VARIABLE} = /dev/null/job: cannot be made"),
        (FOLDER_VARIABLE, "n" * 5000, f"{FOLDER_VARIABLE} = "),
    ],
)
def test_a_bad_variable_is_one_line(environment: dict[str, str], variable: str, value: str, line: str) -> None:
    with pytest.raises(BadInput) as caught:
        RankPlace.read({**environment, variable: value})
    assert str(caught.value).startswith(line)
    assert str(caught.value).isprintable()


def test_who_is_no_pod_is_none_and_a_pod_makes_the_folder(environment: dict[str, str]) -> None:
    assert RankPlace.read({name: value for name, value in environment.items() if name != BIND_VARIABLE}) is None
    for _ in range(2):
        assert RankPlace.read(environment) is not None
        assert Path(environment[FOLDER_VARIABLE]).is_dir()


@pytest.mark.heavy
def test_processes_of_which_one_is_told_to_end_stop_after_the_same_step(
    forks: Forks, environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(SCRIPT, encoding="utf-8")
    master = ReservedPort()
    group = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(master.port)}
    logs, ends = ([tmp_path / f"{rank}.{name}" for rank in (0, 1)] for name in ("log", "end"))
    running = []
    for rank in (0, 1):
        mine = {**group, "RANK": str(rank), BIND_VARIABLE: f"127.0.0.1:{_free_port()}"}
        mine[END_FILE_VARIABLE] = str(ends[rank])
        running.append(forks.start(str(tmp_path / "train.py"), [], {**environment, **mine}, logs[rank]))
    deadline = time.monotonic() + DEADLINE_SECONDS

    def said() -> str:
        return "\n".join(log.read_text(encoding="utf-8", errors="replace") for log in logs if log.exists())

    def wait(holds: Callable[[], bool]) -> None:
        while not holds():
            assert time.monotonic() < deadline, said()
            time.sleep(0.02)

    wait(lambda: said().count("trains") == len(running))
    os.kill(running[1], signal.SIGTERM)
    codes: dict[int, int] = {}

    def all_ended() -> bool:
        codes.update((pid, code) for pid in running if pid not in codes and (code := forks.exit_code(pid)) is not None)
        return len(codes) == len(running)

    wait(all_ended)
    assert set(codes.values()) == {0}
    words = [end.read_text(encoding="utf-8") for end in ends]
    assert words[0] == words[1]
    assert words[0].startswith("stopped: ")
    kept = RankFiles(Path(environment[FOLDER_VARIABLE])).load()
    assert kept is not None
    assert f"{kept['step'] * 4} samples" in words[0], "the checkpoint is of the step after which they stopped"
    master.close()
