"""The file of finished cells: one line of JSON each, appended as they finish, so that a killed run loses none.

A line is found again by a digest of what was measured: the cell, the policy, and the version of the code behind them.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks.policy_quality.cells import Cell
from policy_net.errors import BadInput

FILE_NAME = "cells.jsonl"
SYNC_SECONDS = 1.0
"""A machine that loses its power loses at most what finished in so much time: to wait for the disk at every line would
take longer than most replays. A run that is killed loses nothing."""

Figures = Mapping[str, Any]
"""Figures of one cell under one policy by name; see `measure`."""


@dataclass(frozen=True, slots=True)
class Task:
    """One cell under one policy; `version` says of which code (`version.policy_version`)."""

    cell: Cell
    policy: str
    version: str

    @property
    def key(self) -> str:
        """A digest of everything that the figures depend on."""
        text = json.dumps([self.cell.as_json(), self.policy_label, self.version], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    @property
    def policy_label(self) -> str:
        """The policy's name; of a policy file, without its folders."""
        return Path(self.policy).name

    def __str__(self) -> str:
        return f"{self.policy_label} on {self.cell}"


class ResultStore:
    """The results in a folder; one run at a time appends to it.

    Raises:
        BadInput: another run is using the folder, or its file is not one of ours.
    """

    def __init__(self, folder: Path) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = (folder / FILE_NAME).open("a+b")
        except OSError as error:
            raise BadInput(f"{folder}: cannot be used for results: {error.strerror}; name another folder") from error
        self.path = folder / FILE_NAME
        self._synced_at = time.monotonic()
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._file.close()
            raise BadInput(f"{self.path}: another run is writing there; wait for it, or use another folder") from error
        try:
            self._results = self._read()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._sync()
        self._file.close()

    def __len__(self) -> int:
        return len(self._results)

    def get(self, task: Task) -> Figures | None:
        """The figures of a finished task; None if it is not finished."""
        return self._results.get(task.key)

    def add(self, task: Task, figures: Figures) -> None:
        """Append a finished task; a kill no longer loses it, and the first line `SYNC_SECONDS` later, or the end of the
        run, brings it to the disk."""
        line = {"key": task.key, "policy": task.policy_label, "version": task.version, "cell": task.cell.as_json()}
        self._file.write(json.dumps({**line, "figures": figures}).encode() + b"\n")
        self._file.flush()
        if time.monotonic() >= self._synced_at + SYNC_SECONDS:
            self._sync()
        self._results[task.key] = figures

    def _sync(self) -> None:
        os.fsync(self._file.fileno())
        self._synced_at = time.monotonic()

    def _read(self) -> dict[str, Figures]:
        """All whole lines; a last line without its end is what a killed run was writing, and is cut off."""
        self._file.seek(0)
        content = self._file.read()
        whole = content[: content.rfind(b"\n") + 1]
        if len(whole) < len(content):
            self._file.truncate(len(whole))
        results: dict[str, Figures] = {}
        for number, line in enumerate(whole.splitlines(), start=1):
            entry = None
            with suppress(ValueError):
                entry = json.loads(line)
            if not isinstance(entry, dict) or not {"key", "figures"} <= entry.keys():
                raise BadInput(f"{self.path}, line {number}: not a result of this program; move the file away")
            results[entry["key"]] = entry["figures"]
        return results
