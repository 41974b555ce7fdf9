"""Checkpoints of a job: one folder a step, one file a server, and a manifest that makes them count.

    step-0000001234/
        ps-0.safetensors    blocks in any order, each with its version and SHA-256 in the file's head
        ps-1.safetensors
        manifest.json       written last: the model, the optimizer, the caller's position, each head's SHA-256

A folder without a manifest is not finished, or will never be. Nothing in it depends on how many servers wrote it, so it
is restored onto any number. The files are ordinary safetensors. In an object store objects take the place of files,
with a random number in their names.

The names below are for scripts. They are loaded when they are first used: `place_of` works without PyTorch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from elastic_runtime.checkpoint.catalog import latest_durable, list_checkpoints
    from elastic_runtime.checkpoint.manifest import read_manifest, verify
    from elastic_runtime.checkpoint.object_store import place_of
    from elastic_runtime.checkpoint.reader import read_blocks, read_model

__all__ = ["latest_durable", "list_checkpoints", "place_of", "read_blocks", "read_manifest", "read_model", "verify"]

_PLACES = {
    "latest_durable": "catalog",
    "list_checkpoints": "catalog",
    "place_of": "object_store",
    "read_blocks": "reader",
    "read_manifest": "manifest",
    "read_model": "reader",
    "verify": "manifest",
}


def __getattr__(name: str) -> Any:
    """A public name that is not loaded yet."""
    if name in _PLACES:
        return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
