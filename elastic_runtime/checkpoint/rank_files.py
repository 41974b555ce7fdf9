"""Files of a job whose workers exchange gradients directly: how far it is, a checkpoint, and the word to stop.

Such a job has no coordinator. Whoever starts its processes names a folder; the first process writes there what it has
trained, and finds there whether all are to stop. They agree on the step after which they do, and the next processes,
of whatever number, go on from that step: which samples a step takes depends on the step alone.

FOLDER/progress.json    step, samples and epochs, every so often; no more than a hint after a crash
       checkpoint.pt    the newest whole model, with the optimizer's state; replaced whole
       checkpoint.before.pt    the one before it, which is gone on with where the newest turns out to be damaged
       stop             is there while the processes are to write a checkpoint and end
       meeting.json     the group that they are to form after their next step, without an end; the launcher's
       ready-G-R        process R, which is to be in group G, has come to its loop, and waits for the others
       port-G           where the first process of group G listens

What `torch.save` writes is a zip archive with a CRC-32 of each record, which `torch.load` does not look at; here all of
them are checked. Checkpoints may be in an object store instead; the rest stays in the folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import math
import os
import re
import secrets
import time
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from io import FileIO
from pathlib import Path
from typing import IO, Any

import structlog

from elastic_runtime.checkpoint.object_store import StorePath, place_of
from elastic_runtime.checkpoint.shard import cannot_read
from elastic_runtime.errors import BadInput, CheckpointDamaged, CheckpointError
from foundation.errors import DISK_FULL
from foundation.files import PRIVATE, open_ordinary, read_ordinary, sync_folder, write_whole
from foundation.text import parse_json, plain_line

_log = structlog.get_logger()
FOLDER_VARIABLE = "ELASTIC_RANKS_FOLDER"
STORE_VARIABLE = "ELASTIC_RANKS_CHECKPOINTS"
CHECKPOINT_SECONDS_VARIABLE = "ELASTIC_CHECKPOINT_SECONDS"
MEETING_VARIABLE = "ELASTIC_RANKS_MEETING"
"""The group that a process is to join while the others train; the others were started together, as group 1."""
_REPORT_SECONDS = 0.25
_USUAL_CHECKPOINT_SECONDS = 60.0
_MOST = 2.0**53
"""Larger numbers are not exact, and count nothing."""


# Checkpoints of an all-reduce job in an object store: each an object of its own, which a manifest makes count.
#
#     ranks-0000000120-1f0c….pt   the whole model, with the optimizer's state
#     ranks-0000000120.json       written after it: its name, its size and its SHA-256
#
# The newest two stay: one that turns out to be damaged is passed over.

_FORMAT = 1
_MANIFEST = re.compile(r"ranks-(\d{10,18})\.json")
_OBJECT = re.compile(r"ranks-(\d{10,18})-[0-9a-f]{16}\.pt")


class RankStore:
    """One job's checkpoints in a place of its own; written by its first process, read by all."""

    def __init__(self, place: StorePath) -> None:
        self._place = place
        self._damaged: set[int] = set()

    def __str__(self) -> str:
        return str(self._place)

    def save(self, step: int, content: bytes) -> None:
        """Keep what the job has after so many steps, and remove what is older than the one before.

        Raises:
            CheckpointError: it cannot be written; those before stand.
        """
        name = f"ranks-{step:010d}-{secrets.token_hex(8)}.pt"
        digest = hashlib.sha256(content).hexdigest()
        manifest = {"format": _FORMAT, "file": name, "size_bytes": len(content), "sha256": digest}
        try:
            (self._place / name).write_bytes(content)
            (self._place / f"ranks-{step:010d}.json").write_bytes(json.dumps(manifest).encode())
        except OSError as error:
            raise CheckpointError(f"{self._place / name}: cannot be written ({error.strerror})") from error
        try:
            self._tidy(step, name)
        except OSError as error:  # it takes room, and does no other harm
            _log.warning("checkpoint-not-removed", checkpoint=str(self._place), reason=error.strerror)

    def load(self) -> bytes | None:
        """The newest checkpoint that is as it was written; None if there is none yet.

        Raises:
            CheckpointError: none can be used, or the store cannot be asked.
        """
        try:
            steps = sorted(self._steps(), reverse=True)
        except OSError as error:
            raise cannot_read(self._place, error) from error
        reason = ""
        for step in steps:
            try:
                return self._read(step)
            except CheckpointDamaged as error:
                _log.warning("checkpoint-passed-over", step=step, reason=str(error))
                self._damaged.add(step)
                reason = reason or str(error)
        if reason:
            raise CheckpointError(f"{reason}; no other can be used: remove them to start the job over")
        return None

    def _read(self, step: int) -> bytes:
        path = self._place / f"ranks-{step:010d}.json"
        try:
            manifest = parse_json(path.read_bytes().decode())
            name, digest = str(manifest["file"]), manifest["sha256"]
            if manifest["format"] != _FORMAT:
                raise CheckpointError(f"{path} is of format {manifest['format']!r}, and this version reads {_FORMAT}")
            if not _OBJECT.fullmatch(name):
                raise CheckpointDamaged(f"{path} is damaged: it names {name[:80]!r}")
            content = (self._place / name).read_bytes()
        except OSError as error:
            raise cannot_read(path, error) from error
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointDamaged(f"{path} is damaged: it is no manifest") from error
        if hashlib.sha256(content).hexdigest() != digest:
            raise CheckpointDamaged(
                f"{self._place / name} is damaged: it does not have the digest that was written down"
            )
        return content

    def _steps(self) -> list[int]:
        return [int(found[1]) for path in self._place.iterdir() if (found := _MANIFEST.fullmatch(path.name))]

    def _tidy(self, step: int, name: str) -> None:
        """Manifests go first: without one, an object does not count."""
        older = sorted(each for each in self._steps() if each < step and each not in self._damaged)
        gone = {*older[:-1], *(self._damaged - {step})}
        self._damaged.clear()
        for each in gone:
            (self._place / f"ranks-{each:010d}.json").unlink(missing_ok=True)
        for path in self._place.iterdir():
            found = _OBJECT.fullmatch(path.name)
            if found and (int(found[1]) in gone or (int(found[1]) == step and path.name != name)):
                path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class RankProgress:
    """Progress of a job.

    Attributes:
        processes: of the run that says so; 0: no run has reported anything.
        live: whether its processes can form another group without an end.
        stall_seconds: that the first process has waited for other groups.
    """

    processes: int = 0
    pid: int = 0
    step: int = 0
    samples: int = 0
    epoch: float = 0.0
    total_epochs: float = 0.0
    finished: bool = False
    live: bool = False
    stall_seconds: float = 0.0


_PROGRESS = frozenset(field.name for field in fields(RankProgress))


@dataclass(frozen=True, slots=True)
class Meeting:
    """A group that a running job's processes are to form.

    Attributes:
        number: of the group, from 2.
        workers: that are in it; who has a higher rank leaves.
    """

    number: int
    workers: int


class RankFiles:
    """One job's folder.

    Args:
        store: where checkpoints are, if not in the folder.
    """

    def __init__(
        self,
        folder: Path,
        checkpoint_seconds: float = _USUAL_CHECKPOINT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        store: RankStore | None = None,
    ) -> None:
        self._store = store
        self._folder = folder
        self.stop_file = folder / "stop"
        self._meeting_file = folder / "meeting.json"
        self.checkpoint_file = folder / "checkpoint.pt"
        self._file_before = folder / "checkpoint.before.pt"
        self._is_damaged = False
        self._progress_file = folder / "progress.json"
        self._checkpoint_seconds = checkpoint_seconds
        self._clock = clock
        self._reported_seconds = -_REPORT_SECONDS
        self._saved_seconds = clock()

    @property
    def stop_requested(self) -> bool:
        """Whether the processes are to write a checkpoint and end."""
        return self.stop_file.exists()

    def meeting(self) -> Meeting | None:
        """The group that is to be formed; None if none is, or what says so cannot be read."""
        if not self._meeting_file.exists():
            return None
        with contextlib.suppress(OSError, ValueError, TypeError):
            found = parse_json(read_ordinary(self._meeting_file, below=self._folder.parent))
            if isinstance(found, dict) and all(type(value) is int and value > 0 for value in found.values()):
                return Meeting(**found)
        return None

    def call(self, meeting: Meeting) -> None:
        """Ask for a group.

        Raises:
            OSError: it cannot be written.
        """
        write_whole(self._meeting_file, json.dumps(asdict(meeting)), durable=False, mode=PRIVATE, alone=True)

    def say_ready(self, number: int, rank: int) -> None:
        """Say that this process waits for the others of a group."""
        (self._folder / f"ready-{number}-{rank}").touch(mode=PRIVATE)

    def is_ready(self, number: int, rank: int) -> bool:
        """Whether that process has said so."""
        return (self._folder / f"ready-{number}-{rank}").exists()

    def say_port(self, number: int, port: int) -> None:
        """Say where the first process of a group listens."""
        write_whole(self._folder / f"port-{number}", str(port), durable=False, mode=PRIVATE, alone=True)

    def port_of(self, number: int) -> int | None:
        """Where it does; None if it does not yet."""
        with contextlib.suppress(OSError, ValueError):
            return int(read_ordinary(self._folder / f"port-{number}", below=self._folder.parent))
        return None

    def forget_meetings(self) -> None:
        """Remove what meetings left."""
        for path in (self._meeting_file, *self._folder.glob("ready-*-*"), *self._folder.glob("port-*")):
            path.unlink(missing_ok=True)

    @property
    def checkpoint_due(self) -> bool:
        """Whether the last one is old enough for another."""
        return self._clock() - self._saved_seconds >= self._checkpoint_seconds

    def progress(self) -> RankProgress:
        """What was told last; nothing where that cannot be read."""
        with contextlib.suppress(OSError, ValueError, TypeError):
            found = parse_json(read_ordinary(self._progress_file, below=self._folder.parent))
            if isinstance(found, dict) and all(_is_sane(value) for value in found.values()):
                # A script's version may say more than this one knows.
                return RankProgress(**{key: value for key, value in found.items() if key in _PROGRESS})
        return RankProgress()

    def report(self, progress: RankProgress, *, at_once: bool = False) -> None:
        """Say how far the job is, unless that was reported just now; a full disk costs the hint, not the job."""
        now = self._clock()
        if at_once or now - self._reported_seconds >= _REPORT_SECONDS:
            self._reported_seconds = now
            with contextlib.suppress(OSError):
                # Whoever goes on after a kill writes over what that left.
                text = json.dumps(asdict(progress))
                write_whole(
                    self._progress_file, text, durable=False, mode=PRIVATE, alone=True, below=self._folder.parent
                )

    def save(self, content: Mapping[str, Any]) -> None:
        """Replace the checkpoint.

        Raises:
            CheckpointError: it cannot be written; the one before stands.
        """
        self._saved_seconds = self._clock()
        buffer = _archive(content)
        if self._store is not None:
            self._store.save(int(content["step"]), buffer.getvalue())
            return
        try:
            self._put(buffer.getbuffer())
        except OSError as error:
            raise CheckpointError(f"{self.checkpoint_file}: cannot be written ({error.strerror})") from error

    def _put(self, data: memoryview) -> None:
        """Replace the newest checkpoint; it becomes the one before, unless it is damaged."""
        new = self.checkpoint_file.with_name("checkpoint.new.pt")
        try:
            write_whole(new, data, mode=PRIVATE, alone=True)
        except OSError as error:
            if error.errno not in DISK_FULL or not self._file_before.exists():
                raise
            self._file_before.unlink(missing_ok=True)  # where there is room for two alone, the older one makes it
            write_whole(new, data, mode=PRIVATE, alone=True)
        if not self._is_damaged:
            with contextlib.suppress(FileNotFoundError):  # it is the first
                self.checkpoint_file.replace(self._file_before)
        new.replace(self.checkpoint_file)
        sync_folder(new.parent)
        self._is_damaged = False

    def load(self) -> dict[str, Any] | None:
        """The newest checkpoint that is as it was written; None if there is none yet.

        Raises:
            CheckpointError: none can be used.
        """
        if self._store is not None:
            kept = self._store.load()
            try:
                return None if kept is None else _content(io.BytesIO(kept), str(self._store))
            except CheckpointDamaged as error:  # its digest is right: it was written so
                raise CheckpointError(f"{error}; remove it to start the job over") from error
        reason = ""
        for path in (self.checkpoint_file, self._file_before):
            try:
                with FileIO(open_ordinary(path, below=self._folder.parent)) as file:
                    return _content(file, str(path))
            except FileNotFoundError:
                continue
            except OSError as error:
                reason = reason or f"{path}: cannot be read ({error.strerror})"
            except CheckpointDamaged as error:
                reason = reason or str(error)
            _log.warning("checkpoint-passed-over", reason=reason)
            self._is_damaged = self._is_damaged or path == self.checkpoint_file
        if reason:
            raise CheckpointError(f"{reason}; no other can be used: remove it to start the job over")
        return None


def _archive(content: Mapping[str, Any]) -> io.BytesIO:
    import torch  # noqa: PLC0415  # whoever only looks after the job has no use for it

    buffer = io.BytesIO()
    before = torch.serialization.get_crc32_options()
    torch.serialization.set_crc32_options(True)  # the script may have turned it off for files of its own
    try:
        torch.save(dict(content), buffer)
    finally:
        torch.serialization.set_crc32_options(before)
    return buffer


def _content(file: IO[bytes], name: str) -> dict[str, Any]:
    """Content of a checkpoint.

    Raises:
        CheckpointDamaged: it is not as it was written.
    """
    import torch  # noqa: PLC0415  # see above

    try:
        with zipfile.ZipFile(file) as archive:
            damaged = archive.testzip()
        file.seek(0)
        content: dict[str, Any] = {} if damaged else torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # zipfile and torch raise what their parts raise
        raise CheckpointDamaged(f"{name}: is no checkpoint, or damaged") from error
    if damaged:
        raise CheckpointDamaged(f"{name}: is damaged: {damaged} in it has not the checksum that was written with it")
    return content


def rank_files(environment: Mapping[str, str]) -> RankFiles | None:
    """Folder that a process was told of; None where nobody looks after it so, as under torchrun.

    Raises:
        BadInput: a variable cannot be used.
    """
    folder = environment.get(FOLDER_VARIABLE)
    if not folder:
        return None
    if not os.path.isdir(folder):  # noqa: PTH112  (a name that is too long is none either)
        raise BadInput(plain_line(f"{FOLDER_VARIABLE} = {folder}: there is no such folder; leave it to the launcher"))
    text = environment.get(CHECKPOINT_SECONDS_VARIABLE) or str(_USUAL_CHECKPOINT_SECONDS)
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0.0 < seconds < math.inf:
        raise BadInput(plain_line(f"{CHECKPOINT_SECONDS_VARIABLE} = {text}: use a number of seconds above 0"))
    return RankFiles(Path(folder), seconds, store=_store(environment))


def meeting_of(environment: Mapping[str, str]) -> int:
    """Number of the group that a process begins in; above 1 it joins others, which train.

    Raises:
        BadInput: the variable cannot be used.
    """
    text = environment.get(MEETING_VARIABLE) or "1"
    if not text.isdecimal() or len(text) > 9 or not int(text):
        raise BadInput(plain_line(f"{MEETING_VARIABLE} = {text}: is no number of a group; leave it to the launcher"))
    if int(text) > 1 and not environment.get(FOLDER_VARIABLE):
        raise BadInput(f"{MEETING_VARIABLE} = {text}: and {FOLDER_VARIABLE} is not set; leave them to the launcher")
    return int(text)


def _store(environment: Mapping[str, str]) -> RankStore | None:
    url = environment.get(STORE_VARIABLE)
    if not url:
        return None
    try:
        place = place_of(url)
    except BadInput as error:
        raise BadInput(f"{STORE_VARIABLE}: {error}") from error
    if not isinstance(place, StorePath):
        raise BadInput(plain_line(f"{STORE_VARIABLE} = {url}: is no URL such as s3://bucket/prefix", 200))
    return RankStore(place)


def _is_sane(value: object) -> bool:
    """Whether something counts what has happened: a script can write this file too."""
    return isinstance(value, int | float) and 0 <= value <= _MOST  # no NaN, nor what no float can be
