"""Reading of a decision log: its files, their decisions and the newest one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from cluster_agent.errors import StateDamaged
from foundation.text import parse_json
from policy_net.domain import ClusterState
from policy_net.errors import BadInput
from policy_net.exchange.state_codec import DECISION_START, JsonObject, decode_state, digest_of_json, read_lines

CURRENT = "decisions.jsonl"
_CLOSED = re.compile(r"^decisions-(\d{6,})\.jsonl$")
_BLOCK_BYTES = 1 << 18


def closed_files(folder: Path) -> list[Path]:
    """The rotated files, oldest first."""
    return sorted((path for path in folder.iterdir() if _CLOSED.match(path.name)), key=number_of)


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


def number_of(path: Path) -> int:
    """The number of a rotated file; 0 for the current one."""
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


def last_decision(state_dir: Path) -> JsonObject | None:
    """The newest line of the log that is whole; None if there is none."""
    files = [state_dir / CURRENT, *reversed(closed_files(state_dir))]
    for path in files:
        found = _last_line(path) if path.exists() else None
        if found is not None:
            return found
    return None


def _last_line(path: Path) -> JsonObject | None:
    """Read from the end on: a log may be as long as a disk allows."""
    with path.open("rb") as stream:
        at, tail = stream.seek(0, 2), b""
        while at > 0:
            start = max(0, at - _BLOCK_BYTES)
            stream.seek(start)
            tail, at = stream.read(at - start) + tail, start
            lines = tail.split(b"\n")
            whole = lines[:-1] if at == 0 else lines[1:-1]  # what follows the last line's end is torn
            for line in reversed(whole):
                found = _parsed(line)
                if found is not None:
                    return found
    return None


def _parsed(line: bytes) -> JsonObject | None:
    if not line.startswith(DECISION_START.encode()):
        return None
    try:
        found = parse_json(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
