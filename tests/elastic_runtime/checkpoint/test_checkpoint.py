"""Checkpoints: what was written comes back bit for bit, onto any number of servers, or is refused with a reason."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from structlog.testing import capture_logs

from elastic_runtime.checkpoint import latest_durable, list_checkpoints, read_blocks, read_manifest, read_model, verify
from elastic_runtime.checkpoint.catalog import folder_of, newest_sound, retain
from elastic_runtime.checkpoint.manifest import Manifest, write_manifest
from elastic_runtime.checkpoint.reader import require_same_model
from elastic_runtime.checkpoint.writer import ShardWriter
from elastic_runtime.errors import CheckpointDamaged, CheckpointError, ModelMismatch
from elastic_runtime.model.block_state import BlockState
from elastic_runtime.model.layout import TensorSpec, build_layout
from elastic_runtime.model.optimizers import SGD, Adam, Optimizer
from elastic_runtime.server.store import BlockStore

LAYOUT = build_layout(
    [TensorSpec("weight", (33, 10), "float32"), TensorSpec("bias", (77,), "bfloat16")],
    [TensorSpec("mean", (50,), "float32"), TensorSpec("count", (), "int64")],
    block_bytes=256,
)
OPTIMIZER = Adam(lr=0.1)
BLOCKS = range(len(LAYOUT.blocks))


def _numbers(block: int, seed: int) -> torch.Tensor:
    place = LAYOUT.blocks[block]
    numbers = torch.randn(place.stop - place.start, generator=torch.Generator().manual_seed(seed)) * 10
    return numbers.to(getattr(torch, LAYOUT.segments[place.segment].dtype))


def _states(seed: int, optimizer: Optimizer = OPTIMIZER) -> dict[int, BlockState]:
    names = BlockStore(LAYOUT, optimizer).state_names
    return {
        block: BlockState(
            block,
            seed + block,
            _numbers(block, 100 * seed + block),
            {name: _numbers(block, 1000 * seed + block + len(name)) for name in names(block)},
        )
        for block in BLOCKS
    }


def _write(
    checkpoints: Path, step: int, servers: int = 2, states: dict[int, BlockState] | None = None, seed: int = 1
) -> Manifest:
    states = states or _states(seed)
    folder = folder_of(checkpoints, step)
    records = []
    for server in range(servers):
        blocks = [block for block in BLOCKS if block % servers == server]
        writer = ShardWriter(folder, f"ps-{server}", LAYOUT, OPTIMIZER, blocks)
        for block in reversed(blocks):
            writer.add(states[block])
        records.append(writer.finish())
        assert writer.ended
        assert records[-1].size_bytes == (folder / records[-1].name).stat().st_size
    return write_manifest(folder, step, LAYOUT, OPTIMIZER, records, {"epoch": 3})


def _same(one: BlockState, other: BlockState) -> bool:
    return (
        (one.block, one.version, one.state.keys()) == (other.block, other.version, other.state.keys())
        and torch.equal(one.parameters, other.parameters)
        and all(torch.equal(one.state[name], other.state[name]) for name in one.state)
    )


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(data=st.data())
def test_a_checkpoint_is_restored_bit_for_bit_onto_any_number_of_servers(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    checkpoints = tmp_path_factory.mktemp("checkpoints")
    states = _states(data.draw(st.integers(1, 99)))
    _write(checkpoints, 12, data.draw(st.integers(1, 4)), states)
    manifest = latest_durable(checkpoints)
    assert manifest is not None
    assert (manifest.step, manifest.position, manifest.optimizer) == (12, {"epoch": 3}, OPTIMIZER)
    assert manifest.layout.digest == LAYOUT.digest
    servers = data.draw(st.integers(1, 5))
    for server in range(servers):
        store = BlockStore(LAYOUT, OPTIMIZER)
        mine = [block for block in BLOCKS if block % servers == server]
        for state in read_blocks(manifest, mine):
            store.adopt(state.block, state.parameters, state.state, state.version)
        assert sorted(store.owned) == mine
        assert all(_same(store.view(block), states[block]) for block in mine)


def test_the_first_checkpoint_has_no_state_yet(tmp_path: Path) -> None:
    states = {block: BlockState(block, 0, _numbers(block, block), {}) for block in BLOCKS}
    _write(tmp_path, 0, 1, states)
    store = BlockStore(LAYOUT, OPTIMIZER)
    for state in read_blocks(folder_of(tmp_path, 0), BLOCKS):
        store.adopt(state.block, state.parameters, state.state, state.version)
    assert store.owned == set(BLOCKS)


def test_a_shard_is_an_ordinary_safetensors_file(tmp_path: Path) -> None:
    manifest, states = _write(tmp_path, 5), _states(1)
    with safe_open(manifest.folder / manifest.shards[0].name, framework="pt") as file:
        assert sorted(file.keys())[0] == "block/0/exp_avg"
        for key in file.keys():  # noqa: SIM118  # no mapping
            _, block, name = key.split("/")
            state = states[int(block)]
            expected = state.parameters if name == "parameters" else state.state[name]
            assert torch.equal(file.get_tensor(key), expected)


def test_a_model_is_read_by_name_without_a_job(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(17, 9), torch.nn.BatchNorm1d(9), torch.nn.Linear(9, 3).bfloat16())
    wanted = model.state_dict()
    specs = {name: TensorSpec(name, tuple(t.shape), str(t.dtype).removeprefix("torch.")) for name, t in wanted.items()}
    trained = {name for name, _ in model.named_parameters()}
    layout = build_layout(
        [spec for name, spec in specs.items() if name in trained],
        [spec for name, spec in specs.items() if name not in trained],
        block_bytes=128,
    )
    flat = [torch.cat([wanted[slot.tensor.name].flatten() for slot in one.slots]) for one in layout.segments]
    writer = ShardWriter(folder_of(tmp_path, 0), "worker-0", layout, OPTIMIZER, range(len(layout.blocks)))
    for block in layout.blocks:
        writer.add(BlockState(block.index, 0, flat[block.segment][block.start : block.stop], {}))
    write_manifest(folder_of(tmp_path, 0), 0, layout, OPTIMIZER, [writer.finish()], {})
    found = read_model(folder_of(tmp_path, 0))
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)
    for name, tensor in found.items():
        assert tensor.shape == wanted[name].shape
    model.load_state_dict(found)


def test_a_coordinator_needs_no_torch() -> None:
    program = (
        "import sys; from elastic_runtime.checkpoint import catalog, latest_durable, manifest, verify;"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=60).returncode == 0


def test_reading_some_blocks_reads_no_others(tmp_path: Path) -> None:
    manifest = _write(tmp_path, 5, 1)
    path = manifest.folder / manifest.shards[0].name
    whole = path.read_bytes()
    path.write_bytes(whole[:-4] + b"\0\0\0\0")  # the first block, which was written last
    others = [state.block for state in read_blocks(manifest, [1, 2, 6])]
    assert sorted(others) == [1, 2, 6]
    with pytest.raises(CheckpointError, match="block 0 does not have its digest"):
        list(read_blocks(manifest, [0, 1]))
    with pytest.raises(ValueError, match="block 99 is none of the model's"):
        list(read_blocks(manifest, [99]))


def _flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1 << (position % 8)
    path.write_bytes(content)


@settings(max_examples=60, deadline=None)
@given(where=st.floats(0, 1, exclude_max=True), file=st.sampled_from(["ps-0.safetensors", "manifest.json"]))
def test_one_flipped_bit_anywhere_is_found(tmp_path_factory: pytest.TempPathFactory, where: float, file: str) -> None:
    checkpoints = tmp_path_factory.mktemp("checkpoints")
    _write(checkpoints, 1)
    newest = _write(checkpoints, 2, seed=2)
    path = newest.folder / file
    _flip(path, int(where * path.stat().st_size))
    with pytest.raises(CheckpointError, match=r"damaged|is of format"):
        verify(newest.folder)
    with capture_logs() as logs:
        found = latest_durable(checkpoints)
    assert found is not None
    assert found.step == 1
    assert [(log["event"], log["checkpoint"]) for log in logs] == [("checkpoint-passed-over", newest.folder.name)]


@pytest.mark.parametrize("file", ["ps-0.safetensors", "ps-1.safetensors", "manifest.json"])
@pytest.mark.parametrize("left", [0, 5, 200, -1, None])
def test_a_file_cut_short_or_gone_is_found(tmp_path: Path, file: str, left: int | None) -> None:
    _write(tmp_path, 1)
    newest = _write(tmp_path, 2, seed=2)
    path = newest.folder / file
    if left is None:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:left])
    with pytest.raises(CheckpointError):
        verify(newest.folder)
    with capture_logs() as logs:
        found = latest_durable(tmp_path)
    assert found is not None
    assert found.step == 1
    assert logs[0]["event"] == "checkpoint-passed-over"


def test_what_may_be_sound_is_never_passed_over(tmp_path: Path) -> None:
    """What cannot be read now, or was written by another version, is for a person to look at."""
    from elastic_runtime.checkpoint.manifest import _text

    _write(tmp_path, 1)
    newest = _write(tmp_path, 2, seed=2)
    shard = newest.folder / "ps-0.safetensors"
    shard.rename(newest.folder / "aside")
    shard.symlink_to(shard)  # as a file that may not be read: a test may be run by root, who may read all
    with pytest.raises(CheckpointError) as raised:
        latest_durable(tmp_path)
    assert not isinstance(raised.value, CheckpointDamaged)
    shard.unlink()
    (newest.folder / "aside").rename(shard)
    manifest = newest.folder / "manifest.json"
    content = json.loads(manifest.read_bytes())
    content.pop("sha256")
    for change in ({"format": 2}, {"a field of tomorrow": 1}):
        manifest.write_bytes(_text({**content, **change}))
        with pytest.raises(CheckpointError, match="this version") as raised:
            latest_durable(tmp_path)
        assert not isinstance(raised.value, CheckpointDamaged)


def test_a_search_says_in_one_line_what_it_passed_over_and_why(tmp_path: Path) -> None:
    folders = [_write(tmp_path, step, seed=step).folder for step in (1, 2, 3)]
    (folders[2] / "ps-0.safetensors").unlink()
    _flip(folders[1] / "manifest.json", 100)
    search = newest_sound(reversed(folders))
    assert search.sound is not None
    assert search.sound.step == 1
    assert search.line.startswith("going back to step 1: step-0000000003 is passed over: ")
    assert "; step-0000000002 is passed over: " in search.line
    assert "\n" not in search.line
    assert newest_sound(folders).line == ""


def test_without_any_checkpoint_there_is_none(tmp_path: Path) -> None:
    assert latest_durable(tmp_path / "nowhere") is None
    (tmp_path / "step-0000000001").mkdir()
    (tmp_path / "notes").mkdir()
    assert latest_durable(tmp_path) is None
    assert list_checkpoints(tmp_path) == []
    with pytest.raises(CheckpointError, match=r"not a finished checkpoint: it has no manifest\.json"):
        read_manifest(tmp_path / "step-0000000001")


def test_a_manifest_needs_every_block_and_every_shard(tmp_path: Path) -> None:
    manifest = _write(tmp_path, 5)
    other = folder_of(tmp_path, 6)
    with pytest.raises(CheckpointError, match="blocks are in no shard, such as block 1"):
        write_manifest(manifest.folder, 5, LAYOUT, OPTIMIZER, manifest.shards[:1], {})
    with pytest.raises(CheckpointError, match="cannot be read"):
        write_manifest(other, 6, LAYOUT, OPTIMIZER, manifest.shards, {})
    assert not other.exists()
    assert latest_durable(tmp_path) == manifest


def test_a_full_disk_is_one_clear_error_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    durable = _write(tmp_path, 1)
    left = [700]
    really = os.pwritev

    def pwritev(file: int, buffers: list[memoryview], start: int) -> int:
        if left[0] == 0:
            raise OSError(28, "No space left on device")
        count = min(left[0], len(buffers[0]), 100)  # a system may also write less than it is given
        left[0] -= count
        return really(file, [buffers[0][:count]], start)

    monkeypatch.setattr(os, "pwritev", pwritev)
    writer = ShardWriter(folder_of(tmp_path, 2), "ps-0", LAYOUT, OPTIMIZER, BLOCKS, queue_bytes=1)
    clear = r"step-0000000002/ps-0.safetensors cannot be written: No space left on device; training goes on"
    with pytest.raises(CheckpointError, match=clear):  # noqa: PT012  # which of the blocks is told is a race
        for state in _states(2).values():
            writer.add(state)
        writer.finish()
    with pytest.raises(CheckpointError, match=clear):
        writer.finish() if not writer._left else writer.add(_states(2)[max(writer._left)])
    left[0] = 0
    writer = ShardWriter(folder_of(tmp_path, 2), "ps-0", LAYOUT, OPTIMIZER, BLOCKS)
    writer.add(_states(2)[0])
    writer._thread.join(20)
    assert writer.ended  # though blocks are still to come
    with pytest.raises(CheckpointError, match=clear):
        writer.finish()
    monkeypatch.undo()
    assert not folder_of(tmp_path, 2).exists()
    assert latest_durable(tmp_path) == durable


def test_a_full_disk_under_the_manifest_keeps_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    durable = _write(tmp_path, 1)

    def no_room(file: int) -> None:
        raise OSError(28, "No space left on device")

    folder = folder_of(tmp_path, 2)
    writer = ShardWriter(folder, "ps-0", LAYOUT, OPTIMIZER, BLOCKS)
    for state in _states(2).values():
        writer.add(state)
    record = writer.finish()
    monkeypatch.setattr(os, "fsync", no_room)
    with pytest.raises(CheckpointError, match=r"manifest.json cannot be written: No space left on device"):
        write_manifest(folder, 2, LAYOUT, OPTIMIZER, [record], {})
    monkeypatch.undo()
    assert [path.name for path in folder.iterdir()] == ["ps-0.safetensors"]
    assert latest_durable(tmp_path) == durable
    assert list_checkpoints(tmp_path) == [(1, durable.folder)]


class _PowerCut(BaseException):
    """Not an `Exception`: nothing may tidy up after it."""


@pytest.mark.parametrize("same_step", [False, True])
def test_whenever_the_process_ends_one_checkpoint_can_be_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, same_step: bool
) -> None:
    """Every call that changes the disk is the last one once, also where a step is checkpointed for the second time."""
    calls = 0
    for last in range(1000):
        checkpoints = tmp_path / str(last)
        before = _write(checkpoints, 7)
        states = _states(2)
        calls = 0

        def counted(really, last=last, pwritev=os.pwritev):
            def call(*arguments, **options):
                nonlocal calls
                calls += 1
                if calls > last:
                    if really is pwritev:
                        (numbers,) = arguments[1]
                        really(arguments[0], [numbers[: len(numbers) // 2]], arguments[2])
                    raise _PowerCut
                return really(*arguments, **options)

            return call

        with monkeypatch.context() as patch:
            for name in ("pwritev", "fsync", "mkdir"):
                patch.setattr(os, name, counted(getattr(os, name)))
            for name in ("replace", "unlink"):
                patch.setattr(Path, name, counted(getattr(Path, name)))
            patch.setattr("threading.excepthook", lambda _: None)
            try:
                folder = folder_of(checkpoints, 7 if same_step else 8)
                writer = ShardWriter(folder, "ps-0", LAYOUT, OPTIMIZER, BLOCKS)
                for state in states.values():
                    writer.add(state)
                writer.close()
                writer._thread.join()
                if writer.ended:
                    write_manifest(folder, 8, LAYOUT, OPTIMIZER, [writer.finish()], {})
            except _PowerCut:
                pass
        found = latest_durable(checkpoints)
        assert found is not None
        restored = {state.block: state for state in read_blocks(found, BLOCKS)}
        expected = _states(1) if found == before else states
        assert all(_same(restored[block], expected[block]) for block in BLOCKS)
        if calls <= last:
            assert found.step == 8
            break
    assert calls > 10


_KILLED = """
import sys
from pathlib import Path
import torch
from elastic_runtime.model.block_state import BlockState
from elastic_runtime.checkpoint.catalog import folder_of
from elastic_runtime.checkpoint.writer import ShardWriter
from elastic_runtime.model.layout import Layout
from elastic_runtime.model.optimizers import Adam

layout = Layout.from_json(sys.argv[2].encode())
writer = ShardWriter(folder_of(Path(sys.argv[1]), 2), "ps-0", layout, Adam(lr=0.1), range(len(layout.blocks)))
place = layout.blocks[0]
zeros = torch.zeros(place.stop - place.start)
writer.add(BlockState(0, 2, zeros, {"exp_avg": zeros, "exp_avg_sq": zeros}))
while not any(path.stat().st_size for path in folder_of(Path(sys.argv[1]), 2).iterdir()):
    pass
print("writing", flush=True)
sys.stdin.read()
"""


def test_a_killed_writer_leaves_the_last_durable_checkpoint(tmp_path: Path) -> None:
    durable = _write(tmp_path, 1)
    command = [sys.executable, "-c", _KILLED, str(tmp_path), LAYOUT.to_json().decode()]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"writing\n"
        finally:
            process.kill()
    left = folder_of(tmp_path, 2)
    assert [path.name for path in left.iterdir()] == ["ps-0.safetensors.partial"]
    assert latest_durable(tmp_path) == durable
    again = _write(tmp_path, 2, seed=2)
    assert latest_durable(tmp_path) == again
    assert sorted(path.name for path in left.iterdir()) == [
        "manifest.json",
        "ps-0-2.safetensors",
        "ps-1.safetensors",
    ]


def test_a_slow_disk_bounds_what_waits_and_an_abort_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writes, goes_on = threading.Event(), threading.Event()
    really = os.pwritev

    def pwritev(*arguments: Any) -> int:
        writes.set()
        goes_on.wait()
        return really(*arguments)

    monkeypatch.setattr(os, "pwritev", pwritev)
    states = _states(1)
    size = states[0].size_bytes
    writer = ShardWriter(
        folder_of(tmp_path, 1),
        "ps-0",
        LAYOUT,
        OPTIMIZER,
        BLOCKS,
        queue_bytes=2 * size,
    )
    writer.add(states[0])
    assert writes.wait(60.0)
    writer.add(states[1])
    with pytest.raises(CheckpointError, match="the disk took more than 0 s"):
        writer.add(states[2], timeout_seconds=0.0)
    with pytest.raises(ValueError, match="not one that this shard still waits for"):
        writer.add(states[0])
    with pytest.raises(ValueError, match="blocks were not handed in, such as block 2"):
        writer.finish()
    goes_on.set()
    writer.abort()
    assert not folder_of(tmp_path, 1).exists()


def test_old_ones_go_and_the_newest_complete_ones_stay(tmp_path: Path) -> None:
    manifests = {step: _write(tmp_path, step) for step in (1, 2, 3, 4, 5)}
    (manifests[4].folder / "ps-0.safetensors").unlink()
    folder_of(tmp_path, 2).joinpath("manifest.json").unlink()
    folder_of(tmp_path, 6).mkdir()
    assert retain(tmp_path, 2, protect=[1]) == [2, 4]
    assert [step for step, _ in list_checkpoints(tmp_path)] == [1, 3, 5]
    assert folder_of(tmp_path, 6).exists()
    assert retain(tmp_path, 1) == [1, 3]
    assert retain(tmp_path / "nowhere", 1) == []
    with pytest.raises(ValueError, match="at least one"):
        retain(tmp_path, 0)


def test_a_checkpoint_of_another_model_is_refused_in_one_line(tmp_path: Path) -> None:
    manifest = _write(tmp_path, 5)
    require_same_model(manifest, LAYOUT, Adam(lr=0.5, betas=(0.5, 0.6)))
    other = build_layout([TensorSpec("weight", (33, 11), "float32")], [])
    with pytest.raises(ModelMismatch, match=r"is a checkpoint of another model: .*'weight' float32 \[33, 11\]"):
        require_same_model(manifest, other, OPTIMIZER)
    with pytest.raises(ModelMismatch, match="written by adam, which keeps exp_avg and exp_avg_sq, and the job"):
        require_same_model(manifest, LAYOUT, SGD(lr=0.1))
    require_same_model(_write(tmp_path, 0), LAYOUT, SGD(lr=0.1))


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"step": -1},
        {"layout": {}},
        {"optimizer": {"kind": "lamb"}},
        {"shards": [{"name": "../ps-0.safetensors", "size_bytes": 1, "sha256": ""}]},
        {"shards": 3},
        {"more": 1},
    ],
    ids=str,
)
def test_a_manifest_that_is_not_ours_is_refused(tmp_path: Path, change: dict) -> None:
    from elastic_runtime.checkpoint.manifest import _text

    path = _write(tmp_path, 5).folder / "manifest.json"
    content = json.loads(path.read_text()) | change
    del content["sha256"]
    path.write_bytes(_text(content))
    with pytest.raises(CheckpointError, match=r"manifest\.json is"):
        read_manifest(path.parent)
