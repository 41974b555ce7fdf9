"""Small JSON files that are whole or absent, whenever the agent dies.

No fsync: these files guard against the death of the process, which happens, and are written after every decision; after
the death of the machine the rename may be missing, and the agent then goes on from the version before.
"""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import TextIO

from cluster_agent.errors import BadConfig, StateDamaged
from foundation.text import parse_json
from policy_net.exchange.state_codec import JsonObject

LOCK = "lock"


def hold_folder(folder: Path) -> TextIO:
    """Make a state directory and hold it: two agents in one would overwrite each other's cluster.

    Returns:
        What to close to let go of it; the lock ends with the process too, however it ends.

    Raises:
        BadConfig: it cannot be made or written, or another agent holds it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / LOCK).open("a+")
    except OSError as error:
        raise BadConfig(f"setting state_dir: {folder} cannot be used ({error.strerror})") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.seek(0)
        holder = lock.read().strip() or "unknown"
        lock.close()
        raise BadConfig(
            f"setting state_dir: {folder} is held by another agent (process {holder}); end it, or use another state_dir"
        ) from error
    lock.truncate(0)
    lock.write(str(os.getpid()))
    lock.flush()
    return lock


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
        value = parse_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise StateDamaged(f"{path}: cannot be read ({error}); move it away to start afresh") from error
    if not isinstance(value, dict):
        raise StateDamaged(f"{path}: holds no JSON object; move it away to start afresh")
    return value
