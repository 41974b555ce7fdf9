"""Ends of jobs are told once, by commands and URLs, whatever these do, and over agents' ends."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from local_world import LocalWorld
from processes import wait_until

from cluster_agent.backends.local.job_file import JobFile
from cluster_agent.backends.local.job_service import JobDesk
from cluster_agent.backends.local.job_table import JobState, JobTable, LocalJobRecord, Notice
from cluster_agent.backends.local.notifications import Notifications
from cluster_agent.errors import JobRefused
from policy_net.domain import Allocation, Decision

TELLS = 'echo "$JOB_NAME|$JOB_STATE|$JOB_EXIT_CODE|$JOB_NOTE|$MINE|$PWD" >> told'


@pytest.fixture
def table(tmp_path: Path) -> JobTable:
    return JobTable(tmp_path / "submitted")


def ended(table: JobTable, notify: str, name: str = "job", **values: object) -> LocalJobRecord:
    """A job that has ended and was to tell so."""
    folder = table._folder.parent
    content = {"modelType": "mlp", "script": "train.py", "workdir": str(folder), "env": {"MINE": "yes"}}
    table.add(JobFile.model_validate({**content, "name": name, "notify": notify}), 1.0)
    return table.change(name, **{"state": JobState.DONE, "ended_unix_seconds": 2.0, **values})


def notifications(table: JobTable, tmp_path: Path, deadline_seconds: float = 60.0) -> Notifications:
    return Notifications(table, tmp_path / "jobs", os.environ, deadline_seconds)


def record_of(table: JobTable, name: str = "job") -> LocalJobRecord:
    record = table.get(name)
    assert record is not None
    return record


def until_over(told: Notifications) -> None:
    def is_over() -> bool:
        told.poll()
        return told.is_over

    wait_until(is_over, "all has been told")


def shell(words: str) -> str:
    return f"/bin/sh -c '{words}'"


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({}, "job|done|0||yes|"),
        (
            {"state": JobState.FAILED, "failure": "worker-0 ended with exit code 3: no"},
            "job|failed|3|worker-0 ended with exit code 3: no|yes|",
        ),
        (
            {"state": JobState.FAILED, "failure": "worker-0 was ended by SIGKILL: memory"},
            "job|failed|137|worker-0 was ended by SIGKILL: memory|yes|",
        ),
        (
            {"state": JobState.FAILED, "failure": "its time limit, 2h, is over"},
            "job|failed||its time limit, 2h, is over|yes|",
        ),
        ({"state": JobState.CANCELLED}, "job|cancelled|||yes|"),
    ],
)
def test_a_command_is_run_once_and_knows_how_the_job_ended(
    table: JobTable, tmp_path: Path, values: dict[str, object], line: str
) -> None:
    ended(table, shell(TELLS), **values)
    told = notifications(table, tmp_path)
    assert not told.is_over
    until_over(told)
    until_over(notifications(JobTable(tmp_path / "submitted"), tmp_path))
    assert (tmp_path / "told").read_text(encoding="utf-8") == f"{line}{tmp_path}\n"
    assert (record_of(table).notice, record_of(table).notice_failure) == (Notice.OVER, "")


@pytest.mark.parametrize(
    ("notify", "line"),
    [
        (shell("echo no such chat >&2; exit 4"), "exit code 4: no such chat"),
        (shell("exit 1"), "exit code 1"),
        ("/gone/away", "it cannot be started ([Errno 2] No such file or directory: '/gone/away')"),
        (shell("kill -9 $$"), "exit code -9"),
    ],
)
def test_one_that_fails_is_a_line_of_the_job(table: JobTable, tmp_path: Path, notify: str, line: str) -> None:
    ended(table, notify)
    until_over(notifications(table, tmp_path))
    assert record_of(table).notice_failure == line
    assert record_of(table).state is JobState.DONE


def test_one_that_takes_too_long_is_killed_with_what_it_started(table: JobTable, tmp_path: Path) -> None:
    ended(table, shell("sleep 1000 & echo $! > child; echo $$ > own; wait"))
    until_over(notifications(table, tmp_path, deadline_seconds=1.0))
    assert record_of(table).notice_failure == "it took longer than 1 seconds, and was killed"
    for name in ("child", "own"):
        number = int((tmp_path / name).read_text(encoding="utf-8"))
        wait_until(lambda number=number: not _runs(number), "it is gone")  # type: ignore[misc]


def _runs(number: int) -> bool:
    try:
        return Path(f"/proc/{number}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_few_are_sent_at_once_and_nobody_waits_for_them(table: JobTable, tmp_path: Path) -> None:
    for number in range(7):
        ended(table, shell(f"touch begun-{number}; until [ -e go ]; do sleep 0.05; done"), f"job-{number}")
    told = notifications(table, tmp_path)
    wait_until(lambda: told.poll() or len(list(tmp_path.glob("begun-*"))) == 4, "four have begun")
    for _ in range(10):
        told.poll()
    assert sum(record.notice is Notice.BEGUN for record in table) == 4
    (tmp_path / "go").touch()
    until_over(told)
    assert len(list(tmp_path.glob("begun-*"))) == 7


def test_what_an_agent_left_half_sent_is_said_and_not_sent_again(table: JobTable, tmp_path: Path) -> None:
    ended(table, shell(TELLS), "half", notice=Notice.BEGUN)
    ended(table, shell(TELLS), "whole")
    until_over(notifications(JobTable(tmp_path / "submitted"), tmp_path))
    again = JobTable(tmp_path / "submitted")
    assert record_of(again, "half").notice_failure == "the agent ended while it was sent; it is not sent again"
    assert (tmp_path / "told").read_text(encoding="utf-8").startswith("whole|done|0|")
    assert not again.to_notify


def test_an_agent_that_ends_does_not_wait_for_the_disk(table: JobTable, tmp_path: Path) -> None:
    ended(table, shell("exit 0"))
    told, folder = notifications(table, tmp_path), tmp_path / "submitted"
    folder.rename(tmp_path / "away")
    told.poll()
    told.close()
    (tmp_path / "away").rename(folder)
    until_over(notifications(JobTable(folder), tmp_path))
    assert record_of(JobTable(folder)).notice_failure == ""


@contextmanager
def listening(status: int) -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
    """A server that answers so, by its URL, and what it was sent."""
    heard: list[tuple[str, bytes]] = []

    class Hears(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            heard.append((f"{self.path} {self.headers['Content-Type']}", body))
            self.send_response(status)
            self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *words: object) -> None:
            """Nothing."""

    server = HTTPServer(("127.0.0.1", 0), Hears)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/hook?key=secret", heard
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    ("status", "line"),
    [(204, ""), (404, "HTTP Error 404: Not Found"), (302, "HTTP Error 302: Found")],
)
def test_a_url_is_sent_a_line_of_json_once(table: JobTable, tmp_path: Path, status: int, line: str) -> None:
    with listening(status) as (url, heard):
        ended(table, url, state=JobState.FAILED, failure="worker-0 ended with exit code 1: ValueError: x")
        until_over(notifications(table, tmp_path))
    ((where, body),) = heard
    assert where == "/hook?key=secret application/json"
    assert json.loads(body) == {
        "name": "job",
        "state": "failed",
        "exitCode": 1,
        "note": "worker-0 ended with exit code 1: ValueError: x",
        "text": "job has failed: worker-0 ended with exit code 1: ValueError: x",
    }
    assert record_of(table).notice_failure == line


def test_a_url_where_nobody_answers_is_a_line_without_its_secret(table: JobTable, tmp_path: Path) -> None:
    with listening(204) as (url, _):
        pass
    ended(table, url)
    until_over(notifications(table, tmp_path))
    assert "refused" in record_of(table).notice_failure
    assert "secret" not in record_of(table).notice_failure


def test_the_agent_tells_each_end_and_its_last_before_it_is_through(tmp_path: Path) -> None:
    world = LocalWorld(tmp_path)
    waits = f"{sys.executable} -c \"import pathlib, time\nwhile not pathlib.Path('go').exists(): time.sleep(0.05)\""
    world.submit("slow", epochs=1, notify=waits, workdir=str(tmp_path))
    world.submit("wrong", epochs=1, notify="/bin/false")
    desk = JobDesk(world.backend.table, world.capacity, world.backend.facts, lambda: world.now)
    while world.backend.table.unended:
        observed = world.backend.observe()
        if observed is not None:
            world.backend.apply(Decision({job.job_id: Allocation(1, 1) for job in observed[0].jobs}))
    assert not world.backend.finished
    with pytest.raises(JobRefused, match="slow has ended, which is still being told"):
        desk.delete({"name": "slow"})
    (tmp_path / "go").touch()

    def is_through() -> bool:
        return world.backend.observe() is None and world.backend.finished

    wait_until(is_through, "all ends are told")
    assert desk.jobs({"name": "wrong"})["jobs"][0]["note"] == "notification failed: exit code 1"
    assert desk.jobs({"name": "slow"})["jobs"][0]["note"] == ""
    assert desk.delete({"name": "slow"})["deleted"]
