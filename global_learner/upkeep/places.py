"""Places of a backup: what can be copied, and where to; asked before anything of what copies is loaded."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

from global_learner.errors import BadLearnerConfig


def check_places(source: Path, target: Path) -> None:
    """See that there is a state directory of this user's, and that the copy can be made.

    Raises:
        BadConfig: there is nothing to copy, it may not be read by this user, or the target cannot be one.
    """
    _check_target(source, target)
    _check_source(source)


def _check_source(source: Path) -> None:
    if not (source / "registry.sqlite").is_file():
        raise BadLearnerConfig(f"setting state_dir: {source} holds no learner's state, so there is nothing to back up")
    owner = source.stat().st_uid
    if owner != os.geteuid():
        try:
            name = pwd.getpwuid(owner).pw_name
        except KeyError:
            name = f"#{owner}"
        raise BadLearnerConfig(f"setting state_dir: {source} is {name}'s; back it up as that user: sudo -u {name}")


def _check_target(source: Path, target: Path) -> None:
    try:
        if not target.name or not target.parent.is_dir():
            raise BadLearnerConfig(f"{target}: there is no folder {target.parent}; name one that is there")
        if target.is_symlink() or (target.exists() and not target.is_dir()):
            raise BadLearnerConfig(f"{target}: is there and is no folder; name one that is not there yet")
        if target.is_mount():
            raise BadLearnerConfig(
                f"{target}: another disk is mounted there; name a folder on it, such as {target / 'backup'}"
            )
        if target.is_dir() and any(target.iterdir()):
            raise BadLearnerConfig(f"{target}: is there and not empty; name a folder that is not there yet")
        if target.resolve().is_relative_to(source.resolve()):
            raise BadLearnerConfig(
                f"{target}: lies in the state directory itself; name a folder elsewhere, best on another disk"
            )
    except (OSError, ValueError) as error:
        raise BadLearnerConfig(f"{str(target)[:200]!r}: cannot be a folder's name here ({error})") from error
