"""The record of every decision, complete enough to make it again: one JSON object a line.

A line holds the state that was decided upon (and its digest), who decided (version, digest, seed, decision number),
every micro-action with its behaviour probability, the allocation, the reasons, and the reward of the interval before.
The current file is `decisions.jsonl`; when it grows beyond its bound it becomes `decisions-NNNNNN.jsonl`, numbered on,
and the oldest of those are removed. A line is written in one piece, so an agent killed while writing leaves at most one
torn line at the end, which a reader skips and the next agent closes. An agent killed between a line and its snapshot
decides that number again: of two lines with the same number, the later one counts.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

from cluster_agent.errors import StateDamaged
from cluster_agent.state_codec import (
    JsonObject,
    canonical_json,
    decode_state,
    digest_of_json,
    encode_decision,
    encode_state,
)
from policy_net.domain import ClusterState, Decision, Trigger
from policy_net.learned import DecisionSamples

CURRENT = "decisions.jsonl"
_LINE_START = b'{"state":'
_CLOSED = re.compile(r"^decisions-(\d{6,})\.jsonl$")


@dataclass(frozen=True, slots=True)
class DecisionRecord:
    """One decision, as it is logged.

    Attributes:
        number: counts the agent's decisions from 0, over all of its lives.
        version: the acting version; 0 if it is none (an initial policy, a heuristic).
        digest: of the acting policy's file or weights; a heuristic's is its name.
        previous_reward: of the interval that ended with this decision; None before the first.
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
    samples: DecisionSamples | None
    interventions: tuple[str, ...]
    decide_seconds: float
    previous_reward: float | None

    def to_line(self) -> str:
        """The line, without its end."""
        state = canonical_json(encode_state(self.state))
        samples = self.samples
        rest = {
            "number": self.number,
            "wall_time_seconds": self.wall_time_seconds,
            "state_digest": hashlib.sha256(state.encode()).hexdigest(),
            "trigger": self.trigger.value,
            "policy": self.policy,
            "version": self.version,
            "head_step": self.head_step,
            "digest": self.digest,
            "seed": self.seed,
            "mode": self.mode,
            "exploration": self.exploration,
            "actions": None if samples is None else samples.actions_M.tolist(),
            "behaviour": None if samples is None else [_or_null(value) for value in samples.behaviour_M.tolist()],
            "interventions": list(self.interventions),
            "decide_seconds": self.decide_seconds,
            "previous_reward": _or_null(self.previous_reward),
        } | encode_decision(self.decision)
        # The state is most of the line: its canonical text is made once, for the digest and for the line.
        return f'{{"state":{state},{canonical_json(rest)[1:]}'


def _or_null(value: float | None) -> float | None:
    """JSON has no NaN; a figure that is none is logged as null, and the intervention says why."""
    return value if value is not None and math.isfinite(value) else None


class DecisionLog:
    """Appends records to the current file and rotates it; one writer a folder."""

    def __init__(self, folder: Path, max_bytes: int, keep: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._max_bytes = max_bytes
        self._keep = keep
        self._path = folder / CURRENT
        self._stream = self._open()
        self._torn = False

    def append(self, record: DecisionRecord) -> None:
        """Write one record; what was written survives the death of this process.

        Raises:
            OSError: it could not be written whole; the next one begins on a line of its own.
        """
        line = (b"\n" if self._torn else b"") + record.to_line().encode() + b"\n"
        if self._stream.tell() > 0 and self._stream.tell() + len(line) > self._max_bytes:
            self._rotate()
        self._torn = True
        if self._stream.write(line) < len(line):
            raise OSError(errno.ENOSPC, f"{self._path} takes no more")
        self._torn = False

    def close(self) -> None:
        """Close the current file."""
        self._stream.close()

    def _open(self) -> FileIO:
        stream = FileIO(self._path, "a+")
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
        for path in closed_files(self._folder)[: -self._keep]:
            path.unlink()


def closed_files(folder: Path) -> list[Path]:
    """The rotated files, oldest first."""
    return sorted((path for path in folder.iterdir() if _CLOSED.match(path.name)), key=_number_of)


def _number_of(path: Path) -> int:
    found = _CLOSED.match(path.name)
    return int(found.group(1)) if found else 0


def read_log(path: Path) -> Iterator[JsonObject]:
    """The objects of one file, in order; lines that a dying agent left torn are passed over.

    Raises:
        StateDamaged: a whole line is no JSON object, so that something else than an agent wrote here.
    """
    with path.open("rb") as stream:
        for number, line in enumerate(stream, start=1):
            if not line.endswith(b"\n"):
                return  # still being written, or never finished
            try:
                value = json.loads(line)
            except ValueError as error:
                if _torn(line):
                    continue
                raise StateDamaged(f"{path}, line {number}: no JSON; move the file away") from error
            if not isinstance(value, dict):
                raise StateDamaged(f"{path}, line {number}: no decision; move the file away")
            yield value


def _torn(line: bytes) -> bool:
    """Whether a line that is no JSON is the beginning of one of ours."""
    return _LINE_START.startswith(line.rstrip(b"\n")[: len(_LINE_START)])


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
