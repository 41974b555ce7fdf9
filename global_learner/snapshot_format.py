"""The bytes of a head: weights, moments, step, what a strategy remembers, with a checksum over everything."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from foundation.text import parse_json
from global_learner.aggregation.base import Kept
from global_learner.durable_files import Buffer
from global_learner.errors import StateUnusable
from global_learner.optimizer import AdamState

_MAGIC = b"FEDL2SNP"
_PREFIX = struct.Struct("<8sIQ")  # magic, crc32 of all that follows, length of the JSON
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One moment of the head.

    Attributes:
        state: weights, moments, step.
        ledger: `Ledger.to_json`; empty in a head that is kept beside a version, which has another one by then.
        counters: what was counted without changing the head (rejections, duplicates), for display.
        aggregator: what waits for a cohort, and what a strategy remembers.
    """

    spec_digest: str
    state: AdamState
    ledger: dict[str, Any]
    counters: Mapping[str, Any]
    aggregator: Kept = field(default_factory=Kept)


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


def _bytes_of(array: np.typing.NDArray[Any]) -> memoryview:
    """An array's bytes where they lie."""
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
    header = parse_json(bytes(content[:header_length]))
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
    return Snapshot(spec_digest, state, header["ledger"], header["counters"], kept)


def _kept(header: dict[str, Any], content: memoryview) -> Kept:
    """The aggregator's part; empty in snapshots from before there was one."""
    arrays: dict[str, np.typing.NDArray[np.generic]] = {}
    start = 0
    for name, dtype, shape in header.get("aggregator_arrays", ()):
        end = start + np.dtype(dtype).itemsize * prod(shape)
        arrays[name] = np.frombuffer(content[start:end], dtype=dtype).reshape(shape).copy()
        start = end
    return Kept(header.get("aggregator", {}), arrays)
