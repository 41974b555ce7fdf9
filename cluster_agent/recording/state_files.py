"""Files of the state directory: small JSON objects that are whole or absent, and the lock on all of them.

They say what a cluster's users run, so that nobody but the agent's own user may read them.

No fsync: these files guard against the death of the process, which happens, and are written after every decision; after
the death of the machine the rename may be missing, and the agent then goes on from the version before.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from cluster_agent.errors import BadAgentConfig, StateDamaged
from foundation.files import PRIVATE, read_ordinary, write_whole
from foundation.locks import FileLock, LockHeld
from foundation.text import parse_json
from policy_net.exchange.state_codec import JsonObject

LOCK = "lock"
PRIVATE_FOLDER = 0o700
_LARGEST_BYTES = 1 << 30


def lock_folder(folder: Path) -> FileLock:
    """Make a state directory and hold it: two agents in one would overwrite each other's cluster.

    Returns:
        What to release to let go of it; the lock ends with the process too, however it ends.

    Raises:
        BadConfig: it cannot be made or written, or another agent holds it.
    """
    try:
        folder.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        _keep_private(folder)
        return FileLock(folder / LOCK)
    except LockHeld as error:
        raise BadAgentConfig(
            f"setting state_dir: {folder} is held by another agent (process {error.holder or 'unknown'}); end it, or "
            "use another state_dir"
        ) from error
    except OSError as error:
        raise BadAgentConfig(f"setting state_dir: {folder} cannot be used ({error.strerror})") from error


def _keep_private(folder: Path) -> None:
    """Take from others what they may do in a folder that was there before, if it is this user's.

    A volume's root that is another's, as a cluster mounts them, is left as its owner made it.
    """
    found = folder.stat()
    if found.st_uid == os.getuid() and found.st_mode & 0o077:
        folder.chmod(PRIVATE_FOLDER)
        import structlog  # noqa: PLC0415  (commands that only read logs do without)

        structlog.get_logger().info(
            "state-dir-closed", folder=str(folder), meaning="only this user may read what is in it now"
        )


def write_json(path: Path, value: JsonObject, *, indent: int | None = None) -> None:
    """Replace a file's content whole."""
    write_bytes(path, json.dumps(value, indent=indent, allow_nan=False).encode())


def write_bytes(path: Path, data: bytes) -> None:
    """Replace a file's content whole; its folder is made."""
    path.parent.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
    write_whole(path, data, durable=False, mode=PRIVATE)


def read_json(path: Path) -> JsonObject | None:
    """A file's content; None if there is no such file.

    Raises:
        StateDamaged: it cannot be read.
    """
    try:
        value = parse_json(read_ordinary(path, _LARGEST_BYTES))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise StateDamaged(f"{path}: cannot be read ({error}); move it away to start afresh") from error
    if not isinstance(value, dict):
        raise StateDamaged(f"{path}: holds no JSON object; move it away to start afresh")
    return value
