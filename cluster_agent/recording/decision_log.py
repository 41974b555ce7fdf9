"""The decision log: a record of every decision, complete enough to make it again, one JSON object a line.

A decision follows from the state, the policy's file, the seed and number, and what the policy believes of speeds. A
checkpoint holds the first of these beliefs whole; every decision's line holds what they have been shown since the
decision before, and the digest that they had when it was made. So beliefs can be followed again from any
checkpoint, and every step of that be checked. How a line is sealed stands in `policy_net.exchange.state_codec`.

The current file is `decisions.jsonl`; when it grows beyond its bound it becomes `decisions-NNNNNN.jsonl`, numbered on,
and the oldest of those are removed. Every file begins with a checkpoint, and so stands for itself. What is written is
written in one piece, so an agent killed meanwhile leaves at most one torn line at the end, which a reader passes over;
the next agent closes it and goes on with a checkpoint. An agent killed between a line and its snapshot makes a decision
of that number again: of two lines with the same number, the later one counts.

The log names a policy by its digest. The newest few policy files are kept beside it; older ones are in the learner's
store, which names its files alike.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from io import FileIO
from pathlib import Path
from typing import Any

from cluster_agent.errors import StateDamaged
from cluster_agent.recording.state_files import PRIVATE_FOLDER, write_bytes
from foundation.files import PRIVATE, open_ordinary
from policy_net.domain import ClusterState, Decision, Progress, Trigger
from policy_net.errors import BadInput
from policy_net.exchange.policy_file import digest_of
from policy_net.exchange.state_codec import (
    CHECKPOINT_START,
    DECISION_START,
    JsonObject,
    canonical_json,
    decode_state,
    digest_of_json,
    encode_decision,
    encode_progress,
    encode_state,
    read_lines,
    sealed,
)
from policy_net.policy import Samples

CURRENT = "decisions.jsonl"
_CLOSED = re.compile(r"^decisions-(\d{6,})\.jsonl$")
_DIGEST_LENGTH = 64


LOG_FORMAT = 2
"""Raised whenever the meaning of a line changes; the first had no checkpoints."""


class CheckpointReason(StrEnum):
    """Why there is a checkpoint here."""

    START = "start"
    """An agent started."""
    FILE = "file"
    """A new file began."""
    POLICY = "policy"
    """Another policy became active, with the beliefs that it starts from."""
    BELIEFS = "beliefs"
    """Beliefs were changed by something else than reports, such as what the fleet has told."""
    GAP = "gap"
    """Something before was not written, or a policy could not be looked into."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """How things stand right before a decision.

    Attributes:
        settings: how the active policy is configured to decide.
        busy: whether it was still at an earlier decision, so that its beliefs could not be read.
        beliefs: `Beliefs.checkpoint` of the active policy; None if it has none, or was busy.
        challenger: `policy`, `busy` and `beliefs` of the challenger; not in the line if there is none.
    """

    number: int
    wall_time_seconds: float
    policy: Mapping[str, object]
    settings: Mapping[str, object]
    busy: bool
    beliefs: Mapping[str, Any] | None
    fallback: str
    fallback_beliefs: Mapping[str, Any] | None
    program: str
    challenger: Mapping[str, Any] | None = None

    @property
    def is_blind(self) -> bool:
        """Whether a policy's beliefs could not be read."""
        return self.busy or (self.challenger is not None and bool(self.challenger["busy"]))

    def to_line(self, reason: CheckpointReason) -> bytes:
        """The line, with its end."""
        rest = {"format": LOG_FORMAT} | {each.name: getattr(self, each.name) for each in fields(self)}
        challenger = rest.pop("challenger")
        rest |= {} if challenger is None else {"beside": challenger}
        return sealed(f'{CHECKPOINT_START}"{reason.value}",{canonical_json(rest)[1:]}')


@dataclass(frozen=True, slots=True)
class DecisionRecord:
    """One decision, as it is logged.

    Attributes:
        number: counts the agent's decisions from 0, over all of its lives.
        previous_reward: of the interval that ended with this decision; None before the first.
        asked: whether the policy was asked at all; not while it is still at an earlier decision.
        beliefs_digest: of what the policy believed before it decided; None if it believes nothing, or was busy.
        observed: what jobs did since the decision before; a checkpoint right before this line has seen it already.
        observed_by: whose beliefs were shown it: `policy`, `fallback`, `beside`, or nobody's.
        rollout: in which it was made, whose turn it was, and in which block; None outside rollouts.
        challenger: what the challenger would have done at the decision before (it is asked while the interval lasts).
    """

    number: int
    wall_time_seconds: float
    state: ClusterState
    trigger: Trigger
    policy: str
    version: int
    head_step: int
    digest: str
    seed: int
    mode: str
    exploration: float
    decision: Decision
    samples: Samples | None
    interventions: tuple[str, ...]
    decide_seconds: float
    previous_reward: float | None
    asked: bool = True
    beliefs_digest: str | None = None
    observed: tuple[Progress, ...] = ()
    observed_by: tuple[str, ...] = ()
    rollout: Mapping[str, Any] | None = None
    challenger: Mapping[str, Any] | None = None

    def to_line(self) -> bytes:
        """The line, with its end."""
        state = canonical_json(encode_state(self.state))
        names = [each.name for each in fields(self) if each.name not in _WRITTEN_OTHERWISE]
        rest: dict[str, object] = {name: getattr(self, name) for name in names}
        rest |= {
            "state_digest": hashlib.sha256(state.encode()).hexdigest(),
            "trigger": self.trigger.value,
            "interventions": list(self.interventions),
            "previous_reward": _or_null(self.previous_reward),
            "observed": [encode_progress(entry) for entry in self.observed],
            "observed_by": list(self.observed_by),
            **encode_samples(self.samples),
        } | encode_decision(self.decision)
        more = {"rollout": self.rollout, "beside": self.challenger}
        rest |= {name: dict(value) for name, value in more.items() if value is not None}
        # The state is most of the line: its canonical text is made once, for the digest and for the line.
        return sealed(f"{DECISION_START}{state},{canonical_json(rest)[1:]}")


_WRITTEN_OTHERWISE = ("state", "decision", "samples", "rollout", "challenger")
"""Fields of a decision that its line has under other names, if at all."""


def encode_samples(samples: Samples | None) -> dict[str, object]:
    """A decision's choices and their probabilities, as JSON values."""
    if samples is None:
        return {"actions": None, "behaviour": None}
    behaviour = [_or_null(value) for value in samples.behaviour_M.tolist()]
    return {"actions": samples.actions_M.tolist(), "behaviour": behaviour}


def _or_null(value: float | None) -> float | None:
    """JSON has no NaN; a figure that is none is logged as null, and the intervention says why."""
    return value if value is not None and math.isfinite(value) else None


class DecisionLog:
    """Appends records to the current file and rotates it; one writer a folder."""

    def __init__(self, folder: Path, max_bytes: int, keep: int, keep_policies: int = 32) -> None:
        folder.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        self._folder = folder
        self._max_bytes = max_bytes
        self._keep = keep
        self._path = folder / CURRENT
        self.archive = PolicyArchive(folder / "policies", keep_policies)
        # A file of an earlier version cannot be gone on with: a file stands for itself.
        self._foreign = _begins_otherwise(self._path)
        self._stream = self._open()
        self._torn = False
        self._due: CheckpointReason | None = CheckpointReason.START

    def append(self, record: DecisionRecord, checkpoint: Checkpoint, reason: CheckpointReason | None = None) -> bool:
        """Write one record; what was written survives the death of this process. True if the checkpoint was, too.

        The checkpoint is written where a file or a life of the agent begins, where a line was lost, and for any reason.

        Raises:
            OSError: it could not be written whole; the next one begins on a line of its own.
        """
        line = record.to_line()
        reason = self._due or reason
        head = b"" if reason is None else checkpoint.to_line(reason)
        size = self._stream.tell()
        if size > 0 and (self._foreign or size + self._torn + len(head) + len(line) > self._max_bytes):
            self._rotate()
            size = 0
            head = head or checkpoint.to_line(CheckpointReason.FILE)
        data = (b"\n" if self._torn and size else b"") + head + line
        self._torn, self._due = True, CheckpointReason.GAP
        if self._stream.write(data) < len(data):
            raise OSError(errno.ENOSPC, f"{self._path} takes no more")
        self._torn, self._due = False, None
        return bool(head)

    def close(self) -> None:
        """Close the current file."""
        self._stream.close()

    def _open(self) -> FileIO:
        stream = FileIO(open_ordinary(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND), "a+")
        os.fchmod(stream.fileno(), PRIVATE)  # an earlier agent made it for others to read
        size = stream.seek(0, os.SEEK_END)
        if size:
            stream.seek(size - 1)
            torn = stream.read(1) != b"\n"
            stream.seek(0, os.SEEK_END)
            if torn:
                stream.write(b"\n")
        return stream

    def _rotate(self) -> None:
        closed = closed_files(self._folder)
        number = 1 + (_number_of(closed[-1]) if closed else 0)
        self._path.rename(self._folder / f"decisions-{number:06d}.jsonl")
        full, self._stream = self._stream, self._open()
        full.close()
        self._foreign = False
        for path in closed_files(self._folder)[: -self._keep]:
            path.unlink()


def _begins_otherwise(path: Path) -> bool:
    """Whether there is a file that does not begin with a checkpoint."""
    try:
        with path.open("rb") as stream:
            start = stream.read(len(CHECKPOINT_START))
    except FileNotFoundError:
        return False
    return start not in (b"", CHECKPOINT_START.encode())


def closed_files(folder: Path) -> list[Path]:
    """The rotated files, oldest first."""
    return sorted((path for path in folder.iterdir() if _CLOSED.match(path.name)), key=_number_of)


def log_files(path: Path) -> list[Path]:
    """A log's files, oldest first: those of a folder, or the one file.

    Raises:
        StateDamaged: there is none.
    """
    if path.is_dir():
        current = path / CURRENT
        files = closed_files(path) + ([current] if current.exists() else [])
        if not files:
            raise StateDamaged(f"{path}: holds no {CURRENT}; name a log, or an agent's state directory")
        return files
    if not path.is_file():
        raise StateDamaged(f"{path}: no such file; name a log, or an agent's state directory")
    return [path]


def _number_of(path: Path) -> int:
    found = _CLOSED.match(path.name)
    return int(found.group(1)) if found else 0


def read_log(path: Path) -> Iterator[JsonObject]:
    """The decisions of one file, in order; lines that a dying agent left torn are passed over.

    Raises:
        StateDamaged: a line was changed, or something else than an agent wrote here.
    """
    try:
        for line in read_lines(path):
            if line.content is not None and not line.is_checkpoint:
                yield line.content
    except BadInput as error:
        raise StateDamaged(str(error)) from error


def state_of(line: JsonObject) -> ClusterState:
    """The state of a logged decision, checked against its digest.

    Raises:
        StateDamaged: the state is not the one that was logged.
    """
    try:
        state, digest, number = line["state"], line["state_digest"], line["number"]
        if digest_of_json(state) != digest:
            raise StateDamaged(f"decision {number}: the state does not match its digest; the log was changed")
        return decode_state(state)
    except (KeyError, TypeError, ValueError) as error:
        raise StateDamaged(f"a logged decision cannot be read ({type(error).__name__}: {error})") from error


class PolicyArchive:
    """A folder of `<sha256>.safetensors`; other files in it are let alone."""

    def __init__(self, folder: Path, keep: int) -> None:
        """`keep` is how many files stay: those that became active last."""
        self._folder = folder
        self._keep = keep

    def add(self, digest: str, data: bytes) -> None:
        """Keep a file, or note that it is active again.

        Raises:
            OSError: it could not be written; nothing is left behind.
        """
        if self._keep == 0:
            return
        path = self._folder / f"{digest}.safetensors"
        if path.exists():
            os.utime(path)
        else:
            write_bytes(path, data)
        files = [(file.stat().st_mtime_ns, file) for file in self._folder.iterdir() if _is_kept(file)]
        for _, file in sorted(files)[: -self._keep]:
            file.unlink(missing_ok=True)


def _is_kept(path: Path) -> bool:
    return path.suffix == ".safetensors" and len(path.stem) == _DIGEST_LENGTH


class PolicyFinder:
    """Looks policy files up by digest, in folders; every file is read once at most, and believed by its bytes alone."""

    def __init__(self, folders: Iterable[Path]) -> None:
        self._folders = [folder for folder in folders if folder.is_dir()]
        self._by_digest: dict[str, Path] | None = None

    def find(self, digest: str) -> bytes | None:
        """The file with this digest; None if no folder has it."""
        for folder in self._folders:
            with contextlib.suppress(OSError):
                data = (folder / f"{digest}.safetensors").read_bytes()
                if digest_of(data) == digest:
                    return data
        path = self._index().get(digest)
        return None if path is None else path.read_bytes()

    def _index(self) -> dict[str, Path]:
        if self._by_digest is None:
            files = [path for folder in self._folders for path in sorted(folder.glob("*.safetensors"))]
            self._by_digest = {digest_of(path.read_bytes()): path for path in files}
        return self._by_digest
