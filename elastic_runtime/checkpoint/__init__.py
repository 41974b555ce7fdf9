"""Checkpoints of a job: one folder a step, one file a server, and a manifest that makes them count.

    step-0000001234/
        ps-0.safetensors    blocks in any order, each with its version and SHA-256 in the file's head
        ps-1.safetensors
        manifest.json       written last: the model, the optimizer, the caller's position, each head's SHA-256

A folder without a manifest is not finished, or will never be. Nothing in it depends on how many servers wrote it, so it
is restored onto any number. The files are ordinary safetensors.

In an object store it is the same, with objects for files, whose names there have a number of their own.

The names below are loaded when they are first used: a coordinator writes manifests without PyTorch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from elastic_runtime.checkpoint.catalog import (
        Search,
        discard,
        folder_of,
        latest_durable,
        list_checkpoints,
        newest_sound,
        retain,
    )
    from elastic_runtime.checkpoint.manifest import Manifest, read_manifest, verify, write_manifest
    from elastic_runtime.checkpoint.object_store import Place, make_folder, place_of
    from elastic_runtime.checkpoint.reader import read_blocks, read_model, require_same_model
    from elastic_runtime.checkpoint.shard import ShardRecord
    from elastic_runtime.checkpoint.writer import Progress, ShardWriter

__all__ = [
    "Manifest",
    "Place",
    "Progress",
    "Search",
    "ShardRecord",
    "ShardWriter",
    "discard",
    "folder_of",
    "latest_durable",
    "list_checkpoints",
    "make_folder",
    "newest_sound",
    "place_of",
    "read_blocks",
    "read_manifest",
    "read_model",
    "require_same_model",
    "retain",
    "verify",
    "write_manifest",
]

_PLACES = {
    "Manifest": "manifest",
    "Place": "object_store",
    "Progress": "writer",
    "Search": "catalog",
    "ShardRecord": "shard",
    "ShardWriter": "writer",
    "discard": "catalog",
    "folder_of": "catalog",
    "latest_durable": "catalog",
    "list_checkpoints": "catalog",
    "make_folder": "object_store",
    "newest_sound": "catalog",
    "place_of": "object_store",
    "read_blocks": "reader",
    "read_manifest": "manifest",
    "read_model": "reader",
    "require_same_model": "reader",
    "retain": "catalog",
    "verify": "manifest",
    "write_manifest": "manifest",
}


def __getattr__(name: str) -> Any:
    """A public name that is not loaded yet."""
    if name in _PLACES:
        return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
