"""Requests that are no messages: cut short, random, compressed, without end; and calls that name nothing of ours."""

from __future__ import annotations

import random
from collections.abc import Iterator

import grpc
import pytest
from hostile_learner import CALL_SECONDS, HostileLearner
from rpc_table import ROWS, methods, sound_request

from global_learner.errors import CallRefusal

pytestmark = pytest.mark.heavy

REFUSALS = "fedl2_learner_refusals_total"
BOMB_BYTES = 256 << 20


@pytest.fixture(scope="module")
def learner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostileLearner]:
    learner = HostileLearner(tmp_path_factory.mktemp("bytes"), quarantine={"seconds": 0})
    yield learner
    learner.close()


def unread(method: str) -> list[bytes]:
    """Bytes that are no request of a method: cut after every so many bytes, or with wrong bytes in them."""
    whole = sound_request(method, 1).SerializeToString() or b"\x0a\x05north"
    draw = random.Random(method)
    cut = [whole[:length] for length in sorted({1, 2, len(whole) // 2, len(whole) - 1})]
    torn = [draw.randbytes(length) for length in (1, 7, 100)] + [b"\xff" * 64, b"\x0a\xff\xff\xff\xff\x7f" + whole]
    not_text = [b"\x0a\x04\xff\xfe\xfd\xfc"]
    nested = [b"\x0b" * 5000, b"\x1a\x7f" * 2000]
    return cut + torn + not_text + nested


@pytest.mark.parametrize("method", methods())
def test_bytes_that_are_no_message_change_nothing(method: str, learner: HostileLearner) -> None:
    shown, counted = learner.shown(), learner.counted()
    for data in unread(method):
        answer = learner.send(method, data)
        now, count = learner.shown(), learner.counted()
        refusals = {key: number for key, number in (count - counted).items() if key[0] == REFUSALS}
        if answer.done:  # what is left of it is a message all the same
            changes = ROWS[method].changes and method != "Push"
            assert changes or now == shown or answer.reply.outcome, data[:40]
            learner.register()
            shown, counted = learner.shown(), learner.counted()
            continue
        assert answer.status.name in ("INVALID_ARGUMENT", "PERMISSION_DENIED", "FAILED_PRECONDITION", "NOT_FOUND")
        assert sum(refusals.values()) == 1
        assert answer.line.isprintable()
        assert "Traceback" not in answer.line
        assert "DecodeError" not in answer.line
        assert now == shown
        counted = count
    step = learner.shown()["head_step"]
    learner.register()
    assert learner.good_push().head_step == step + 1


def test_what_cannot_be_read_is_said_and_counted(learner: HostileLearner) -> None:
    counted = learner.counted()
    answer = learner.send("Push", b"\xff\xff\xff")
    assert answer.status is grpc.StatusCode.INVALID_ARGUMENT
    assert "Push: the message cannot be read" in answer.line
    assert (
        learner.counted()[REFUSALS, "Push", CallRefusal.BAD_REQUEST]
        == counted[REFUSALS, "Push", CallRefusal.BAD_REQUEST] + 1
    )


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_a_compressed_message_is_not_unpacked(compression: grpc.Compression, learner: HostileLearner) -> None:
    memory = learner.memory_bytes()
    answer = learner.send("Heartbeat", b"\x00" * BOMB_BYTES, compression=compression)
    assert answer.status is grpc.StatusCode.UNIMPLEMENTED
    assert learner.memory_bytes() < memory + BOMB_BYTES // 4
    assert learner.send("ListVersions", b"").done


def test_calls_that_name_nothing_are_counted_without_their_names(learner: HostileLearner) -> None:
    channel = learner.channel(learner.north)
    names = [
        "/fedl2.fleet.v1.Fleet/DropTables",
        "/x",
        "/" + "y" * 5000,
        "/../../etc/passwd",
        "/fedl2.fleet.v1.Nope/Push",
    ]
    counted = learner.counted()
    for name in names:
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary(name)(b"", timeout=CALL_SECONDS)
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    more = learner.counted() - counted
    assert {key: number for key, number in more.items() if key[0] == REFUSALS} == {
        (REFUSALS, "unknown", CallRefusal.UNKNOWN_METHOD): len(names)
    }


def test_a_stream_of_messages_is_read_no_further_than_the_first(learner: HostileLearner) -> None:
    shown = learner.shown()
    path, _, _ = methods()["Heartbeat"]
    beat = sound_request("Heartbeat", 10**6).SerializeToString()
    call = learner.channel(learner.north).stream_unary(path)
    call(iter([beat] * 1000), timeout=CALL_SECONDS)
    assert learner.shown() == shown


def test_headers_without_end_are_refused(learner: HostileLearner) -> None:
    answer = learner.send("GetFleet", b"", metadata=[("x-fill", "x" * 100_000)])
    assert answer.status is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert learner.send("GetFleet", b"").done


def test_many_calls_at_once_are_all_answered_one_way_or_the_other(learner: HostileLearner) -> None:
    path, _, _ = methods()["PullHead"]
    request = sound_request("PullHead", learner.incarnation).SerializeToString()
    call = learner.channel(learner.north).unary_unary(path)
    futures = [call.future(request, timeout=CALL_SECONDS) for _ in range(1000)]
    codes = {future.code() for future in futures}
    assert codes <= {grpc.StatusCode.OK, grpc.StatusCode.RESOURCE_EXHAUSTED}
    assert grpc.StatusCode.OK in codes
    assert learner.send("PullHead", request).done
