"""Clients that misbehave on the jobs' socket cost themselves an answer, and nobody else."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from cluster_agent.backends.local.job_server import ClientPatience, JobServer, SharedAnswers
from cluster_agent.errors import AgentUnreachable, BadAgentConfig, JobRefused
from cluster_agent.job_messages import LARGEST_REQUEST_BYTES, decode
from cluster_agent.jobs.client import JobClient

PATIENCE_SECONDS = 150.0
LONG = "x" * 20_000_000
"""More than any socket's buffers take."""


AS_SOMEBODY_ELSE = """
import os, socket, sys
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
try:
    socket.socket(socket.AF_UNIX).connect(sys.argv[1])
except PermissionError:
    print("refused")
"""


def answers(content: Mapping[str, Any]) -> Mapping[str, Any]:
    if content.get("fail"):
        raise RuntimeError("as asked")
    return {"said": LONG if content.get("long") else content.get("say")}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s" / "jobs.sock"


@pytest.fixture
def start(path: Path) -> Iterator[Callable[..., JobServer]]:
    with contextlib.ExitStack() as stack:

        def start(patience: ClientPatience | None = None) -> JobServer:
            server = JobServer(path, {"jobs": answers}, patience)
            stack.callback(server.close)
            return server

        yield start


def connected(path: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(PATIENCE_SECONDS)
    connection.connect(str(path))
    return connection


def ask(path: Path, **content: object) -> Any:
    return JobClient(path, PATIENCE_SECONDS).call("jobs", content)["said"]


def all_of(connection: socket.socket) -> bytes:
    """What comes until the other side hangs up, however it does."""
    received = b""
    with contextlib.suppress(ConnectionError):
        while chunk := connection.recv(1 << 20):
            received += chunk
    return received


def test_fifty_that_watch_at_once_all_get_their_own_answers(path: Path, start: Callable[..., JobServer]) -> None:
    start()
    with ThreadPoolExecutor(50) as pool:
        said = list(pool.map(lambda number: [ask(path, say=number) for _ in range(10)], range(50)))
    assert said == [[number] * 10 for number in range(50)]


def test_who_says_nothing_and_who_does_not_end_are_let_go_and_others_are_answered(
    path: Path, start: Callable[..., JobServer]
) -> None:
    start(ClientPatience(seconds=1.0))
    silent = [connected(path) for _ in range(20)]
    for number, connection in enumerate(silent):
        connection.sendall(b'{"method": "jo'[: number % 3])
    assert ask(path, say="other") == "other"
    assert [all_of(connection) for connection in silent] == [b""] * len(silent)


def test_who_never_reads_is_let_go_and_others_are_answered(path: Path, start: Callable[..., JobServer]) -> None:
    start(ClientPatience(seconds=1.0))
    deaf = [connected(path) for _ in range(5)]
    for connection in deaf:
        connection.sendall(b'{"method":"jobs","content":{"long":true}}\n')
    assert ask(path, say="other") == "other"
    assert ask(path, long=True) == LONG
    # It is hung up on, and what had been on the way is all that it still gets.
    hung_up = select.poll()
    hung_up.register(deaf[0], 0)
    assert hung_up.poll(1000 * PATIENCE_SECONDS)
    assert len(all_of(deaf[0])) < len(LONG)


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (b"\x00\x01\x02\n", "no request of ours"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "no request of ours"),
        (b"[" * 100_000 + b"\n", "no request of ours"),
        (b'["jobs"]\n', "no request of ours"),
        (b'{"method":"jobs"}\n', "no request of ours"),
        (b'{"method":"jobs","content":[]}\n', "no request of ours"),
        (b'{"method":"reboot","content":{}}\n', "no request of ours: 'reboot'"),
        (b'{"method":"jobs","content":{"fail":1}}\n', "the agent failed over it (RuntimeError('as asked'))"),
    ],
)
def test_what_is_no_request_gets_one_line_and_the_next_is_answered(
    path: Path, start: Callable[..., JobServer], sent: bytes, said: str
) -> None:
    start()
    connection = connected(path)
    connection.sendall(sent)
    assert said in decode(all_of(connection))["refused"]
    assert ask(path, say="next") == "next"


def test_a_request_without_an_end_is_refused_when_its_client_stops_sending(
    path: Path, start: Callable[..., JobServer]
) -> None:
    start()
    connection = connected(path)
    connection.sendall(b'{"method":"jobs"')
    connection.shutdown(socket.SHUT_WR)
    assert "a request without an end" in decode(all_of(connection))["refused"]


def test_a_huge_message_is_not_taken_and_others_are_answered(path: Path, start: Callable[..., JobServer]) -> None:
    start()
    connection = connected(path)
    with pytest.raises(ConnectionError):
        connection.sendall(b"x" * 100_000_000)
    assert ask(path, say="other") == "other"
    with pytest.raises(JobRefused, match="an agent takes 4,000,000; say less"):
        ask(path, say="x" * LARGEST_REQUEST_BYTES)


def test_one_connection_too_many_is_refused_in_a_line_until_another_ends(
    path: Path, start: Callable[..., JobServer]
) -> None:
    start(ClientPatience(seconds=PATIENCE_SECONDS, connections=3))
    held = [connected(path) for _ in range(3)]
    with pytest.raises(JobRefused, match="too many requests at once; ask again"):
        ask(path, say="one more")
    for connection in held:
        connection.close()
    deadline = threading.Event()
    for _ in range(1000):
        with contextlib.suppress(JobRefused):
            assert ask(path, say="now") == "now"
            break
        deadline.wait(0.05)
    else:
        pytest.fail("those that have gone are still counted")


def test_a_refusal_that_comes_before_the_request_is_heard_all_the_same(path: Path) -> None:
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()

        def refuse() -> None:
            connection, _ = listener.accept()
            connection.sendall(b'{"refused": "not now"}\n')
            connection.close()

        thread = threading.Thread(target=refuse)
        thread.start()
        client = JobClient(path, PATIENCE_SECONDS)
        with pytest.raises(JobRefused, match="not now"):
            client.call("jobs", {"long": "x" * 3_000_000})  # more than the socket takes before it is refused
        thread.join()


def test_who_hangs_up_at_once_costs_nothing(path: Path, start: Callable[..., JobServer]) -> None:
    start(ClientPatience(connections=3))
    for _ in range(100):
        connected(path).close()
    for _ in range(1000):
        with contextlib.suppress(JobRefused):
            assert ask(path, say="still here") == "still here"
            return
    pytest.fail("those that have gone are still counted")


def test_nobody_else_can_open_the_socket_or_enter_its_folder(path: Path, start: Callable[..., JobServer]) -> None:
    start()
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.skipif(os.getuid() != 0, reason="only root may become somebody else")
def test_another_user_is_refused_by_the_socket_itself(tmp_path: Path, start: Callable[..., JobServer]) -> None:
    start()
    command = [sys.executable, "-S", "-c", AS_SOMEBODY_ELSE, str(tmp_path / "s" / "jobs.sock")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "refused\n", done.stderr


def test_a_folder_that_was_there_is_never_changed_and_refused_where_others_may_enter_it(tmp_path: Path) -> None:
    everybodys = tmp_path / "everybodys"
    everybodys.mkdir()
    everybodys.chmod(0o755)
    with pytest.raises(BadAgentConfig, match=r"others may enter .*everybodys; name a folder that is not there yet"):
        JobServer(everybodys / "jobs.sock", {})
    assert stat.S_IMODE(everybodys.stat().st_mode) == 0o755
    everybodys.chmod(0o700)
    JobServer(everybodys / "jobs.sock", {}).close()


def test_a_second_agent_on_the_socket_is_refused_in_a_line_and_the_first_goes_on(
    path: Path, start: Callable[..., JobServer]
) -> None:
    start()
    with pytest.raises(
        BadAgentConfig, match=rf"is another agent's \(process {os.getpid()}\); end it, or name another one"
    ):
        JobServer(path, {"jobs": answers})
    assert ask(path, say="the first") == "the first"


def test_what_a_killed_agent_left_is_taken_over_and_a_file_of_the_users_is_not(tmp_path: Path, path: Path) -> None:
    path.parent.mkdir(mode=0o700)
    left = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    left.bind(str(path))
    left.close()
    server = JobServer(path, {"jobs": answers})
    assert ask(path, say="anew") == "anew"
    server.close()
    assert not path.exists()
    path.write_text("notes", encoding="utf-8")
    with pytest.raises(BadAgentConfig, match="is a file and no socket; name another one"):
        JobServer(path, {})
    assert path.read_text(encoding="utf-8") == "notes"


def test_a_client_says_when_an_agent_does_not_answer_in_time_or_is_none(path: Path) -> None:
    path.parent.mkdir(mode=0o700)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen(0)
    with pytest.raises(AgentUnreachable, match=r"did not answer within 0\.2 s; ask again"):
        JobClient(path, 0.2).call("jobs", {})

    def other_program() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(1 << 16)
            connection.sendall(b"\x00\x00\x12\x04\x00\x00\x00\x00\x00")

    queue_emptied, _ = listener.accept()
    queue_emptied.close()
    thread = threading.Thread(target=other_program)
    thread.start()
    with pytest.raises(AgentUnreachable, match="no agent of this version"):
        JobClient(path, PATIENCE_SECONDS).call("jobs", {})
    thread.join()
    listener.close()


def test_who_comes_while_the_systems_queue_is_full_waits_for_a_place(path: Path) -> None:
    path.parent.mkdir(mode=0o700)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen(0)
    filling = connected(path)
    with pytest.raises(AgentUnreachable, match="did not answer within"):
        JobClient(path, 0.2).call("jobs", {})
    filling.close()
    listener.close()


def test_all_who_watch_share_an_answer_until_something_was_changed_or_a_moment_has_passed(path: Path) -> None:
    now, changes, made = [0.0], [0], [0]

    def jobs(content: Mapping[str, Any]) -> Mapping[str, Any]:
        made[0] += 1
        return {"said": [content.get("say"), changes[0]]}

    def submit(content: Mapping[str, Any]) -> Mapping[str, Any]:
        changes[0] += 1
        return {"said": None}

    shared = SharedAnswers(lambda: changes[0], lambda: now[0])
    server = JobServer(path, {"jobs": jobs, "submit": submit}, shared=shared)
    with ThreadPoolExecutor(50) as pool:
        assert list(pool.map(lambda _: ask(path), range(200))) == [[None, 0]] * 200
    assert made[0] == 1
    assert ask(path, say="other") == ["other", 0], "another request has another answer"
    JobClient(path, PATIENCE_SECONDS).call("submit", {})
    assert ask(path) == [None, 1], "what was submitted is listed at once"
    assert (ask(path), made[0]) == ([None, 1], 3)
    now[0] += 1.0
    assert (ask(path), made[0]) == ([None, 1], 4)
    server.close()


def test_an_answer_that_fails_is_nobody_elses(path: Path) -> None:
    server = JobServer(path, {"jobs": answers}, shared=SharedAnswers(lambda: 0, lambda: 0.0))
    for _ in range(2):
        with pytest.raises(JobRefused, match="the agent failed over it"):
            ask(path, fail=True)
    assert ask(path, say="well") == "well"
    server.close()
