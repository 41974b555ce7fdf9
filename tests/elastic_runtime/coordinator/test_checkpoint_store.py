"""A new job begins from an older one's checkpoint, if that is said."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from simulated_world import BATCH, LAYOUT, SETTINGS, TRAINING, World

from elastic_runtime.checkpoint.catalog import folder_of
from elastic_runtime.checkpoint.writer import ShardWriter
from elastic_runtime.control.messages import Shard
from elastic_runtime.coordinator.checkpoint_store import CheckpointStore, Restore
from elastic_runtime.coordinator.rules.checkpointing import ManifestOrder, checkpoint_name
from elastic_runtime.coordinator.rules.machine import CoordinatorMachine, begin
from elastic_runtime.coordinator.rules.registering import Newcomer
from elastic_runtime.errors import BadInput, CheckpointError
from elastic_runtime.model.block_state import BlockState
from elastic_runtime.model.layout import Layout, TensorSpec, build_layout
from elastic_runtime.model.optimizers import SGD
from elastic_runtime.protocol.plan import JobPhase, TaskRole

OTHER = build_layout([TensorSpec("weight", (BATCH * 2048,), "float32")], [], 4096).to_json().decode()


def write(folder: Path, step: int) -> ManifestOrder:
    layout = Layout.from_json(LAYOUT.encode())
    writer = ShardWriter(folder_of(folder, step), "ps-0", layout, SGD(lr=0.1), range(len(layout.blocks)))
    for block in layout.blocks:
        writer.add(BlockState(block.index, step, torch.zeros(block.stop - block.start), {}))
    record = writer.finish()
    shard = Shard(record.name, step, record.size_bytes, record.sha256)
    return ManifestOrder(checkpoint_name(step), 1, step, (shard,), LAYOUT, TRAINING, ())


def test_checkpoints_of_an_earlier_job_are_not_taken_or_written_over_unasked(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, 2)
    assert store.found(Restore.NEVER) is None
    with pytest.raises(BadInput, match="holds no complete checkpoint"):
        store.found(Restore.ALWAYS)
    for step in (10, 20, 30):
        store.complete(write(tmp_path, step))
    store.tidy((10,))
    assert [step.name for step in sorted(tmp_path.iterdir())] == [checkpoint_name(step) for step in (10, 20, 30)]
    store.tidy(())
    with pytest.raises(BadInput, match="up to step 30: give --restore"):
        store.found(Restore.NEVER)
    found = store.found(Restore.ALWAYS)
    assert found is not None
    assert found.sound is not None
    assert (found.sound.step, found.line) == (30, "")


def test_a_checkpoint_whose_shard_is_damaged_is_not_completed(tmp_path: Path) -> None:
    order = write(tmp_path, 10)
    path = tmp_path / order.name / order.shards[0].name
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CheckpointError):
        CheckpointStore(tmp_path, 2).complete(order)


def test_a_restored_job_has_no_initialiser_and_takes_its_checkpoints_model_only(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, 2)
    store.complete(write(tmp_path, 30))
    world = World()
    world.machine = CoordinatorMachine(SETTINGS, 0.0, begin(SETTINGS, store.found(Restore.ALWAYS)), lambda: 0.0)
    world.views.clear()
    world.take(world.machine.on_tick(0.0))
    refusal, _ = world.machine.on_register(Newcomer("worker-0", TaskRole.WORKER, 7, "{}", OTHER, TRAINING), 0.0)
    assert "another model than the checkpoint to begin from" in refusal
    view = world.rounds(lambda view: view.phase is JobPhase.RUNNING)
    assert (view.start_step, view.start_checkpoint, view.initialiser) == (30, checkpoint_name(30), "")


def test_a_job_that_may_have_run_before_begins_from_what_is_there_or_anew(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, 2)
    assert store.found(Restore.IF_THERE) is None
    store.complete(write(tmp_path, 10))
    found = store.found(Restore.IF_THERE)
    assert found is not None
    assert found.sound is not None
    assert found.sound.step == 10


def test_a_job_that_ran_before_does_not_begin_anew_where_what_it_left_is_damaged(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, 2)
    order = write(tmp_path, 10)
    store.complete(order)
    path = tmp_path / order.name / order.shards[0].name
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(BadInput, match=r"no checkpoint in .* can be used"):
        store.found(Restore.IF_THERE)
