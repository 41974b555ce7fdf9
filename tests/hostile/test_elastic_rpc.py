"""Every field of every call to an elastic job's coordinator with every bad value: refused in one line, or harmless.

Whoever has the job's token may end the job; but no message may end the coordinator, or stop it from telling views.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
from bad_fields import attacks
from elastic_rpc_table import ROWS, methods, passes, sound_request
from hostile_job import HostileJob, Seal, make_job

from elastic_runtime.control.sessions import Unproven
from elastic_runtime.generated import elastic_pb2 as pb
from elastic_runtime.generated import elastic_pb2_grpc as rpc

pytestmark = pytest.mark.heavy

REFUSALS = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
}
LONGEST_LINE = 1000
Begin = Callable[[str], HostileJob]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """A new job, as a method's row wants it, in place of the one before."""
    (tmp_path / "train.py").touch()
    jobs: list[HostileJob] = []

    def begin(method: str) -> HostileJob:
        if jobs:
            jobs[-1].close()
        folder = make_job(tmp_path / "jobs", tmp_path / "train.py", f"job-{len(jobs)}")
        jobs.append(HostileJob(folder, ROWS[method].asynchronous))
        return jobs[-1]

    yield begin
    jobs[-1].close()


def send(
    job: HostileJob, method: str, request: object, seal: Seal | None = None
) -> tuple[grpc.StatusCode, str, object]:
    """How a call ended, its line if it was refused, and its answer."""
    row = methods()[method]
    try:
        reply = job.send(row.path, request, row.reply, row.stream, seal)  # type: ignore[arg-type]
    except grpc.RpcError as error:
        return error.code(), error.details() or "", None
    refusal = getattr(reply, "refusal", "")
    return (grpc.StatusCode.FAILED_PRECONDITION if refusal else grpc.StatusCode.OK), refusal, reply


def lives(job: HostileJob) -> str | None:
    """What is wrong with a coordinator that was attacked; it has to go on, and to tell views."""
    if job.runner.failure is not None:
        return f"the coordinator failed: {job.runner.failure!r}"
    status, line, _ = send(job, "Follow", pb.FollowRequest(task="launcher"))
    return None if status is grpc.StatusCode.OK else f"no view is told any more: {status.name} {line}"


def test_every_method_has_a_row() -> None:
    assert set(ROWS) == set(methods()), "a new method needs a line in elastic_rpc_table.ROWS, a removed one leaves it"


def test_every_field_that_may_hold_anything_exists() -> None:
    for method, row in ROWS.items():
        known = {attack.field for attack in attacks(sound_request(method))}
        named = {name.partition("=")[0] for name in row.passes}
        assert named <= known | {"target"}, f"{method}: no field {named - known}"


@pytest.mark.parametrize("method", ROWS)
def test_a_sound_call_is_answered(method: str, begin: Begin) -> None:
    job = begin(method)
    status, line, _ = send(job, method, sound_request(method))
    assert status is grpc.StatusCode.OK, line


@pytest.mark.parametrize("method", ROWS)
def test_a_bad_value_is_refused_or_harmless(method: str, begin: Begin) -> None:
    wrong = []
    job = begin(method)
    for attack in attacks(sound_request(method)):
        before = job.shown()
        status, line, _ = send(job, method, attack.message)
        fault = lives(job)
        if fault is not None:
            wrong.append(f"{attack.label}: {fault}")
        elif status is grpc.StatusCode.OK:
            if not passes(method, attack.field, attack.kind):
                wrong.append(f"{attack.label}: taken")
        elif status not in REFUSALS:
            wrong.append(f"{attack.label}: ended with {status.name}: {line[:200]}")
        elif not 0 < len(line) <= LONGEST_LINE or not line.isprintable():
            wrong.append(f"{attack.label}: said {line[:200]!r}")
        if fault is not None or status is grpc.StatusCode.OK or method == "Register":
            job = begin(method)  # who registers under a name that is used takes it over
        elif job.shown() != before:
            wrong.append(f"{attack.label}: refused, and something changed")
    assert not wrong, f"{method}:\n" + "\n".join(wrong)


@pytest.mark.parametrize("method", ROWS)
def test_bytes_that_are_no_request_and_callers_without_the_token_get_nowhere(method: str, begin: Begin) -> None:
    job = begin(method)
    before = job.shown()
    draw = random.Random(7)
    for data in (
        b"\xff\xff\xff",
        b"\x0a\xff\xff\xff\xff\x7f",
        b"\x0b" * 3000,
        draw.randbytes(999),
    ):
        status, _, _ = send(job, method, data)
        assert status is not grpc.StatusCode.OK
        assert lives(job) is None
    other = job.session.seal
    sealed = job.seal(row_path(method), sound_request(method).SerializeToString())
    job.send(row_path(method), sealed, methods()[method].reply, methods()[method].stream, lambda _, data: data)
    before = job.shown()
    for seal in (
        lambda _, data: data,  # no proof
        lambda _, data: data + bytes(83),
        lambda path, data: other(path + "x", data)[1],  # of another method
        lambda path, data: other(path, b"\x08\x01" + data)[1].removeprefix(b"\x08\x01"),  # of other bytes
        lambda path, data: flipped(other(path, data)[1]),
        lambda path, data: sealed,  # that was there before
    ):
        status, line, _ = send(job, method, sound_request(method), seal)
        assert status is grpc.StatusCode.UNAUTHENTICATED
        assert line.isprintable()
        assert job.folder.token() not in line
    assert job.shown() == before


def flipped(data: bytes) -> bytes:
    """The same but for one bit of the last byte."""
    return data[:-1] + bytes((data[-1] ^ 1,))


def row_path(method: str) -> str:
    return methods()[method].path


def test_a_session_is_for_this_job_and_this_token(begin: Begin) -> None:
    job = begin("Status")
    with pytest.raises(Unproven):
        job.open(job.folder.token() + "x")
    for request, code in (
        (pb.OpenRequest(job="other", number=bytes(32)), grpc.StatusCode.NOT_FOUND),
        (pb.OpenRequest(number=bytes(32)), grpc.StatusCode.NOT_FOUND),
        (pb.OpenRequest(job=job.name, number=bytes(31)), grpc.StatusCode.INVALID_ARGUMENT),
        (pb.OpenRequest(job=job.name), grpc.StatusCode.INVALID_ARGUMENT),
    ):
        with pytest.raises(grpc.RpcError) as caught:
            rpc.SessionsStub(job.channel).Open(request, timeout=60.0)
        assert caught.value.code() is code
