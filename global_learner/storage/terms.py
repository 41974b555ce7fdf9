"""Terms of a state directory that learners share: the folder of the active one carries its fencing number in its name.

Who takes the lease renames the folder of the one before, in one step that a file system does whole or not at all. From
then on nothing that an earlier holder does by a name finds the folder: no snapshot, no version, no segment of the log.
What it still writes through files that it has open goes nowhere: the next one copies those that are written in place,
and cuts the log's segments behind a snapshot. So a learner that was frozen in a write, and wakes, harms nothing.
"""

from __future__ import annotations

import uuid
from pathlib import Path

import structlog

from foundation.files import PARTIAL, PRIVATE, sync_folder, write_first, write_whole
from global_learner.errors import LeaseLost, StateUnusable
from global_learner.storage.snapshot import PARTIAL_NAME

_log = structlog.get_logger()

DIRECTORY_FILE = "directory.id"
"""Holds the number of the directory."""
_PREFIX = "term-"


def directory_number(state_dir: Path, *, make: bool) -> str | None:
    """The number of a state directory, by which learners that share a database see that they share the directory too.

    Args:
        make: whether one that has none gets one.

    Raises:
        StateUnusable: the directory cannot be used.
    """
    path = state_dir / DIRECTORY_FILE
    try:
        if make and not path.exists():
            state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_first(path, f"{uuid.uuid4()}\n".encode(), mode=PRIVATE)
        return path.read_text(encoding="utf-8", errors="replace").strip() if path.exists() else None
    except OSError as error:
        raise StateUnusable(
            f"state_dir {state_dir}: cannot be used ({error.strerror}); name a directory that can be written"
        ) from error


def take_term(state_dir: Path, fence: int) -> Path:
    """The folder of this term, with all that the term before left; a new one at the very first start.

    Raises:
        LeaseLost: a later term has begun.
        StateUnusable: the directory cannot be used, or holds the state of a learner without a database.
    """
    mine = _folder(state_dir, fence)
    try:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        terms = _terms(state_dir)
        if terms and terms[-1] > fence:
            raise LeaseLost(f"{state_dir}: term {terms[-1]} has begun, and this learner's is {fence}; it ends")
        if terms:
            before = terms[-1]
            if before != fence:
                _folder(state_dir, before).rename(mine)
                sync_folder(state_dir)
            _detach(mine)
            if len(terms) > 1:
                advice = "left by a learner that lost its lease as it began: nothing uses them"
                _log.warning("terms-left", folder=str(state_dir), terms=terms[:-1], advice=advice)
            return mine
        if (state_dir / "registry.sqlite").exists():
            raise StateUnusable(
                f"state_dir {state_dir}: holds the state of a learner without a database; begin in an empty one, or "
                "leave out the setting database"
            )
        mine.mkdir(mode=0o700)
        sync_folder(state_dir)
    except FileNotFoundError as error:
        raise LeaseLost(f"{state_dir}: a later term began meanwhile ({error}); this learner ends") from error
    except OSError as error:
        raise StateUnusable(
            f"state_dir {state_dir}: cannot be used ({error.strerror}); name a directory that can be written"
        ) from error
    return mine


def point_to(term: Path, name: str, there: str = "") -> None:
    """Let a name in the state directory lead to what this term has under it, in place of an earlier term's.

    Args:
        there: the name that it has in the term's folder, if that is another.

    Raises:
        StateUnusable: the directory cannot be written.
    """
    link = term.parent / name
    partial = term / f"{name}{PARTIAL}"
    try:
        partial.unlink(missing_ok=True)
        partial.symlink_to(Path(term.name) / (there or name))
        partial.replace(link)
    except OSError as error:
        raise StateUnusable(
            f"{link}: cannot be made ({error.strerror}); name a state_dir that can be written"
        ) from error


def _detach(term: Path) -> None:
    """Put copies in the place of the files that are written in place: an earlier holder may have them open."""
    receipts = sorted((term / "receipts").glob("updates-*.jsonl"))
    written = [*(path for path in term.iterdir() if path.is_file()), *receipts[-1:], term / "snapshots" / PARTIAL_NAME]
    for path in written:
        if path.is_file() and not path.is_symlink():
            write_whole(path, path.read_bytes(), mode=PRIVATE, alone=True)


def _terms(state_dir: Path) -> list[int]:
    names = (path.name.removeprefix(_PREFIX) for path in state_dir.glob(f"{_PREFIX}*"))
    return sorted(int(name) for name in names if name.isdigit())


def _folder(state_dir: Path, fence: int) -> Path:
    return state_dir / f"{_PREFIX}{fence:010d}"
