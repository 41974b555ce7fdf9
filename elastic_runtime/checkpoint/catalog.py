"""Folder of a job's checkpoints: which there are, which is the newest that can be trusted, which may go."""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

import structlog

from elastic_runtime.checkpoint.manifest import MANIFEST, Manifest, read_heads, read_manifest, verify
from elastic_runtime.checkpoint.object_store import Place, StorePath
from elastic_runtime.checkpoint.shard import cannot_read
from elastic_runtime.errors import CheckpointDamaged, CheckpointError
from foundation.text import LONGEST_ERROR_CHARACTERS, plain_line

_NAME = re.compile(r"step-(\d{10,})")
_log = structlog.get_logger(__name__)


def folder_of(checkpoints: Place, step: int) -> Place:
    """Where the checkpoint of a step lies."""
    return checkpoints / f"step-{step:010d}"


def list_checkpoints(checkpoints: Place) -> list[tuple[int, Place]]:
    """Step and folder of every checkpoint with a manifest, oldest first; they may be damaged.

    Raises:
        OSError: nobody can look there.
    """
    return [(step, folder) for step, folder in _folders(checkpoints) if (folder / MANIFEST).exists()]


@dataclass(frozen=True, slots=True)
class Search:
    """Result of a search for a sound checkpoint.

    Attributes:
        sound: the newest of which every digest is right; None: there is none.
        damaged: those that are newer, newest first, and what is wrong with each.
    """

    sound: Manifest | None
    damaged: tuple[tuple[Place, str], ...]

    @property
    def line(self) -> str:
        """What was passed over, why, and what is taken in its place; empty: nothing was passed over."""
        if not self.damaged:
            return ""
        why = "; ".join(f"{folder.name} is passed over: {reason}" for folder, reason in self.damaged)
        then = f"going back to step {self.sound.step}" if self.sound else "there is no other checkpoint"
        return plain_line(f"{then}: {why}", LONGEST_ERROR_CHARACTERS)


def newest_sound(folders: Iterable[Place]) -> Search:
    """The first sound checkpoint of these, newest first; damaged ones are passed over and logged.

    Raises:
        CheckpointError: one cannot be read, or is of another version: it is not known whether it is sound.
    """
    damaged: list[tuple[Place, str]] = []
    for folder in folders:
        try:
            return Search(verify(folder), tuple(damaged))
        except CheckpointDamaged as error:
            _log.warning("checkpoint-passed-over", checkpoint=folder.name, reason=str(error))
            damaged.append((folder, str(error)))
    return Search(None, tuple(damaged))


def latest_durable(checkpoints: Place) -> Manifest | None:
    """The newest sound checkpoint of a folder, or None; see `newest_sound`.

    Raises:
        CheckpointError: one cannot be read, or is of another version: whether it is sound is not known.
    """
    return newest_sound(folder for _, folder in reversed(_folders(checkpoints))).sound


def retain(checkpoints: Place, keep: int, protect: Collection[int] = ()) -> list[int]:
    """Remove old checkpoints, and what is left of unfinished ones older than the newest that stays.

    Digests of the numbers are not computed here, so that this is cheap; a checkpoint whose files are missing, of
    another size, or have another head does not count among those kept.

    Args:
        keep: how many complete ones to keep, at least 1.
        protect: steps whose checkpoints stay in any case, as somebody reads them.

    Returns:
        The steps whose folders were removed.

    Raises:
        CheckpointError: a folder cannot be removed, or a store cannot be asked.
    """
    if keep < 1:
        raise ValueError(f"keep is {keep}; at least one checkpoint has to stay")
    try:
        folders = _folders(checkpoints)
    except OSError as error:
        raise cannot_read(checkpoints, error) from error
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


def _folders(checkpoints: Place) -> list[tuple[int, Place]]:
    if not checkpoints.is_dir():
        return []
    matches = [(_NAME.fullmatch(folder.name), folder) for folder in checkpoints.iterdir()]
    found = [(int(match[1]), folder) for match, folder in matches if match is not None and folder.is_dir()]
    return sorted(found, key=lambda each: each[0])


def _complete(folder: Place) -> bool:
    try:
        read_heads(read_manifest(folder))
    except CheckpointDamaged:
        return False
    except CheckpointError:
        if isinstance(folder, StorePath):
            raise  # a network that fails now is no reason to remove anything
        return False
    return True


def _remove(folder: Place) -> None:
    try:
        # Without its manifest it counts no more, should the rest be interrupted.
        (folder / MANIFEST).unlink(missing_ok=True)
        if isinstance(folder, Path):
            shutil.rmtree(folder)
        else:
            for each in folder.iterdir():
                each.unlink(missing_ok=True)
    except FileNotFoundError:
        return
    except OSError as error:
        raise CheckpointError(f"{folder} cannot be removed: {error.strerror}") from error
