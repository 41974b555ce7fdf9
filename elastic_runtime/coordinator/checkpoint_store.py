"""Store of a job's checkpoints: the coordinator's work on the disk, and its results for the rules."""

from __future__ import annotations

import json

from elastic_runtime.checkpoint.catalog import Search, list_checkpoints, newest_sound, retain
from elastic_runtime.checkpoint.manifest import Manifest, write_manifest
from elastic_runtime.checkpoint.object_store import Place, StorePath
from elastic_runtime.checkpoint.shard import ShardRecord
from elastic_runtime.coordinator.rules.checkpointing import FoundCheckpoint, ManifestOrder, SearchOrder, SearchResult
from elastic_runtime.errors import BadInput, CheckpointError
from elastic_runtime.model.layout import Layout
from elastic_runtime.model.training import Training
from foundation.python310 import StrEnum


def describe(search: Search) -> SearchResult:
    """Result of a search, without the files."""
    return SearchResult(_found(search.sound) if search.sound else None, bool(search.damaged), search.line)


def _found(manifest: Manifest) -> FoundCheckpoint:
    book_json = json.dumps(manifest.position["leases"]) if "leases" in manifest.position else ""
    return FoundCheckpoint(manifest.folder.name, manifest.step, manifest.layout.to_json().decode(), book_json)


class Restore(StrEnum):
    """Treatment of checkpoints that are there before a job begins."""

    NEVER = "never"
    """There must be none."""
    ALWAYS = "always"
    """The job begins from the newest."""
    IF_THERE = "if-there"
    """Likewise, and anew where there are none: of one whose folder nobody else has."""


class CheckpointStore:
    """A folder of checkpoints, or a place in an object store."""

    def __init__(self, folder: Place, kept: int) -> None:
        self._folder = folder
        self._kept = kept

    def found(self, restore: Restore) -> SearchResult | None:
        """The newest sound checkpoint, for a new job to begin from; None: it begins anew.

        Raises:
            BadInput: there is none, or one that cannot be read, or there is one and nobody said that it is meant.
            CheckpointError: an object store cannot be asked now.
        """
        try:
            old = list_checkpoints(self._folder)
        except OSError as error:
            raise CheckpointError(f"{self._folder} cannot be read: {error.strerror}") from error
        if restore is Restore.NEVER:
            if old:
                raise BadInput(
                    f"{self._folder} holds checkpoints of an earlier job, up to step {old[-1][0]}: "
                    "give --restore to begin from the newest, or another folder"
                )
            return None
        if not old and restore is Restore.IF_THERE:
            return None
        if not old:
            raise BadInput(f"{self._folder} holds no complete checkpoint; leave out --restore")
        try:
            search = newest_sound(folder for _, folder in reversed(old))
        except CheckpointError as error:
            if isinstance(self._folder, StorePath):
                raise  # another try may reach it
            raise BadInput(f"{error}; it may be sound, so no older checkpoint is taken: mend that first") from error
        if search.sound is None:
            raise BadInput(
                f"no checkpoint in {self._folder} can be used, and nothing was changed there: {search.damaged[0][1]}"
            )
        return describe(search)

    def search(self, order: SearchOrder) -> SearchResult:
        """The newest sound one of a job's checkpoints.

        Raises:
            CheckpointError: one cannot be read, so it is not known whether it is sound.
        """
        return describe(newest_sound(self._folder / name for name in order.names))

    def complete(self, order: ManifestOrder) -> None:
        """Write the manifest of a checkpoint whose shards are all there.

        Raises:
            CheckpointError: a shard is missing or damaged, or the manifest cannot be written.
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
