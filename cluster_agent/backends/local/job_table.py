"""Table of the jobs that were submitted: one durable file each, so that an agent that is killed finds them all again.

One owner, the agent. A file is on disk before its submission is acknowledged, and is replaced whole. What a job has
trained is its coordinator's to know; here stands what nobody else remembers.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import threading
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

import structlog
from pydantic import ConfigDict, Field, ValidationError

from cluster_agent.backends.local.job_file import NAME, JobFile
from cluster_agent.errors import JobRefused, StateDamaged
from foundation.files import make_durable_folder, read_ordinary, write_whole
from foundation.text import parse_json, plain_line, with_checksum, without_checksum
from policy_net.domain import Allocation
from policy_net.settings import Section
from policy_net.settings_problems import FileWords, first_problems

_log = structlog.get_logger()
SUBMITTED = "submitted"
"""The table's folder in an agent's state directory."""
KEEP_ENDED = 500
_NAME = re.compile(NAME)


class JobState(StrEnum):
    """Where a job is."""

    QUEUED = "queued"
    """Never had anything yet."""
    RUNNING = "running"
    SUSPENDED = "suspended"
    """It had something, and waits with a checkpoint."""
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        """Nothing more happens to it."""
        return self in (JobState.DONE, JobState.FAILED, JobState.CANCELLED)

    @property
    def ended_words(self) -> str:
        """Of one that has ended: it is done, has failed, is cancelled."""
        return f"{'has' if self is JobState.FAILED else 'is'} {self.value}"


class Notice(StrEnum):
    """How far the notification of a job's end is."""

    NONE = "none"
    BEGUN = "begun"
    OVER = "over"


class LocalJobRecord(Section):
    """One job, as it is remembered.

    Attributes:
        number: in the order of submission.
        granted_workers, granted_ps: what it was asked to have last; its own until its processes say otherwise.
        run_seconds: during which it held what was decided, between decisions that are over; for policies.
        trained_seconds: with workers, as its user is told, until `training_since_unix_seconds` (0: it has none now).
        suspended_unix_seconds: when it gave back all that it had, the last time; 0: never.
        samples: that are known to be trained; a coordinator that answers knows better.
        samples_per_epoch, steps_per_epoch, total_epochs: measured; 0 until then.
        too_large: why it could not begin with more than its least, in a line; it keeps to that since.
        released: whether the jobs on which it depends have ended as they were to.
        notice: how far the notification of its end is; `notice_failure` says why that failed, in a line.
        misstated: how far the work that it stated was from what it did until it was done, in a line.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: str
    number: int
    file: JobFile
    submitted_unix_seconds: float
    state: JobState = JobState.QUEUED
    held: bool = False
    cancelling: bool = False
    started_unix_seconds: float = 0.0
    ended_unix_seconds: float = 0.0
    granted_workers: int = Field(0, ge=0)
    granted_ps: int = Field(0, ge=0)
    run_seconds: float = Field(0.0, ge=0.0)
    trained_seconds: float = Field(0.0, ge=0.0)
    training_since_unix_seconds: float = Field(0.0, ge=0.0)
    suspended_unix_seconds: float = Field(0.0, ge=0.0)
    samples: float = Field(0.0, ge=0.0)
    samples_per_epoch: float = Field(0.0, ge=0.0)
    steps_per_epoch: float = Field(0.0, ge=0.0)
    total_epochs: float = Field(0.0, ge=0.0)
    failure: str = ""
    too_large: str = ""
    released: bool = False
    misstated: str = ""
    notice: Notice = Notice.NONE
    notice_failure: str = ""

    @property
    def most(self) -> Allocation:
        """What it may have."""
        return self.file.least if self.too_large else self.file.most

    @property
    def granted(self) -> Allocation:
        """What it was asked to have last."""
        return Allocation(self.granted_workers, self.granted_ps)

    @property
    def depends(self) -> bool:
        """Whether it may not begin yet, because of jobs before it."""
        return bool(self.file.depends_on) and not self.released and not self.state.ended

    @property
    def is_to_notify(self) -> bool:
        """Whether its end is still to be told, or nobody has said how that went."""
        return self.state.ended and self.file.notify is not None and self.notice is not Notice.OVER

    @property
    def stays(self) -> bool:
        """Whether it runs, and nobody but its user may stop it: it would start over."""
        return self.file.fixed and self.state is JobState.RUNNING and not (self.held or self.file.requeue)


class JobTable:
    """All jobs of one agent, by name; may be asked from any thread.

    The `keep_ended` newest jobs that ended are at hand; older ones are still on disk, and found by name.

    Attributes:
        changes: number of records written since; whoever has seen so many has seen all.
        damaged: names of the jobs whose files could not be read back, with a line of why; they are left as they are.

    Raises:
        OSError: the folder cannot be made, or read.
    """

    def __init__(self, folder: Path, keep_ended: int = KEEP_ENDED) -> None:
        self._folder = folder
        self._keep_ended = keep_ended
        self._lock = threading.RLock()
        self.changes = 0
        make_durable_folder(folder)
        folder.chmod(0o700)
        self.damaged: dict[str, str] = {}
        found = sorted(self._read_all(), key=lambda record: record.number)
        self._records = {record.name: record for record in found}
        # Thousands of ended jobs are not looked through several times a second.
        self._open = {name: record for name, record in self._records.items() if not record.state.ended}
        self._to_notify = {record.name: record for record in found if record.is_to_notify}
        ended = sorted((record for record in found if record.state.ended), key=lambda one: one.ended_unix_seconds)
        self._ended = dict.fromkeys(record.name for record in ended)
        self._forget_oldest()
        self._next = max((record.number for record in found), default=0) + 1

    def _read_all(self) -> Iterator[LocalJobRecord]:
        """Every record that can be read; one that was damaged is told of, and stops no other job."""
        for path in self._folder.glob("*.json"):
            try:
                yield _read(path)
            except StateDamaged as error:
                self.damaged[path.stem] = str(error)
                _log.error("job-record-damaged", job=path.stem, line=str(error))

    def __iter__(self) -> Iterator[LocalJobRecord]:
        """Those at hand in the order of their submission, as they are now."""
        with self._lock:
            return iter(list(self._records.values()))

    @property
    def unended(self) -> list[LocalJobRecord]:
        """Those that have not ended, in the order of their submission."""
        with self._lock:
            return list(self._open.values())

    @property
    def to_notify(self) -> list[LocalJobRecord]:
        """Those whose end is still to be told."""
        with self._lock:
            return list(self._to_notify.values())

    def get(self, name: str) -> LocalJobRecord | None:
        """The job of a name, however long ago it ended.

        Raises:
            StateDamaged: its file cannot be read back.
        """
        with self._lock:
            record, path = self._records.get(name), self._path(name)
            return _read(path) if record is None and _NAME.fullmatch(name) and path.exists() else record

    def add(self, file: JobFile, now_unix_seconds: float) -> LocalJobRecord:
        """Remember a job for good.

        Raises:
            JobRefused: its name is taken.
            OSError: it cannot be kept; nothing is remembered.
        """
        with self._lock:
            name = file.name or self._free_name(file)
            if name in self._records or self._path(name).exists():
                raise JobRefused(_taken(self._records.get(name), name))
            record = LocalJobRecord(
                name=name, number=self._next, file=file, submitted_unix_seconds=now_unix_seconds, held=file.suspend
            )
            self._write(record)
            self._next += 1
            return record

    def put(self, record: LocalJobRecord) -> None:
        """Replace a job's record.

        Raises:
            OSError: it cannot be kept; the one before stands.
        """
        with self._lock:
            if self._records.get(record.name) != record:
                self._write(record)

    def change(self, name: str, **values: object) -> LocalJobRecord:
        """Replace some values of a job's record; the record after that.

        Raises:
            OSError: as `put`.
        """
        with self._lock:
            before = self.get(name)
            if before is None:
                raise KeyError(name)
            record = before.model_copy(update=values)
            self.put(record)
            return record

    def remove(self, name: str) -> None:
        """Forget a job that has ended; its name is free again. One that is not there is forgotten already.

        Raises:
            OSError: its file cannot be removed; it stays.
        """
        with self._lock:
            self._path(name).unlink(missing_ok=True)
            self._records.pop(name, None)
            self._open.pop(name, None)
            self._to_notify.pop(name, None)
            self._ended.pop(name, None)
            self.changes += 1

    def _write(self, record: LocalJobRecord) -> None:
        text = json.dumps(with_checksum(record.model_dump(mode="json")), indent=1)
        write_whole(self._path(record.name), text + "\n", mode=0o600, alone=True)
        self._records[record.name] = record
        self.changes += 1
        if record.is_to_notify:
            self._to_notify[record.name] = record
        else:
            self._to_notify.pop(record.name, None)
        if record.state.ended:
            self._open.pop(record.name, None)
            self._ended.setdefault(record.name)
            self._forget_oldest()
        else:
            self._open[record.name] = record

    def _forget_oldest(self) -> None:
        while len(self._ended) > self._keep_ended:
            oldest = next(iter(self._ended))
            del self._ended[oldest], self._records[oldest]

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.json"

    def _free_name(self, file: JobFile) -> str:
        stem = "".join(letter if letter.isalnum() else "-" for letter in file.title.lower()).strip("-")[:40]
        names = (f"{stem.strip('-') or 'job'}-{number}" for number in itertools.count(self._next))
        return next(name for name in names if not self._path(name).exists())


def ends_in(folder: Path) -> list[LocalJobRecord]:
    """Records of the jobs that are done, for readers; unreadable files are left out, and no folder is made."""
    found = []
    for path in sorted(folder.glob("*.json")):
        with contextlib.suppress(StateDamaged):
            found.append(_read(path))
    return [record for record in found if record.state is JobState.DONE]


def _taken(record: LocalJobRecord | None, name: str) -> str:
    if record is not None and record.state.ended:
        why = f"; it {record.state.ended_words}: `cluster-agent delete {name}` frees its name, or take another one"
    else:
        why = "; cancel it, or take another name"
    return f"there is a job {name} already{why}"


def _read(path: Path) -> LocalJobRecord:
    try:
        content = parse_json(read_ordinary(path))
        content = without_checksum(content) if isinstance(content, dict) else content
        record = LocalJobRecord.model_validate_json(json.dumps(content))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        if isinstance(error, ValidationError):
            reason = first_problems(error, LocalJobRecord, FileWords("field", json=True))
        raise StateDamaged(_damaged(path, plain_line(str(reason)))) from error
    if record.name != path.stem:
        raise StateDamaged(_damaged(path, f"it is of a job named {plain_line(record.name)}"))
    return record


def _damaged(path: Path, why: str) -> str:
    return f"{path}: is no job's record ({why}); put its content back, or move it away to go on without that job"
