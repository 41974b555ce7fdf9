"""Small JSON files that are whole or absent, whenever the agent dies.

No fsync: these files guard against the death of the process, which happens, and are written after every decision; after
the death of the machine the rename may be missing, and the agent then goes on from the version before.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from cluster_agent.errors import StateDamaged
from cluster_agent.state_codec import JsonObject


def write_json(path: Path, value: JsonObject, *, indent: int | None = None) -> None:
    """Replace a file's content whole."""
    write_bytes(path, json.dumps(value, indent=indent, allow_nan=False).encode())


def write_bytes(path: Path, data: bytes) -> None:
    """Replace a file's content whole."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        partial.write_bytes(data)
        partial.replace(path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise


def read_json(path: Path) -> JsonObject | None:
    """A file's content; None if there is no such file.

    Raises:
        StateDamaged: it cannot be read.
    """
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise StateDamaged(f"{path}: cannot be read ({error}); move it away to start afresh") from error
    if not isinstance(value, dict):
        raise StateDamaged(f"{path}: holds no JSON object; move it away to start afresh")
    return value
