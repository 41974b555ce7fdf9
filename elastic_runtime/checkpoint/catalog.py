"""The folder of a job's checkpoints: which there are, which is the newest that can be trusted, which may go."""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection
from pathlib import Path

import structlog

from elastic_runtime.checkpoint.manifest import MANIFEST, Manifest, read_heads, read_manifest
from elastic_runtime.checkpoint.verification import verify
from elastic_runtime.errors import CheckpointError

_NAME = re.compile(r"step-(\d{10,})")
_log = structlog.get_logger(__name__)


def folder_of(checkpoints: Path, step: int) -> Path:
    """Where the checkpoint of a step lies."""
    return checkpoints / f"step-{step:010d}"


def list_checkpoints(checkpoints: Path) -> list[tuple[int, Path]]:
    """Step and folder of every checkpoint with a manifest, oldest first; they may be damaged."""
    return [(step, folder) for step, folder in _folders(checkpoints) if (folder / MANIFEST).exists()]


def latest_durable(checkpoints: Path) -> Manifest | None:
    """The newest checkpoint of which every digest is right, or None; damaged ones are passed over and logged."""
    for step, folder in reversed(_folders(checkpoints)):
        try:
            return verify(folder)
        except CheckpointError as error:
            _log.warning("checkpoint_passed_over", step=step, reason=str(error))
    return None


def retain(checkpoints: Path, keep: int, protect: Collection[int] = ()) -> list[int]:
    """Remove old checkpoints, and what is left of unfinished ones older than the newest that stays.

    Digests of the numbers are not computed here, so that this is cheap; a checkpoint whose files are missing, of
    another size, or have another head does not count among those kept.

    Args:
        checkpoints: the job's folder.
        keep: how many complete ones to keep, at least 1.
        protect: steps whose checkpoints stay in any case, as somebody reads them.

    Returns:
        The steps whose folders were removed.

    Raises:
        CheckpointError: a folder cannot be removed.
    """
    if keep < 1:
        raise ValueError(f"keep is {keep}; at least one checkpoint has to stay")
    folders = _folders(checkpoints)
    complete = [step for step, folder in folders if _complete(folder)]
    if not complete:
        return []
    kept = {*complete[-keep:], *protect}
    gone = []
    for step, folder in folders:
        if step not in kept and step < complete[-1]:
            _remove(folder)
            gone.append(step)
    return gone


def discard(folder: Path) -> None:
    """Remove a checkpoint that will not be finished; one with a manifest stays.

    Raises:
        CheckpointError: it cannot be removed.
    """
    if not (folder / MANIFEST).exists():
        _remove(folder)


def _folders(checkpoints: Path) -> list[tuple[int, Path]]:
    if not checkpoints.is_dir():
        return []
    matches = [(_NAME.fullmatch(folder.name), folder) for folder in checkpoints.iterdir() if folder.is_dir()]
    return sorted((int(match[1]), folder) for match, folder in matches if match is not None)


def _complete(folder: Path) -> bool:
    try:
        read_heads(read_manifest(folder))
    except CheckpointError:
        return False
    return True


def _remove(folder: Path) -> None:
    try:
        # Without its manifest it counts no more, should the rest be interrupted.
        (folder / MANIFEST).unlink(missing_ok=True)
        shutil.rmtree(folder)
    except FileNotFoundError:
        return
    except OSError as error:
        raise CheckpointError(f"{folder} cannot be removed: {error.strerror}") from error
