"""The coordinator's memory on disk: whole records, a torn tail, damage, a full disk, a cut."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from elastic_runtime.control.messages import RequestOutcome, RequestState, ResizeMode, Shard, Size
from elastic_runtime.coordinator.journal import Journal, JournalDamaged, JournalUnusable, pack, unpack, whole
from elastic_runtime.coordinator.rules.state import (
    Checkpoints,
    CoordinatorState,
    Course,
    Generation,
    Leases,
    Model,
    Numbers,
    PendingCheckpoint,
    Purpose,
    Requests,
    Roster,
    Task,
    TaskState,
)
from elastic_runtime.errors import BadInput
from elastic_runtime.protocol.plan import Change, ChangeStage, JobPhase, Plan, TaskRole

SHARD = Shard("ps-0.safetensors", 40, 123, "a" * 64)
CHANGE = Change(
    3, 20, (ChangeStage({0: "ps-1"}, ("worker-0", "worker-2")), ChangeStage({1: "ps-1"})), True, False, True
)
STATE = CoordinatorState(
    roster=Roster(
        {"ps-0": Task("ps-0", TaskRole.SERVER, TaskState.LIVE, 2**64 - 1, '{"tcp": "é"}')},
        {TaskRole.WORKER: 3, TaskRole.SERVER: 1},
    ),
    model=Model('{"blocks": []}', '{"epochs": 3}'),
    course=Course(JobPhase.RESIZING, Size(2, 3), Size(1, 2), failure="none yet", losses=4),
    generation=Generation(
        2,
        10,
        "step-0000000010",
        Plan(("worker-0", "worker-1"), ("ps-0", "ps-0")),
        (CHANGE,),
        replace(CHANGE, number=4),
        3,
        Purpose.REPAIR,
        77,
        2,
        False,
        12,
        {"worker-1": "worker-0"},
    ),
    requests=Requests((RequestState("a b", "resize", RequestOutcome.RUNNING, "…", Size(2, 3), ResizeMode.ROLLING),)),
    checkpoints=Checkpoints((("step-0000000010", 10),), "{}", PendingCheckpoint("s", 2, 40, ("ps-0",), (SHARD,))),
    numbers=Numbers(4, 2000),
    leases=Leases("{}"),
)


def test_what_was_appended_is_there_again(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "job")
    assert journal.state is None
    assert journal.append(whole(CoordinatorState()))
    assert journal.append(whole(STATE))
    assert journal.append({"numbers": Numbers(9, 9000)})
    journal.close()
    again = Journal(tmp_path, "job")
    assert again.state == replace(STATE, numbers=Numbers(9, 9000))
    assert again.append({"numbers": Numbers(10, 9000)})
    again.close()
    assert Journal(tmp_path, "job").state == replace(STATE, numbers=Numbers(10, 9000))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=40)
@given(st.data())
def test_a_torn_tail_costs_the_last_record_and_damage_before_it_is_refused(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("journal")
    journal = Journal(folder, "job")
    ends = []
    for number in range(4):
        journal.append({"numbers": Numbers(number)})
        ends.append(journal.end_bytes)
    journal.close()
    path = folder / "journal"
    content = bytearray(path.read_bytes()[: ends[-1]])
    at = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        path.write_bytes(content[:at] + bytes(data.draw(st.integers(0, 100))))
        whole_records = sum(end <= at for end in ends)
        again = Journal(folder, "job")
        assert again.state == (CoordinatorState(numbers=Numbers(whole_records - 1)) if whole_records else None)
        again.append({"numbers": Numbers(99)})
        again.close()
        again = Journal(folder, "job")
        assert again.state is not None
        assert again.state.numbers == Numbers(99)
        again.close()
    else:
        content[at] ^= data.draw(st.integers(1, 255))
        path.write_bytes(content)
        if at >= ends[-2]:
            again = Journal(folder, "job")
            assert again.state == CoordinatorState(numbers=Numbers(2))
            again.close()
        else:
            with pytest.raises(JournalUnusable, match=r"damaged at byte \d+ of"):
                Journal(folder, "job")


@given(st.lists(st.binary(min_size=1, max_size=40), min_size=2, max_size=12), st.data())
def test_a_whole_record_behind_a_zeroed_one_shows_damage(bodies: list[bytes], draw: st.DataObject) -> None:
    records = [pack(number, body) for number, body in enumerate(bodies)]
    victim = draw.draw(st.integers(0, len(records) - 1))
    start = sum(len(part) for part in records[:victim])
    data = bytearray(b"".join(records))
    data[start : start + len(records[victim])] = bytes(len(records[victim]))  # a zeroed page
    if victim + 1 < len(records):
        with pytest.raises(JournalDamaged, match=f"damaged at byte {start} "):
            unpack(bytes(data), "journal")
    else:
        assert unpack(bytes(data), "journal") == (bodies[:-1], start)


@given(st.binary(min_size=1, max_size=60), st.integers(1, 200))
def test_a_torn_record_and_reserved_room_are_nothing(body: bytes, cut: int) -> None:
    torn = pack(0, body + b"!")[: -min(cut, len(body) + 1)] + bytes(64)  # zeros could complete what ends in zeros
    assert unpack(torn, "journal") == ([], 0)


def test_a_record_of_another_version_names_the_file_and_what_to_do(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "job")
    journal.append({"numbers": Numbers(1)})
    journal.close()
    path = tmp_path / "journal"
    path.write_bytes(path.read_bytes().rstrip(b"\0") + pack(2, b'{"other":{}}'))
    says = rf"{path} holds a record that this version cannot read: go on with the version that wrote it, or begin"
    with pytest.raises(JournalUnusable, match=says):
        Journal(tmp_path, "job")


def test_another_coordinator_and_another_job_are_refused(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "mine")
    with pytest.raises(BadInput, match="another coordinator of job mine"):
        Journal(tmp_path, "mine")
    journal.close()
    with pytest.raises(BadInput, match="is of job 'mine', not of yours"):
        Journal(tmp_path, "yours")
    with pytest.raises(BadInput, match="cannot be used"):
        Journal(tmp_path / "missing", "mine")


class Disk:
    """A disk with so many bytes left."""

    def __init__(self) -> None:
        self.left_bytes = 1 << 30

    def allocate(self, descriptor: int, offset: int, size: int) -> None:
        if size > self.left_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.left_bytes -= size
        os.posix_fallocate(descriptor, offset, size)


def test_a_full_disk_is_noticed_with_room_left_and_is_over_by_itself(tmp_path: Path) -> None:
    disk = Disk()
    journal = Journal(tmp_path, "job", reserve_bytes=4096, allocate=disk.allocate)
    assert journal.append(whole(STATE))
    assert not journal.full
    disk.left_bytes = 0
    number = 0
    while journal.append({"numbers": Numbers(number)}):
        number += 1
        assert number < 1000
    assert number > 5, "the reserve takes what keeps the job going"
    assert journal.full
    assert not journal.append({"course": Course(losses=7)})
    disk.left_bytes = 1 << 20
    assert journal.append({})
    assert not journal.full
    journal.close()
    state = Journal(tmp_path, "job").state
    assert state == replace(STATE, numbers=Numbers(number), course=Course(losses=7))


def test_a_disk_that_fails_otherwise_ends_the_coordinator(tmp_path: Path) -> None:
    def broken(_descriptor: int, _offset: int, _size: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    journal = Journal(tmp_path, "job", allocate=broken)
    with pytest.raises(JournalUnusable, match="Input/output error"):
        journal.append({"numbers": Numbers(1)})


def test_a_grown_journal_is_cut_to_a_snapshot(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "job", reserve_bytes=4096, cut_bytes=20_000)
    journal.append(whole(STATE))
    for number in range(500):
        journal.append({"numbers": Numbers(number)})
        journal.cut(replace(STATE, numbers=Numbers(number)))
        assert (tmp_path / "journal").stat().st_size < 30_000
    journal.close()
    assert Journal(tmp_path, "job").state == replace(STATE, numbers=Numbers(499))
