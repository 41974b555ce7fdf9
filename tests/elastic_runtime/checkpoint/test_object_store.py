"""Checkpoints in an object store: what was written comes back, what is torn is passed over, nobody waits for ever."""

from __future__ import annotations

import builtins
import errno
import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from structlog.testing import capture_logs

from elastic_runtime.checkpoint import latest_durable, list_checkpoints, place_of, read_blocks, read_model, verify
from elastic_runtime.checkpoint.catalog import folder_of, retain
from elastic_runtime.checkpoint.manifest import Manifest, write_manifest
from elastic_runtime.checkpoint.object_store import ObjectStore, StorePath, make_folder
from elastic_runtime.checkpoint.writer import ShardWriter
from elastic_runtime.coordinator.__main__ import check_store
from elastic_runtime.coordinator.checkpoint_store import CheckpointStore, Restore
from elastic_runtime.coordinator.rules.checkpointing import SearchOrder
from elastic_runtime.errors import BadInput, CheckpointDamaged, CheckpointError
from elastic_runtime.model.block_state import BlockState
from elastic_runtime.model.layout import TensorSpec, build_layout
from elastic_runtime.model.optimizers import SGD

LAYOUT = build_layout([TensorSpec("weight", (33, 10), "float32"), TensorSpec("bias", (77,), "bfloat16")], [], 256)
OPTIMIZER = SGD(lr=0.1)
BLOCKS = range(len(LAYOUT.blocks))
DEADLINE_SECONDS = 120.0


def _states(seed: int) -> dict[int, BlockState]:
    found = {}
    for block in LAYOUT.blocks:
        numbers = torch.randn(
            block.stop - block.start, generator=torch.Generator().manual_seed(1000 * seed + block.index)
        )
        dtype = getattr(torch, LAYOUT.segments[block.segment].dtype)
        found[block.index] = BlockState(block.index, seed, numbers.to(dtype), {})
    return found


def _write(place: StorePath, step: int, *, manifest: bool = True) -> Manifest | None:
    folder = folder_of(place, step)
    states = _states(step)
    records = []
    for server in range(2):
        blocks = [block for block in BLOCKS if block % 2 == server]
        writer = ShardWriter(folder, f"ps-{server}", LAYOUT, OPTIMIZER, blocks)
        for block in blocks:
            writer.add(states[block])
        records.append(writer.finish())
    return write_manifest(folder, step, LAYOUT, OPTIMIZER, records, {"epoch": 3}) if manifest else None


def _is_written(manifest: Manifest, step: int) -> bool:
    states = _states(step)
    return all(torch.equal(state.parameters, states[state.block].parameters) for state in read_blocks(manifest, BLOCKS))


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an object store's server, with a bucket."""
    program = shutil.which("moto_server")
    if program is None:
        if os.environ.get("FEDL2_STORE_TOOLS_REQUIRED"):
            pytest.fail("there is no moto_server on the path; see docs/decisions/0058-checkpoint-stores.md")
        pytest.skip("there is no moto_server on the path")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = (tmp_path_factory.mktemp("s3") / "log").open("wb")
    process = subprocess.Popen([program, "-H", "127.0.0.1", "-p", str(port)], stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert process.poll() is None, "moto_server ended"
            assert time.monotonic() < deadline, "moto_server does not listen"
        with socket.create_connection(("127.0.0.1", port), 60) as connection:
            who = "AWS4-HMAC-SHA256 Credential=a/20260101/us-east-1/s3/aws4_request"
            head = f"PUT /models HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: 0\r\nConnection: close\r\n"
            connection.sendall(f"{head}Authorization: {who}\r\n\r\n".encode())
            assert b" 200 " in connection.recv(4096).split(b"\r\n")[0]
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(DEADLINE_SECONDS)
        log.close()


@pytest.fixture(params=["memory", "file", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StorePath:
    """Where a job's checkpoints go."""
    name = uuid.uuid4().hex
    if request.param == "s3":
        address = request.getfixturevalue("s3")
        for variable, value in {
            "AWS_ENDPOINT_URL": address,
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
        }.items():
            monkeypatch.setenv(variable, value)
        if importlib.util.find_spec("s3fs") is None:  # it does not go with what the development environment has
            from obstore.fsspec import register

            register("s3")
    url = {"memory": f"memory://{name}", "file": f"file://{tmp_path}/below/{name}", "s3": f"s3://models/{name}"}
    found = place_of(url[request.param])
    assert isinstance(found, StorePath)
    make_folder(found)
    return found


def test_what_was_written_comes_back(place: StorePath) -> None:
    assert list_checkpoints(place) == []
    assert latest_durable(place) is None
    _write(place, 1)
    _write(place, 2)
    assert [step for step, _ in list_checkpoints(place)] == [1, 2]
    found = latest_durable(place_of(str(place)))
    assert found is not None
    assert (found.step, found.position) == (2, {"epoch": 3})
    assert _is_written(found, 2)
    assert read_model(found)["weight"].shape == (33, 10)
    assert all(shard.size_bytes == (found.folder / shard.name).stat().st_size for shard in found.shards)


def test_a_checkpoint_without_its_manifest_does_not_count(place: StorePath) -> None:
    _write(place, 1)
    _write(place, 2, manifest=False)
    found = latest_durable(place)
    assert found is not None
    assert found.step == 1


@pytest.mark.parametrize("what", ["shard-short", "shard-gone", "shard-changed", "manifest-short", "manifest-changed"])
def test_a_torn_checkpoint_is_passed_over_with_a_line_and_the_one_before_is_taken(place: StorePath, what: str) -> None:
    _write(place, 1)
    manifest = _write(place, 2)
    assert manifest is not None
    kind, _, damage = what.partition("-")
    name = manifest.shards[0].name if kind == "shard" else "manifest.json"
    torn = folder_of(place, 2) / name
    content = torn.read_bytes()
    if damage == "gone":
        torn.unlink()
    else:
        torn.write_bytes(content[:-7] if damage == "short" else content[:-7] + b"7654321")
    with capture_logs() as logs:
        result = CheckpointStore(place, 2).found(Restore.IF_THERE)
    assert result is not None
    assert result.sound is not None
    assert result.sound.step == 1
    assert "going back to step 1: step-0000000002 is passed over" in result.line
    assert [log["event"] for log in logs] == ["checkpoint-passed-over"]
    with pytest.raises(CheckpointDamaged):
        verify(folder_of(place, 2))


def test_old_ones_go_and_an_earlier_try_is_swept(place: StorePath) -> None:
    for step in (1, 2, 3):
        _write(place, step)
    again = _write(place, 3)  # a second try of one step: the shards of the first have other names
    assert again is not None
    assert {each.name for each in again.folder.iterdir()} == {"manifest.json", *(each.name for each in again.shards)}
    assert retain(place, 1, {1}) == [2]
    assert [step for step, _ in list_checkpoints(place)] == [1, 3]
    assert retain(place, 1) == [1]
    found = latest_durable(place)
    assert found is not None
    assert _is_written(found, 3)


def test_a_job_does_not_begin_over_checkpoints_of_another_unasked(place: StorePath) -> None:
    store = CheckpointStore(place, 2)
    assert store.found(Restore.IF_THERE) is None
    with pytest.raises(BadInput, match="holds no complete checkpoint"):
        store.found(Restore.ALWAYS)
    _write(place, 4)
    with pytest.raises(BadInput, match="up to step 4: give --restore"):
        store.found(Restore.NEVER)
    result = store.search(SearchOrder(1, ("step-0000000004",)))
    assert result.sound is not None
    assert result.sound.step == 4


# ---- a store that fails


class Failing:
    """A file system of which each call does what a test says."""

    def __init__(self, answer: Callable[[int], Any]) -> None:
        self.calls = 0
        self._answer = answer

    def invalidate_cache(self) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        def call(*_: Any, **__: Any) -> Any:
            self.calls += 1
            return self._answer(self.calls)

        return call


class Clock:
    """Time that passes by waiting."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.waits: list[float] = []

    def __call__(self) -> float:
        return self.seconds

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.seconds += seconds


def _failing(answer: Callable[[int], Any]) -> tuple[StorePath, Failing, Clock]:
    system, clock = Failing(answer), Clock()
    return StorePath(ObjectStore(system, clock, clock.wait), "s3://models/job", "models/job"), system, clock


def _raise(error: BaseException) -> Any:
    raise error


class Busy(Exception):
    """As each store has its own."""


def test_a_store_that_is_busy_is_asked_again_at_growing_waits() -> None:
    place, system, clock = _failing(lambda call: {"size": 7} if call > 3 else _raise(Busy("slow down")))
    assert place.stat().st_size == 7
    assert system.calls == 4
    assert clock.waits == [0.25, 0.5, 1.0]


def test_a_store_that_stays_away_is_an_error_of_one_line_that_no_older_checkpoint_is_taken_for() -> None:
    place, _, clock = _failing(lambda _: _raise(OSError(errno.EIO, "internal\nerror")))
    with pytest.raises(CheckpointError, match=r"^s3://models/job cannot be read: internal error$") as raised:
        CheckpointStore(place, 2).found(Restore.IF_THERE)
    assert not isinstance(raised.value, CheckpointDamaged | BadInput)  # another try may reach it
    assert clock.seconds < 60
    with pytest.raises(CheckpointError) as searched:
        CheckpointStore(place, 2).search(SearchOrder(1, ("step-0000000004",)))
    assert not isinstance(searched.value, CheckpointDamaged)
    with pytest.raises(CheckpointError, match="cannot be read"):
        retain(place, 1)


def test_nothing_is_removed_while_a_store_cannot_be_read(place: StorePath, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in (1, 2, 3):
        _write(place, step)
    really = StorePath.read_bytes

    def read_bytes(path: StorePath) -> bytes:
        return _raise(OSError(errno.ETIMEDOUT, "it took too long")) if "step-0000000002" in path.url else really(path)

    monkeypatch.setattr(StorePath, "read_bytes", read_bytes)
    with pytest.raises(CheckpointError, match="it took too long"):
        retain(place, 1)
    assert [step for step, _ in list_checkpoints(place)] == [1, 2, 3]


def test_a_call_that_hangs_is_left_alone_at_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elastic_runtime.checkpoint.object_store.CALL_SECONDS", 0.05)
    release = threading.Event()
    system = Failing(lambda _: release.wait(DEADLINE_SECONDS))
    place = StorePath(ObjectStore(system), "s3://models/job", "models/job")
    with pytest.raises(TimeoutError, match="it took too long"):
        place.exists()
    release.set()


def test_a_shard_that_cannot_be_sent_is_given_up_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    place, _, _ = _failing(lambda _: _raise(PermissionError("Access Denied")))
    writer = ShardWriter(folder_of(place, 1), "ps-0", LAYOUT, OPTIMIZER, BLOCKS)
    for state in _states(1).values():
        writer.add(state)
    with pytest.raises(
        CheckpointError, match=r"s3://models/job/step-0000000001/ps-0-.* cannot be written: Access Denied"
    ):
        writer.finish()
    assert list(tmp_path.iterdir()) == []


def test_a_shard_that_is_given_up_while_it_is_sent_does_not_wait_for_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    release, sending = threading.Event(), threading.Event()

    def hang(_: int) -> None:
        sending.set()
        release.wait(DEADLINE_SECONDS)

    place, _, _ = _failing(hang)
    writer = ShardWriter(folder_of(place, 1), "ps-0", LAYOUT, OPTIMIZER, BLOCKS)
    for state in _states(1).values():
        writer.add(state)
    writer.close()
    assert sending.wait(DEADLINE_SECONDS)
    writer.abort()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(CheckpointError, match="it was given up"):
        writer.finish()
    release.set()


@pytest.mark.parametrize(
    ("error", "kind", "line"),
    [
        (
            PermissionError("Access Denied"),
            BadInput,
            "cannot be written to s3://models/job: Access Denied; see to bucket",
        ),
        (FileNotFoundError("NoSuchBucket"), BadInput, "NoSuchBucket; see to bucket and rights"),
        (Busy("slow down"), CheckpointError, "cannot be written to s3://models/job: slow down"),
    ],
)
def test_a_store_that_takes_nothing_is_said_before_anything_is_trained(
    error: Exception, kind: type[Exception], line: str
) -> None:
    place, _, _ = _failing(lambda _: _raise(error))
    with pytest.raises(kind, match=line):
        check_store(place)


# ---- URLs


@pytest.mark.parametrize(
    ("url", "line"),
    [
        ("s3://", "is no URL such as s3://bucket/prefix"),
        ("S3 ://bucket", "is no URL"),
        ("simplecache::s3://bucket/a", "is no URL"),
        ("s3://bucket/a?versionId=1", "is no URL"),
        ("s3://bucket/a b", "is no URL"),
        ("ftp://me:secret@host/a", "holds a password"),
        ("nosuch://bucket/a", "Protocol not known: nosuch; install the package that knows nosuch"),
        (f"s3://{'b' * 5000}\n", "is no URL"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused_in_one_line(url: str, line: str) -> None:
    with pytest.raises(BadInput, match=line) as raised:
        place_of(url)
    assert "\n" not in str(raised.value)
    assert "secret" not in str(raised.value)
    assert len(str(raised.value)) < 1000


def test_folders_do_without_fsspec_and_a_url_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = builtins.__import__

    def importing(name: str, *arguments: Any, **options: Any) -> Any:
        if name.split(".", maxsplit=1)[0] == "fsspec":
            raise ImportError(f"no {name}")
        return really(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", importing)
    assert place_of(str(tmp_path)) == tmp_path
    with pytest.raises(BadInput, match=r"need fsspec, which is not installed: pip install 'fedl2\[stores\]'"):
        place_of("s3://models/job")


def test_who_uses_folders_never_loads_fsspec() -> None:
    program = (
        "import sys; from pathlib import Path; from elastic_runtime.checkpoint import list_checkpoints, place_of;"
        "list_checkpoints(place_of('/nowhere')); sys.exit('fsspec' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
