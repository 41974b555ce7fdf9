"""The job's checkpoints on disk, as far as the coordinator touches them."""

from __future__ import annotations

import shutil
from pathlib import Path

from elastic_runtime.coordinator.orders import ManifestOrder
from elastic_runtime.errors import CheckpointError


class CheckpointDepot:
    """A folder of checkpoints, each a folder of shards.

    Args:
        folder: where the job's members write them.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def complete(self, order: ManifestOrder) -> None:
        """See that every shard is there in its size.

        Raises:
            CheckpointError: one is missing or cut short.
        """
        for shard in order.shards:
            path = self._folder / order.name / shard.name
            try:
                size_bytes = path.stat().st_size
            except OSError as error:
                raise CheckpointError(f"shard {path} was reported and cannot be read: {error}") from error
            if size_bytes != shard.size_bytes:
                raise CheckpointError(f"shard {path} has {size_bytes} bytes of {shard.size_bytes}")

    def remove(self, name: str) -> None:
        """Remove a checkpoint.

        Raises:
            CheckpointError: it stays, in part.
        """
        try:
            shutil.rmtree(self._folder / name)
        except FileNotFoundError:
            return
        except OSError as error:
            raise CheckpointError(f"checkpoint {name} cannot be removed: {error}") from error
