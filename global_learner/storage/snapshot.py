"""The head on disk, whole or not at all: weights, moments, step, and what an aggregator remembers.

A snapshot of step S makes every log record up to S unnecessary. It is written beside its final name, synced, renamed,
and the folder synced, before anything is removed. The file of the snapshot before it is kept, to be written over next
time: freeing its blocks would hold up the syncs of the log. A checksum stands over everything in it.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foundation.files import PRIVATE, Buffer, sync_folder, write_at
from foundation.text import parse_json
from global_learner.errors import StateUnusable
from policy_net.exchange.spec import Weights

PARTIAL_NAME = "head.partial"
"""Of the snapshot that is being written, and of the one before the newest until then."""
_MAGIC = b"FEDL2SNP"
_PREFIX = struct.Struct("<8sIQ")  # magic, crc32 of all that follows, length of the JSON
_FORMAT = 1


@dataclass(slots=True)
class AdamState:
    """Weights and what is remembered about them; every array float32, shape (parameter_count,).

    `average` is the exponential average of the weights, None where none is kept. `step` counts updates taken; of these
    `idle_steps` did not move the moments (they waited for a cohort, or were applied by another optimizer).
    """

    weights: Weights
    first_moment: NDArray[np.float32]
    second_moment: NDArray[np.float32]
    step: int = 0
    average: Weights | None = None
    idle_steps: int = 0

    @classmethod
    def start(cls, weights: Weights) -> AdamState:
        """The state before the first update; copies `weights`."""
        return cls(weights.astype(np.float32), np.zeros_like(weights), np.zeros_like(weights))

    def copy(self) -> AdamState:
        """An independent copy, to be written while the original goes on."""
        return AdamState(
            self.weights.copy(),
            self.first_moment.copy(),
            self.second_moment.copy(),
            self.step,
            None if self.average is None else self.average.copy(),
            self.idle_steps,
        )

    @property
    def moves(self) -> int:
        """How many updates the moments are of, and so how often the weights were moved."""
        return self.step - self.idle_steps

    def forget_moves(self) -> None:
        """Begin the moments anew where the weights are, as where steps are counted in something else from now on."""
        self.first_moment[:] = 0.0
        self.second_moment[:] = 0.0
        self.idle_steps = self.step

    def pass_by(self) -> None:
        """Count an update that moves no moments."""
        self.step += 1
        self.idle_steps += 1


@dataclass(frozen=True, slots=True)
class AggregatorState:
    """What an aggregator remembers beside the head, part of every snapshot: JSON facts, and arrays kept bit for bit."""

    facts: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    arrays: Mapping[str, NDArray[np.generic]] = field(default_factory=lambda: MappingProxyType({}))

    def under(self, prefix: str) -> dict[str, NDArray[Any]]:
        """The arrays under a prefix, without it."""
        return {name.removeprefix(prefix): array for name, array in self.arrays.items() if name.startswith(prefix)}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One moment of the head.

    Attributes:
        state: weights, moments, step.
        ledger: `Ledger.to_json`; empty in a head that is kept beside a version, which has another one by then.
        counters: what was counted without changing the head (rejections, duplicates), for display.
        aggregator: what waits for a cohort, and what a strategy remembers.
        commits: how far every store of the state directory had come (`Commits.counts`).
    """

    spec_digest: str
    state: AdamState
    ledger: dict[str, Any]
    counters: Mapping[str, Any]
    aggregator: AggregatorState = field(default_factory=AggregatorState)
    commits: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Earlier:
    """A snapshot before the newest one, to go on from; its file may have been kept to be written over."""

    path: Path
    snapshot: Snapshot

    def adopt(self) -> None:
        """Make it the newest of its folder, in which no newer one is any more.

        Raises:
            OSError: the disk refused.
        """
        folder = self.path.parent
        self.path.replace(_path(folder, self.snapshot.state.step))
        sync_folder(folder)


def snapshot_files(folder: Path) -> list[Path]:
    """The snapshots, oldest first."""
    return sorted(folder.glob("head-*.snapshot"))


def write_snapshot(folder: Path, snapshot: Snapshot) -> None:
    """Write a snapshot durably, then remove older ones.

    Raises:
        OSError: it could not be written; the older ones are still there.
    """
    path = _path(folder, snapshot.state.step)
    partial = folder / PARTIAL_NAME
    descriptor = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE)
    try:
        os.truncate(descriptor, write_at(descriptor, 0, snapshot_parts(snapshot)))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    partial.replace(path)
    sync_folder(folder)
    for old in snapshot_files(folder):
        if old < path:
            old.replace(partial)


def read_newest_snapshot(folder: Path, spec_digest: str) -> Snapshot | None:
    """The newest snapshot, or None in a new state directory.

    Raises:
        StateUnusable: it is unreadable, damaged, or of another spec.
    """
    files = snapshot_files(folder)
    if not files:
        return None
    path = files[-1]
    try:
        data = path.read_bytes()
    except OSError as error:
        raise StateUnusable(f"{path}: cannot be read ({error.strerror})") from error
    return parse_snapshot(data, spec_digest, str(path))


def read_earlier_snapshot(folder: Path, spec_digest: str) -> Earlier | None:
    """The newest whole snapshot before the newest one; None where there is none."""
    for path in (*reversed(snapshot_files(folder)[:-1]), folder / PARTIAL_NAME):
        with contextlib.suppress(OSError, StateUnusable):
            return Earlier(path, parse_snapshot(path.read_bytes(), spec_digest, str(path)))
    return None


def snapshot_parts(snapshot: Snapshot) -> list[Buffer]:
    """A snapshot's bytes, in pieces; the arrays where they lie."""
    state = snapshot.state
    arrays = [state.weights, state.first_moment, state.second_moment]
    if state.average is not None:
        arrays.append(state.average)
    header = json.dumps(
        {
            "format": _FORMAT,
            "spec_digest": snapshot.spec_digest,
            "step": state.step,
            "idle_steps": state.idle_steps,
            "parameters": int(state.weights.size),
            "arrays": len(arrays),
            "ledger": snapshot.ledger,
            "counters": snapshot.counters,
            "commits": dict(snapshot.commits),
            "aggregator": dict(snapshot.aggregator.facts),
            "aggregator_arrays": [
                [name, array.dtype.str, list(array.shape)] for name, array in snapshot.aggregator.arrays.items()
            ],
        }
    ).encode()
    parts: list[Buffer] = [header, *(_bytes_of(np.ascontiguousarray(array, dtype="<f4")) for array in arrays)]
    parts += [_bytes_of(np.ascontiguousarray(array)) for array in snapshot.aggregator.arrays.values()]
    checksum = 0
    for part in parts:
        checksum = zlib.crc32(part, checksum)
    return [_PREFIX.pack(_MAGIC, checksum, len(header)), *parts]


def _path(folder: Path, step: int) -> Path:
    return folder / f"head-{step:020d}.snapshot"


def _bytes_of(array: NDArray[Any]) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def parse_snapshot(data: bytes, spec_digest: str, source: str) -> Snapshot:
    """A snapshot's bytes; `source` names them in errors.

    Raises:
        StateUnusable: damaged, or of another spec.
    """
    if len(data) < _PREFIX.size:
        raise StateUnusable(f"{source}: cut short ({len(data)} bytes); restore the state directory from a copy")
    magic, checksum, header_length = _PREFIX.unpack_from(data)
    content = memoryview(data)[_PREFIX.size :]
    found = zlib.crc32(content)
    if magic != _MAGIC or found != checksum:
        raise StateUnusable(
            f"{source}: damaged: its checksum is {found:08x}, expected {checksum:08x}; restore the state directory "
            "from a copy"
        )
    try:
        header = parse_json(bytes(content[:header_length]))
    except ValueError as error:  # the length of the header is all that no checksum covers
        raise StateUnusable(
            f"{source}: damaged: its header cannot be read; restore the state directory from a copy"
        ) from error
    if header["format"] != _FORMAT or header["spec_digest"] != spec_digest:
        raise StateUnusable(
            f"{source}: of format {header['format']} for spec {header['spec_digest'][:12]}, this learner serves "
            f"{spec_digest[:12]}; use another state_dir"
        )
    size = 4 * header["parameters"]
    arrays = [
        np.frombuffer(content[start : start + size], dtype="<f4").astype(np.float32)
        for start in range(header_length, header_length + header["arrays"] * size, size)
    ]
    weights, first, second = arrays[:3]
    average = arrays[3] if len(arrays) > 3 else None
    state = AdamState(weights, first, second, header["step"], average, header.get("idle_steps", 0))
    kept = _kept(header, content[header_length + header["arrays"] * size :])
    return Snapshot(spec_digest, state, header["ledger"], header["counters"], kept, header.get("commits", {}))


def _kept(header: dict[str, Any], content: memoryview) -> AggregatorState:
    """The aggregator's part; empty in snapshots from before there was one."""
    arrays: dict[str, NDArray[np.generic]] = {}
    start = 0
    for name, dtype, shape in header.get("aggregator_arrays", ()):
        end = start + np.dtype(dtype).itemsize * prod(shape)
        arrays[name] = np.frombuffer(content[start:end], dtype=dtype).reshape(shape).copy()
        start = end
    return AggregatorState(header.get("aggregator", {}), arrays)
