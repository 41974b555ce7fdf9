"""The job's checkpoints on disk, as far as the coordinator touches them."""

from __future__ import annotations

import json
from pathlib import Path

from elastic_runtime.checkpoint import (
    Manifest,
    ShardRecord,
    folder_of,
    latest_durable,
    list_checkpoints,
    retain,
    verify,
    write_manifest,
)
from elastic_runtime.coordinator.orders import ManifestOrder
from elastic_runtime.errors import BadInput, CheckpointError
from elastic_runtime.layout import Layout
from elastic_runtime.training import Training


def checkpoint_name(step: int) -> str:
    """The name of the folder of the checkpoint at a step."""
    return folder_of(Path(), step).name


class CheckpointDepot:
    """A folder of checkpoints, each a folder of shards.

    Args:
        folder: where the job's members write them.
        kept: how many complete ones stay.
    """

    def __init__(self, folder: Path, kept: int) -> None:
        self._folder = folder
        self._kept = kept

    def found(self, restore: bool) -> Manifest | None:
        """The newest complete checkpoint, for a new job to begin from; None: it begins anew.

        Raises:
            BadInput: there is none, or there is one and nobody said that it is meant.
        """
        if not restore:
            old = list_checkpoints(self._folder)
            if old:
                raise BadInput(
                    f"{self._folder} holds checkpoints of an earlier job, up to step {old[-1][0]}: "
                    "give --restore to begin from the newest, or another folder"
                )
            return None
        manifest = latest_durable(self._folder)
        if manifest is not None:
            return manifest
        old = list_checkpoints(self._folder)
        if not old:
            raise BadInput(f"{self._folder} holds no complete checkpoint; leave out --restore")
        try:
            return verify(old[-1][1])
        except CheckpointError as error:
            raise BadInput(
                f"no checkpoint in {self._folder} can be used, and nothing was changed there: {error}"
            ) from error

    def complete(self, order: ManifestOrder) -> None:
        """Make a checkpoint count, as all its shards are there.

        Raises:
            CheckpointError: one is missing or damaged, or the manifest cannot be written.
        """
        try:
            layout = Layout.from_json(order.layout_json.encode())
            training = Training.from_json(order.training_json.encode())
        except BadInput as error:
            raise CheckpointError(f"checkpoint {order.name}: {error}") from error
        shards = [ShardRecord(shard.name, shard.size_bytes, shard.sha256) for shard in order.shards]
        position = {"generation": order.generation, "training": json.loads(order.training_json)}
        if order.leases_json:
            # Each block is at a version of its own, and holds at least the updates of all samples that are done here.
            position["leases"] = json.loads(order.leases_json)
        write_manifest(self._folder / order.name, order.step, layout, training.optimizer, shards, position)

    def tidy(self, protected: tuple[int, ...]) -> None:
        """Remove old checkpoints, but those of `protected` steps.

        Raises:
            CheckpointError: one cannot be removed.
        """
        retain(self._folder, self._kept, protected)
